//! Arrangement, order, statistics, products and special functions beyond the everyday ones.

use anyhow::{Result, bail};
use genesis::ops::{GridOrder, ScatterReduce, Tolerance};
use genesis::{DType, Tensor};

use super::call::{Call, Value};
use super::rows::{dims, made};
use super::rows_math::{binary, either, first, operand, two_tensors};
use super::table::{Outs, Row, one, two};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("asinh", |c| one(c.x()?.asinh())),
    ("acosh", |c| one(c.x()?.acosh())),
    ("atanh", |c| one(c.x()?.atanh())),
    ("lgamma", |c| one(c.x()?.lgamma())),
    ("digamma", |c| one(c.x()?.digamma())),
    ("erfinv", |c| one(c.x()?.erfinv())),
    ("sinc", |c| one(c.x()?.sinc())),
    ("logit", |c| one(c.x()?.logit(optional(c, 1, "eps")?))),
    ("deg2rad", |c| one(c.x()?.deg2rad())),
    ("rad2deg", |c| one(c.x()?.rad2deg())),
    ("signbit", |c| one(c.x()?.signbit())),
    ("isposinf", |c| one(c.x()?.isposinf())),
    ("isneginf", |c| one(c.x()?.isneginf())),
    ("hypot", |c| two_tensors(c, Tensor::hypot)),
    ("copysign", |c| binary(c, Tensor::copysign, None)),
    ("logaddexp", |c| two_tensors(c, Tensor::logaddexp)),
    ("logaddexp2", |c| two_tensors(c, Tensor::logaddexp2)),
    ("xlogy", |c| either(c, Tensor::xlogy, None)),
    ("fmax", |c| two_tensors(c, Tensor::fmax)),
    ("fmin", |c| two_tensors(c, Tensor::fmin)),
    ("heaviside", |c| two_tensors(c, Tensor::heaviside)),
    ("gcd", |c| two_tensors(c, Tensor::gcd)),
    ("lcm", |c| two_tensors(c, Tensor::lcm)),
    ("bitwise_left_shift", |c| either(c, Tensor::bitwise_left_shift, None)),
    ("bitwise_right_shift", |c| either(c, Tensor::bitwise_right_shift, None)),
    ("float_power", float_power),
    ("isclose", |c| one(c.x()?.isclose(c.tensor(1, "other")?, &tolerance(c)?))),
    ("allclose", |c| truth(c.x()?.allclose(c.tensor(1, "other")?, &tolerance(c)?)?)),
    ("equal", |c| truth(c.x()?.equal(c.tensor(1, "other")?)?)),
    ("isin", |c| either(c, Tensor::isin, None)),
    ("logspace", |c| {
        let (start, end) = (c.float(0, "start", None)?, c.float(1, "end", None)?);
        let count = c.count(2, "steps", None)?;
        one(Tensor::logspace(start, end, count, c.float(3, "base", Some(10.0))?, made(c)?))
    }),
    ("tril_indices", |c| corners(c, Tensor::tril_indices)),
    ("triu_indices", |c| corners(c, Tensor::triu_indices)),
    ("nansum", |c| one(c.x()?.nansum(&dims(c, 1)?, c.flag(2, "keepdim", false)?))),
    ("count_nonzero", |c| one(c.x()?.count_nonzero(&dims(c, 1)?))),
    ("var_mean", |c| spread(c, Tensor::var_mean)),
    ("std_mean", |c| spread(c, Tensor::std_mean)),
    ("aminmax", |c| two(c.x()?.aminmax(&dims(c, 9)?, c.flag(9, "keepdim", false)?))),
    ("median", |c| middle(c, Tensor::median, Tensor::median_dim)),
    ("nanmedian", |c| middle(c, Tensor::nanmedian, Tensor::nanmedian_dim)),
    ("mode", |c| two(c.x()?.mode(c.int(1, "dim", Some(-1))?, c.flag(2, "keepdim", false)?))),
    ("kthvalue", |c| {
        let (k, dim) = (c.count(1, "k", None)?, c.int(2, "dim", Some(-1))?);
        two(c.x()?.kthvalue(k, dim, c.flag(3, "keepdim", false)?))
    }),
    ("quantile", |c| {
        let (x, q) = (c.x()?, c.float(1, "q", None)?);
        if c.has(2, "dim") {
            return one(x.quantile(q, c.int(2, "dim", None)?, c.flag(3, "keepdim", false)?));
        }
        one(x.flatten(0, -1)?.quantile(q, 0, false))
    }),
    ("cummax", |c| two(c.x()?.cummax(c.int(1, "dim", None)?))),
    ("cummin", |c| two(c.x()?.cummin(c.int(1, "dim", None)?))),
    ("logcumsumexp", |c| one(c.x()?.logcumsumexp(c.int(1, "dim", None)?))),
    ("cov", |c| one(c.x()?.cov(c.float(1, "correction", Some(1.0))?))),
    ("corrcoef", |c| one(c.x()?.corrcoef())),
    ("diff", |c| one(c.x()?.diff(c.count(1, "n", Some(1))?, c.int(2, "dim", Some(-1))?))),
    ("dist", |c| one(c.x()?.dist(c.tensor(1, "other")?, c.float(2, "p", Some(2.0))?))),
    ("cdist", |c| one(c.x()?.cdist(c.tensor(1, "x2")?, c.float(2, "p", Some(2.0))?))),
    ("inner", |c| two_tensors(c, Tensor::inner)),
    ("kron", |c| two_tensors(c, Tensor::kron)),
    ("cross", |c| one(c.x()?.cross(c.tensor(1, "other")?, c.int(2, "dim", None)?))),
    ("trace", |c| one(c.x()?.trace())),
    ("tensordot", |c| {
        let (x, y, n) = (c.x()?, c.tensor(1, "b")?, c.int(2, "dims", Some(2))?);
        let last: Vec<i64> = (x.rank() as i64 - n..x.rank() as i64).collect();
        one(x.tensordot(y, &last, &(0..n).collect::<Vec<_>>()))
    }),
    ("linalg.multi_dot", |c| one(Tensor::multi_dot(&c.tensors(0, "tensors")?))),
    ("addbmm", |c| {
        let (a, b) = (c.tensor(1, "batch1")?, c.tensor(2, "batch2")?);
        one(c.x()?.addbmm(a, b, c.float(9, "alpha", Some(1.0))?, c.float(9, "beta", Some(1.0))?))
    }),
    ("addr", |c| {
        let (a, b) = (c.tensor(1, "vec1")?, c.tensor(2, "vec2")?);
        one(c.x()?.addr(a, b, c.float(9, "alpha", Some(1.0))?, c.float(9, "beta", Some(1.0))?))
    }),
    ("bincount", |c| {
        one(c.x()?.bincount(c.tensor_or_none(1, "weights")?, c.count(2, "minlength", Some(0))?))
    }),
    ("histc", |c| {
        let (low, high) = (c.float(2, "min", Some(0.0))?, c.float(3, "max", Some(0.0))?);
        one(c.x()?.histc(c.count(1, "bins", Some(100))?, low, high))
    }),
    ("searchsorted", |c| {
        let right = c.flag(9, "right", false)?;
        one(c.x()?.searchsorted(&operand(c, c.x()?, 1, "values")?, right))
    }),
    ("bucketize", |c| {
        one(first(c)?.bucketize(c.tensor(1, "boundaries")?, c.flag(9, "right", false)?))
    }),
    ("unique", |c| distinct(c, c.x()?.unique(true, true)?)),
    ("unique_consecutive", |c| distinct(c, c.x()?.unique_consecutive(true, true)?)),
    ("msort", |c| Ok(vec![c.x()?.sort(0, false)?.0])),
    ("scatter_reduce", |c| {
        let (dim, index) = (c.int(1, "dim", None)?, c.tensor(2, "index")?);
        let reduce = match c.text(4, "reduce", "")? {
            "sum" => ScatterReduce::Sum,
            "prod" => ScatterReduce::Prod,
            "mean" => ScatterReduce::Mean,
            "amax" => ScatterReduce::Amax,
            "amin" => ScatterReduce::Amin,
            other => bail!("scatter_reduce: unknown reduction {other}"),
        };
        let own = c.flag(9, "include_self", true)?;
        one(c.x()?.scatter_reduce(dim, index, c.tensor(3, "src")?, reduce, own))
    }),
    ("index_copy", |c| {
        one(c.x()?.index_copy(
            c.int(1, "dim", None)?,
            c.tensor(2, "index")?,
            c.tensor(3, "source")?,
        ))
    }),
    ("index_fill", |c| {
        let (dim, index) = (c.int(1, "dim", None)?, c.tensor(2, "index")?);
        one(c.x()?.index_fill(dim, index, c.float(3, "value", None)?))
    }),
    ("masked_scatter", |c| {
        one(c.x()?.masked_scatter(c.tensor(1, "mask")?, c.tensor(2, "source")?))
    }),
    ("select_scatter", |c| {
        let (dim, at) = (c.int(2, "dim", None)?, c.count(3, "index", None)?);
        one(c.x()?.select_scatter(c.tensor(1, "src")?, dim, at))
    }),
    ("slice_scatter", |c| {
        let end = |at, name| c.has(at, name).then(|| c.int(at, name, None)).transpose();
        let (dim, step) = (c.int(2, "dim", Some(0))?, c.int(5, "step", Some(1))?);
        let source = c.tensor(1, "src")?;
        one(c.x()?.slice_scatter(source, dim, end(3, "start")?, end(4, "end")?, step))
    }),
    ("diagonal_scatter", |c| {
        let (offset, a) = (c.int(2, "offset", Some(0))?, c.int(3, "dim1", Some(0))?);
        one(c.x()?.diagonal_scatter(c.tensor(1, "src")?, offset, a, c.int(4, "dim2", Some(1))?))
    }),
    ("tensor_split", |c| {
        let (x, dim) = (c.x()?, c.int(2, "dim", Some(0))?);
        match c.get(1, "indices_or_sections") {
            Value::List(_) => Ok(x.tensor_split_at(&c.ints(1, "indices")?, dim)?),
            _ => Ok(x.tensor_split(c.count(1, "sections", None)?, dim)?),
        }
    }),
    ("hsplit", |c| Ok(c.x()?.tensor_split(c.count(1, "sections", None)?, 1)?)),
    ("vsplit", |c| Ok(c.x()?.tensor_split(c.count(1, "sections", None)?, 0)?)),
    ("hstack", |c| one(Tensor::hstack(&c.tensors(0, "tensors")?))),
    ("vstack", |c| one(Tensor::vstack(&c.tensors(0, "tensors")?))),
    ("dstack", |c| one(Tensor::dstack(&c.tensors(0, "tensors")?))),
    ("column_stack", |c| one(Tensor::column_stack(&c.tensors(0, "tensors")?))),
    ("block_diag", |c| one(Tensor::block_diag(&all_tensors(c)))),
    ("cartesian_prod", |c| one(Tensor::cartesian_prod(&all_tensors(c)))),
    ("combinations", |c| {
        one(c.x()?.combinations(c.count(1, "r", Some(2))?, c.flag(2, "with_replacement", false)?))
    }),
    ("meshgrid", |c| {
        let order = match c.text(9, "indexing", "ij")? {
            "xy" => GridOrder::Xy,
            "ij" => GridOrder::Ij,
            other => bail!("meshgrid: unknown indexing {other}"),
        };
        Ok(Tensor::meshgrid(&c.tensors(0, "tensors")?, order)?)
    }),
    ("broadcast_tensors", |c| Ok(Tensor::broadcast_tensors(&c.tensors(0, "tensors")?)?)),
    ("atleast_1d", |c| one(c.x()?.atleast_1d())),
    ("atleast_2d", |c| one(c.x()?.atleast_2d())),
    ("atleast_3d", |c| one(c.x()?.atleast_3d())),
    ("unflatten", |c| one(c.x()?.unflatten(c.int(1, "dim", None)?, &c.ints(2, "sizes")?))),
    ("tile", |c| one(c.x()?.tile(&c.shape(1, "dims")?))),
    ("fliplr", |c| one(c.x()?.fliplr())),
    ("flipud", |c| one(c.x()?.flipud())),
    ("rot90", |c| {
        let axes = c.ints(2, "dims")?;
        let &[a, b] = axes.as_slice() else { bail!("rot90: needs two axes, got {axes:?}") };
        one(c.x()?.rot90(c.int(1, "k", Some(1))?, a, b))
    }),
    ("diag", |c| one(c.x()?.diag(c.int(1, "diagonal", Some(0))?))),
    ("diag_embed", |c| {
        let (offset, a) = (c.int(1, "offset", Some(0))?, c.int(2, "dim1", Some(-2))?);
        one(c.x()?.diag_embed(offset, a, c.int(3, "dim2", Some(-1))?))
    }),
    ("unfold", |c| {
        let (dim, size) = (c.int(1, "dimension", None)?, c.count(2, "size", None)?);
        one(c.x()?.unfold(dim, size, c.count(3, "step", None)?))
    }),
];

/// A number stays what it is beside integers.
fn float_power(c: &Call) -> Outs {
    let wide = |at: usize, name: &str| -> Result<Tensor> {
        Ok(match c.get(at, name).number() {
            Some(number) => Tensor::full(&[], number, (DType::F64, c.device))?,
            None => c.tensor(at, name)?.clone(),
        })
    };
    if c.get(0, "input").number().is_some() && c.get(1, "exponent").number().is_some() {
        bail!("float_power: needs a tensor");
    }
    one(wide(0, "input")?.float_power(&wide(1, "exponent")?))
}

fn optional(c: &Call, at: usize, name: &str) -> Result<Option<f64>> {
    c.has(at, name).then(|| c.float(at, name, None)).transpose()
}

fn tolerance(c: &Call) -> Result<Tolerance> {
    let plain = Tolerance::default();
    Ok(Tolerance {
        relative: c.float(2, "rtol", Some(plain.relative))?,
        absolute: c.float(3, "atol", Some(plain.absolute))?,
        equal_nan: c.flag(4, "equal_nan", false)?,
    })
}

/// A bool as a tensor without axes.
fn truth(flag: bool) -> Outs {
    one(Tensor::full(&[], f64::from(u8::from(flag)), DType::Bool))
}

type Corners = fn(usize, usize, i64, (DType, genesis::Device)) -> genesis::Result<Tensor>;

fn corners(c: &Call, op: Corners) -> Outs {
    let (rows, columns) = (c.count(0, "row", None)?, c.count(1, "col", None)?);
    one(op(rows, columns, c.int(2, "offset", Some(0))?, (DType::I64, c.device)))
}

type Spread = fn(&Tensor, &[i64], f64, bool) -> genesis::Result<(Tensor, Tensor)>;

fn spread(c: &Call, op: Spread) -> Outs {
    let correction = c.float(9, "correction", Some(1.0))?;
    two(op(c.x()?, &dims(c, 1)?, correction, c.flag(9, "keepdim", false)?))
}

type All = fn(&Tensor) -> genesis::Result<Tensor>;
type Along = fn(&Tensor, i64, bool) -> genesis::Result<(Tensor, Tensor)>;

fn middle(c: &Call, all: All, along: Along) -> Outs {
    match c.has(1, "dim") {
        true => two(along(c.x()?, c.int(1, "dim", None)?, c.flag(2, "keepdim", false)?)),
        false => one(all(c.x()?)),
    }
}

fn distinct(c: &Call, unique: genesis::ops::Unique) -> Outs {
    let mut outs = vec![unique.values];
    if c.flag(9, "return_inverse", false)? {
        outs.extend(unique.inverse);
    }
    if c.flag(9, "return_counts", false)? {
        outs.extend(unique.counts);
    }
    Ok(outs)
}

fn all_tensors(c: &Call) -> Vec<&Tensor> {
    let mut tensors = Vec::new();
    c.args.iter().for_each(|value| value.tensors(&mut tensors));
    tensors
}

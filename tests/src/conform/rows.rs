//! Creation, reductions and products.

use anyhow::{Result, bail};
use genesis::{DType, Tensor};

use super::call::{Call, Value};
use super::table::{Outs, Row, one, two};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("ones", |c| one(Tensor::ones(&c.shape(0, "size")?, made(c)?))),
    ("zeros", |c| one(Tensor::zeros(&c.shape(0, "size")?, made(c)?))),
    ("full", |c| {
        one(Tensor::full(&c.shape(0, "size")?, c.float(1, "fill_value", None)?, made(c)?))
    }),
    ("eye", |c| {
        let n = c.count(0, "n", None)?;
        one(Tensor::eye(n, c.count(1, "m", Some(n as i64))?, made(c)?))
    }),
    ("arange", arange),
    ("linspace", |c| {
        let (start, end) = (c.float(0, "start", None)?, c.float(1, "end", None)?);
        one(Tensor::linspace(start, end, c.count(2, "steps", None)?, made(c)?))
    }),
    ("zeros_like", |c| one(c.x()?.zeros_like())),
    ("ones_like", |c| one(c.x()?.ones_like())),
    ("full_like", |c| {
        let (x, value) = (c.x()?, c.float(1, "fill_value", None)?);
        one(x.full_like(value))
    }),
    ("sum", |c| reduce(c, Tensor::sum_dims)),
    ("mean", |c| reduce(c, Tensor::mean_dims)),
    ("amax", |c| reduce(c, Tensor::max_dims)),
    ("amin", |c| reduce(c, Tensor::min_dims)),
    ("any", |c| reduce(c, Tensor::any_dims)),
    ("all", |c| reduce(c, Tensor::all_dims_true)),
    ("logsumexp", |c| reduce(c, Tensor::logsumexp)),
    ("prod", |c| match c.has(1, "dim") {
        true => one(of_dtype(c)?.prod_dim(c.int(1, "dim", None)?, c.flag(2, "keepdim", false)?)),
        false => one(of_dtype(c)?.prod()),
    }),
    ("var", |c| spread(c, Tensor::var_dims)),
    ("std", |c| spread(c, Tensor::std_dims)),
    ("norm", norm),
    ("linalg.vector_norm", |c| {
        let (x, p) = (c.x()?, c.float(1, "ord", Some(2.0))?);
        one(x.vector_norm(p, &dims(c, 2)?, c.flag(3, "keepdim", false)?))
    }),
    ("argmax", |c| arg(c, Tensor::argmax)),
    ("argmin", |c| arg(c, Tensor::argmin)),
    ("max", |c| extreme(c, Tensor::max, Tensor::maximum, Tensor::max_with_index)),
    ("min", |c| extreme(c, Tensor::min, Tensor::minimum, Tensor::min_with_index)),
    ("cumsum", |c| one(of_dtype(c)?.cumsum(c.int(1, "dim", None)?))),
    ("cumprod", |c| one(of_dtype(c)?.cumprod(c.int(1, "dim", None)?))),
    ("matmul", |c| one(c.x()?.matmul(c.tensor(1, "other")?))),
    ("mm", |c| one(c.x()?.mm(c.tensor(1, "mat2")?))),
    ("bmm", |c| one(c.x()?.bmm(c.tensor(1, "mat2")?))),
    ("mv", |c| one(c.x()?.mv(c.tensor(1, "vec")?))),
    ("dot", |c| one(c.x()?.dot(c.tensor(1, "tensor")?))),
    ("outer", |c| one(c.x()?.outer(c.tensor(1, "vec2")?))),
    ("addmm", |c| plus_product(c, Tensor::addmm)),
    ("baddbmm", |c| plus_product(c, Tensor::baddbmm)),
    ("addmv", |c| plus_product(c, Tensor::addmv)),
    ("einsum", |c| {
        // The sample has the operands in front of the formula.
        let (operands, formula) = match c.get(0, "operands") {
            Value::List(_) => (c.tensors(0, "operands")?, c.text(1, "equation", "")?),
            _ => bail!("unsupported: einsum without a list of operands"),
        };
        one(Tensor::einsum(formula, &operands))
    }),
];

/// The dtype that a creation names, f32 where it names none.
pub(super) fn made(c: &Call) -> Result<(DType, genesis::Device)> {
    let dtype = match c.kwargs.get("dtype") {
        Some(Value::DType(dtype)) => *dtype,
        _ => DType::F32,
    };
    Ok((dtype, c.device))
}

fn arange(c: &Call) -> Outs {
    let numbers: Vec<f64> = c.args.iter().filter_map(Value::number).collect();
    let is_whole = c.args.iter().all(|value| !matches!(value, Value::Float(_)));
    let (start, end, step) = match (numbers.as_slice(), c.has(9, "end")) {
        (&[start], true) => (start, c.float(9, "end", None)?, c.float(9, "step", Some(1.0))?),
        (&[end], false) => (0.0, end, 1.0),
        (&[start, end], _) => (start, end, c.float(9, "step", Some(1.0))?),
        (&[start, end, step], _) => (start, end, step),
        _ => bail!("arange: needs a start, an end and a step"),
    };
    let at = match c.has(9, "dtype") {
        true => made(c)?,
        false => (if is_whole { DType::I64 } else { DType::F32 }, c.device),
    };
    one(Tensor::arange(start, end, step, at))
}

/// The axes that a reduction names, all where it names none.
pub(super) fn dims(c: &Call, at: usize) -> Result<Vec<i64>> {
    let dims = c.ints_or_none(at, "dim")?.filter(|dims| !dims.is_empty());
    Ok(dims.unwrap_or_else(|| (0..c.args[0..1].iter().map(rank).sum::<usize>() as i64).collect()))
}

fn rank(value: &Value) -> usize {
    if let Value::Tensor(tensor) = value { tensor.rank() } else { 0 }
}

type DimsCall = fn(&Tensor, &[i64], bool) -> genesis::Result<Tensor>;

fn reduce(c: &Call, op: DimsCall) -> Outs {
    one(op(&of_dtype(c)?, &dims(c, 1)?, c.flag(2, "keepdim", false)?))
}

/// The operand in the dtype that the call names.
fn of_dtype(c: &Call) -> Result<Tensor> {
    Ok(match c.dtype(9, "dtype")? {
        Some(dtype) => c.x()?.to_dtype(dtype)?,
        None => c.x()?.clone(),
    })
}

type Spread = fn(&Tensor, &[i64], f64, bool) -> genesis::Result<Tensor>;

/// Variance and deviation: `(x, unbiased)`, `(x, dim, unbiased, keepdim)` or with a correction.
fn spread(c: &Call, op: Spread) -> Outs {
    let first_is_flag = matches!(c.get(1, "dim"), Value::Bool(_));
    let unbiased = c.flag(if first_is_flag { 1 } else { 2 }, "unbiased", true)?;
    let correction = c.float(9, "correction", Some(f64::from(u8::from(unbiased))))?;
    let all = (0..c.x()?.rank() as i64).collect();
    let dims = if first_is_flag { all } else { dims(c, 1)? };
    one(op(c.x()?, &dims, correction, c.flag(3, "keepdim", false)?))
}

fn norm(c: &Call) -> Outs {
    let (x, keep) = (c.x()?, c.flag(3, "keepdim", false)?);
    let order = match c.get(1, "p") {
        Value::Text(name) if name == "fro" => 2.0,
        Value::Text(name) if name == "nuc" => return one(x.nuclear_norm(keep)),
        _ => c.float(1, "p", Some(2.0))?,
    };
    one(x.vector_norm(order, &dims(c, 2)?, keep))
}

fn arg(c: &Call, op: fn(&Tensor, i64) -> genesis::Result<Tensor>) -> Outs {
    let (x, keep) = (c.x()?, c.flag(2, "keepdim", false)?);
    if x.rank() == 0 {
        return one(op(&x.reshape(&[1])?, 0));
    }
    if !c.has(1, "dim") {
        let index = op(&x.reshape(&[x.numel()])?, 0)?;
        return if keep { one(index.reshape(&vec![1; x.rank()])) } else { Ok(vec![index]) };
    }
    let dim = c.int(1, "dim", None)?;
    let index = op(x, dim)?;
    let dim = if dim < 0 { dim + x.rank() as i64 } else { dim };
    if keep { one(index.unsqueeze(dim)) } else { Ok(vec![index]) }
}

type WithIndex = fn(&Tensor, i64, bool) -> genesis::Result<(Tensor, Tensor)>;

fn extreme(
    c: &Call,
    all: fn(&Tensor) -> genesis::Result<Tensor>,
    both: fn(&Tensor, &Tensor) -> genesis::Result<Tensor>,
    along: WithIndex,
) -> Outs {
    match c.get(1, "dim") {
        Value::Tensor(other) => one(both(c.x()?, other)),
        _ if c.has(1, "dim") => {
            two(along(c.x()?, c.int(1, "dim", None)?, c.flag(2, "keepdim", false)?))
        }
        _ => one(all(c.x()?)),
    }
}

type PlusProduct = fn(&Tensor, &Tensor, &Tensor, f64, f64) -> genesis::Result<Tensor>;

fn plus_product(c: &Call, op: PlusProduct) -> Outs {
    let (a, b) = (c.tensor(1, "mat1")?, c.tensor(2, "mat2")?);
    let (alpha, beta) = (c.float(9, "alpha", Some(1.0))?, c.float(9, "beta", Some(1.0))?);
    one(op(c.x()?, a, b, alpha, beta))
}

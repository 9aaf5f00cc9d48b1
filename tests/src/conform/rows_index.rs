//! Reading and writing by index, and order.

use anyhow::{Result, bail};
use genesis::ops::ScatterReduce;
use genesis::{Index, Tensor};

use super::call::{Call, Value};
use super::rows_math::operand;
use super::table::{Outs, Row, one, two};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("gather", |c| one(c.x()?.gather(c.int(1, "dim", None)?, c.tensor(2, "index")?))),
    ("take_along_dim", |c| {
        let (x, index) = (c.x()?, c.tensor(1, "indices")?);
        if c.has(2, "dim") {
            return one(x.take_along_dim(index, c.int(2, "dim", None)?));
        }
        one(x.reshape(&[x.numel()])?.take_along_dim(&index.reshape(&[index.numel()])?, 0))
    }),
    ("take", |c| one(c.x()?.take(c.tensor(1, "index")?))),
    ("index_select", |c| one(c.x()?.index_select(c.int(1, "dim", None)?, c.tensor(2, "index")?))),
    ("index_add", |c| {
        let (dim, index, source) =
            (c.int(1, "dim", None)?, c.tensor(2, "index")?, c.tensor(3, "source")?);
        one(c.x()?.index_add(dim, index, source, c.float(4, "alpha", Some(1.0))?))
    }),
    ("scatter", |c| {
        let (x, dim, index) = (c.x()?, c.int(1, "dim", None)?, c.tensor(2, "index")?);
        let source = match c.get(3, "src") {
            Value::Tensor(source) => source.clone(),
            _ => {
                let at = if c.has(3, "src") { "src" } else { "value" };
                operand(c, x, 3, at)?.to_dtype(x.dtype())?.broadcast_to(index.shape())?
            }
        };
        if !c.has(4, "reduce") {
            return one(x.scatter(dim, index, &source));
        }
        let reduce = match c.text(4, "reduce", "")? {
            "add" => ScatterReduce::Sum,
            "multiply" => ScatterReduce::Prod,
            other => bail!("scatter: unknown reduction {other}"),
        };
        one(x.scatter_reduce(dim, index, &source, reduce, true))
    }),
    ("scatter_add", |c| {
        let (dim, index) = (c.int(1, "dim", None)?, c.tensor(2, "index")?);
        one(c.x()?.scatter_add(dim, index, c.tensor(3, "src")?))
    }),
    ("index_put", |c| {
        let index = c.tensors(1, "indices")?;
        let parts: Vec<Index> = index.into_iter().cloned().map(Index::Tensor).collect();
        one(c.x()?.index_put(&parts, c.tensor(2, "values")?, c.flag(3, "accumulate", false)?))
    }),
    ("argwhere", |c| one(c.x()?.nonzero())),
    ("masked_select", |c| one(c.x()?.masked_select(c.tensor(1, "mask")?))),
    ("nonzero", |c| one(c.x()?.nonzero())),
    ("__getitem__", getitem),
    ("sort", |c| {
        let keyword = c.flag(9, "descending", false)?;
        two(c.x()?.sort(c.int(1, "dim", Some(-1))?, c.flag(2, "descending", keyword)?))
    }),
    ("argsort", |c| {
        one(c.x()?.argsort(c.int(1, "dim", Some(-1))?, c.flag(2, "descending", false)?))
    }),
    ("topk", |c| {
        let (k, dim) = (c.count(1, "k", None)?, c.int(2, "dim", Some(-1))?);
        two(c.x()?.topk(k, dim, c.flag(3, "largest", true)?))
    }),
];

fn getitem(c: &Call) -> Outs {
    let x = c.x()?;
    let parts = match c.get(1, "index") {
        // A list that has no slice, list or tensor in it is one index of integers.
        Value::List(items) if !items.iter().all(is_number) => {
            items.iter().map(|item| part(item, x)).collect::<Result<Vec<_>>>()?
        }
        item => vec![part(item, x)?],
    };
    one(x.index(&parts))
}

fn is_number(item: &Value) -> bool {
    matches!(item, Value::Int(_) | Value::Bool(_))
}

fn part(item: &Value, x: &Tensor) -> Result<Index> {
    Ok(match item {
        Value::Null => Index::NewAxis,
        Value::Int(at) => Index::At(*at),
        Value::Slice([start, end, step]) => Index::Range(*start, *end, step.unwrap_or(1)),
        Value::Text(text) if text == "..." => Index::Ellipsis,
        Value::Tensor(tensor) => Index::Tensor(tensor.clone()),
        Value::Bool(flag) => Index::Tensor(Tensor::full(
            &[],
            f64::from(u8::from(*flag)),
            (genesis::DType::Bool, x.device()),
        )?),
        Value::List(_) => Index::Tensor(nested(item, x)?),
        other => bail!("unsupported: an index of {other:?}"),
    })
}

/// A list of numbers or bools as a tensor.
fn nested(item: &Value, x: &Tensor) -> Result<Tensor> {
    let Value::List(items) = item else {
        bail!("unsupported: an index of {item:?}");
    };
    if items.iter().any(|item| matches!(item, Value::List(_))) {
        let rows: Vec<Tensor> = items.iter().map(|item| nested(item, x)).collect::<Result<_>>()?;
        return Ok(Tensor::stack(&rows.iter().collect::<Vec<_>>(), 0)?);
    }
    let is_mask = !items.is_empty() && items.iter().all(|item| matches!(item, Value::Bool(_)));
    let numbers: Vec<f64> = items.iter().filter_map(Value::number).collect();
    let dtype = if is_mask { genesis::DType::Bool } else { genesis::DType::I64 };
    Ok(Tensor::from_f64(&numbers, &[items.len()], (dtype, x.device()))?)
}

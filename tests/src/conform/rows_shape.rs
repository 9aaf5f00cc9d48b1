//! Other shapes over the same elements, and several tensors as one.

use anyhow::{Result, bail};
use genesis::{DType, Tensor};

use super::call::{Call, Value};
use super::table::{Outs, Row, one};

/// The rows of this file.
pub(super) const ROWS: &[Row] = &[
    ("clone", |c| one(c.x()?.copy())),
    ("contiguous", |c| one(c.x()?.contiguous())),
    ("to", |c| match c.get(1, "dtype") {
        Value::DType(dtype) => one(c.x()?.to_dtype(*dtype)),
        Value::Tensor(other) => one(c.x()?.to_dtype(other.dtype())),
        _ => one(c.x()?.to_dtype(c.dtype(2, "dtype")?.unwrap_or(c.x()?.dtype()))),
    }),
    ("reshape", |c| one(c.x()?.view(&c.ints_from(1, "shape")?))),
    ("view", |c| match c.get(1, "size") {
        Value::DType(_) => bail!("unsupported: view as a dtype"),
        _ => one(c.x()?.view(&c.ints_from(1, "size")?)),
    }),
    ("flatten", |c| {
        one(c.x()?.flatten(c.int(1, "start_dim", Some(0))?, c.int(2, "end_dim", Some(-1))?))
    }),
    ("permute", |c| one(c.x()?.permute(&c.ints_from(1, "dims")?))),
    ("transpose", |c| {
        let (x, a, b) = (c.x()?, c.int(1, "dim0", None)?, c.int(2, "dim1", None)?);
        if x.rank() == 0 && (-1..=0).contains(&a) && (-1..=0).contains(&b) {
            return Ok(vec![x.clone()]);
        }
        one(x.transpose(a, b))
    }),
    ("t", |c| match c.x()?.rank() {
        0 | 1 => Ok(vec![c.x()?.clone()]),
        2 => one(c.x()?.t()),
        rank => bail!("t: needs at most 2 axes, got {rank}"),
    }),
    ("swapaxes", |c| one(c.x()?.transpose(c.int(1, "dim0", None)?, c.int(2, "dim1", None)?))),
    ("swapdims", |c| one(c.x()?.transpose(c.int(1, "dim0", None)?, c.int(2, "dim1", None)?))),
    ("movedim", |c| one(c.x()?.movedim(&c.ints(1, "source")?, &c.ints(2, "destination")?))),
    ("moveaxis", |c| one(c.x()?.movedim(&c.ints(1, "source")?, &c.ints(2, "destination")?))),
    ("ravel", |c| one(c.x()?.flatten(0, -1))),
    ("mT", |c| one(c.x()?.transpose(-2, -1))),
    ("adjoint", |c| one(c.x()?.transpose(-2, -1))),
    ("expand_as", |c| one(c.x()?.broadcast_to(c.tensor(1, "other")?.shape()))),
    ("view_as", |c| one(c.x()?.reshape(c.tensor(1, "other")?.shape()))),
    ("reshape_as", |c| one(c.x()?.reshape(c.tensor(1, "other")?.shape()))),
    ("squeeze", |c| match c.ints_or_none(1, "dim")? {
        Some(dims) => one(c.x()?.squeeze_dims(&dims)),
        None => {
            let all: Vec<i64> = (0..c.x()?.rank() as i64).collect();
            one(c.x()?.squeeze_dims(&all))
        }
    }),
    ("unsqueeze", |c| one(c.x()?.unsqueeze(c.int(1, "dim", None)?))),
    ("broadcast_to", |c| one(c.x()?.expand(&c.ints_from(1, "size")?))),
    ("expand", |c| one(c.x()?.expand(&c.ints_from(1, "size")?))),
    ("repeat", |c| one(c.x()?.repeat(&c.shape(1, "repeats")?))),
    ("repeat_interleave", |c| {
        let x = c.x()?;
        let flat = if c.has(2, "dim") { x.clone() } else { x.reshape(&[x.numel()])? };
        let dim = c.int(2, "dim", Some(0))?;
        if let Value::Tensor(counts) = c.get(1, "repeats")
            && counts.numel() > 1
        {
            let counts = counts.to_vec::<i64>()?;
            let each = counts.iter().enumerate();
            let index: Vec<i64> =
                each.flat_map(|(i, &n)| std::iter::repeat_n(i as i64, n.max(0) as usize)).collect();
            let index = Tensor::from_slice_on(&index, &[index.len()], x.device())?;
            return one(flat.index_select(dim, &index));
        }
        one(flat.repeat_interleave(c.count(1, "repeats", None)?, dim))
    }),
    ("flip", |c| one(c.x()?.flip(&c.ints_from(1, "dims")?))),
    ("roll", roll),
    ("narrow", |c| {
        let (x, dim) = (c.x()?, c.int(1, "dim", None)?);
        let start = c.int(2, "start", None)?;
        let start = if start < 0 { start + x.dim(dim)? as i64 } else { start };
        let start = usize::try_from(start)?;
        one(x.narrow(dim, start, c.count(3, "length", None)?))
    }),
    ("select", |c| {
        let (x, dim, at) = (c.x()?, c.int(1, "dim", None)?, c.int(2, "index", None)?);
        let extent = x.dim(dim)? as i64;
        if !(-extent..extent).contains(&at) {
            bail!("select: index {at} is out of range for {extent} elements");
        }
        one(x.select(dim, at.rem_euclid(extent) as usize))
    }),
    ("split", |c| {
        let (x, dim) = (c.x()?, c.int(2, "dim", Some(0))?);
        match c.get(1, "split_size") {
            Value::List(_) => Ok(x.split_sizes(&sizes(c)?, dim)?),
            _ => Ok(x.split(c.count(1, "split_size", None)?, dim)?),
        }
    }),
    ("chunk", |c| Ok(c.x()?.chunk(c.count(1, "chunks", None)?, c.int(2, "dim", Some(0))?)?)),
    ("unbind", |c| Ok(c.x()?.unbind(c.int(1, "dim", Some(0))?)?)),
    ("cat", |c| one(Tensor::cat(&c.tensors(0, "tensors")?, c.int(1, "dim", Some(0))?))),
    ("stack", |c| one(Tensor::stack(&c.tensors(0, "tensors")?, c.int(1, "dim", Some(0))?))),
    ("diagonal", |c| {
        let offset = c.int(1, "offset", Some(0))?;
        one(c.x()?.diagonal(offset, c.int(2, "dim1", Some(0))?, c.int(3, "dim2", Some(1))?))
    }),
    ("tril", |c| one(c.x()?.tril(c.int(1, "diagonal", Some(0))?))),
    ("triu", |c| one(c.x()?.triu(c.int(1, "diagonal", Some(0))?))),
    ("nn.functional.one_hot", |c| {
        let x = c.x()?.to_dtype(DType::I64)?;
        if c.int(1, "num_classes", Some(-1))? == -1 {
            return one(x.one_hot_of_all());
        }
        one(x.one_hot(c.count(1, "num_classes", None)?))
    }),
];

fn sizes(c: &Call) -> Result<Vec<usize>> {
    c.shape(1, "split_size")
}

fn roll(c: &Call) -> Outs {
    let (x, shifts) = (c.x()?, c.ints(1, "shifts")?);
    let Some(dims) = c.ints_or_none(2, "dims")?.filter(|dims| !dims.is_empty()) else {
        let shift = shifts.first().copied().unwrap_or(0);
        let flat = x.reshape(&[x.numel()])?.roll(shift, 0)?;
        return one(flat.reshape(x.shape()));
    };
    if shifts.len() != dims.len() {
        bail!("roll: {} shifts for {} dimensions", shifts.len(), dims.len());
    }
    let mut y = x.clone();
    for (&shift, &dim) in shifts.iter().zip(&dims) {
        y = y.roll(shift, dim)?;
    }
    Ok(vec![y])
}

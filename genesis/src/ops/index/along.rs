//! Ops on one axis: elements by an index of the same rank, and slices by a vector of indices. Each is the gradient of
//! another: reading of adding.
//!
//! Sums are in the order of what is added. The CPU walks through it once; on a GPU the places are sorted, and each
//! adds up its own.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{Arg, Device};

use super::places::{
    add_at, copies_for, last_writes, places_along, plus, put_once, sum_dtype, take_at, wrapped,
};
use super::segments::{self, Fold, Line};
use super::unordered::Meeting;
use super::{embedding, flag, unordered};
use crate::autograd::SavedTensors;
use crate::error::Result;
use crate::launch;
use crate::launch::along::Places;
use crate::ops::{Op, Saves, apply, composite};
use crate::shape::product;
use crate::tensor::Tensor;

/// `y[i, j] = x[index[i, j], j]` along axis 0, and so on.
#[track_caller]
pub(super) fn take_along(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<Tensor> {
    if let Some(line) = one_for_slices(x.shape(), axis, index) {
        return take_slices(op, x, axis, &line);
    }
    apply(TakeAlong { op, axis, from: x.shape().to_vec(), is_distinct: false }, &[x, index])
}

/// Elements behind each of an axis from which on those of one index are a slice, and not elements.
const SHORT: usize = 16;

/// The index of slices that an index of elements repeats for all that they have, where they are long.
fn one_for_slices(shape: &[usize], axis: usize, index: &Tensor) -> Option<Tensor> {
    let repeats = |a: usize| a == axis || (index.shape()[a] == shape[a] && index.strides()[a] == 0);
    let is_whole = index.rank() == shape.len() && (0..shape.len()).all(repeats);
    if !is_whole || index.numel() == 0 || product(&shape[axis + 1..]) < SHORT {
        return None;
    }
    let mut line = index.clone();
    for _ in 0..axis {
        line = line.select(0, 0).ok()?;
    }
    for _ in axis + 1..shape.len() {
        line = line.select(-1, 0).ok()?;
    }
    Some(line)
}

/// [`take_along`] by an index that names no element twice: its gradient is written and not added.
#[track_caller]
pub(in crate::ops) fn take_distinct_along(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<Tensor> {
    apply(TakeAlong { op, axis, from: x.shape().to_vec(), is_distinct: true }, &[x, index])
}

/// Whether values are added to `n` sums by atomics, in the order in which they come: integers, whose sums have no order, and
/// floats where no order is asked for.
fn adds_in_any_order(values: &Tensor, n: usize) -> bool {
    let is_wide = matches!(values.dtype(), DType::I32 | DType::I64);
    let is_int = is_wide && values.device() != Device::Cpu && copies_for(values.numel(), n) == 1;
    is_int || unordered::is_unordered(values)
}

/// Adds values to dense sums by atomics.
#[track_caller]
fn add_in_any_order(sums: &Tensor, met: &Meeting<'_>) -> Result<()> {
    if unordered::add_along(sums, met)? {
        return Ok(());
    }
    let index = &places_along(met.op, sums, met.axis, met.index)?.ravel()?;
    let (line, values) = (sums.ravel()?, &met.values.ravel()?);
    unordered::add_along(&line, &Meeting { axis: 0, index, values, ..*met }).map(drop)
}

/// Zeros of a shape with values added where [`take_along`] would read.
#[track_caller]
pub(super) fn add_along(
    op: &'static str,
    shape: &[usize],
    axis: usize,
    index: &Tensor,
    values: &Tensor,
) -> Result<Tensor> {
    apply(AddAlong { op, axis, shape: shape.to_vec() }, &[values, index])
}

/// `x` with values added where [`take_along`] would read; 16-bit floats are rounded once.
#[track_caller]
pub(super) fn plus_along(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    values: &Tensor,
) -> Result<Tensor> {
    if values.dtype() == x.dtype() {
        let at = (x.dtype(), x.device());
        let is_folded = at.0.is_float() && segments::folds(at, x.numel(), index.numel());
        let line = Line::along(x.shape(), axis, index.shape()).filter(|_| is_folded);
        let needs_no_order = adds_in_any_order(values, x.numel());
        if needs_no_order || line.is_some() {
            let line = line.filter(|_| !needs_no_order);
            return apply(PlusAlong { op, axis, line }, &[x, values, index]);
        }
    }
    plus(x, values, &|values| add_along(op, x.shape(), axis, index, values))
}

/// The slices of `x` along an axis that a vector of indices names.
#[track_caller]
pub(super) fn take_slices(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<Tensor> {
    let (is_checked, is_distinct) = (false, false);
    sliced(TakeSlices { op, extent: x.shape()[axis], is_checked, is_distinct }, x, axis, index)
}

/// [`take_slices`] by an index that names none twice, and counts from 0: its gradient is read and not added.
#[track_caller]
pub(super) fn take_distinct_slices(
    op: &'static str,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
) -> Result<Tensor> {
    let (is_checked, is_distinct) = (true, true);
    sliced(TakeSlices { op, extent: x.shape()[axis], is_checked, is_distinct }, x, axis, index)
}

/// The slices of `x: [A, D, B]` that an index from 0 names, twice or more unless it is distinct; zeros where it is below 0.
#[track_caller]
pub(super) fn take_named_slices(x: &Tensor, index: &Tensor, is_distinct: bool) -> Result<Tensor> {
    let (op, extent) = ("index_select", x.shape()[1]);
    apply(TakeSlices { op, extent, is_checked: true, is_distinct }, &[x, index])
}

#[track_caller]
fn sliced(op: TakeSlices, x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
    let (shape, n) = (x.shape(), index.numel());
    let parts = [product(&shape[..axis]), shape[axis], product(&shape[axis + 1..])];
    let y = apply(op, &[&x.reshape(&parts)?, index])?;
    y.reshape(&[&shape[..axis], &[n], &shape[axis + 1..]].concat())
}

/// Zeros of a shape with slices added where [`take_slices`] would read.
#[track_caller]
pub(super) fn add_slices(
    shape: &[usize],
    axis: usize,
    index: &Tensor,
    values: &Tensor,
) -> Result<Tensor> {
    let parts = [product(&shape[..axis]), index.numel(), product(&shape[axis + 1..])];
    apply(AddSlices { extent: shape[axis] }, &[&values.reshape(&parts)?, index])?.reshape(shape)
}

struct TakeAlong {
    op: &'static str,
    axis: usize,
    from: Vec<usize>,
    is_distinct: bool,
}

impl Op for TakeAlong {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, index) = (inputs[0], inputs[1]);
        let y = Tensor::uninitialized(index.shape(), (x.dtype(), x.device()))?;
        if y.numel() == 0 {
            return Ok(y);
        }
        let flag = flag::args(self.op, x.device(), self.from[self.axis])?;
        if launch::along::taken_along(x, self.axis, index, &y, &flag)? {
            flag::refuse(x.device())?;
            return Ok(y);
        }
        take_at(x, &places_along(self.op, x, self.axis, index)?)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let index = saved.input(1);
        if takes_one_of_each(&self.from, self.axis, index.shape()) {
            return Ok(vec![Some(spread(dy, self.axis, index, self.from[self.axis])?), None]);
        }
        if !self.is_distinct {
            return Ok(vec![Some(add_along(self.op, &self.from, self.axis, index, dy)?), None]);
        }
        let like = Tensor::uninitialized(&[1], (dy.dtype(), dy.device()))?;
        let places = places_along(self.op, &like.broadcast_to(&self.from)?, self.axis, index)?;
        let dx = put_once(dy, &places, product(&self.from))?.reshape(&self.from)?;
        Ok(vec![Some(dx), None])
    }
}

/// Whether an index names one element of each line along an axis, and leaves no line out.
fn takes_one_of_each(from: &[usize], axis: usize, index: &[usize]) -> bool {
    let fits = |a: usize| index[a] == if a == axis { 1 } else { from[a] };
    index.len() == from.len() && (0..index.len()).all(fits)
}

/// Zeros with the one value of each line along an axis at its index: a comparison an element takes the place of a sort.
#[track_caller]
fn spread(values: &Tensor, axis: usize, index: &Tensor, extent: usize) -> Result<Tensor> {
    let mut line = vec![1; index.rank()];
    line[axis] = extent;
    let places = Tensor::arange(0.0, extent as f64, 1.0, (DType::I64, values.device()))?;
    let of = [values, index, &places.reshape(&line)?];
    composite("gather", &[extent as f64], of, |[values, index, places], n| {
        let index = index.lt_scalar(0.0)?.where_(&index.add_scalar(n[0])?, index)?;
        places.eq(&index)?.where_(values, &values.zeros_like()?)
    })
}

struct AddAlong {
    op: &'static str,
    axis: usize,
    shape: Vec<usize>,
}

impl AddAlong {
    /// The places of an index of all elements along the other axes; none where some are left out.
    fn line(&self, index: &Tensor) -> Option<Line> {
        Line::along(&self.shape, self.axis, index.shape())
    }

    /// Each line along the axis by itself, or each block of columns.
    fn places(&self, n: usize) -> ([usize; 3], Places) {
        const COLUMNS: usize = 64;
        let extent = self.shape[self.axis];
        let outer = product(&self.shape[..self.axis]);
        let inner = product(&self.shape[self.axis + 1..]);
        let (lines, steps, share) = match inner {
            1 => ([1, outer, n], [0, extent as i64, 0], [outer.div_ceil(64), n]),
            _ => ([outer, n, inner], [(extent * inner) as i64, 0, 1], [n, COLUMNS]),
        };
        (lines, Places { steps, extent, step: inner as i64, share, wraps: true })
    }
}

impl Op for AddAlong {
    fn name(&self) -> &'static str {
        "scatter_add"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (values, index) = (inputs[0], inputs[1]);
        let at = (values.dtype(), values.device());
        if values.numel() == 0 {
            return Tensor::zeros(&self.shape, at);
        }
        let line = self.line(index);
        if adds_in_any_order(values, product(&self.shape)) {
            let sums = Tensor::zeros(&self.shape, (launch::accumulate_dtype(at.0), at.1))?;
            let met = Meeting { op: self.op, axis: self.axis, index, values };
            add_in_any_order(&sums, &met)?;
            return sums.to_dtype(at.0);
        }
        let is_folded = at.0.is_float() && segments::folds(at, product(&self.shape), index.numel());
        if is_folded && let Some(line) = line {
            let sums = Tensor::zeros(&self.shape, at)?;
            let flag = flag::args(self.op, at.1, self.shape[self.axis])?;
            segments::fold_into(&sums, [index, values], line, Fold::Sum, flag)?;
            return Ok(sums);
        }
        if at.1 != Device::Cpu || line.is_none() {
            let like = Tensor::uninitialized(&[1], at)?.broadcast_to(&self.shape)?;
            let places = places_along(self.op, &like, self.axis, index)?;
            return add_at(values, &places, product(&self.shape))?.reshape(&self.shape);
        }
        let wide = sum_dtype(at.0);
        let sums = Tensor::zeros(&self.shape, (wide, at.1))?;
        let (lines, places) = self.places(index.shape()[self.axis]);
        let values = if at.0.is_number() { values.clone() } else { values.to_dtype(wide)? };
        let flag = flag::args(self.op, at.1, places.extent)?;
        let (index, values) = (index.reshape(&lines)?, values.reshape(&lines)?);
        launch::along::add_in_order(&index, &values, &sums, &places, flag)?;
        flag::refuse(at.1)?;
        sums.to_dtype(at.0)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(take_along(self.op, dy, self.axis, saved.input(1))?), None])
    }
}

/// A tensor with values added at an index, on a GPU: in their order along a line, or in any.
struct PlusAlong {
    op: &'static str,
    axis: usize,
    line: Option<Line>,
}

impl Op for PlusAlong {
    fn name(&self) -> &'static str {
        self.op
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, values, index) = (inputs[0], inputs[1], inputs[2]);
        if let Some(line) = self.line {
            let y = x.copy()?;
            let flag = flag::args(self.op, x.device(), x.shape()[self.axis])?;
            segments::fold_into(&y, [index, values], line, Fold::Sum, flag)?;
            return Ok(y);
        }
        let wide = launch::accumulate_dtype(x.dtype());
        let y = if wide == x.dtype() { x.copy()? } else { x.to_dtype(wide)?.contiguous()? };
        add_in_any_order(&y, &Meeting { op: self.op, axis: self.axis, index, values })?;
        y.to_dtype(x.dtype())
    }

    fn saves(&self) -> Saves {
        Saves::inputs(4)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let dvalues = take_along(self.op, dy, self.axis, saved.input(2))?;
        Ok(vec![Some(dy.clone()), Some(dvalues), None])
    }
}

/// Of `x: [A, D, B]`.
struct TakeSlices {
    op: &'static str,
    extent: usize,
    /// Whether the index counts from 0, and what it names is there or -1: zeros.
    is_checked: bool,
    is_distinct: bool,
}

impl TakeSlices {
    #[track_caller]
    fn flag(&self, x: &Tensor) -> Result<[Arg; 2]> {
        let flag = flag::args(self.op, x.device(), self.extent)?;
        Ok(if self.is_checked { segments::untold(flag) } else { flag })
    }

    /// By an index for each element.
    fn take_elements(&self, x: &Tensor, index: &Tensor, y: &Tensor) -> Result<bool> {
        let index = index.reshape(&[1, index.numel(), 1])?.broadcast_to(y.shape())?;
        launch::along::taken_along(x, 1, &index, y, &self.flag(x)?)
    }
}

impl Op for TakeSlices {
    fn name(&self) -> &'static str {
        "index_select"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, index) = (inputs[0], inputs[1]);
        let shape = [x.shape()[0], index.numel(), x.shape()[2]];
        let y = Tensor::uninitialized(&shape, (x.dtype(), x.device()))?;
        // Short slices are single elements rather than lines.
        if y.numel() == 0 {
            if !self.is_checked {
                wrapped(self.op, index, self.extent, 1)?;
            }
            return Ok(y);
        }
        if self.is_checked || shape[2] >= SHORT || !self.take_elements(x, index, &y)? {
            launch::along::take_slices(x, index, &y, !self.is_checked, self.flag(x)?)?;
        }
        flag::refuse(x.device())?;
        Ok(y)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let index = saved.input(1);
        if self.is_distinct {
            // Each slice is read where it was written to.
            let from = last_writes(index, self.extent, false, self.flag(dy)?)?;
            let dx = apply(TakeSlices { extent: dy.shape()[1], ..*self }, &[dy, &from])?;
            return Ok(vec![Some(dx), None]);
        }
        let index = match self.is_checked {
            true => index.clone(),
            false => wrapped(self.op, index, self.extent, 1)?,
        };
        Ok(vec![Some(apply(AddSlices { extent: self.extent }, &[dy, &index])?), None])
    }
}

/// Of `values: [A, N, B]`.
struct AddSlices {
    extent: usize,
}

impl Op for AddSlices {
    fn name(&self) -> &'static str {
        "index_add"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (values, index) = (inputs[0], inputs[1]);
        let [outer, _, inner] = [0, 1, 2].map(|axis| values.shape()[axis]);
        let at = (values.dtype(), values.device());
        let shape = [outer, self.extent, inner];
        if values.numel() == 0 || outer * self.extent * inner == 0 {
            return Tensor::zeros(&shape, at);
        }
        let wide = sum_dtype(at.0);
        let values = if at.0.is_number() { values.clone() } else { values.to_dtype(wide)? };
        if at.1 == Device::Cpu {
            let sums = Tensor::zeros(&shape, (wide, at.1))?;
            launch::along::add_slices_in_order((index, None), &values, &sums)?;
            return sums.to_dtype(at.0);
        }
        if outer * inner == 1 {
            return add_at(&values.reshape(&[index.numel()])?, index, self.extent)?
                .reshape(&shape)?
                .to_dtype(at.0);
        }
        // All planes of a slice as one row.
        let rows = values.transpose(0, 1)?.reshape(&[index.numel(), outer * inner])?;
        let sums = embedding::sum_of_rows(index, &rows, self.extent)?;
        let sums = sums.reshape(&[self.extent, outer, inner])?.transpose(0, 1)?;
        sums.contiguous()?.to_dtype(at.0)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(2)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (op, extent) = ("index_select", self.extent);
        let taken = TakeSlices { op, extent, is_checked: false, is_distinct: false };
        Ok(vec![Some(apply(taken, &[dy, saved.input(1)])?), None])
    }
}

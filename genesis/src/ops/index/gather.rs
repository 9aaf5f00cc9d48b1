//! Gathers: `gather`, `scatter`, `index_select` and the indexing of brackets.
//!
//! An index of one axis is followed where it is ([`along`]); others come down to ops on [`places`](super::places),
//! positions in the row-major order of a tensor.

#[cfg(feature = "op-info")]
pub(super) mod info;

use genesis_kernel::ir::DType;

use super::parts::Index;
use super::places::{checked, plus, plus_at, put_at, steps, take_at, wrapped};
use super::put::put_along;
use super::{along, compact, fill, masks, slices};
use crate::error::{Error, Result};
use crate::ops::check_pair;
use crate::shape::{self, contiguous_strides};
use crate::tensor::Tensor;

impl Tensor {
    /// The elements at positions in row-major order, in the shape of `index`.
    ///
    /// # Errors
    /// If the index is not an integer tensor or, on the CPU, names a position that is not there.
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        let flat = checked("take", index, self)?.ravel()?;
        along::take_along("take", &self.ravel()?, 0, &flat)?.reshape(index.shape())
    }

    /// `y[i, j] = x[index[i, j], j]` for `dim` 0, and so on.
    ///
    /// # Errors
    /// If the index is not an integer tensor of this rank, is larger than this tensor along another
    /// axis or, on the CPU, names an element that is not there.
    #[track_caller]
    pub fn gather(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        let (x, index) = with_axes("gather", self, dim, index)?;
        let axis = shape::axis("gather", dim, x.shape())?;
        check_fits("gather", &x, axis, index.shape())?;
        along::take_along("gather", &x, axis, &index)
    }

    /// [`Tensor::gather`] where this tensor and the index broadcast along the other axes.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    #[track_caller]
    pub fn take_along_dim(&self, index: &Tensor, dim: i64) -> Result<Tensor> {
        const NAME: &str = "take_along_dim";
        if self.rank() != index.rank() {
            let message = format!("ranks differ, {:?} and {:?}", self.shape(), index.shape());
            return Err(Error::op(NAME, message));
        }
        let axis = shape::axis(NAME, dim, self.shape())?;
        let without = |t: &Tensor| {
            let mut shape = t.shape().to_vec();
            shape[axis] = 1;
            shape
        };
        let shape = shape::broadcast_shapes(NAME, &[&without(self), &without(index)])?;
        let with = |extent: usize| {
            let mut shape = shape.clone();
            shape[axis] = extent;
            shape
        };
        let x = self.broadcast_to(&with(self.shape()[axis]))?;
        x.gather(dim, &index.broadcast_to(&with(index.shape()[axis]))?)
    }

    /// The slices at an index of one axis, along `dim`.
    ///
    /// # Errors
    /// If the index is not an integer tensor of at most one axis or, on the CPU, names a slice that is
    /// not there.
    #[track_caller]
    pub fn index_select(&self, dim: i64, index: &Tensor) -> Result<Tensor> {
        const NAME: &str = "index_select";
        let axis = shape::axis_or_scalar(NAME, dim, self.shape())?;
        let x = if self.rank() == 0 { self.reshape(&[1])? } else { self.clone() };
        let y = along::take_slices(NAME, &x, axis, &line_of(NAME, &x, index)?.ravel()?)?;
        if self.rank() == 0 { y.reshape(&[]) } else { Ok(y) }
    }

    /// This tensor with `alpha` times slices of `source` added along `dim`.
    ///
    /// # Errors
    /// As [`Tensor::index_select`], or if `source` has not the shape of the slices.
    #[track_caller]
    pub fn index_add(
        &self,
        dim: i64,
        index: &Tensor,
        source: &Tensor,
        alpha: f64,
    ) -> Result<Tensor> {
        const NAME: &str = "index_add";
        let axis = shape::axis_or_scalar(NAME, dim, self.shape())?;
        let x = if self.rank() == 0 { self.reshape(&[1])? } else { self.clone() };
        let index = line(NAME, &x, axis, index)?;
        let mut slices = x.shape().to_vec();
        slices[axis] = index.numel();
        if source.numel() != shape::product(&slices) {
            let message = format!("the source is {:?}, not {slices:?}", source.shape());
            return Err(Error::op(NAME, message));
        }
        let scaled = if alpha == 1.0 { source.clone() } else { source.mul_scalar(alpha)? };
        let source = if source.dtype() == DType::Bool { scaled.to_bool()? } else { scaled };
        let source = source.reshape(&slices)?;
        plus(self, &source, &|values| along::add_slices(x.shape(), axis, &index, values))
    }

    /// [`Tensor::index_add`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_add_(&self, dim: i64, index: &Tensor, source: &Tensor, alpha: f64) -> Result<()> {
        self.replace("index_add_", &[source], |x| x.index_add(dim, index, source, alpha))
    }

    /// This tensor with elements of `source` written where [`Tensor::gather`] would read; of several
    /// writes to one place the last stays.
    ///
    /// # Errors
    /// As [`Tensor::gather`], or if the source is smaller than the index or of another dtype.
    #[track_caller]
    pub fn scatter(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        const NAME: &str = "scatter";
        let Scattered { dense, axis, index, source } = fitted(NAME, self, dim, index, source)?;
        put_along(NAME, &dense, axis, &index, &source)?.reshape(self.shape())
    }

    /// [`Tensor::scatter`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn scatter_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.replace("scatter_", &[source], |x| x.scatter(dim, index, source))
    }

    /// This tensor with elements of `source` added where [`Tensor::gather`] would read.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    #[track_caller]
    pub fn scatter_add(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<Tensor> {
        const NAME: &str = "scatter_add";
        let Scattered { dense, axis, index, source } = fitted(NAME, self, dim, index, source)?;
        along::plus_along(NAME, &dense, axis, &index, &source)?.reshape(self.shape())
    }

    /// [`Tensor::scatter_add`] in place.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn scatter_add_(&self, dim: i64, index: &Tensor, source: &Tensor) -> Result<()> {
        self.replace("scatter_add_", &[source], |x| x.scatter_add(dim, index, source))
    }

    /// The elements that an indexing names: `x[2, ..., 1..5, mask]`. Ranges and single elements are
    /// views, index tensors copy.
    ///
    /// # Errors
    /// If there are more parts than axes or two ellipses, a step is 0, an element is not there, or index
    /// tensors do not broadcast.
    #[track_caller]
    pub fn index(&self, parts: &[Index]) -> Result<Tensor> {
        if let Some(mask) = one_mask(self, parts) {
            return masks::select(self, &mask);
        }
        let (view, tensors) = basic(self, parts)?;
        if tensors.iter().all(Option::is_none) {
            return Ok(view);
        }
        if let Some((axis, index)) = one_index(&tensors) {
            let flat = index.t.ravel()?;
            let taken = match index.is_mask {
                true => along::take_distinct_slices("index", &view, axis, &flat)?,
                false => along::take_slices("index", &view, axis, &flat)?,
            };
            let (before, after) = (&view.shape()[..axis], &view.shape()[axis + 1..]);
            return taken.reshape(&[before, index.t.shape(), after].concat());
        }
        take_at(&view, &places_of(&view, &tensors)?)
    }

    /// This tensor with `values` written at an indexing, or added where `accumulate` is set.
    ///
    /// # Errors
    /// As [`Tensor::index`], or if `values` does not broadcast to what the indexing names.
    #[track_caller]
    pub fn index_put(&self, parts: &[Index], values: &Tensor, accumulate: bool) -> Result<Tensor> {
        if !accumulate && !parts.iter().any(|part| matches!(part, Index::Tensor(_))) {
            return fill::put_view(self, parts, values);
        }
        if let Some(mask) = one_mask(self, parts).filter(|_| !accumulate && values.numel() == 1) {
            return mask.where_(&values.reshape(&[])?.to_dtype(self.dtype())?, self);
        }
        if let Some(y) = with_slices(self, parts, values, accumulate)? {
            return Ok(y);
        }
        let places = all_places(self)?.index(parts)?;
        let values = values.broadcast_to(places.shape())?.to_dtype(self.dtype())?;
        match accumulate {
            true => plus_at(self, &values, &places),
            false => put_at(self, &places, &values),
        }
    }

    /// [`Tensor::index_put`] in place: `values` written at an indexing, or added.
    ///
    /// # Errors
    /// As the op, or if this is a leaf whose gradient is wanted and recorded.
    #[track_caller]
    pub fn index_put_(&self, parts: &[Index], values: &Tensor, accumulate: bool) -> Result<()> {
        self.replace("index_put_", &[values], |x| x.index_put(parts, values, accumulate))
    }

    /// `values` written at an indexing, as `x[parts] = values` in Python. Where no index is a tensor only
    /// what is named is written.
    ///
    /// # Errors
    /// As [`Tensor::index_put_`].
    #[track_caller]
    pub fn set(&self, parts: &[Index], values: &Tensor) -> Result<()> {
        let is_view = !parts.iter().any(|part| matches!(part, Index::Tensor(_)));
        match is_view {
            true => self.index(parts)?.copy_(values),
            false => self.index_put_(parts, values, false),
        }
    }

    /// The coordinates of the elements that are not zero: i64, `[count, rank]`, in row-major order.
    /// Waits for the device.
    ///
    /// # Errors
    /// If memory runs out.
    #[track_caller]
    pub fn nonzero(&self) -> Result<Tensor> {
        let rank = self.rank();
        if (2..=4).contains(&rank) {
            return compact::coordinates_of_nonzero(self);
        }
        let places = compact::places_of_nonzero(self)?;
        match rank {
            0 => Tensor::zeros(&[places.numel(), 0], (DType::I64, self.device())),
            1 => places.unsqueeze(1),
            _ => {
                let of = |(&stride, &extent): (&i64, &usize)| {
                    places.floor_divide_scalar(stride as f64)?.remainder_scalar(extent as f64)
                };
                let strides = contiguous_strides(self.shape());
                let axes: Vec<Tensor> =
                    strides.iter().zip(self.shape()).map(of).collect::<Result<_>>()?;
                Tensor::stack(&axes.iter().collect::<Vec<_>>(), 1)
            }
        }
    }

    /// The elements where the mask is true, as one axis. Waits for the device.
    ///
    /// # Errors
    /// If the mask is not bool or does not broadcast together with this tensor.
    #[track_caller]
    pub fn masked_select(&self, mask: &Tensor) -> Result<Tensor> {
        const NAME: &str = "masked_select";
        // Indexing would take integers for indices.
        if mask.dtype() != DType::Bool {
            return Err(Error::op(NAME, format!("the mask must be bool, got {}", mask.dtype())));
        }
        let shape = shape::broadcast_shapes(NAME, &[self.shape(), mask.shape()])?;
        masks::select(&self.broadcast_to(&shape)?, &mask.broadcast_to(&shape)?)
    }
}

/// The place of every element, in the shape of the tensor.
#[track_caller]
pub(super) fn all_places(x: &Tensor) -> Result<Tensor> {
    steps(x.numel(), 1, 0, 1, x.device())?.reshape(x.shape())
}

/// A scalar operand as a tensor of one axis, where the index has one.
#[track_caller]
pub(super) fn with_axes(
    op: &'static str,
    x: &Tensor,
    dim: i64,
    index: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let x = if x.rank() == 0 && index.rank() == 1 { x.reshape(&[1])? } else { x.clone() };
    let x = if x.rank() == 0 { x.reshape(&[1])? } else { x };
    shape::axis(op, dim, x.shape())?;
    let index = checked(op, index, &x)?;
    Ok((x, index))
}

/// Whether an index fits: of one rank, and no larger along the other axes.
pub(super) fn check_fits(op: &str, x: &Tensor, axis: usize, index: &[usize]) -> Result<()> {
    let scalar = index.is_empty() && x.rank() == 1;
    // An index without elements reads nothing, however long its axes are.
    let larger = |a: usize| a != axis && index[a] > x.shape()[a] && !index.contains(&0);
    if !scalar && (index.len() != x.rank() || (0..x.rank()).any(larger)) {
        let message = format!("an index of {index:?} does not fit shape {:?}", x.shape());
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// An index of slices: one axis at most.
#[track_caller]
pub(super) fn line_of(op: &'static str, x: &Tensor, index: &Tensor) -> Result<Tensor> {
    if index.rank() > 1 {
        let message = format!("the index must have one axis, got {:?}", index.shape());
        return Err(Error::op(op, message));
    }
    checked(op, index, x)
}

/// An index of slices along an axis as a vector that counts from 0.
#[track_caller]
pub(super) fn line(op: &'static str, x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
    wrapped(op, &line_of(op, x, index)?.ravel()?, x.shape()[axis], 1)
}

/// An index of slices along an axis as one of all their elements, in the shape of the slices.
#[track_caller]
pub(super) fn slices(op: &'static str, x: &Tensor, axis: usize, index: &Tensor) -> Result<Tensor> {
    let index = line_of(op, x, index)?;
    let (mut line, mut full) = (vec![1; x.rank()], x.shape().to_vec());
    (line[axis], full[axis]) = (index.numel(), index.numel());
    index.reshape(&line)?.broadcast_to(&full)
}

/// The operands of a scatter that fit each other.
pub(super) struct Scattered {
    pub(super) dense: Tensor,
    pub(super) axis: usize,
    pub(super) index: Tensor,
    pub(super) source: Tensor,
}

#[track_caller]
pub(super) fn fitted(
    op: &'static str,
    x: &Tensor,
    dim: i64,
    index: &Tensor,
    source: &Tensor,
) -> Result<Scattered> {
    check_pair(op, x, source)?;
    let (dense, index) = with_axes(op, x, dim, index)?;
    let axis = shape::axis(op, dim, dense.shape())?;
    check_fits(op, &dense, axis, index.shape())?;
    let mut source = source.clone();
    if source.rank() != index.rank() && source.numel() == 1 {
        source = source.reshape(&vec![1; index.rank()])?;
    }
    let fits = source.rank() == index.rank()
        && source.shape().iter().zip(index.shape()).all(|(have, want)| have >= want);
    if !fits {
        let message = format!(
            "the source {:?} is smaller than the index {:?}",
            source.shape(),
            index.shape()
        );
        return Err(Error::op(op, message));
    }
    for (axis, &extent) in index.shape().iter().enumerate() {
        source = source.narrow(axis as i64, 0, extent)?;
    }
    if index.rank() == 0 {
        // A scalar that is written to an axis of its own.
        return Ok(Scattered {
            dense,
            axis,
            index: index.reshape(&[1])?,
            source: source.reshape(&[1])?,
        });
    }
    Ok(Scattered { dense, axis, index, source })
}

/// What an indexing names along an axis.
#[derive(Clone)]
struct Named {
    /// Indices, which may count from the end.
    t: Tensor,
    /// Whether they are the places of a mask: each is there, and none twice.
    is_mask: bool,
}

/// The mask that is all of an indexing, of all axes.
fn one_mask(x: &Tensor, parts: &[Index]) -> Option<Tensor> {
    match parts {
        [Index::Tensor(mask)] if mask.dtype() == DType::Bool && mask.rank() > 0 => {
            Some(mask.clone()).filter(|mask| mask.shape() == x.shape())
        }
        _ => None,
    }
}

/// Applies what are views; what remains are index tensors by axis of the view.
#[track_caller]
fn basic(x: &Tensor, parts: &[Index]) -> Result<(Tensor, Vec<Option<Named>>)> {
    const NAME: &str = "index";
    let axes_of = |part: &Index| match part {
        Index::At(_) | Index::Range(..) => 1,
        Index::NewAxis | Index::Ellipsis => 0,
        Index::Tensor(t) if t.dtype() == DType::Bool => t.rank(),
        Index::Tensor(_) => 1,
    };
    if parts.iter().filter(|part| matches!(part, Index::Ellipsis)).count() > 1 {
        return Err(Error::op(NAME, "an index has one ellipsis at most"));
    }
    let named: usize = parts.iter().map(axes_of).sum();
    let left = x
        .rank()
        .checked_sub(named)
        .ok_or_else(|| Error::op(NAME, format!("too many indices for shape {:?}", x.shape())))?;
    let (mut view, mut tensors, mut axis) = (x.clone(), Vec::new(), 0usize);
    for part in parts {
        match part {
            Index::At(at) => {
                let extent = view.shape()[axis] as i64;
                if !(-extent..extent).contains(at) {
                    let message = format!("index {at} is out of range for {extent} elements");
                    return Err(Error::op(NAME, message));
                }
                view = view.select(axis as i64, at.rem_euclid(extent) as usize)?;
            }
            Index::Range(start, end, step) => {
                view = view.slice_step(axis as i64, *start, *end, *step)?;
                tensors.push(None);
                axis += 1;
            }
            Index::NewAxis => {
                view = view.unsqueeze(axis as i64)?;
                tensors.push(None);
                axis += 1;
            }
            Index::Ellipsis => {
                tensors.extend(std::iter::repeat_n(None, left));
                axis += left;
            }
            Index::Tensor(t) if t.dtype() == DType::Bool => {
                (view, axis) = masked(view, axis, t, &mut tensors)?;
            }
            Index::Tensor(t) => {
                tensors.push(Some(Named { t: checked(NAME, t, &view)?, is_mask: false }));
                axis += 1;
            }
        }
    }
    tensors.resize(view.rank(), None);
    Ok((view, tensors))
}

/// A mask as one index tensor of the axis that its axes are flattened to; a mask without axes is a new axis
/// of 0 or 1.
#[track_caller]
fn masked(
    view: Tensor,
    axis: usize,
    mask: &Tensor,
    tensors: &mut Vec<Option<Named>>,
) -> Result<(Tensor, usize)> {
    if mask.rank() == 0 {
        let keep = mask.item()? != 0.0;
        let zeros = Tensor::zeros(&[usize::from(keep)], (DType::I64, view.device()))?;
        tensors.push(Some(Named { t: zeros, is_mask: true }));
        return Ok((view.unsqueeze(axis as i64)?, axis + 1));
    }
    if view.shape()[axis..axis + mask.rank()] != *mask.shape() {
        let message = format!("a mask of {:?} does not fit shape {:?}", mask.shape(), view.shape());
        return Err(Error::op("index", message));
    }
    // Its axes as one: a place for each element found, and not one coordinate for each of many axes.
    let found = compact::places_of_nonzero(mask)?;
    tensors.push(Some(Named { t: found, is_mask: true }));
    Ok((view.flatten(axis as i64, (axis + mask.rank()) as i64 - 1)?, axis + 1))
}

/// The places in `x` of index tensors: they broadcast together, and stand where the first of them
/// stood, or in front if other axes lie between them. A tensor without axes takes one element of its axis, as a
/// number does, and has no say in that.
#[track_caller]
fn places_of(x: &Tensor, tensors: &[Option<Named>]) -> Result<Tensor> {
    let at: Vec<usize> = (0..tensors.len()).filter(|&a| tensors[a].is_some()).collect();
    let shapes: Vec<&[usize]> = tensors.iter().flatten().map(|named| named.t.shape()).collect();
    let common = shape::broadcast_shapes("index", &shapes)?;
    let others: Vec<usize> = (0..x.rank()).filter(|a| !at.contains(a)).collect();
    let has_axes = |&&a: &&usize| tensors[a].as_ref().is_some_and(|named| named.t.rank() > 0);
    let before_axis = |axis: Option<&usize>| others.iter().filter(|&a| Some(a) < axis).count();
    let first = before_axis(at.iter().find(has_axes));
    let is_joined = first == before_axis(at.iter().rfind(has_axes));
    let before = if is_joined { first } else { 0 };
    let rank = others.len() + common.len();
    let strides = contiguous_strides(x.shape());
    let mut full: Vec<usize> = others.iter().map(|&a| x.shape()[a]).collect();
    full.splice(before..before, common.iter().copied());
    if shape::product(&full) == 0 {
        for (&axis, named) in at.iter().zip(tensors.iter().flatten()) {
            wrapped("index", &named.t, x.shape()[axis], 1)?;
        }
        return Tensor::zeros(&full, (DType::I64, x.device()));
    }
    let mut places = Tensor::zeros(&[], (DType::I64, x.device()))?.broadcast_to(&full)?;
    for (&axis, named) in at.iter().zip(tensors.iter().flatten()) {
        let mut line = named.t.shape().to_vec();
        line.resize(line.len() + rank - before - common.len(), 1);
        let own = wrapped("index", &named.t, x.shape()[axis], strides[axis])?;
        places = places.add(&own.reshape(&line)?)?;
    }
    for (order, &axis) in others.iter().enumerate() {
        let to = if order < before { order } else { order + common.len() };
        places = places.add(&steps(x.shape()[axis], strides[axis], to, rank, x.device())?)?;
    }
    Ok(places)
}

/// The only index tensor of an indexing, and its axis.
fn one_index(tensors: &[Option<Named>]) -> Option<(usize, &Named)> {
    let mut all = tensors.iter().enumerate().filter_map(|(axis, t)| Some((axis, t.as_ref()?)));
    all.next().filter(|_| all.next().is_none())
}

/// `x` with values written, or added, where an indexing has one index tensor and whole axes beside it; none where it has
/// others.
#[track_caller]
fn with_slices(
    x: &Tensor,
    parts: &[Index],
    values: &Tensor,
    accumulate: bool,
) -> Result<Option<Tensor>> {
    let is_whole = |part: &Index| {
        matches!(part, Index::Range(None, None, 1) | Index::Ellipsis | Index::Tensor(_))
    };
    if !parts.iter().all(is_whole) {
        return Ok(None);
    }
    let (view, tensors) = basic(x, parts)?;
    let Some((axis, index)) = one_index(&tensors) else { return Ok(None) };
    let (before, after) = (&view.shape()[..axis], &view.shape()[axis + 1..]);
    let named = [before, index.t.shape(), after].concat();
    let values = values.broadcast_to(&named)?.to_dtype(x.dtype())?;
    let flat = index.t.ravel()?;
    if !accumulate {
        let put = slices::put_slices("index_put", &view, axis, &flat, &values)?;
        return put.reshape(x.shape()).map(Some);
    }
    let flat = if index.is_mask { flat } else { wrapped("index", &flat, view.shape()[axis], 1)? };
    plus(x, &values, &|values| along::add_slices(view.shape(), axis, &flat, values)).map(Some)
}

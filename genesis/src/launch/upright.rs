//! On the CPU, dense copies of operands that a kernel would read across memory.
//!
//! Lanes along an axis of large steps are gathered from as many cache lines as there are, of which the next chunk needs
//! other elements; where rows are a power of two long, all of them lie in one set of the cache. A copy by tiles that
//! registers transpose costs a tenth of that. A GPU's kernels transpose in shared memory.

use genesis_kernel::kernel::Grid;
use genesis_kernel::runtime::{Arg, Device};
use genesis_kernel::tuning::elementwise::Tile;

use super::arguments::{own_view, view};
use super::config::chip;
use super::start::launch;
use crate::error::Result;
use crate::shape::{self, Axes, Layout, collapse_for_last};
use crate::tensor::Tensor;

/// Elements from which on a copy pays for its launch.
const WORTH: usize = 4096;
/// The shortest axes that a tile is made of.
const SIDE: usize = 16;

/// Whether elements of these strides follow each other along another axis than the last, on the CPU.
pub(super) fn lies_across(on: Device, shape: &[usize], strides: &[i64]) -> bool {
    let Some(last) = shape.len().checked_sub(1).filter(|_| on == Device::Cpu) else { return false };
    let runs = |axis: usize| strides[axis] == 1 && shape[axis] >= SIDE;
    strides[last] > 1 && shape[last] >= SIDE && (0..last).any(runs)
}

/// A copy of `t` whose elements follow each other along the last axis; none on a GPU, and where they do or are few.
pub(super) fn upright(t: &Tensor) -> Result<Option<Tensor>> {
    if !lies_across(t.device(), t.shape(), t.strides()) {
        return Ok(None);
    }
    // What is broadcast is copied once.
    let once = |(&extent, &stride): (&usize, &i64)| if stride == 0 { 1 } else { extent };
    let own: Axes<usize> = t.shape().iter().zip(t.strides()).map(once).collect();
    if shape::product(&own[..]) < WORTH {
        return Ok(None);
    }
    let dense = Tensor::uninitialized(&own, (t.dtype(), t.device()))?;
    let layout = Layout::new(own, t.strides().iter().copied().collect(), t.layout().offset());
    let Some(layout) = layout else { return Ok(None) };
    if !across(&Tensor::plain(t.storage().clone(), layout, t.dtype()), &dense)? {
        return Ok(None);
    }
    let layout = dense.layout().broadcast_to(t.shape());
    Ok(layout.map(|layout| Tensor::plain(dense.storage().clone(), layout, t.dtype())))
}

/// [`upright`] of an operand as a kernel sees it: with these extents and strides, from an element of its memory on.
pub(super) fn upright_view(
    t: &Tensor,
    shape: &[usize],
    strides: &[i64],
    offset: usize,
) -> Result<Option<Tensor>> {
    let layout =
        Layout::new(shape.iter().copied().collect(), strides.iter().copied().collect(), offset);
    let Some(layout) = layout else { return Ok(None) };
    upright(&Tensor::plain(t.storage().clone(), layout, t.dtype()))
}

/// Copies of the operands that lie across a walk, whose strides are changed to theirs, by their places: see [`upright()`].
/// Nothing where none does.
pub(super) fn upright_copies(
    inputs: &[&Tensor],
    shape: &[usize],
    strides: &mut [Vec<i64>],
) -> Result<Vec<Option<Tensor>>> {
    if !inputs.iter().zip(&*strides).any(|(t, of)| lies_across(t.device(), shape, of)) {
        return Ok(Vec::new());
    }
    let copy = |(t, of): (&&Tensor, &mut Vec<i64>)| {
        let copy = upright_view(t, shape, of, t.layout().offset())?;
        copy.iter().for_each(|copy| *of = copy.strides().to_vec());
        Ok(copy)
    };
    inputs.iter().zip(strides).map(copy).collect()
}

/// A tensor, or the copy that there is of it at its place.
pub(super) fn or_copy<'t>(copies: &'t [Option<Tensor>], place: usize, t: &'t Tensor) -> &'t Tensor {
    copies.get(place).and_then(Option::as_ref).unwrap_or(t)
}

/// Copies of the tensors that a kernel reads and that lie across its rows, by their places: see [`upright()`]. Nothing where
/// none does.
pub(super) fn upright_rows(tensors: &[(&Tensor, bool)]) -> Result<Vec<Option<Tensor>>> {
    let is_read_across = |&(t, mutable): &(&Tensor, bool)| {
        !mutable && lies_across(t.device(), t.shape(), t.strides())
    };
    if !tensors.iter().any(is_read_across) {
        return Ok(Vec::new());
    }
    let copy = |of: &(&Tensor, bool)| if is_read_across(of) { upright(of.0) } else { Ok(None) };
    tensors.iter().map(copy).collect()
}

/// Tensors as view arguments, or the copies that there are of them.
pub(super) fn views_of(tensors: &[(&Tensor, bool)], copies: &[Option<Tensor>]) -> Vec<Arg> {
    let all = tensors.iter().enumerate();
    all.map(|(place, &(t, mutable))| own_view(or_copy(copies, place, t), mutable)).collect()
}

/// Copies where the operand is dense along another axis than the result, by turning tiles; false where
/// that is not so.
pub(super) fn across(x: &Tensor, y: &Tensor) -> Result<bool> {
    let tile = Tile::transposed(&chip(y.device())).rows;
    let (shape, strides) = collapse_for_last(&[x.layout(), y.layout()]);
    if !(2..=4).contains(&shape.len()) {
        return Ok(false);
    }
    let last = shape.len() - 1;
    let turned = (0..last).rev().find(|&axis| strides[0][axis] == 1 && shape[axis] >= 16);
    let Some(turned) = turned else { return Ok(false) };
    if y.numel() == 0 || strides[0][last] == 1 || strides[1][last] != 1 || shape[last] < 16 {
        return Ok(false);
    }
    let mut order: Vec<usize> = (0..last).filter(|&axis| axis != turned).collect();
    order.extend([turned, last]);
    let pad = 4 - order.len();
    let along = |order: &[usize], of: &[i64], fill: i64| -> Vec<i64> {
        std::iter::repeat_n(fill, pad).chain(order.iter().map(|&axis| of[axis])).collect()
    };
    let extents: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
    let to_usize = |v: Vec<i64>| -> Vec<usize> { v.into_iter().map(|e| e as usize).collect() };
    let dims = to_usize(along(&order, &extents, 1));
    let out = view(y, &dims, &along(&order, &strides[1], 0), true);
    order.swap(last - 1, last);
    let from = to_usize(along(&order, &extents, 1));
    let operand = view(x, &from, &along(&order, &strides[0], 0), false);
    let grid = dims[0] * dims[1] * dims[2].div_ceil(tile) * dims[3].div_ceil(tile);
    let (dtypes, consts) = ([x.dtype(), y.dtype()], [tile as i64, tile as i64]);
    let kernel = &kernels::copy::cast_across::KERNEL;
    launch(kernel, y, Grid::x(grid), &dtypes, &consts, &[operand, out])?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_across_runs_along_another_axis() {
        assert!(lies_across(Device::Cpu, &[32, 64], &[1, 32]));
        assert!(lies_across(Device::Cpu, &[2, 32, 64], &[0, 1, 32]));
        assert!(!lies_across(Device::Cpu, &[32, 64], &[64, 1]));
        assert!(!lies_across(Device::Cpu, &[32, 64], &[1, 0]));
        assert!(!lies_across(Device::Cpu, &[32, 64], &[128, 2]));
        assert!(!lies_across(Device::Cpu, &[32, 4], &[1, 32]));
        assert!(!lies_across(Device::Cpu, &[], &[]));
        assert!(!lies_across(Device::Cuda(0), &[32, 64], &[1, 32]));
    }
}

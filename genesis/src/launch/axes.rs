//! Copies along any number of axes, in one launch.
//!
//! What lies along the last axis is a line; the number of a line is taken apart into its coordinates along the other
//! axes by the thread that has it. How much of a line a program takes follows from how long it is, so that no shape
//! leaves most of a program's threads without work:
//!
//! | elements of a line | columns of a program |
//! |---|---|
//! | 1000 | 256 of each of 4 lines |
//! | 7 | 8 of each of 128 lines |
//! | 2 | 1: an element is a line, of one axis more |

use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::elementwise::Tile;

use super::config::chip;
use crate::shape::{collapse, collapse_for_last};
use crate::tensor::Tensor;

/// The most axes of one launch, that of the elements of a line among them.
const MAX_AXES: usize = 8;
/// Bytes that a program copies on a GPU: two vectors of 16 bytes a thread.
const BYTES: usize = 32 * 32 * WARPS;
/// Warps of a program on a GPU.
const WARPS: usize = 4;
/// Columns on the CPU, at least.
const CPU_COLS: usize = 16;
/// Elements that a program copies on the CPU.
const CPU_NUMEL: usize = 1024;

/// Columns of a program for lines of `n` elements: most of them are there. One where lines are too short.
fn columns(n: usize) -> usize {
    let is_full = |&cols: &usize| 4 * n >= 3 * n.div_ceil(cols) * cols;
    [256, 128, 64, 32, 16, 8, 4].into_iter().find(is_full).unwrap_or(1)
}

/// Extents and strides of four axes at most, with axes of extent 1 before them.
fn four(axes: &[usize], strides: &[i64]) -> ([usize; 4], [i64; 4]) {
    let (mut extents, mut steps) = ([1; 4], [0; 4]);
    let pad = 4 - axes.len();
    extents[pad..].copy_from_slice(axes);
    steps[pad..].copy_from_slice(strides);
    (extents, steps)
}

/// Extents and strides of a tensor along its last four axes, and along those before them.
fn halves(shape: &[usize], strides: &[i64]) -> [([usize; 4], [i64; 4]); 2] {
    let cut = shape.len().saturating_sub(4);
    [four(&shape[cut..], &strides[cut..]), four(&shape[..cut], &strides[..cut])]
}

/// How a copy is launched.
pub(super) struct Walk {
    /// Extents and strides of the operand along the last four axes and those before them, then of the result.
    pub(super) views: [([usize; 4], [i64; 4]); 4],
    pub(super) consts: [i64; 4],
    pub(super) programs: usize,
    pub(super) warps: Option<u32>,
}

/// Whether the tiles of a strided kernel would be empty by more than half, or have too few axes.
pub(super) fn are_short(x: &Tensor, y: &Tensor) -> bool {
    let (shape, _) = collapse_for_last(&[x.layout(), y.layout()]);
    let extent = |from_end: usize| shape.len().checked_sub(from_end).map_or(1, |axis| shape[axis]);
    let (down, across) = (extent(2), extent(1));
    let bytes = x.dtype().bytes().max(y.dtype().bytes());
    let Tile { rows, cols, .. } = Tile::of(&chip(y.device()), bytes, down, across);
    let taken = down.next_multiple_of(rows) * across.next_multiple_of(cols);
    shape.len() > 4 || 2 * down * across < taken
}

/// The walk of `y = x`; none where there are more axes or elements than one launch takes, or it would be slower.
pub(super) fn walk(x: &Tensor, y: &Tensor) -> Option<Walk> {
    let (mut shape, strides) = collapse_for_last(&[x.layout(), y.layout()]);
    let [mut from, mut to]: [Vec<i64>; 2] = strides.try_into().expect("two layouts");
    let cols = columns(shape.last().copied().unwrap_or(1));
    // Elements of short lines are gathered one by one on the CPU, where a launch a slice costs less.
    if y.device() == Device::Cpu && cols < CPU_COLS {
        return None;
    }
    if cols == 1 {
        // An element is a line of its own.
        shape.push(1);
        from.push(1);
        to.push(1);
    }
    let axes = shape.len();
    if axes > MAX_AXES || y.numel() >= 1 << 31 {
        return None;
    }
    let (numel, warps) = match y.device() {
        Device::Cpu => (CPU_NUMEL, None),
        Device::Cuda(_) => {
            let bytes = x.dtype().bytes().max(y.dtype().bytes());
            (BYTES / bytes.next_power_of_two(), Some(WARPS as u32))
        }
    };
    let (lines, n) = (numel / cols, shape[axes - 1]);
    let programs = (y.numel() / n).div_ceil(lines) * n.div_ceil(cols);
    let is_dense = i64::from(y.is_contiguous());
    let consts = [axes.clamp(4, MAX_AXES) as i64, is_dense, lines as i64, cols as i64];
    let ([x_inner, x_outer], [y_inner, y_outer]) = (halves(&shape, &from), halves(&shape, &to));
    Some(Walk { views: [x_inner, x_outer, y_inner, y_outer], consts, programs, warps })
}

/// The number of axes that a tensor has in memory.
pub(super) fn own_axes(t: &Tensor) -> usize {
    collapse(&[t.layout()]).0.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_columns_are_there() {
        let table =
            [(1000, 256), (256, 256), (65, 16), (17, 4), (16, 16), (8, 8), (7, 8), (3, 4), (2, 1)];
        for (n, cols) in table {
            assert_eq!(columns(n), cols, "{n}");
        }
    }
}

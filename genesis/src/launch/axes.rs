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
//! | 64 read across memory, of a few lines | 64 of each of 2 lines: an element a thread, so that many wait at once |
//! | 2, dense, and there are 1000 along the axis before | 2 of each of 1024 lines of a plane, whose number is taken apart once |

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::runtime::Device;
use genesis_kernel::tuning::elementwise::Tile;
use kernels::copy as device;

use super::config::chip;
use crate::shape::{collapse, collapse_for_last};
use crate::tensor::Tensor;

/// The most axes of one launch, that of the elements of a line among them.
const MAX_AXES: usize = 8;
/// Bytes that a program copies on a GPU: two vectors of 16 bytes a thread.
const BYTES: usize = 32 * 32 * WARPS;
/// Warps of a program on a GPU.
const WARPS: usize = 4;
/// Elements that a program copies of few: one a thread.
const LITTLE: usize = 32 * WARPS;
/// Columns on the CPU, at least.
const CPU_COLS: usize = 16;
/// The longest lines of which a plane is walked as one.
const LONGEST: usize = 16;
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

/// Lines of a plane that a program has: as many as `most`, or the fewest powers of two that most of are there; none where planes
/// have few lines.
fn lines_of_plane(down: usize, most: usize) -> Option<usize> {
    const FEWEST: usize = 64;
    let is_full = |lines: &usize| 4 * down >= 3 * down.next_multiple_of(*lines);
    let halves = std::iter::successors(Some(most), |&lines| (lines > FEWEST).then_some(lines / 2));
    halves.into_iter().find(is_full)
}

/// How a copy is launched.
pub(super) struct Walk {
    pub(super) kernel: &'static KernelDef,
    /// Extents and strides of the operand along the last four axes and those before them, then of the result.
    pub(super) views: [([usize; 4], [i64; 4]); 4],
    pub(super) consts: Vec<i64>,
    pub(super) programs: usize,
    pub(super) warps: Option<u32>,
}

/// Whether the tiles of a strided kernel would be empty by more than half, have too few axes, or be read across memory by
/// few multiprocessors.
pub(super) fn suits(x: &Tensor, y: &Tensor) -> bool {
    let (shape, strides) = collapse_for_last(&[x.layout(), y.layout()]);
    let extent = |from_end: usize| shape.len().checked_sub(from_end).map_or(1, |axis| shape[axis]);
    let (down, across) = (extent(2), extent(1));
    let bytes = x.dtype().bytes().max(y.dtype().bytes());
    let Tile { rows, cols, .. } = Tile::of(&chip(y.device()), bytes, down, across);
    let taken = down.next_multiple_of(rows) * across.next_multiple_of(cols);
    let is_read_across = strides[0].last().is_some_and(|&step| step.abs() > 1);
    shape.len() > 4 || 2 * down * across < taken || is_read_across && is_little(x, y)
}

/// Whether a GPU's multiprocessors would not all have a program of [`BYTES`].
fn is_little(x: &Tensor, y: &Tensor) -> bool {
    let chip = chip(y.device());
    !chip.is_cpu() && y.numel() < chip.multiprocessors() * elements(x, y)
}

/// The walk of `y = x`; none where there are more axes or elements than one launch takes, or it would be slower.
pub(super) fn walk(x: &Tensor, y: &Tensor) -> Option<Walk> {
    let (mut shape, strides) = collapse_for_last(&[x.layout(), y.layout()]);
    let [mut from, mut to]: [Vec<i64>; 2] = strides.try_into().expect("two layouts");
    if let Some(walk) = walk_of_planes(x, y, &shape, [&from, &to]) {
        return Some(walk);
    }
    let (numel, warps) = match y.device() {
        Device::Cpu => (CPU_NUMEL, None),
        Device::Cuda(_) if is_little(x, y) => (LITTLE, Some(WARPS as u32)),
        Device::Cuda(_) => (elements(x, y), Some(WARPS as u32)),
    };
    let cols = columns(shape.last().copied().unwrap_or(1)).min(numel);
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
    let (lines, n) = (numel / cols, shape[axes - 1]);
    let programs = (y.numel() / n).div_ceil(lines) * n.div_ceil(cols);
    let is_dense = i64::from(y.is_contiguous());
    let consts = vec![axes.clamp(4, MAX_AXES) as i64, is_dense, lines as i64, cols as i64];
    let views = views(&shape, [&from, &to]);
    Some(Walk { kernel: &device::cast_axes::KERNEL, views, consts, programs, warps })
}

/// Elements that a program copies on a GPU.
fn elements(x: &Tensor, y: &Tensor) -> usize {
    let bytes = x.dtype().bytes().max(y.dtype().bytes());
    BYTES / bytes.next_power_of_two()
}

fn views(shape: &[usize], [from, to]: [&[i64]; 2]) -> [([usize; 4], [i64; 4]); 4] {
    let ([x_inner, x_outer], [y_inner, y_outer]) = (halves(shape, from), halves(shape, to));
    [x_inner, x_outer, y_inner, y_outer]
}

/// A walk of planes of short lines that lie dense in the result, on a GPU.
fn walk_of_planes(x: &Tensor, y: &Tensor, shape: &[usize], steps: [&[i64]; 2]) -> Option<Walk> {
    let [.., down, cols] = *shape else { return None };
    let is_short = cols.is_power_of_two() && (2..=LONGEST).contains(&cols);
    let fits = shape.len() <= MAX_AXES && y.numel() < 1 << 31;
    if y.device() == Device::Cpu || !is_short || !fits || !y.is_contiguous() {
        return None;
    }
    let lines = lines_of_plane(down, elements(x, y) / cols)?;
    let programs = y.numel() / (down * cols) * down.div_ceil(lines);
    let consts = vec![shape.len().clamp(4, MAX_AXES) as i64, lines as i64, cols as i64];
    let (kernel, views, warps) =
        (&device::cast_planes::KERNEL, views(shape, steps), Some(WARPS as u32));
    Some(Walk { kernel, views, consts, programs, warps })
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

    #[test]
    fn most_lines_of_a_plane_are_there() {
        let table =
            [(256, Some(256)), (255, Some(256)), (1000, Some(512)), (48, Some(64)), (30, None)];
        for (down, lines) in table {
            assert_eq!(lines_of_plane(down, 512), lines, "{down}");
        }
    }
}

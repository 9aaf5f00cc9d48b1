//! Fill and copy: the kernels that only move values.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &fill::KERNEL,
    &fill_flat::KERNEL,
    &arange_flat::KERNEL,
    &linspace_flat::KERNEL,
    &cast_flat::KERNEL,
    &cast::KERNEL,
    &cast_across::KERNEL,
];

/// Where tile `program_id(0)` of `ROWS` by `COLS` elements begins in a tensor of four axes.
///
/// The last two axes are cut into tiles; tiles are counted with the last axis fastest.
#[device]
pub fn tile_origin<const ROWS: usize, const COLS: usize>(
    d1: i64,
    d2: i64,
    d3: i64,
) -> (i64, i64, i64, i64) {
    // The grid has less than 2^31 programs, so that all of these fit: 64-bit division is slow.
    let across = cdiv(d3, COLS).to::<u32>();
    let down = cdiv(d2, ROWS).to::<u32>();
    let middle = d1.to::<u32>();
    let tile = program_id(0).to::<u32>();
    let line = tile / across;
    let plane = line / down;
    let outer = plane / middle;
    let inner = plane - outer * middle;
    let (row, col) = (line - plane * down, tile - line * across);
    (outer.to::<i64>(), inner.to::<i64>(), row.to::<i64>() * ROWS, col.to::<i64>() * COLS)
}

/// Where tile `program_id(0)` of `ROWS` by `COLS` elements begins in a matrix of `n` columns.
#[device]
pub fn matrix_tile_origin<const ROWS: usize, const COLS: usize>(n: i64) -> (i64, i64) {
    let across = cdiv(n, COLS).to::<i32>();
    let tile = program_id(0).to::<i32>();
    ((tile / across).to::<i64>() * ROWS, (tile % across).to::<i64>() * COLS)
}

/// `y = value` in every element.
#[kernel]
pub fn fill<T: Element, const ROWS: usize, const COLS: usize>(y: ViewMut<T, 4>, value: T) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    y.store([a, b, i, j], full::<T, 1, 1, ROWS, COLS>(value));
}

/// `y = value` in every element of a dense tensor.
#[kernel]
pub fn fill_flat<T: Element, const BLOCK: usize>(y: ViewMut<T, 1>, value: T) {
    y.store([program_id(0) * BLOCK], full::<T, BLOCK>(value));
}

/// `y[i] = start + i * step`, computed in f64 and converted.
#[kernel]
pub fn arange_flat<T: Element, const BLOCK: usize>(y: ViewMut<T, 1>, start: f64, step: f64) {
    let at = program_id(0) * BLOCK;
    let i = (arange::<BLOCK>() + at).to::<f64>();
    y.store([at], (i * step + start).to::<T>());
}

/// `y[i] = start + i * step` in the first half, `end - (n - 1 - i) * step` in the other, so that both ends are
/// exact; computed in f64 and converted.
#[kernel]
pub fn linspace_flat<T: Element, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    start: f64,
    end: f64,
    step: f64,
) {
    let at = program_id(0) * BLOCK;
    let (i, n) = (arange::<BLOCK>() + at, y.dim(0));
    let first = i.to::<f64>() * step + start;
    let last = (n - 1 - i).to::<f64>() * -step + end;
    y.store([at], where_(i < cdiv(n, 2), first, last).to::<T>());
}

/// `y = x`, converted; both of one shape and dense.
#[kernel]
pub fn cast_flat<T: Element, U: Element, const BLOCK: usize>(x: View<T, 1>, y: ViewMut<U, 1>) {
    let i = program_id(0) * BLOCK;
    y.store([i], x.load::<BLOCK>([i]).to::<U>());
}

/// `y = x`, converted; both of one shape, any strides.
#[kernel]
pub fn cast<T: Element, U: Element, const ROWS: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<U, 4>,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    y.store([a, b, i, j], x.load::<1, 1, ROWS, COLS>([a, b, i, j]).to::<U>());
}

/// `y = x` transposed over the last two axes, converted: `y[a, b, i, j] = x[a, b, j, i]`.
///
/// Both are read and written along their last axis; the tile is turned in between.
#[kernel]
pub fn cast_across<T: Element, U: Element, const ROWS: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<U, 4>,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    let v = x.load::<1, 1, COLS, ROWS>([a, b, j, i]).squeeze(0).squeeze(0);
    y.store([a, b, i, j], v.trans().to::<U>().expand_dims(0).expand_dims(0));
}

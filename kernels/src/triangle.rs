//! Triangles of matrices, and where their elements stand.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::{matrix_tile_origin, tile_origin};

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&triangle::KERNEL, &diagonal::KERNEL, &triangle_indices::KERNEL];

/// `y = x` of matrices, on and below a diagonal, or with `UPPER` on and above it; zero elsewhere.
#[kernel]
pub fn triangle<T: Element, const LINES: usize, const COLS: usize, const UPPER: bool>(
    x: View<T, 3>,
    y: ViewMut<T, 3>,
    diagonal: i64,
) {
    let (_, plane, i, j) = tile_origin::<LINES, COLS>(y.dim(0), y.dim(1), y.dim(2));
    let row = (i + arange::<LINES>() + diagonal).col();
    let col = (j + arange::<COLS>()).row();
    let is_kept = if UPPER { col >= row } else { col <= row };
    let v = x.load::<1, LINES, COLS>([plane, i, j]).squeeze(0);
    y.store([plane, i, j], where_(is_kept, v, zeros_like(v)).expand_dims(0));
}

/// `y[i, j] = 1` where `i` is `j`, else 0.
#[kernel]
pub fn diagonal<T: Element, const LINES: usize, const COLS: usize>(y: ViewMut<T, 2>) {
    let (i, j) = matrix_tile_origin::<LINES, COLS>(y.dim(1));
    let is_same = (i + arange::<LINES>()).col() == (j + arange::<COLS>()).row();
    y.store([i, j], is_same.to::<T>());
}

/// How many columns of `n` are before a diagonal in each row: `row + offset`, but not less than none or more than all.
#[device]
fn before<const LINES: usize>(row: Col<i64, LINES>, n: i64, offset: i64) -> Col<i64, LINES> {
    clamp(row + offset, 0, n)
}

/// The sum of [`before`] over the rows before each: they have none, then one more each, then all.
#[device]
fn before_all<const LINES: usize>(row: Col<i64, LINES>, n: i64, offset: i64) -> Col<i64, LINES> {
    let first = minimum(row, maximum(-offset, 0));
    let full = maximum(first, minimum(row, n - offset));
    let growing = full - first;
    growing * offset + growing * (first + full - 1) / 2 + (row - full) * n
}

/// The places on and below a diagonal of a matrix of `n` columns, or with `UPPER` on and above it, in the order of
/// rows: `y[0]` has the rows, counted from `first_row`, `y[1]` the columns from `first_col`. Row 0 has `offset` columns
/// before the diagonal.
#[kernel]
pub fn triangle_indices<T: Int, const LINES: usize, const COLS: usize, const UPPER: bool>(
    y: ViewMut<T, 2>,
    rows: i64,
    n: i64,
    offset: i64,
    first_row: i64,
    first_col: i64,
) {
    let (i, j) = matrix_tile_origin::<LINES, COLS>(n);
    let row = (i + arange::<LINES>()).col();
    let col = (j + arange::<COLS>()).row();
    let edge = before::<LINES>(row, n, offset);
    let passed = before_all::<LINES>(row, n, offset);
    let is_there = (row < rows) & (col < n);
    let is_kept = if UPPER { is_there & (col >= edge) } else { is_there & (col < edge) };
    let start = if UPPER { row * n - passed - edge } else { passed };
    let to = start + col;
    store(y.ptr() + to, (row + first_row).to::<T>(), is_kept);
    store(y.ptr() + (y.stride(0) + to), (col + first_col).to::<T>(), is_kept);
}

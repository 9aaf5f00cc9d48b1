//! Fill and copy: the kernels that only move values.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &fill::KERNEL,
    &fill_flat::KERNEL,
    &arange_flat::KERNEL,
    &linspace_flat::KERNEL,
    &logspace_flat::KERNEL,
    &cast_flat::KERNEL,
    &cast::KERNEL,
    &cast_across::KERNEL,
    &cast_axes::KERNEL,
    &cast_planes::KERNEL,
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

/// Where tile `program_id(0)` of an index along one axis begins in its four axes, of a tensor whose rows are `step` apart, 0
/// where the index counts along them.
///
/// Tiles below each other then come one after the other: what they name lies in the same columns, few enough of which are
/// read or written at a time that the second-level cache holds them. Else tiles are counted as by [`tile_origin`].
#[device]
pub fn indexed_origin<const ROWS: usize, const COLS: usize>(
    d1: i64,
    d2: i64,
    d3: i64,
    step: i64,
) -> (i64, i64, i64, i64) {
    let across = cdiv(d3, COLS).to::<u32>();
    let down = cdiv(d2, ROWS).to::<u32>();
    let middle = d1.to::<u32>();
    let tile = program_id(0).to::<u32>();
    let is_down = step == 0;
    let fast = where_(is_down, down, across);
    let line = tile / fast;
    let first = tile - line * fast;
    let slow = where_(is_down, across, down);
    let plane = line / slow;
    let second = line - plane * slow;
    let outer = plane / middle;
    let inner = plane - outer * middle;
    let (row, col) = (where_(is_down, first, second), where_(is_down, second, first));
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

/// `base` to the power of what [`mod@linspace_flat`] writes, computed in f64 and converted.
#[kernel]
pub fn logspace_flat<T: Element, const BLOCK: usize>(
    y: ViewMut<T, 1>,
    start: f64,
    end: f64,
    step: f64,
    base: f64,
) {
    let at = program_id(0) * BLOCK;
    let (i, n) = (arange::<BLOCK>() + at, y.dim(0));
    let first = i.to::<f64>() * step + start;
    let last = (n - 1 - i).to::<f64>() * -step + end;
    let power = where_(i < cdiv(n, 2), first, last);
    y.store([at], pow(full::<f64, BLOCK>(base), power).to::<T>());
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

/// The coordinate of a line along an axis of `extent`, and which line of the axes before it that is.
#[device]
fn part_axis<const LINES: usize>(
    line: Col<u32, LINES>,
    extent: i64,
) -> (Col<u32, LINES>, Col<i64, LINES>) {
    // Lines are less than 2^31: 64-bit division is slow.
    let before = line / extent.to::<u32>();
    (before, (line - before * extent.to::<u32>()).to::<i64>())
}

/// `y = x`, converted, along up to eight axes: `x` and `y` have the last four, and `x_outer` and `y_outer` the strides
/// along those before them, of which there are `AXES - 4`.
///
/// A line is what lies along the last axis; a program takes `COLS` elements of each of `LINES` lines, so that short
/// lines fill it as well as long ones. `DENSE` says that `y` is dense.
#[kernel]
pub fn cast_axes<
    T: Element,
    U: Element,
    const AXES: usize,
    const DENSE: bool,
    const LINES: usize,
    const COLS: usize,
>(
    x: View<T, 4>,
    x_outer: View<T, 4>,
    y: ViewMut<U, 4>,
    y_outer: View<U, 4>,
) {
    let n = y.dim(3);
    let across = cdiv(n, COLS).to::<u32>();
    let tile = program_id(0).to::<u32>();
    let down = tile / across;
    let first = down.to::<i64>() * LINES;
    let col = ((tile - down * across).to::<i64>() * COLS + arange::<COLS>()).row();
    let own = (first + arange::<LINES>()).col();
    let (line, k) = part_axis::<LINES>(own.to::<u32>(), y.dim(2));
    let (mut from, mut to) = (k * x.stride(2), k * y.stride(2));
    let (line, k) = part_axis::<LINES>(line, y.dim(1));
    from += k * x.stride(1);
    to += k * y.stride(1);
    let mut lines = y.dim(0) * y.dim(1) * y.dim(2);
    if AXES > 4 {
        let (line, k) = part_axis::<LINES>(line, y.dim(0));
        from += k * x.stride(0);
        to += k * y.stride(0);
        let (line, k) = part_axis::<LINES>(line, y_outer.dim(3));
        from += k * x_outer.stride(3);
        to += k * y_outer.stride(3);
        lines *= y_outer.dim(3);
        if AXES > 5 {
            let (line, k) = part_axis::<LINES>(line, y_outer.dim(2));
            from += k * x_outer.stride(2);
            to += k * y_outer.stride(2);
            lines *= y_outer.dim(2);
            if AXES > 6 {
                let (line, k) = part_axis::<LINES>(line, y_outer.dim(1));
                let last = line.to::<i64>();
                from += k * x_outer.stride(1) + last * x_outer.stride(0);
                to += k * y_outer.stride(1) + last * y_outer.stride(0);
                lines *= y_outer.dim(1) * y_outer.dim(0);
            }
        }
    } else {
        let last = line.to::<i64>();
        from += last * x.stride(0);
        to += last * y.stride(0);
    }
    let inside = (own < lines) & (col < n);
    let v = load(x.ptr() + (from + col * x.stride(3)), inside).to::<U>();
    if DENSE {
        store(y.ptr() + (own * n + col), v, inside);
    } else {
        store(y.ptr() + (to + col * y.stride(3)), v, inside);
    }
}

/// The coordinate of a plane along an axis of `extent`, and which plane of the axes before it that is.
#[device]
fn part_plane(plane: u32, extent: i64) -> (u32, i64) {
    let before = plane / extent.to::<u32>();
    (before, (plane - before * extent.to::<u32>()).to::<i64>())
}

/// [`mod@cast_axes`] to a dense result whose lines have `COLS` elements, where many lines lie along the axis before: a program
/// has `LINES` of one plane, so that one thread and not each takes the number of a line apart.
#[kernel]
pub fn cast_planes<
    T: Element,
    U: Element,
    const AXES: usize,
    const LINES: usize,
    const COLS: usize,
>(
    x: View<T, 4>,
    x_outer: View<T, 4>,
    y: ViewMut<U, 4>,
    y_outer: View<U, 4>,
) {
    let down = cdiv(y.dim(2), LINES).to::<u32>();
    let tile = program_id(0).to::<u32>();
    let own = tile / down;
    let row = (tile - own * down).to::<i64>() * LINES + arange::<LINES>();
    let (plane, k) = part_plane(own, y.dim(1));
    let mut from = k * x.stride(1);
    if AXES > 4 {
        let (plane, k) = part_plane(plane, y.dim(0));
        from += k * x.stride(0);
        let (plane, k) = part_plane(plane, y_outer.dim(3));
        from += k * x_outer.stride(3);
        if AXES > 5 {
            let (plane, k) = part_plane(plane, y_outer.dim(2));
            from += k * x_outer.stride(2);
            if AXES > 6 {
                let (plane, k) = part_plane(plane, y_outer.dim(1));
                from += k * x_outer.stride(1) + plane.to::<i64>() * x_outer.stride(0);
            }
        }
    } else {
        from += plane.to::<i64>() * x.stride(0);
    }
    let inside = (row < y.dim(2)).col().broadcast_to::<LINES, COLS>();
    let col = arange::<COLS>().row();
    let v = load(x.ptr() + (from + (row * x.stride(2)).col() + col * x.stride(3)), inside);
    let to = own.to::<i64>() * y.dim(2) * COLS + (row * COLS).col() + col;
    store(y.ptr() + to, v.to::<U>(), inside);
}

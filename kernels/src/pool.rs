//! Pools and resampling: each element of a result gathers what it is made of, by a table an axis.
//!
//! `table[output, tap]` is a coordinate of the input, or -1 for none. A gradient is the same kernel with
//! the tables turned, so that nothing is added at places that others write.
//!
//! A line of results lies along the last axis. A program has `COLS` results of each of `LINES` lines, so that what the
//! tables say of lines is read once for all of a line's; of windows of many elements (`*_wide`) it has one, and
//! `LINES` by `COLS` of its elements at a time.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &resample::KERNEL,
    &resample_wide::KERNEL,
    &max_pool::KERNEL,
    &max_pool_wide::KERNEL,
    &max_pool_bwd::KERNEL,
];

/// The lines and the columns of program `program_id(0)`, where lines have `width` columns.
#[device]
fn own_lines<const LINES: usize, const COLS: usize>(
    width: i64,
) -> (Tile1<i64, LINES>, Tile1<i64, COLS>) {
    let across = cdiv(width, COLS).to::<u32>();
    let tile = program_id(0).to::<u32>();
    let down = tile / across;
    let first = (tile - down * across).to::<i64>() * COLS;
    (down.to::<i64>() * LINES + arange::<LINES>(), first + arange::<COLS>())
}

/// Where lines of a dense `[.., depth, height, width]` lie: before the last three axes, and along the first two of them.
/// A launch is of less than 2^31 elements: numbers of 64 bits are slow to divide, and take two registers.
#[device]
fn along_axes<S: Shape>(
    line: Tile<i64, S>,
    depth: i64,
    height: i64,
) -> (Tile<i32, S>, Tile<i32, S>, Tile<i32, S>) {
    let number = line.to::<u32>();
    let plane = number / height.to::<u32>();
    let outer = plane / depth.to::<u32>();
    let (d, i) = (plane - outer * depth.to::<u32>(), number - plane * height.to::<u32>());
    (outer.to::<i32>(), d.to::<i32>(), i.to::<i32>())
}

/// Where a table of so many taps an output has one of them.
#[device]
fn tap_of<S: Shape>(output: Tile<i32, S>, taps: i64, tap: i64) -> Tile<i64, S> {
    (output * taps.to::<i32>() + tap.to::<i32>()).to::<i64>()
}

/// A coordinate that is below an extent, else -1.
#[device]
fn inner<S: Shape>(coordinate: Tile<i32, S>, extent: i64) -> Tile<i32, S> {
    where_(coordinate < extent.to::<i32>(), coordinate, -1)
}

/// The first element of a line of a dense `[.., depth, height, width]`.
#[device]
fn line_of<S: Shape>(
    outer: Tile<i32, S>,
    z: Tile<i32, S>,
    row: Tile<i32, S>,
    depth: i64,
    height: i64,
    width: i64,
) -> Tile<i32, S> {
    ((outer * depth.to::<i32>() + z) * height.to::<i32>() + row) * width.to::<i32>()
}

/// Where the result of program `program_id(0)` stands in a dense `[.., depth, height, width]` of less than 2^31 elements.
#[device]
fn own_result(depth: i64, height: i64, width: i64) -> (i64, i64, i64, i64) {
    let number = program_id(0).to::<u32>();
    let line = number / width.to::<u32>();
    let plane = line / height.to::<u32>();
    let outer = plane / depth.to::<u32>();
    let (d, i) = (plane - outer * depth.to::<u32>(), line - plane * height.to::<u32>());
    let j = number - line * width.to::<u32>();
    (outer.to::<i64>(), d.to::<i64>(), i.to::<i64>(), j.to::<i64>())
}

/// `acc` and what tap `c` of `taps` along the last axis sees of lines, times their weights `v`.
#[device]
fn plus_tap<T: Float, A: Float, const LINES: usize, const COLS: usize>(
    acc: Tile2<A, LINES, COLS>,
    x: View<T, 4>,
    columns: View<i32, 2>,
    by_column: View<A, 2>,
    line: Col<i32, LINES>,
    is_line: Col<bool, LINES>,
    v: Col<A, LINES>,
    j: Tile1<i64, COLS>,
    is_column: Tile1<bool, COLS>,
    taps: i64,
    c: i64,
) -> Tile2<A, LINES, COLS> {
    let at = j * taps + c;
    let column = inner(load(columns.ptr() + at, is_column, -1), x.dim(3)).row();
    let w = v * load(by_column.ptr() + at, is_column).row();
    let is_there = is_line & (column >= 0);
    let seen = load(x.ptr() + (line + column).to::<i64>(), is_there).to::<A>();
    where_(is_there, fma(w, seen, acc), acc)
}

/// `y[.., d, i, j] = sum over a, b, c of weights[a] weights[b] weights[c] x[.., at a, at b, at c]`, both
/// dense. `TAPS` is how many there are along the last axis, or 0: where it is known, none waits for another.
#[kernel]
pub fn resample<T: Float, A: Float, const TAPS: usize, const LINES: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    by_depth: View<A, 2>,
    by_row: View<A, 2>,
    by_column: View<A, 2>,
) {
    let (depth, height, width) = (y.dim(1), y.dim(2), y.dim(3));
    let (number, j) = own_lines::<LINES, COLS>(width);
    let (inside, is_column) = (number < y.dim(0) * depth * height, j < width);
    let (outer, d, i) = along_axes(number, depth, height);
    let mut acc = zeros::<A, LINES, COLS>();
    // No load of a table waits for another: masks are of what is inside, not of what a table says.
    for a in range(0, depths.dim(1), 1) {
        let at = tap_of(d, depths.dim(1), a);
        let z = inner(load(depths.ptr() + at, inside, -1), x.dim(1));
        let u = load(by_depth.ptr() + at, inside);
        for b in range(0, rows.dim(1), 1) {
            let at = tap_of(i, rows.dim(1), b);
            let row = inner(load(rows.ptr() + at, inside, -1), x.dim(2));
            let v = (u * load(by_row.ptr() + at, inside)).col();
            let line = line_of(outer, z, row, x.dim(1), x.dim(2), x.dim(3)).col();
            let is_line = ((z >= 0) & (row >= 0)).col();
            if TAPS > 0 {
                for c in static_range(0, TAPS) {
                    acc = plus_tap::<T, A, LINES, COLS>(
                        acc, x, columns, by_column, line, is_line, v, j, is_column, TAPS, c,
                    );
                }
            } else {
                for c in range(0, columns.dim(1), 1) {
                    let taps = columns.dim(1);
                    acc = plus_tap::<T, A, LINES, COLS>(
                        acc, x, columns, by_column, line, is_line, v, j, is_column, taps, c,
                    );
                }
            }
        }
    }
    let to = (number * width).col() + j.row();
    store(y.ptr() + to, acc.to::<T>(), inside.col() & is_column.row());
}

/// [`mod@resample`] of windows of many elements.
#[kernel]
pub fn resample_wide<T: Float, A: Float, const LINES: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    by_depth: View<A, 2>,
    by_row: View<A, 2>,
    by_column: View<A, 2>,
) {
    let (outer, d, i, j) = own_result(y.dim(1), y.dim(2), y.dim(3));
    let mut acc = zeros::<A, LINES, COLS>();
    for a in range(0, depths.dim(1), 1) {
        let at = d * depths.dim(1) + a;
        let z = load(depths.ptr() + at).to::<i64>();
        let z = where_(z < x.dim(1), z, -1);
        let u = load(by_depth.ptr() + at);
        for b in range(0, rows.dim(1), LINES) {
            let tap = b + arange::<LINES>();
            let (at, is_tap) = (i * rows.dim(1) + tap, tap < rows.dim(1));
            let row = inner(load(rows.ptr() + at, is_tap, -1), x.dim(2));
            let v = (u * load(by_row.ptr() + at, is_tap)).col();
            let line = (((outer * x.dim(1) + z) * x.dim(2) + row.to::<i64>()) * x.dim(3)).col();
            let is_line = ((row >= 0) & (z >= 0)).col();
            for c in range(0, columns.dim(1), COLS) {
                let tap = c + arange::<COLS>();
                let (at, is_tap) = (j * columns.dim(1) + tap, tap < columns.dim(1));
                let column = inner(load(columns.ptr() + at, is_tap, -1), x.dim(3)).row();
                let w = v * load(by_column.ptr() + at, is_tap).row();
                let is_there = is_line & (column >= 0);
                let seen = load(x.ptr() + (line + column.to::<i64>()), is_there).to::<A>();
                acc = where_(is_there, fma(w, seen, acc), acc);
            }
        }
    }
    store(y.ptr() + program_id(0), sum(sum(acc, 1), 0).to::<T>());
}

/// The largest element of each window and where it stands in the last three axes; NaN wins. Both dense.
/// A window that sees nothing has the `lowest` number and stands at the first element.
#[kernel]
pub fn max_pool<T: Number, const LINES: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    which: PtrMut<i64>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    lowest: T,
) {
    let (depth, height, width) = (y.dim(1), y.dim(2), y.dim(3));
    let (number, j) = own_lines::<LINES, COLS>(width);
    let (inside, is_column) = (number < y.dim(0) * depth * height, j < width);
    let (outer, d, i) = along_axes(number, depth, height);
    let from = line_of(outer, outer * 0, outer * 0, x.dim(1), x.dim(2), x.dim(3)).col();
    let mut best = full::<T, LINES, COLS>(lowest);
    let mut place = full::<i32, LINES, COLS>(-1);
    for a in range(0, depths.dim(1), 1) {
        let at = tap_of(d, depths.dim(1), a);
        let z = inner(load(depths.ptr() + at, inside, -1), x.dim(1));
        for b in range(0, rows.dim(1), 1) {
            let at = tap_of(i, rows.dim(1), b);
            let row = inner(load(rows.ptr() + at, inside, -1), x.dim(2));
            let line = line_of(z * 0, z, row, x.dim(1), x.dim(2), x.dim(3)).col();
            let is_line = ((z >= 0) & (row >= 0)).col();
            for c in range(0, columns.dim(1), 1) {
                let at = columns.ptr() + (j * columns.dim(1) + c);
                let column = inner(load(at, is_column, -1), x.dim(3)).row();
                let is_there = is_line & (column >= 0);
                let own = line + column;
                let v = load(x.ptr() + (from + own).to::<i64>(), is_there);
                let wins = is_there & ((v > best) | (v != v) | (place < 0));
                best = where_(wins, v, best);
                place = where_(wins, own, place);
            }
        }
    }
    let to = (number * width).col() + j.row();
    let inside = inside.col() & is_column.row();
    store(y.ptr() + to, best, inside);
    store(which + to, maximum(place, 0).to::<i64>(), inside);
}

/// [`mod@max_pool`] of windows of many elements. Of several NaN the last one counts, as there.
#[kernel]
pub fn max_pool_wide<T: Number, const LINES: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    which: PtrMut<i64>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    lowest: T,
) {
    let (outer, d, i, j) = own_result(y.dim(1), y.dim(2), y.dim(3));
    let from = outer * (x.dim(1) * x.dim(2) * x.dim(3));
    let mut best = full::<T, LINES, COLS>(lowest);
    let mut place = full::<i32, LINES, COLS>(-1);
    for a in range(0, depths.dim(1), 1) {
        let z = load(depths.ptr() + (d * depths.dim(1) + a)).to::<i64>();
        let z = where_(z < x.dim(1), z, -1);
        for b in range(0, rows.dim(1), LINES) {
            let tap = b + arange::<LINES>();
            let at = rows.ptr() + (i * rows.dim(1) + tap);
            let row = inner(load(at, tap < rows.dim(1), -1), x.dim(2));
            let line = ((z * x.dim(2) + row.to::<i64>()) * x.dim(3)).col();
            let is_line = ((row >= 0) & (z >= 0)).col();
            for c in range(0, columns.dim(1), COLS) {
                let tap = c + arange::<COLS>();
                let at = columns.ptr() + (j * columns.dim(1) + tap);
                let column = inner(load(at, tap < columns.dim(1), -1), x.dim(3)).row();
                let is_there = is_line & (column >= 0);
                let own = line + column.to::<i64>();
                let v = load(x.ptr() + (from + own), is_there);
                let wins = is_there & ((v > best) | (v != v) | (place < 0));
                best = where_(wins, v, best);
                place = where_(wins, own.to::<i32>(), place);
            }
        }
    }
    let top = max(max(best, 1), 0);
    let last_nan = max(max(where_(best != best, place, -1), 1), 0);
    let is_top = (best == top) & (place >= 0);
    let first = min(min(where_(is_top, place, i32::MAX), 1), 0);
    let number = where_(first == i32::MAX, 0, first);
    store(y.ptr() + program_id(0), top);
    store(which + program_id(0), where_(last_nan >= 0, last_nan, number).to::<i64>());
}

/// The gradient of [`mod@max_pool`]: each element of the input adds up what the windows give that chose it.
/// The tables say which windows see it.
#[kernel]
pub fn max_pool_bwd<T: Float, A: Float, const LINES: usize, const COLS: usize>(
    dy: View<T, 4>,
    which: Ptr<i64>,
    dx: ViewMut<T, 4>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
) {
    let (depth, height, width) = (dx.dim(1), dx.dim(2), dx.dim(3));
    let (number, j) = own_lines::<LINES, COLS>(width);
    let (inside, is_column) = (number < dx.dim(0) * depth * height, j < width);
    let (outer, d, i) = along_axes(number, depth, height);
    let own = ((d.to::<i64>() * height + i.to::<i64>()) * width).col() + j.row();
    let mut acc = zeros::<A, LINES, COLS>();
    for a in range(0, depths.dim(1), 1) {
        let at = tap_of(d, depths.dim(1), a);
        let z = inner(load(depths.ptr() + at, inside, -1), dy.dim(1));
        for b in range(0, rows.dim(1), 1) {
            let at = tap_of(i, rows.dim(1), b);
            let row = inner(load(rows.ptr() + at, inside, -1), dy.dim(2));
            let line = line_of(outer, z, row, dy.dim(1), dy.dim(2), dy.dim(3)).col();
            let is_line = ((z >= 0) & (row >= 0)).col();
            for c in range(0, columns.dim(1), 1) {
                let at = columns.ptr() + (j * columns.dim(1) + c);
                let column = inner(load(at, is_column, -1), dy.dim(3)).row();
                let window = (line + column).to::<i64>();
                let chosen = load(which + window, is_line & (column >= 0), -1) == own;
                acc = acc + load(dy.ptr() + window, chosen).to::<A>();
            }
        }
    }
    let to = (number * width).col() + j.row();
    store(dx.ptr() + to, acc.to::<T>(), inside.col() & is_column.row());
}

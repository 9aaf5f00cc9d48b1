//! Pools and resampling: each element of a result gathers what it is made of, by a table an axis.
//!
//! `table[output, tap]` is a coordinate of the input, or -1 for none. A gradient is the same kernel with
//! the tables turned, so that nothing is added at places that others write.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&resample::KERNEL, &max_pool::KERNEL, &max_pool_bwd::KERNEL];

/// Where elements of a dense `[.., depth, height, width]` lie: before the last three axes, and along them.
#[device]
fn along_axes<const BLOCK: usize>(
    element: Tile1<i64, BLOCK>,
    depth: i64,
    height: i64,
    width: i64,
) -> (Tile1<i64, BLOCK>, Tile1<i64, BLOCK>, Tile1<i64, BLOCK>, Tile1<i64, BLOCK>) {
    // A launch is of less than 2^31 elements: 64-bit division is slow.
    let number = element.to::<u32>();
    let line = number / width.to::<u32>();
    let plane = line / height.to::<u32>();
    let outer = plane / depth.to::<u32>();
    let (d, i) = (plane - outer * depth.to::<u32>(), line - plane * height.to::<u32>());
    let j = number - line * width.to::<u32>();
    (outer.to::<i64>(), d.to::<i64>(), i.to::<i64>(), j.to::<i64>())
}

/// A coordinate that is below an extent, else -1.
#[device]
fn inner<const BLOCK: usize>(coordinate: Tile1<i64, BLOCK>, extent: i64) -> Tile1<i64, BLOCK> {
    where_(coordinate < extent, coordinate, -1)
}

/// `y[.., d, i, j] = sum over a, b, c of weights[a] weights[b] weights[c] x[.., at a, at b, at c]`, both
/// dense.
#[kernel]
pub fn resample<T: Float, A: Float, const BLOCK: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    by_depth: View<A, 2>,
    by_row: View<A, 2>,
    by_column: View<A, 2>,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let (depth, height, width) = (y.dim(1), y.dim(2), y.dim(3));
    let inside = element < y.dim(0) * depth * height * width;
    let (outer, d, i, j) = along_axes(element, depth, height, width);
    let mut acc = zeros::<A, BLOCK>();
    for a in range(0, depths.dim(1), 1) {
        let at = d * depths.dim(1) + a;
        let z = inner(load(depths.ptr() + at, inside, -1).to::<i64>(), x.dim(1));
        let u = load(by_depth.ptr() + at, z >= 0);
        for b in range(0, rows.dim(1), 1) {
            let at = i * rows.dim(1) + b;
            let row = inner(load(rows.ptr() + at, z >= 0, -1).to::<i64>(), x.dim(2));
            let v = u * load(by_row.ptr() + at, row >= 0);
            let line = (outer * x.dim(1) + z) * x.dim(2) + row;
            for c in range(0, columns.dim(1), 1) {
                let at = j * columns.dim(1) + c;
                let column = inner(load(columns.ptr() + at, row >= 0, -1).to::<i64>(), x.dim(3));
                let w = v * load(by_column.ptr() + at, column >= 0);
                let seen = load(x.ptr() + (line * x.dim(3) + column), column >= 0).to::<A>();
                acc = where_(column >= 0, fma(w, seen, acc), acc);
            }
        }
    }
    store(y.ptr() + element, acc.to::<T>(), inside);
}

/// The largest element of each window and where it stands in the last three axes; NaN wins. Both dense.
/// A window that sees nothing has the `lowest` number and stands at the first element.
#[kernel]
pub fn max_pool<T: Number, const BLOCK: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    which: PtrMut<i64>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    lowest: T,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let (depth, height, width) = (y.dim(1), y.dim(2), y.dim(3));
    let inside = element < y.dim(0) * depth * height * width;
    let (outer, d, i, j) = along_axes(element, depth, height, width);
    let mut best = full::<T, BLOCK>(lowest);
    let mut place = full::<i64, BLOCK>(-1);
    for a in range(0, depths.dim(1), 1) {
        let z = load(depths.ptr() + (d * depths.dim(1) + a), inside, -1).to::<i64>();
        let z = inner(z, x.dim(1));
        for b in range(0, rows.dim(1), 1) {
            let row = load(rows.ptr() + (i * rows.dim(1) + b), z >= 0, -1).to::<i64>();
            let row = inner(row, x.dim(2));
            for c in range(0, columns.dim(1), 1) {
                let at = columns.ptr() + (j * columns.dim(1) + c);
                let column = inner(load(at, row >= 0, -1).to::<i64>(), x.dim(3));
                let own = (z * x.dim(2) + row) * x.dim(3) + column;
                let from = outer * (x.dim(1) * x.dim(2) * x.dim(3)) + own;
                let v = load(x.ptr() + from, column >= 0);
                let wins = (column >= 0) & ((v > best) | (v != v) | (place < 0));
                best = where_(wins, v, best);
                place = where_(wins, own, place);
            }
        }
    }
    store(y.ptr() + element, best, inside);
    store(which + element, maximum(place, 0), inside);
}

/// The gradient of [`mod@max_pool`]: each element of the input adds up what the windows give that chose it.
/// The tables say which windows see it.
#[kernel]
pub fn max_pool_bwd<T: Float, A: Float, const BLOCK: usize>(
    dy: View<T, 4>,
    which: Ptr<i64>,
    dx: ViewMut<T, 4>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let (depth, height, width) = (dx.dim(1), dx.dim(2), dx.dim(3));
    let inside = element < dx.dim(0) * depth * height * width;
    let (outer, d, i, j) = along_axes(element, depth, height, width);
    let own = (d * height + i) * width + j;
    let mut acc = zeros::<A, BLOCK>();
    for a in range(0, depths.dim(1), 1) {
        let z = load(depths.ptr() + (d * depths.dim(1) + a), inside, -1).to::<i64>();
        let z = inner(z, dy.dim(1));
        for b in range(0, rows.dim(1), 1) {
            let row = load(rows.ptr() + (i * rows.dim(1) + b), z >= 0, -1).to::<i64>();
            let row = inner(row, dy.dim(2));
            let line = (outer * dy.dim(1) + z) * dy.dim(2) + row;
            for c in range(0, columns.dim(1), 1) {
                let at = columns.ptr() + (j * columns.dim(1) + c);
                let column = inner(load(at, row >= 0, -1).to::<i64>(), dy.dim(3));
                let window = line * dy.dim(3) + column;
                let chosen = load(which + window, column >= 0, -1) == own;
                acc = acc + load(dy.ptr() + window, chosen).to::<A>();
            }
        }
    }
    store(dx.ptr() + element, acc.to::<T>(), inside);
}

//! Padding: a tensor in a larger one, with a value around it or with its own elements, and the gradient of that.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&pad::KERNEL, &pad_around::KERNEL, &pad_around_bwd::KERNEL];

/// `y = value`, with `x` from element `[before_0, before_1, before_2, before_3]` on.
#[kernel]
pub unsafe fn pad<T: Element, const ROWS: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    before_0: i64,
    before_1: i64,
    before_2: i64,
    before_3: i64,
    value: T,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    let (d, h) = (a - before_0, b - before_1);
    let row = (i - before_2 + arange::<ROWS>()).col();
    let col = (j - before_3 + arange::<COLS>()).row();
    let is_plane = (d >= 0) & (d < x.dim(0)) & (h >= 0) & (h < x.dim(1));
    let inside = (row >= 0) & (row < x.dim(2)) & (col >= 0) & (col < x.dim(3)) & is_plane;
    let from = d * x.stride(0) + h * x.stride(1) + row * x.stride(2) + col * x.stride(3);
    let v = load(x.ptr() + from, inside, value);
    y.store([a, b, i, j], v.expand_dims(0).expand_dims(0));
}

/// A number counted along the last two of three axes: how many before it, and which of each it is.
#[device]
fn coordinates<const N: usize>(
    number: Tile1<i64, N>,
    n: i64,
    inner: i64,
) -> (Tile1<i64, N>, Tile1<i64, N>, Tile1<i64, N>) {
    // Less than 2^31 elements: 64-bit division is slow.
    let number = number.to::<u32>();
    let line = number / inner.to::<u32>();
    let outer = line / n.to::<u32>();
    let (i, j) = (line - outer * n.to::<u32>(), number - line * inner.to::<u32>());
    (outer.to::<i64>(), i.to::<i64>(), j.to::<i64>())
}

/// `y[o, i, j] = x[o, place(i - before), j]` of dense tensors, where a place before the first of `n` elements or behind the
/// last is mirrored there; or, where `AROUND`, comes from the other end of those from `start` to `end`.
#[kernel]
pub unsafe fn pad_around<T: Element, const AROUND: bool, const BLOCK: usize>(
    x: View<T, 3>,
    y: ViewMut<T, 3>,
    before: i64,
    start: i64,
    end: i64,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let inside = element < y.dim(0) * y.dim(1) * y.dim(2);
    let (outer, i, j) = coordinates::<BLOCK>(element, y.dim(1), y.dim(2));
    let (n, at) = (x.dim(1), i - before);
    let mut place = at;
    if AROUND {
        place = where_(place < start, place + (end - start), place);
        place = where_(place >= end, place - (end - start), place);
    } else {
        place = abs(place);
        place = where_(place >= n, 2 * (n - 1) - place, place);
    }
    let from = (outer * n + place) * x.dim(2) + j;
    store(y.ptr() + element, load(x.ptr() + from, inside), inside);
}

/// The element of `dy: [outer, m, inner]` at place `at` of the axis in the middle; zero where that is not there.
#[device]
fn part<T: Number, A: Number, const BLOCK: usize>(
    dy: View<T, 3>,
    outer: Tile1<i64, BLOCK>,
    at: Tile1<i64, BLOCK>,
    j: Tile1<i64, BLOCK>,
    is_one: Tile1<bool, BLOCK>,
) -> Tile1<A, BLOCK> {
    let m = dy.dim(1);
    let from = (outer * m + at) * dy.dim(2) + j;
    load(dy.ptr() + from, is_one & (at >= 0) & (at < m)).to::<A>()
}

/// The gradient of [`mod@pad_around`]: each element of `dx` is the sum of those of `dy` that it stands at, of which there are
/// three at most, in their order.
#[kernel]
pub unsafe fn pad_around_bwd<T: Number, A: Number, const AROUND: bool, const BLOCK: usize>(
    dy: View<T, 3>,
    dx: ViewMut<T, 3>,
    before: i64,
    start: i64,
    end: i64,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let inside = element < dx.dim(0) * dx.dim(1) * dx.dim(2);
    let (outer, i, j) = coordinates::<BLOCK>(element, dx.dim(1), dx.dim(2));
    let n = dx.dim(1);
    let mut low = before - i;
    let mut high = before + 2 * (n - 1) - i;
    let mut is_low = inside & (i > 0);
    let mut is_high = inside & (i < n - 1);
    let mut is_own = inside;
    if AROUND {
        is_own = inside & (i >= start) & (i < end);
        low = before + i - (end - start);
        high = before + i + (end - start);
        is_low = is_own;
        is_high = is_own;
    }
    let mut sum = part::<T, A, BLOCK>(dy, outer, low, j, is_low);
    sum += part::<T, A, BLOCK>(dy, outer, before + i, j, is_own);
    sum += part::<T, A, BLOCK>(dy, outer, high, j, is_high);
    store(dx.ptr() + element, sum.to::<T>(), inside);
}

//! The elements of windows as columns, and columns added where windows read them.
//!
//! Each is the gradient of the other. Both gather: an element of an image asks which windows see it at which tap,
//! so that nothing is added at places that others write, and every run gives the same bits.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&im2col::KERNEL, &col2im::KERNEL];

/// Numbers counted along an axis of this extent: whole turns, and what is left.
#[device]
fn turns<const N: usize>(number: Tile1<u32, N>, extent: i64) -> (Tile1<u32, N>, Tile1<u32, N>) {
    let whole = number / extent.to::<u32>();
    (whole, number - whole * extent.to::<u32>())
}

/// `y[.., tap, window] = x[.., window * stride + tap * dilation - before]` along each axis, zero outside:
/// `x: [.., D, H, W]` and `y: [.., taps, D', H', W']`, both dense. A launch has less than 2^31 elements.
#[kernel]
pub unsafe fn im2col<T: Element, const BLOCK: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 5>,
    taps_down: i64,
    taps_across: i64,
    stride_depth: i64,
    stride_down: i64,
    stride_across: i64,
    before_depth: i64,
    before_down: i64,
    before_across: i64,
    dilation_depth: i64,
    dilation_down: i64,
    dilation_across: i64,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let inside = element < y.dim(0) * y.dim(1) * y.dim(2) * y.dim(3) * y.dim(4);
    let (line, j) = turns(element.to::<u32>(), y.dim(4));
    let (plane, i) = turns(line, y.dim(3));
    let (column, d) = turns(plane, y.dim(2));
    let (outer, tap) = turns(column, y.dim(1));
    let (lines, l) = turns(tap, taps_across);
    let (a, k) = turns(lines, taps_down);
    let z = d.to::<i64>() * stride_depth + a.to::<i64>() * dilation_depth - before_depth;
    let row = i.to::<i64>() * stride_down + k.to::<i64>() * dilation_down - before_down;
    let at = j.to::<i64>() * stride_across + l.to::<i64>() * dilation_across - before_across;
    let is_seen = (z >= 0) & (row >= 0) & (at >= 0);
    let is_seen = is_seen & (z < x.dim(1)) & (row < x.dim(2)) & (at < x.dim(3));
    let from = ((outer.to::<i64>() * x.dim(1) + z) * x.dim(2) + row) * x.dim(3) + at;
    store(y.ptr() + element, load(x.ptr() + from, is_seen & inside), inside);
}

/// The window that sees a coordinate, counted from the first element of padding, at a tap, and whether there is
/// one.
#[device]
fn window<const N: usize>(
    at: Tile1<i32, N>,
    stride: i64,
    windows: i64,
) -> (Tile1<i32, N>, Tile1<bool, N>) {
    let number = at / stride.to::<i32>();
    let is_first = (number * stride.to::<i32>() == at) & (at >= 0);
    (number, is_first & (number < windows.to::<i32>()))
}

/// `y[.., at] = sum of x[.., tap, window]` over all whose [`mod@im2col`] reads there: `x: [.., taps, D', H', W']`
/// and `y: [.., D, H, W]`, both dense. A launch has less than 2^31 elements.
#[kernel]
pub unsafe fn col2im<T: Number, A: Number, const BLOCK: usize>(
    x: View<T, 5>,
    y: ViewMut<T, 4>,
    taps_down: i64,
    taps_across: i64,
    stride_depth: i64,
    stride_down: i64,
    stride_across: i64,
    before_depth: i64,
    before_down: i64,
    before_across: i64,
    dilation_depth: i64,
    dilation_down: i64,
    dilation_across: i64,
) {
    let element = program_id(0) * BLOCK + arange::<BLOCK>();
    let inside = element < y.dim(0) * y.dim(1) * y.dim(2) * y.dim(3);
    let (line, j) = turns(element.to::<u32>(), y.dim(3));
    let (plane, i) = turns(line, y.dim(2));
    let (outer, d) = turns(plane, y.dim(1));
    let z = d.to::<i32>() + before_depth.to::<i32>();
    let row = i.to::<i32>() + before_down.to::<i32>();
    let column = j.to::<i32>() + before_across.to::<i32>();
    let mut acc = zeros::<A, BLOCK>();
    for lines in range(0, x.dim(1) / taps_across, 1) {
        let a = (lines.to::<u32>() / taps_down.to::<u32>()).to::<i64>();
        let k = lines - a * taps_down;
        let (deep, is_deep) = window(z - (a * dilation_depth).to::<i32>(), stride_depth, x.dim(2));
        let (down, is_down) = window(row - (k * dilation_down).to::<i32>(), stride_down, x.dim(3));
        let is_line = is_deep & is_down & inside;
        for l in range(0, taps_across, 1) {
            let at = column - (l * dilation_across).to::<i32>();
            let (across, is_across) = window(at, stride_across, x.dim(4));
            let from = outer.to::<i64>() * x.dim(1) + (lines * taps_across + l);
            let from = (from * x.dim(2) + deep.to::<i64>()) * x.dim(3) + down.to::<i64>();
            let from = x.ptr() + (from * x.dim(4) + across.to::<i64>());
            acc += load(from, is_line & is_across).to::<A>();
        }
    }
    store(y.ptr() + element, acc.to::<T>(), inside);
}

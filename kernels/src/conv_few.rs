//! Convolutions of groups of few channels, of which depthwise ones have one: stencils.
//!
//! No product of matrices is in them: each sum is over the taps of one or a few channels. A program has a
//! block of rows and columns of one channel, or of several of a group, which see the same. Its coordinates are sums of
//! what the block and what the tap give, row by row and column by column; the taps of a line are unrolled, so that all
//! its loads are under way together and find in the first cache what the tap before brought there.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::conv::along;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&conv_few::KERNEL, &conv_few_weight::KERNEL];

/// The convolution: `weight: [groups, made, summed, kernel]`, `x: [N, groups * summed, D, H, W]`,
/// `bias: [groups * made]`, or empty where there is none, `y: [N, groups * made, D', H', W']`, all of any strides.
/// What each of the numbers says stands in [`mod@crate::conv_gathered`]; `taps_across` is a multiple of `LINE`.
#[kernel]
pub unsafe fn conv_few<
    T: Float,
    A: Float,
    const CHANNELS: usize,
    const BH: usize,
    const BW: usize,
    const LINE: usize,
>(
    weight: View<T, 4>,
    x: View<T, 5>,
    bias: View<T, 1>,
    y: ViewMut<T, 5>,
    taps_depth: i64,
    taps_down: i64,
    taps_across: i64,
    moves_depth: i64,
    moves_down: i64,
    moves_across: i64,
    first_depth: i64,
    first_down: i64,
    first_across: i64,
    by_depth: i64,
    by_down: i64,
    by_across: i64,
    k_first: i64,
    k_depth: i64,
    k_down: i64,
    k_across: i64,
) {
    let (made, summed) = (weight.dim(1), weight.dim(2));
    let (rows, columns) = (cdiv(y.dim(3), BH), cdiv(y.dim(4), BW));
    let (plane, d, i, j) = along(program_id(0), y.dim(2), rows, columns);
    let groups = y.dim(1).to::<u32>().to::<i64>() / made;
    let (n, group, own, _) = along(plane, groups, cdiv(made, CHANNELS), 1);
    let own = own * CHANNELS;
    let out = group * made + own;
    // Behind the last channel of a group are those of the next.
    let is_own = own + arange::<CHANNELS>() < made;
    let (i, j) = (i * BH, j * BW);
    let row =
        (i + arange::<BH>()).to::<i32>().col() * moves_down.to::<i32>() + first_down.to::<i32>();
    let column = (j + arange::<BW>()).to::<i32>().row() * moves_across.to::<i32>()
        + first_across.to::<i32>();
    let z = d * moves_depth + first_depth;
    let mut acc = zeros::<A, CHANNELS, BH, BW>();
    acc = acc + bias.load::<CHANNELS>([out]).to::<A>().col().expand_dims(2);
    for c in range(0, summed, 1) {
        let image = x.ptr() + (n * x.stride(0) + (group * summed + c) * x.stride(1));
        let of_channels = (own + arange::<CHANNELS>()) * weight.stride(1);
        let of_channels = of_channels + (group * weight.stride(0) + c * weight.stride(2));
        for line in range(0, taps_depth * taps_down, 1) {
            let a = (line.to::<u32>() / taps_down.to::<u32>()).to::<i64>();
            let k = line - a * taps_down;
            let deep = z + a * by_depth;
            let at = row + (k * by_down).to::<i32>();
            let is_line = (at.to::<u32>() < x.dim(3).to::<u32>()) & (deep >= 0) & (deep < x.dim(2));
            let from = image + (deep * x.stride(2) + at.to::<i64>() * x.stride(3));
            let first = (k_first + a * k_depth + k * k_down) * weight.stride(3);
            for l in range(0, taps_across, LINE) {
                for more in static_range(0, LINE) {
                    let tap = l + more;
                    let at = column + (tap * by_across).to::<i32>();
                    let is_seen = is_line & (at.to::<u32>() < x.dim(4).to::<u32>());
                    let which = first + tap * k_across * weight.stride(3);
                    let w = load(weight.ptr() + (of_channels + which), is_own).to::<A>();
                    let v = load(from + at.to::<i64>() * x.stride(4), is_seen).to::<A>();
                    acc = fma(w.col().expand_dims(2), v.expand_dims(0), acc);
                }
            }
        }
    }
    let boxed = acc.to::<T>().expand_dims(0).expand_dims(2);
    let is_made = is_own.col().expand_dims(2).expand_dims(0).expand_dims(2);
    y.store([n, out, d, i, j], boxed, is_made);
}

/// The gradient of the weights of [`mod@conv_few`], in parts, each of its own share of the batch:
/// `dy: [N, groups * O, D', H', W']`, `x: [N, groups * C, D, H, W]`, both dense, and
/// `parts: [parts, groups * O, C, lines of the kernel, taps of a line]`. A program has up to `TAPS` taps of a line.
#[kernel]
pub unsafe fn conv_few_weight<T: Float, A: Float, const TAPS: usize, const BLOCK: usize>(
    dy: View<T, 5>,
    x: View<T, 5>,
    parts: ViewMut<A, 5>,
    outs: i64,
    share: i64,
    taps_down: i64,
    moves_depth: i64,
    moves_down: i64,
    moves_across: i64,
    first_depth: i64,
    first_down: i64,
    first_across: i64,
    by_depth: i64,
    by_down: i64,
    by_across: i64,
) {
    let (summed, lines, across) = (parts.dim(2), parts.dim(3), cdiv(parts.dim(4), TAPS));
    let (which, c, line, block) = along(program_id(0), summed, lines, across);
    let (_, part, out, _) = along(which, parts.dim(0), parts.dim(1), 1);
    let channel = (out.to::<u32>() / outs.to::<u32>()).to::<i64>() * summed + c;
    let a = (line.to::<u32>() / taps_down.to::<u32>()).to::<i64>();
    let k = line - a * taps_down;
    let tap = block * TAPS + arange::<TAPS>();
    let far = (tap * by_across).to::<i32>().col();
    let z = (first_depth + a * by_depth).to::<i32>();
    let row = (first_down + k * by_down).to::<i32>();
    let (down, width) = (dy.dim(3).to::<u32>(), dy.dim(4).to::<u32>());
    let positions = dy.dim(2) * dy.dim(3) * dy.dim(4);
    let each = x.dim(2) * x.dim(3) * x.dim(4);
    let end = minimum((part + 1) * share, dy.dim(0));
    let mut acc = zeros::<A, TAPS, BLOCK>();
    for p in range(0, positions, BLOCK) {
        let position = p + arange::<BLOCK>();
        let number = position.to::<u32>();
        let l = number / width;
        let plane = l / down;
        let (i, j) = ((l - plane * down).to::<i32>(), (number - l * width).to::<i32>());
        let at_z = plane.to::<i32>() * moves_depth.to::<i32>() + z;
        let at_row = i * moves_down.to::<i32>() + row;
        let column = j * moves_across.to::<i32>() + first_across.to::<i32>();
        let inside = (at_z.to::<u32>() < x.dim(2).to::<u32>())
            & (at_row.to::<u32>() < x.dim(3).to::<u32>())
            & (position < positions);
        let at = (at_z.to::<i64>() * x.dim(3) + at_row.to::<i64>()) * x.dim(4) + column.to::<i64>();
        let is_seen = inside.row()
            & ((column.row() + far).to::<u32>() < x.dim(4).to::<u32>())
            & (tap < parts.dim(4)).col();
        for n in range(part * share, end, 1) {
            let given = dy.ptr() + ((n * dy.dim(1) + out) * positions + position);
            let u = load(given, inside).to::<A>().row();
            let image = x.ptr() + (n * x.dim(1) + channel) * each;
            let v = load(image + (at.row() + far.to::<i64>()), is_seen).to::<A>();
            acc = fma(u, v, acc);
        }
    }
    let sums = sum(acc, 1).row().expand_dims(0).expand_dims(0).expand_dims(0);
    parts.store([part, out, c, line, block * TAPS], sums);
}

//! Convolutions by windows of any kind as products of tiles whose elements are gathered: implicit GEMM.
//!
//! The channels are last, so that a thread reads as many of them at once as a load takes; where they are
//! fewer than a step of a product sums, a step has several taps of the windows, and so a window of 7 by 7
//! over 3 channels fills steps as one of 1 by 1 over 147 would:
//!
//! ```text
//! BK = 16, CP = 4 (3 channels and a zero):   tap 0: r g b 0   tap 1: r g b 0   tap 2: ..   tap 3: ..
//! BK = 16, CP = 8, groups of 8:              tap 0: c0 .. c7                   tap 1: c0 .. c7
//! BK = 32, CP = 32:                          tap 0: c0 .. c31, then its next 32 channels, then tap 1
//! ```
//!
//! Positions of all images are one axis. Where a tap of a position looks is a sum of what the position and
//! what the tap give, along each axis `position * moves + first + tap * by`; it is outside where that leaves the
//! axis, and then nothing is read. The gradient of the input has one launch a phase of a step, as in
//! [`mod@crate::conv`]: `moves` is 1, and a phase has the taps that reach it.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::conv::along;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&conv::KERNEL, &conv_weight::KERNEL];

/// Coordinates along three axes of a number of positions, the last fastest: the outer rest, and the two last.
#[device]
fn coordinates<const N: usize>(
    number: Tile1<i64, N>,
    down: i64,
    across: i64,
) -> (Tile1<i32, N>, Tile1<i32, N>, Tile1<i32, N>) {
    let number = number.to::<u32>();
    let line = number / across.to::<u32>();
    let plane = line / down.to::<u32>();
    let (i, j) = (line - plane * down.to::<u32>(), number - line * across.to::<u32>());
    (plane.to::<i32>(), i.to::<i32>(), j.to::<i32>())
}

/// Where positions look at tap 0: the image, and a coordinate along each axis.
#[device]
fn origins<const N: usize>(
    position: Tile1<i64, N>,
    (depth, down, across): (i64, i64, i64),
    (moves_depth, moves_down, moves_across): (i64, i64, i64),
    (first_depth, first_down, first_across): (i64, i64, i64),
) -> (Tile1<i32, N>, Tile1<i32, N>, Tile1<i32, N>, Tile1<i32, N>) {
    let (plane, i, j) = coordinates(position, down, across);
    let n = (plane.to::<u32>() / depth.to::<u32>()).to::<i32>();
    let d = plane - n * depth.to::<i32>();
    let z = d * moves_depth.to::<i32>() + first_depth.to::<i32>();
    let row = i * moves_down.to::<i32>() + first_down.to::<i32>();
    (n, z, row, j * moves_across.to::<i32>() + first_across.to::<i32>())
}

/// Whether coordinates are below an extent and not negative.
#[device]
fn is_in<S: Shape>(at: Tile<i32, S>, extent: i64) -> Tile<bool, S> {
    at.to::<u32>() < extent.to::<u32>()
}

/// What `M` positions see at `TAPS` taps from `tap` on, `CP` channels from `channel` on of those of a group,
/// which begin at `skipped`.
#[device]
fn seen<T: Float, const M: usize, const TAPS: usize, const CP: usize, const VEC: usize>(
    x: View<T, 5>,
    (n, z, row, column): (Tile1<i32, M>, Tile1<i32, M>, Tile1<i32, M>, Tile1<i32, M>),
    is_position: Tile1<bool, M>,
    tap: (i64, i64, i64, i64),
    (by_depth, by_down, by_across): (i64, i64, i64),
    (skipped, channel, channels): (i64, i64, i64),
) -> Tile3<T, M, TAPS, CP> {
    let (tap, taps, down, across) = tap;
    let tap = tap + arange::<TAPS>();
    let (deep, k, l) = coordinates(tap, down, across);
    let is_tap = (tap < taps).row().expand_dims(2);
    let (deep, k, l) =
        (deep * by_depth.to::<i32>(), k * by_down.to::<i32>(), l * by_across.to::<i32>());
    let (far_deep, far_down, far_across) =
        (deep.row().expand_dims(2), k.row().expand_dims(2), l.row().expand_dims(2));
    let (z3, row3, column3) =
        (z.col().expand_dims(2), row.col().expand_dims(2), column.col().expand_dims(2));
    let inside = is_in(z3 + far_deep, x.dim(1))
        & is_in(row3 + far_down, x.dim(2))
        & is_in(column3 + far_across, x.dim(3));
    let inside = inside & is_tap & is_position.col().expand_dims(2);
    // A sum of what a position gives and what a tap gives.
    let (planes, lines, width) = (x.dim(1), x.dim(2), x.dim(3));
    let plane = n.to::<i64>() * planes + z.to::<i64>();
    let position = (plane * lines + row.to::<i64>()) * width + column.to::<i64>();
    let shift = (deep.to::<i64>() * lines + k.to::<i64>()) * width + l.to::<i64>();
    let at = (position.col() + shift.row()) * x.dim(4) + skipped;
    let c = (channel + arange::<CP>()).row().expand_dims(0);
    let from = x.ptr() + (multiple_of(at, VEC).expand_dims(2) + c);
    load(from, inside & (c < multiple_of(channels, VEC)))
}

/// The convolution by windows of any kind: `weight: [groups, O, kernel * C]`, `x: [N, D, H, W, groups * C]`
/// dense, `bias: [groups * O]`, or empty where there is none, `y: [N, groups * O, D', H', W']`. `channels` are
/// C, a multiple of `VEC`.
#[kernel]
pub unsafe fn conv<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const TAPS: usize,
    const CP: usize,
    const VEC: usize,
>(
    weight: View<T, 3>,
    x: View<T, 5>,
    bias: View<T, 1>,
    y: ViewMut<T, 5>,
    groups: i64,
    channels: i64,
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
    static_assert!(TAPS * CP == BK, "BK is TAPS * CP");
    let (depth, down, across) = (y.dim(2), y.dim(3), y.dim(4));
    let (positions, outs) = (y.dim(0) * depth * down * across, weight.dim(1));
    let (_, block, group, o) = along(program_id(0), cdiv(positions, BM), groups, cdiv(outs, BN));
    let p = block * BM + arange::<BM>();
    let moves = (moves_depth, moves_down, moves_across);
    let origin = origins(p, (depth, down, across), moves, (first_depth, first_down, first_across));
    let first_out = o * BN;
    let o = first_out + arange::<BN>();
    let own = ((group * outs + o) * weight.dim(2)).col().expand_dims(2);
    let is_out = (o < outs).col().expand_dims(2);
    let taps = taps_depth * taps_down * taps_across;
    let blocks = cdiv(channels, CP);
    let mut acc = zeros::<A, BM, BN>();
    for step in range(0, cdiv(taps, TAPS) * blocks, 1) {
        let turn = (step.to::<u32>() / blocks.to::<u32>()).to::<i64>();
        let c = (step - turn * blocks) * CP;
        let by = (by_depth, by_down, by_across);
        let which = (turn * TAPS, taps, taps_down, taps_across);
        let from = (group * channels, c, channels);
        let v = seen::<T, BM, TAPS, CP, VEC>(x, origin, p < positions, which, by, from);
        let tap = turn * TAPS + arange::<TAPS>();
        let (deep, k, l) = coordinates(tap, taps_down, taps_across);
        let k = deep.to::<i64>() * k_depth + k.to::<i64>() * k_down + l.to::<i64>() * k_across;
        let k = multiple_of((k_first + k) * channels, VEC).row().expand_dims(2);
        let c = (c + arange::<CP>()).row().expand_dims(0);
        let is_summed = (c < multiple_of(channels, VEC)) & (tap < taps).row().expand_dims(2);
        let u = load(weight.ptr() + (multiple_of(own, VEC) + k + c), is_summed & is_out);
        acc = dot(v.reshape::<BM, BK>(), u.reshape::<BN, BK>().trans(), acc);
    }
    let sums = acc.trans() + bias.load::<BN>([group * outs + first_out]).to::<A>().col();
    let (plane, i, j) = coordinates(p, down, across);
    let n = (plane.to::<u32>() / depth.to::<u32>()).to::<i64>();
    let d = plane.to::<i64>() - n * depth;
    let to = n * y.stride(0) + d * y.stride(2);
    let to = to + i.to::<i64>() * y.stride(3) + j.to::<i64>() * y.stride(4);
    let to = y.ptr() + (((group * outs + o) * y.stride(1)).col() + to.row());
    store(to, sums.to::<T>(), (o < outs).col() & (p < positions).row());
}

/// The gradient of the weights of [`mod@conv`], in parts, each of its own share of the positions:
/// `dy: [N, D', H', W', groups * outs]` and `x: [N, D, H, W, groups * channels]`, both dense and those multiples
/// of `VO` and `VEC`, `parts: [parts * groups, O, ..]` with as many columns as the steps of [`mod@conv`] have.
#[kernel]
pub unsafe fn conv_weight<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const TAPS: usize,
    const CP: usize,
    const VEC: usize,
    const VO: usize,
>(
    dy: View<T, 5>,
    x: View<T, 5>,
    parts: ViewMut<A, 3>,
    groups: i64,
    outs: i64,
    channels: i64,
    share: i64,
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
) {
    static_assert!(TAPS * CP == BN, "BN is TAPS * CP");
    let (depth, down, across) = (dy.dim(1), dy.dim(2), dy.dim(3));
    let taps = taps_depth * taps_down * taps_across;
    let blocks = cdiv(channels, CP);
    let steps = cdiv(taps, TAPS) * blocks;
    let (which, _, o, step) = along(program_id(0), 1, cdiv(parts.dim(1), BM), steps);
    let part = (which.to::<u32>() / groups.to::<u32>()).to::<i64>();
    let group = which - part * groups;
    let turn = (step.to::<u32>() / blocks.to::<u32>()).to::<i64>();
    let tap = (turn * TAPS, taps, taps_down, taps_across);
    let from = (group * channels, (step - turn * blocks) * CP, channels);
    let out = (o * BM + arange::<BM>()).row();
    let end = minimum((part + 1) * share, dy.dim(0) * depth * down * across);
    let mut acc = zeros::<A, BM, BN>();
    for first in range(part * share, end, BK) {
        let p = first + arange::<BK>();
        let moves = (moves_depth, moves_down, moves_across);
        let origin =
            origins(p, (depth, down, across), moves, (first_depth, first_down, first_across));
        let by = (by_depth, by_down, by_across);
        let v = seen::<T, BK, TAPS, CP, VEC>(x, origin, p < end, tap, by, from);
        let at = multiple_of(p * dy.dim(4) + group * outs, VO).col();
        let u = load(dy.ptr() + (at + out), (p < end).col() & (out < multiple_of(outs, VO)));
        acc = dot(u.trans(), v.reshape::<BK, BN>(), acc);
    }
    parts.store([which, o * BM, step * BN], acc.expand_dims(0));
}

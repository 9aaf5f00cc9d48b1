//! Convolutions as products of tiles: weights on the left, on the right what each tap of the windows
//! sees, brought from the input as it is. No matrix of patches exists.
//!
//! Three products are all there is: the result, the gradient of the input and that of the weights. The
//! first two are one kernel with other weights. Where windows move by one, a tap of the windows is the
//! input shifted, so that its tile is a box of a view with the channels last, which the copy engine brings;
//! coordinates outside are zeros, and so padding costs nothing:
//!
//! ```text
//! y[n, o, i, j] = sum over k, l, c of w[k, l, o, c] x[n, i + k - pad, j + l - pad, c]
//! ```
//!
//! The channels are last because the copy engine begins a box at any row, but along the axis that lies
//! dense only at multiples of 16 bytes. A box may span images, so that images of 7 by 7 fill a tile too.
//!
//! A gradient of the input of windows that move by steps is one such convolution for each phase of a step,
//! over the taps that reach it: a tap `t` of a phase looks at `i + first + t * by` and has the weight
//! `k_first + t * k_by`. Other windows are gathered: see [`mod@crate::conv_gathered`]; groups of few
//! channels have [`mod@crate::conv_few`].

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&conv_by_one::KERNEL, &conv_by_one_weight::KERNEL, &conv_point_weight::KERNEL];

/// Parts of `tile` counted along axes of these extents, the last fastest.
#[device]
pub fn along(tile: i64, rows: i64, middle: i64, last: i64) -> (i64, i64, i64, i64) {
    // A grid has less than 2^31 programs: 64-bit division is slow.
    let (rows, middle, last) = (rows.to::<u32>(), middle.to::<u32>(), last.to::<u32>());
    let number = tile.to::<u32>();
    let line = number / last;
    let plane = line / middle;
    let outer = plane / rows;
    let (at, down, across) = (plane - outer * rows, line - plane * middle, number - line * last);
    (outer.to::<i64>(), at.to::<i64>(), down.to::<i64>(), across.to::<i64>())
}

/// The convolution by windows that move by one: `weight: [kernel, O, C]`, `x: [N, D, H, W, C]`,
/// `bias: [O]`, or empty where there is none, `y: [N, O, D', H', W']`. A tile of the result is `BM` channels of
/// `IMAGES` images of `BH` rows of `BW` positions, `BN` in all.
#[kernel]
pub fn conv_by_one<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const IMAGES: usize,
    const BH: usize,
    const BW: usize,
>(
    weight: View<T, 3>,
    x: View<T, 5>,
    bias: View<T, 1>,
    y: ViewMut<T, 5>,
    taps_depth: i64,
    taps_down: i64,
    taps_across: i64,
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
    static_assert!(IMAGES * BH * BW == BN, "BN is IMAGES * BH * BW");
    let (channels, down, across) = (cdiv(y.dim(1), BM), cdiv(y.dim(3), BH), cdiv(y.dim(4), BW));
    let planes = cdiv(y.dim(0), IMAGES) * y.dim(2);
    let blocks = cdiv(x.dim(4), BK);
    for tile in persistent(planes * down * across * channels) {
        let (plane, i, j, o) = along(tile, down, across, channels);
        let images = (plane.to::<u32>() / y.dim(2).to::<u32>()).to::<i64>();
        let (n, d) = (images * IMAGES, plane - images * y.dim(2));
        let (o, i, j) = (o * BM, i * BH, j * BW);
        let (z, row, column) = (d + first_depth, i + first_down, j + first_across);
        let mut acc = zeros::<A, BM, BN>();
        for step in range(0, taps_depth * taps_down * taps_across * blocks, 1) {
            let (deep, k, l, c) = along(step, taps_down, taps_across, blocks);
            let (tap, c) = (k_first + deep * k_depth + k * k_down + l * k_across, c * BK);
            let (at, down, across) =
                (z + deep * by_depth, row + k * by_down, column + l * by_across);
            let u = weight.load::<1, BM, BK>([tap, o, c]).squeeze(0);
            let v = x.load::<IMAGES, 1, BH, BW, BK>([n, at, down, across, c]).reshape::<BN, BK>();
            acc = dot(u, v.trans(), acc);
        }
        let sums = (acc + bias.load::<BM>([o]).to::<A>().col()).to::<T>();
        let boxed = sums.reshape::<BM, IMAGES, 1, BH, BW>().permute([1, 0, 2, 3, 4]);
        y.store([n, o, d, i, j], boxed);
    }
}

/// The gradient of the weights of [`mod@conv_by_one`], in parts, each of its own share of the positions:
/// `dy: [N, D', H', W', O]`, `x: [N, D, H, W, C]`, `parts: [parts * kernel, O, C]`. A step takes `BH` rows of `BW`
/// positions of `IMAGES` images, `BP` in all; a share is so many steps.
#[kernel]
pub fn conv_by_one_weight<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const BP: usize,
    const IMAGES: usize,
    const BH: usize,
    const BW: usize,
>(
    dy: View<T, 5>,
    x: View<T, 5>,
    parts: ViewMut<A, 3>,
    share: i64,
    taps_depth: i64,
    taps_down: i64,
    taps_across: i64,
    first_depth: i64,
    first_down: i64,
    first_across: i64,
    by_depth: i64,
    by_down: i64,
    by_across: i64,
) {
    static_assert!(IMAGES * BH * BW == BP, "BP is IMAGES * BH * BW");
    let (rows, columns) = (cdiv(parts.dim(1), BM), cdiv(parts.dim(2), BN));
    let (deep, down, across) = (dy.dim(1), cdiv(dy.dim(2), BH), cdiv(dy.dim(3), BW));
    for tile in persistent(parts.dim(0) * rows * columns) {
        let (_, which, o, c) = along(tile, parts.dim(0), rows, columns);
        let (o, c) = (o * BM, c * BN);
        let (part, a, k, l) = along(which, taps_depth, taps_down, taps_across);
        let (z, row, column) =
            (first_depth + a * by_depth, first_down + k * by_down, first_across + l * by_across);
        let end = minimum((part + 1) * share, cdiv(dy.dim(0), IMAGES) * deep * down * across);
        let mut acc = zeros::<A, BM, BN>();
        for step in range(part * share, end, 1) {
            let (n, d, i, j) = along(step, deep, down, across);
            let (n, i, j) = (n * IMAGES, i * BH, j * BW);
            let u = dy.load::<IMAGES, 1, BH, BW, BM>([n, d, i, j, o]).reshape::<BP, BM>();
            let (d, i, j) = (d + z, i + row, j + column);
            let v = x.load::<IMAGES, 1, BH, BW, BN>([n, d, i, j, c]).reshape::<BP, BN>();
            acc = dot(u.trans(), v, acc);
        }
        parts.store([which, o, c], acc.expand_dims(0));
    }
}

/// The gradient of the weights of windows of one element, in parts, each of its own share of the batch:
/// `dy: [N, O, P]` and `x: [N, C, P]` of any strides, `parts: [parts, O, C]`.
#[kernel]
pub fn conv_point_weight<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    dy: View<T, 3>,
    x: View<T, 3>,
    parts: ViewMut<A, 3>,
    share: i64,
) {
    let (rows, columns) = (cdiv(parts.dim(1), BM), cdiv(parts.dim(2), BN));
    let steps = cdiv(dy.dim(2), BK);
    for tile in persistent(parts.dim(0) * rows * columns) {
        let (_, part, o, c) = along(tile, parts.dim(0), rows, columns);
        let (o, c) = (o * BM, c * BN);
        let images = minimum(share, dy.dim(0) - part * share);
        let mut acc = zeros::<A, BM, BN>();
        for step in range(0, images * steps, 1) {
            let (_, _, n, p) = along(step, 1, images, steps);
            let (n, p) = (part * share + n, p * BK);
            let u = dy.load::<1, BM, BK>([n, o, p]).squeeze(0);
            let v = x.load::<1, BN, BK>([n, c, p]).squeeze(0);
            acc = dot(u, v.trans(), acc);
        }
        parts.store([part, o, c], acc.expand_dims(0));
    }
}

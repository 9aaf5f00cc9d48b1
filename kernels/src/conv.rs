//! Convolutions as products of tiles: weights on the left, on the right what each place of the windows
//! sees, brought from the input as it is. No matrix of patches exists.
//!
//! Three products are all there is: the result, the gradient of the input and that of the weights. The
//! first two are one kernel with other weights. Where windows move by one, a place of the windows is the
//! input shifted, so that its tile is a box of a view with the channels last, which the copy engine brings;
//! coordinates outside are zeros, and so padding costs nothing:
//!
//! ```text
//! y[n, o, i, j] = sum over k, l, c of w[k, l, o, c] x[n, i + k - pad, j + l - pad, c]
//! ```
//!
//! The channels are last because the copy engine begins a box at any row, but along the axis that lies
//! dense only at multiples of 16 bytes.
//!
//! Any other windows say where they look by a table an axis: `table[output, place]` is the input's
//! coordinate, or -1 outside. The tables of a gradient are those of its convolution, turned.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &conv_by_one::KERNEL,
    &conv_by_one_weight::KERNEL,
    &conv::KERNEL,
    &conv_weight::KERNEL,
    &conv_few::KERNEL,
    &conv_few_weight::KERNEL,
];

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

/// The convolution by windows that move by one: `weight: [places, O, C]`, `x: [N, H, W, C]`, `bias: [O]`,
/// or empty where there is none, `y: [N, O, H', W']`. A tile of the result is `BM` channels of `BH` rows of `BW` positions, `BN` in all.
#[kernel]
pub fn conv_by_one<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const BH: usize,
    const BW: usize,
>(
    weight: View<T, 3>,
    x: View<T, 4>,
    bias: View<T, 1>,
    y: ViewMut<T, 4>,
    width: i64,
    pad_down: i64,
    pad_across: i64,
    dilation_down: i64,
    dilation_across: i64,
) {
    static_assert!(BH * BW == BN, "BN is BH * BW");
    let (channels, down, across) = (cdiv(y.dim(1), BM), cdiv(y.dim(2), BH), cdiv(y.dim(3), BW));
    let blocks = cdiv(x.dim(3), BK);
    for tile in persistent(y.dim(0) * channels * down * across) {
        let (n, o, i, j) = along(tile, channels, down, across);
        let (o, i, j) = (o * BM, i * BH, j * BW);
        let mut acc = zeros::<A, BM, BN>();
        for step in range(0, weight.dim(0) * blocks, 1) {
            let place = step.to::<u32>() / blocks.to::<u32>();
            let c = (step - place.to::<i64>() * blocks) * BK;
            let k = (place / width.to::<u32>()).to::<i64>();
            let l = place.to::<i64>() - k * width;
            let (row, column) = (k * dilation_down - pad_down, l * dilation_across - pad_across);
            let u = weight.load::<1, BM, BK>([place.to::<i64>(), o, c]).squeeze(0);
            let v = x.load::<1, BH, BW, BK>([n, i + row, j + column, c]).reshape::<BN, BK>();
            acc = dot(u, v.trans(), acc);
        }
        let sums = acc + bias.load::<BM>([o]).to::<A>().col();
        y.store([n, o, i, j], sums.to::<T>().reshape::<1, BM, BH, BW>());
    }
}

/// The gradient of the weights of [`mod@conv_by_one`], in parts, each of its own share of the batch:
/// `dy: [N, H', W', O]`, `x: [N, H, W, C]`, `parts: [parts * places, O, C]`. A step takes `BH` rows of `BW`
/// positions, `BP` in all.
#[kernel]
pub fn conv_by_one_weight<
    T: Float,
    A: Float,
    const BM: usize,
    const BN: usize,
    const BP: usize,
    const BH: usize,
    const BW: usize,
>(
    dy: View<T, 4>,
    x: View<T, 4>,
    parts: ViewMut<A, 3>,
    places: i64,
    share: i64,
    width: i64,
    pad_down: i64,
    pad_across: i64,
    dilation_down: i64,
    dilation_across: i64,
) {
    static_assert!(BH * BW == BP, "BP is BH * BW");
    let (rows, columns) = (cdiv(parts.dim(1), BM), cdiv(parts.dim(2), BN));
    let (down, across) = (cdiv(dy.dim(1), BH), cdiv(dy.dim(2), BW));
    for tile in persistent(parts.dim(0) * rows * columns) {
        let (part, place, o, c) = along(tile, places, rows, columns);
        let (o, c) = (o * BM, c * BN);
        let k = (place.to::<u32>() / width.to::<u32>()).to::<i64>();
        let l = place - k * width;
        let (row, column) = (k * dilation_down - pad_down, l * dilation_across - pad_across);
        let first = part * share;
        let images = minimum(share, dy.dim(0) - first);
        let mut acc = zeros::<A, BM, BN>();
        for step in range(0, images * down * across, 1) {
            let (n, _, i, j) = along(step, 1, down, across);
            let (n, i, j) = (first + n, i * BH, j * BW);
            let u = dy.load::<1, BH, BW, BM>([n, i, j, o]).reshape::<BP, BM>();
            let v = x.load::<1, BH, BW, BN>([n, i + row, j + column, c]).reshape::<BP, BN>();
            acc = dot(u.trans(), v, acc);
        }
        parts.store([part * places + place, o, c], acc.expand_dims(0));
    }
}

/// Where positions lie along three axes, the last fastest.
#[device]
fn split_position<const BN: usize>(
    position: Tile1<i64, BN>,
    height: i64,
    width: i64,
) -> (Tile1<i64, BN>, Tile1<i64, BN>, Tile1<i64, BN>) {
    let number = position.to::<u32>();
    let line = number / width.to::<u32>();
    let plane = line / height.to::<u32>();
    let (i, j) = (line - plane * height.to::<u32>(), number - line * width.to::<u32>());
    (plane.to::<i64>(), i.to::<i64>(), j.to::<i64>())
}

/// Where one place of the windows at these positions looks in an input of `seen` positions, which are
/// planes of `height` by `width`; -1 outside.
#[device]
fn look<const BN: usize>(
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    position: Tile1<i64, BN>,
    place: i64,
    (seen, height, width): (i64, i64, i64),
) -> Tile1<i64, BN> {
    let (d, i, j) = split_position(position, rows.dim(0), columns.dim(0));
    let line = (place.to::<u32>() / columns.dim(1).to::<u32>()).to::<i64>();
    let l = place - line * columns.dim(1);
    let plane = (line.to::<u32>() / rows.dim(1).to::<u32>()).to::<i64>();
    let k = line - plane * rows.dim(1);
    let inside = position < depths.dim(0) * rows.dim(0) * columns.dim(0);
    let a = load(depths.ptr() + (d * depths.dim(1) + plane), inside, -1).to::<i64>();
    let b = load(rows.ptr() + (i * rows.dim(1) + k), inside, -1).to::<i64>();
    let c = load(columns.ptr() + (j * columns.dim(1) + l), inside, -1).to::<i64>();
    let at = (a * height + b) * width + c;
    where_((a >= 0) & (b >= 0) & (c >= 0) & (at < seen), at, -1)
}

/// The convolution by windows of any kind: `weight: [groups * places, O, C]`, `x: [N * groups, C, ..]`,
/// `y: [N * groups, O, ..]`, with the positions of three axes as one, those of the input dense in planes
/// of `height` by `width`; `bias: [groups * O]`, or empty where there is none.
#[kernel]
pub fn conv<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    weight: View<T, 3>,
    x: View<T, 3>,
    bias: View<T, 1>,
    y: ViewMut<T, 3>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    groups: i64,
    height: i64,
    width: i64,
) {
    let places = depths.dim(1) * rows.dim(1) * columns.dim(1);
    let (_, n, o, p) = along(program_id(0), y.dim(0), cdiv(y.dim(1), BM), cdiv(y.dim(2), BN));
    let (o, p) = (o * BM, p * BN);
    let group = n - n / groups * groups;
    let mut acc = zeros::<A, BM, BN>();
    for place in range(0, places, 1) {
        let at =
            look(depths, rows, columns, p + arange::<BN>(), place, (x.dim(2), height, width)).row();
        for c in range(0, x.dim(1), BK) {
            let channel = (c + arange::<BK>()).col();
            let u = weight.load::<1, BM, BK>([group * places + place, o, c]).squeeze(0);
            let from = x.ptr() + (n * x.stride(0) + channel * x.stride(1) + at);
            let v = load(from, (channel < x.dim(1)) & (at >= 0));
            acc = dot(u, v, acc);
        }
    }
    let sums = acc + bias.load::<BM>([group * y.dim(1) + o]).to::<A>().col();
    y.store([n, o, p], sums.to::<T>().expand_dims(0));
}

/// The gradient of the weights of [`mod@conv`], in parts, each of its own share of the batch:
/// `dy: [N, groups * O, ..]`, `x: [N, groups * C, ..]`, `parts: [parts * groups * places, O, C]`.
#[kernel]
pub fn conv_weight<T: Float, A: Float, const BM: usize, const BN: usize, const BK: usize>(
    dy: View<T, 3>,
    x: View<T, 3>,
    parts: ViewMut<A, 3>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    groups: i64,
    height: i64,
    width: i64,
    share: i64,
) {
    let places = depths.dim(1) * rows.dim(1) * columns.dim(1);
    let (outs, ins) = (parts.dim(1), parts.dim(2));
    let (part, which, o, c) = along(program_id(0), groups * places, cdiv(outs, BM), cdiv(ins, BN));
    let (o, c) = (o * BM, c * BN);
    let group = which / places;
    let place = which - group * places;
    let end = minimum((part + 1) * share, dy.dim(0));
    let (out, channel) = ((o + arange::<BM>()).col(), (c + arange::<BN>()).col());
    let mut acc = zeros::<A, BM, BN>();
    for p in range(0, dy.dim(2), BK) {
        let position = p + arange::<BK>();
        let at = look(depths, rows, columns, position, place, (x.dim(2), height, width)).row();
        let position = position.row();
        for n in range(part * share, end, 1) {
            let given =
                dy.ptr() + (n * dy.stride(0) + (group * outs + out) * dy.stride(1) + position);
            let seen = x.ptr() + (n * x.stride(0) + (group * ins + channel) * x.stride(1) + at);
            let u = load(given, (out < outs) & (position < dy.dim(2)));
            let v = load(seen, (channel < ins) & (at >= 0));
            acc = dot(u, v.trans(), acc);
        }
    }
    parts.store([part * groups * places + which, o, c], acc.expand_dims(0));
}

/// [`mod@conv`] of groups of few channels, one channel of the result at a time: depthwise.
#[kernel]
pub fn conv_few<T: Float, A: Float, const BN: usize>(
    weight: View<T, 3>,
    x: View<T, 3>,
    bias: View<T, 1>,
    y: ViewMut<T, 3>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    groups: i64,
    height: i64,
    width: i64,
) {
    let places = depths.dim(1) * rows.dim(1) * columns.dim(1);
    let (_, n, o, p) = along(program_id(0), y.dim(0), y.dim(1), cdiv(y.dim(2), BN));
    let p = p * BN;
    let group = n - n / groups * groups;
    let mut acc = zeros::<A, BN>();
    for place in range(0, places, 1) {
        let at = look(depths, rows, columns, p + arange::<BN>(), place, (x.dim(2), height, width));
        for c in range(0, x.dim(1), 1) {
            let u = weight.load::<1, 1, 1>([group * places + place, o, c]).to::<A>();
            let v = load(x.ptr() + (n * x.stride(0) + c * x.stride(1) + at), at >= 0).to::<A>();
            acc = fma(u.reshape::<1>(), v, acc);
        }
    }
    let sums = acc + bias.load::<1>([group * y.dim(1) + o]).to::<A>();
    y.store([n, o, p], sums.to::<T>().row().expand_dims(0));
}

/// The gradient of the weights of [`mod@conv_few`], each weight by one program: `dy: [N, groups * O, ..]`,
/// `x: [N, groups * C, ..]`, `dw: [groups * places, O, C]`.
#[kernel]
pub fn conv_few_weight<T: Float, A: Float, const BN: usize>(
    dy: View<T, 3>,
    x: View<T, 3>,
    dw: ViewMut<T, 3>,
    depths: View<i32, 2>,
    rows: View<i32, 2>,
    columns: View<i32, 2>,
    height: i64,
    width: i64,
) {
    let places = depths.dim(1) * rows.dim(1) * columns.dim(1);
    let (_, which, o, c) = along(program_id(0), dw.dim(0), dw.dim(1), dw.dim(2));
    let group = which / places;
    let place = which - group * places;
    let (out, channel) = (group * dw.dim(1) + o, group * dw.dim(2) + c);
    let mut acc = zeros::<A, BN>();
    for p in range(0, dy.dim(2), BN) {
        let position = p + arange::<BN>();
        let at = look(depths, rows, columns, position, place, (x.dim(2), height, width));
        for n in range(0, dy.dim(0), 1) {
            let given = dy.ptr() + (n * dy.stride(0) + out * dy.stride(1) + position);
            let seen = x.ptr() + (n * x.stride(0) + channel * x.stride(1) + at);
            let u = load(given, at >= 0).to::<A>();
            acc = fma(u, load(seen, at >= 0).to::<A>(), acc);
        }
    }
    dw.store([which, o, c], sum(acc, 0).to::<T>());
}

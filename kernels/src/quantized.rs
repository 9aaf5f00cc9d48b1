//! Products of rows and a quantized weight: codes of 4 or 8 bits, a scale for each group of `LANES` of them
//! along K, and maybe a minimum.
//!
//! ```text
//! w = (code - zero) * scale + min                      in f32
//! ```
//!
//! Codes of 8 bits are `[m, groups, LANES]`. Of 4 bits, a byte has one of a group of the first half of the
//! row in its low bits, and one of the group as far into the second half in its high bits:
//!
//! ```text
//! a row of four groups    g0 g1 g2 g3
//! bytes [2, LANES]        g0 | g2 << 4,  g1 | g3 << 4
//! ```
//!
//! so that what a vector holds follows each other along K, has one scale, and is met by elements of `x` that
//! follow each other too: no lane is moved.
//!
//! On processors lanes add products as in [`crate::linear_rows`]: those of a group first, then group after
//! group. A lane stands for the two codes of a byte, or of two bytes, so that a group is a chain of four
//! multiply-adds, and one addition joins it to the sum:
//!
//! ```text
//! sum += ((x0 w0 + x2 w2) + x0' w0') + x2' w2'         groups 0 and 2, first and second half of lanes
//! ```
//!
//! Each multiply-add is rounded once, and so is a weight: a scale times a `zero` that is a power of two is
//! exact. Of rows of 576 one row takes 31 GMAC/s of a core of Zen 5, where masked loads, a product and an
//! addition each, and scales that are converted one by one took 10.
//!
//! On GPUs tensor cores multiply 16-bit `x` with the codes themselves: see [`crate::quantized_tiles`].

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::linear_rows::tile_of;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&quantized_rows::KERNEL, &quantized_tiles::KERNEL, &dequantize::KERNEL];

/// The weights that codes stand for, of `GROUPS` groups of `OUTS` rows, from this row, part and group on.
#[device]
pub fn weights_of<
    S: Float,
    const OUTS: usize,
    const GROUPS: usize,
    const LANES: usize,
    const MINS: usize,
>(
    codes: Tile3<u8, OUTS, GROUPS, LANES>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    at: (i64, i64, i64),
    zero: f32,
) -> Tile3<f32, OUTS, GROUPS, LANES> {
    let (out, part, group) = at;
    let scale = scales.load::<OUTS, 1, GROUPS>([out, part, group]).squeeze(1).to::<f32>();
    let mut w = (codes.to::<f32>() - zero) * scale.expand_dims(2);
    if MINS > 0 {
        w = w + mins
            .load::<OUTS, 1, GROUPS>([out, part, group])
            .squeeze(1)
            .to::<f32>()
            .expand_dims(2);
    }
    w
}

/// The scales, or minimums, of `GROUPS` groups of some rows from this group on.
#[device]
fn scales_of<S: Float, const OUTS: usize, const GROUPS: usize>(
    from: (Ptr<S>, Tile1<i64, OUTS>, i64),
    group: i64,
) -> Tile2<f32, OUTS, GROUPS> {
    let (first, rows, width) = from;
    load(first + (rows.col() * width + (group + arange::<GROUPS>()).row())).to::<f32>()
}

/// The scales of some groups, and the weights that their codes of 0 stand for.
#[device]
fn scales_and_least<S: Float, const OUTS: usize, const GROUPS: usize, const MINS: usize>(
    scales: (Ptr<S>, Tile1<i64, OUTS>, i64),
    mins: (Ptr<S>, Tile1<i64, OUTS>, i64),
    group: i64,
    zero: f32,
) -> (Tile2<f32, OUTS, GROUPS>, Tile2<f32, OUTS, GROUPS>) {
    let scale = scales_of::<S, OUTS, GROUPS>(scales, group);
    let mut least = scale * (0.0 - zero);
    if MINS > 0 {
        least = scales_of::<S, OUTS, GROUPS>(mins, group);
    }
    (scale, least)
}

/// `VECTOR` elements of each of `GROUPS` groups of some rows, from this element of the first group on.
#[device]
fn vectors_of<
    T: Number,
    const ROWS: usize,
    const GROUPS: usize,
    const LANES: usize,
    const VECTOR: usize,
>(
    from: (Ptr<T>, Tile1<i64, ROWS>, i64),
    at: i64,
) -> Tile3<T, ROWS, GROUPS, VECTOR> {
    let (first, rows, width) = from;
    let group = (arange::<GROUPS>() * LANES).col() + arange::<VECTOR>().row();
    load(first + ((rows * width + at).expand_dims(1).expand_dims(2) + group.expand_dims(0)))
}

/// `code * scale + least`, rounded once, of the codes of bytes, or of their low bits.
#[device]
fn rounded_once<const OUTS: usize, const GROUPS: usize, const VECTOR: usize, const BITS: usize>(
    bytes: Tile3<i32, OUTS, GROUPS, VECTOR>,
    scales: (Tile2<f32, OUTS, GROUPS>, Tile2<f32, OUTS, GROUPS>),
) -> Tile3<f32, OUTS, GROUPS, VECTOR> {
    let (scale, least) = scales;
    let mut codes = bytes;
    if BITS == 4 {
        codes = bytes & 15;
    }
    fma(codes.to::<f32>(), scale.expand_dims(2), least.expand_dims(2))
}

/// `y = x W^T + bias` with `x: [n, parts, groups, LANES]`, codes `[m, groups, LANES]`, `scales` and `mins`
/// `[m, parts, groups]`, `bias: [m]`, or empty where there is none, `y: [n, m]`; operands are dense. Codes of
/// 4 bits have two parts, the halves of a row. `GROUPS` divides the groups, and `VECTOR` is `LANES` or half of
/// them.
///
/// Rows past the last are the last once more: no load has a mask.
#[kernel]
pub fn quantized_rows<
    X: Float,
    S: Float,
    B: Float,
    const ROWS: usize,
    const OUTS: usize,
    const GROUPS: usize,
    const LANES: usize,
    const VECTOR: usize,
    const BITS: usize,
    const MINS: usize,
>(
    x: View<X, 4>,
    codes: View<u8, 3>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    bias: View<B, 1>,
    y: ViewMut<X, 2>,
    zero: f32,
) {
    static_assert!(VECTOR == LANES || VECTOR * 2 == LANES, "VECTOR is LANES or half of them");
    let (row, out) = tile_of::<ROWS, OUTS>(y.dim(0));
    let outs = minimum(out + arange::<OUTS>(), y.dim(1) - 1);
    let rows = minimum(row + arange::<ROWS>(), y.dim(0) - 1);
    let (parts, groups) = (x.dim(1), codes.dim(1));
    let half = groups * LANES;
    let xs = (x.ptr(), rows, parts * half);
    let bytes = (codes.ptr(), outs, half);
    let (s, m) = ((scales.ptr(), outs, parts * groups), (mins.ptr(), outs, parts * groups));
    let mut sums = zeros::<f32, ROWS, OUTS, VECTOR>();
    for g in range(0, groups, GROUPS) {
        let low = scales_and_least::<S, OUTS, GROUPS, MINS>(s, m, g, zero);
        let high = scales_and_least::<S, OUTS, GROUPS, MINS>(s, m, g + groups * (parts - 1), zero);
        let at = g * LANES;
        let c = vectors_of::<u8, OUTS, GROUPS, LANES, VECTOR>(bytes, at).to::<i32>();
        let w = rounded_once::<OUTS, GROUPS, VECTOR, BITS>(c, low).expand_dims(0);
        let v = vectors_of::<X, ROWS, GROUPS, LANES, VECTOR>(xs, at).to::<f32>().expand_dims(1);
        let mut t = v * w;
        if BITS == 4 {
            let w = rounded_once::<OUTS, GROUPS, VECTOR, 8>(c >> 4, high).expand_dims(0);
            let v = vectors_of::<X, ROWS, GROUPS, LANES, VECTOR>(xs, half + at).to::<f32>();
            t = fma(v.expand_dims(1), w, t);
        }
        if VECTOR < LANES {
            let at = at + VECTOR;
            let c = vectors_of::<u8, OUTS, GROUPS, LANES, VECTOR>(bytes, at).to::<i32>();
            let w = rounded_once::<OUTS, GROUPS, VECTOR, BITS>(c, low).expand_dims(0);
            let v = vectors_of::<X, ROWS, GROUPS, LANES, VECTOR>(xs, at).to::<f32>();
            t = fma(v.expand_dims(1), w, t);
            if BITS == 4 {
                let w = rounded_once::<OUTS, GROUPS, VECTOR, 8>(c >> 4, high).expand_dims(0);
                let v = vectors_of::<X, ROWS, GROUPS, LANES, VECTOR>(xs, half + at).to::<f32>();
                t = fma(v.expand_dims(1), w, t);
            }
        }
        sums = sums + sum(t, 2);
    }
    let mut all = sum(sums, 2);
    // Processors are slow where a mask keeps a vector off an address that is none.
    if bias.dim(0) > 0 {
        all = all + bias.load::<OUTS>([out]).to::<f32>().row();
    }
    y.store([row, out], all.to::<X>());
}

/// [`quantized_rows`] by tiles, of any `x` and groups: `x: [n, parts, groups * LANES]`; a tile of `BM` outputs and
/// `BN` rows, `BK` of K, which are `GROUPS` groups, in a step.
#[kernel]
pub fn quantized_tiles<
    X: Float,
    S: Float,
    B: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUPS: usize,
    const LANES: usize,
    const BITS: usize,
    const MINS: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 3>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    bias: View<B, 1>,
    y: ViewMut<X, 2>,
    zero: f32,
) {
    static_assert!(GROUPS * LANES == BK, "BK is GROUPS * LANES");
    let (row, out) = tile_of::<BN, BM>(y.dim(0));
    let mut acc = zeros::<f32, BM, BN>();
    for g in range(0, codes.dim(1), GROUPS) {
        let c = codes.load::<BM, GROUPS, LANES>([out, g, 0]);
        let first = x.load::<BN, 1, BK>([row, 0, g * LANES]).squeeze(1).trans();
        if BITS == 4 {
            let at = (out, 0, g);
            let low = weights_of::<S, BM, GROUPS, LANES, MINS>(c & 15, scales, mins, at, zero);
            acc = dot(low.to::<X>().reshape::<BM, BK>(), first, acc);
            let at = (out, 1, g);
            let high = weights_of::<S, BM, GROUPS, LANES, MINS>(c >> 4, scales, mins, at, zero);
            let second = x.load::<BN, 1, BK>([row, 1, g * LANES]).squeeze(1).trans();
            acc = dot(high.to::<X>().reshape::<BM, BK>(), second, acc);
        } else {
            let w = weights_of::<S, BM, GROUPS, LANES, MINS>(c, scales, mins, (out, 0, g), zero);
            acc = dot(w.to::<X>().reshape::<BM, BK>(), first, acc);
        }
    }
    let b = bias.load::<BM>([out]).to::<f32>().col();
    y.store([row, out], (acc + b).to::<X>().trans());
}

/// The weights themselves: `y: [m, parts, groups, LANES]`, a tile of `OUTS` rows and `GROUPS` groups.
#[kernel]
pub fn dequantize<
    S: Float,
    T: Float,
    const OUTS: usize,
    const GROUPS: usize,
    const LANES: usize,
    const BITS: usize,
    const MINS: usize,
>(
    codes: View<u8, 3>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    y: ViewMut<T, 4>,
    zero: f32,
) {
    let (row, g) = (program_id(0) * OUTS, program_id(1) * GROUPS);
    let c = codes.load::<OUTS, GROUPS, LANES>([row, g, 0]);
    if BITS == 4 {
        let at = (row, 0, g);
        let low = weights_of::<S, OUTS, GROUPS, LANES, MINS>(c & 15, scales, mins, at, zero);
        y.store([row, 0, g, 0], low.to::<T>().expand_dims(1));
        let at = (row, 1, g);
        let high = weights_of::<S, OUTS, GROUPS, LANES, MINS>(c >> 4, scales, mins, at, zero);
        y.store([row, 1, g, 0], high.to::<T>().expand_dims(1));
    } else {
        let w = weights_of::<S, OUTS, GROUPS, LANES, MINS>(c, scales, mins, (row, 0, g), zero);
        y.store([row, 0, g, 0], w.to::<T>().expand_dims(1));
    }
}

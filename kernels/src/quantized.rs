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
//! On GPUs tensor cores multiply 16-bit `x` with the codes themselves, which 16 bits hold exactly, and what a group
//! adds up to is scaled in f32:
//!
//! ```text
//! sum += scale * dot(code - zero, x)                   a group is a step along K, or more
//! sum += dot(X((code - zero) * scale + min), x)        short groups, and where there are minimums
//! ```
//!
//! Codes become floats by their bits: an instruction for two of them, and another one that subtracts `zero`. Which
//! steps and parts of K a row's sum is made of depends on the weight and the device alone.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::linear_rows::tile_of;
use crate::matmul::place;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &quantized_rows::KERNEL,
    &quantized_tiles::KERNEL,
    &quantized_tiles_of_codes::KERNEL,
    &dequantize::KERNEL,
];

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

/// Scales or minimums of some groups of a half of rows of outputs.
#[device]
fn of_groups<S: Float, const BM: usize, const GROUPS: usize>(
    from: View<S, 3>,
    at: (i64, i64, i64),
) -> Tile2<S, BM, GROUPS> {
    let (row, half, group) = at;
    from.load::<BM, 1, GROUPS>([row, half, group]).squeeze(1)
}

/// Weights of a step as tensor cores take them: the codes' differences from `ZERO`, or with `SCALED` what they
/// stand for, of `GROUPS` groups of `LANES`.
#[device]
fn factors<
    X: Float,
    S: Float,
    const BM: usize,
    const BK: usize,
    const GROUPS: usize,
    const LANES: usize,
    const ZERO: usize,
    const MINS: usize,
    const SCALED: usize,
>(
    codes: Tile2<u8, BM, BK>,
    scales: Tile2<S, BM, GROUPS>,
    mins: Tile2<S, BM, GROUPS>,
) -> Tile2<X, BM, BK> {
    let mut w = codes.to::<X>() - ZERO.to::<X>();
    if SCALED > 0 {
        let all = (codes.to::<f32>() - ZERO.to::<f32>()).reshape::<BM, GROUPS, LANES>();
        let scale = scales.to::<f32>().expand_dims(2);
        let mut scaled = all * scale;
        if MINS > 0 {
            scaled = fma(all, scale, mins.to::<f32>().expand_dims(2));
        }
        w = scaled.to::<X>().reshape::<BM, BK>();
    }
    w
}

/// A part of a tile of products: outputs from `row` on, rows of `x` from `column` on, K of a half from `first` to
/// `end`.
#[device]
fn part_of<
    X: Float,
    S: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUPS: usize,
    const LANES: usize,
    const SPAN: usize,
    const BITS: usize,
    const ZERO: usize,
    const MINS: usize,
    const SCALED: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 2>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    let ((row, column), (first, end)) = (at, k);
    let mut acc = zeros::<f32, BM, BN>();
    // Scales and minimums of a step come while the one before it multiplies.
    let group = first / SPAN;
    let mut s = of_groups::<S, BM, GROUPS>(scales, (row, 0, group));
    let mut m = s;
    let mut t = s;
    let mut u = s;
    if MINS > 0 {
        m = of_groups::<S, BM, GROUPS>(mins, (row, 0, group));
    }
    if BITS == 4 {
        t = of_groups::<S, BM, GROUPS>(scales, (row, 1, group));
        if MINS > 0 {
            u = of_groups::<S, BM, GROUPS>(mins, (row, 1, group));
        }
    }
    for p in range(first, end, BK) {
        let group = (p + BK) / SPAN;
        let c = codes.load::<BM, BK>([row, p]);
        let next_s = of_groups::<S, BM, GROUPS>(scales, (row, 0, group));
        let mut next_m = next_s;
        if MINS > 0 {
            next_m = of_groups::<S, BM, GROUPS>(mins, (row, 0, group));
        }
        let v = x.load::<BN, 1, BK>([column, 0, p]).squeeze(1).trans();
        if BITS == 4 {
            let next_t = of_groups::<S, BM, GROUPS>(scales, (row, 1, group));
            let mut next_u = next_t;
            if MINS > 0 {
                next_u = of_groups::<S, BM, GROUPS>(mins, (row, 1, group));
            }
            let low = factors::<X, S, BM, BK, GROUPS, LANES, ZERO, MINS, SCALED>(c & 15, s, m);
            let w = x.load::<BN, 1, BK>([column, 1, p]).squeeze(1).trans();
            if SCALED > 0 {
                acc = dot(low, v, acc);
                let high = factors::<X, S, BM, BK, GROUPS, LANES, ZERO, MINS, SCALED>(c >> 4, t, u);
                acc = dot(high, w, acc);
            } else {
                let one = dot(low, v, zeros::<f32, BM, BN>());
                let high = factors::<X, S, BM, BK, GROUPS, LANES, ZERO, MINS, SCALED>(c >> 4, t, u);
                let two = dot(high, w, zeros::<f32, BM, BN>());
                acc = fma(one, s.reshape::<BM>().to::<f32>().col(), acc);
                acc = fma(two, t.reshape::<BM>().to::<f32>().col(), acc);
            }
            t = next_t;
            u = next_u;
        } else {
            let all = factors::<X, S, BM, BK, GROUPS, LANES, ZERO, MINS, SCALED>(c, s, m);
            if SCALED > 0 {
                acc = dot(all, v, acc);
            } else {
                let one = dot(all, v, zeros::<f32, BM, BN>());
                acc = fma(one, s.reshape::<BM>().to::<f32>().col(), acc);
            }
        }
        s = next_s;
        m = next_m;
    }
    acc
}

/// [`part_of`] a tile whose rows have one scale each, which is multiplied at the end.
#[device]
fn part_of_rows<
    X: Float,
    S: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const BITS: usize,
    const ZERO: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 2>,
    scales: View<S, 3>,
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    let ((row, column), (first, end)) = (at, k);
    let scale = scales.load::<BM, 1, 1>([row, 0, 0]).squeeze(2).to::<f32>();
    let mut acc = zeros::<f32, BM, BN>();
    for p in range(first, end, BK) {
        let c = codes.load::<BM, BK>([row, p]);
        let v = x.load::<BN, 1, BK>([column, 0, p]).squeeze(1).trans();
        if BITS == 4 {
            acc = dot((c & 15).to::<X>() - ZERO.to::<X>(), v, acc);
            let w = x.load::<BN, 1, BK>([column, 1, p]).squeeze(1).trans();
            acc = dot((c >> 4).to::<X>() - ZERO.to::<X>(), w, acc);
        } else {
            acc = dot(c.to::<X>() - ZERO.to::<X>(), v, acc);
        }
    }
    acc * scale
}

/// A part of a tile, by the form that its scales have.
#[device]
fn part_of_any<
    X: Float,
    S: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUPS: usize,
    const LANES: usize,
    const SPAN: usize,
    const BITS: usize,
    const ZERO: usize,
    const MINS: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 2>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    if SPAN == 0 {
        part_of_rows::<X, S, BM, BN, BK, BITS, ZERO>(x, codes, scales, at, k)
    } else if GROUPS == 1 && MINS == 0 {
        part_of::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS, 0>(
            x, codes, scales, mins, at, k,
        )
    } else {
        part_of::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS, 1>(
            x, codes, scales, mins, at, k,
        )
    }
}

/// `y = x W^T + bias` by codes: 16-bit `x: [n, halves, k]`, `codes: [m, k]`, `scales` and `mins`
/// `[m, halves, groups]`, `bias: [m]`, or empty where there is none, `y: [m, n]`. A scale is for `SPAN` elements of
/// a half of K, or for a row where that is 0. A step of `BK` has `GROUPS` scales, each for `LANES` of it. K is cut
/// into `PARTS` parts of `each` steps; the last may be shorter.
///
/// With `SPLIT` a part is a program of its own: `sums` has room for the tiles of all parts, and `done` a zero for
/// each tile, before and after. The last of a tile's programs to finish joins its parts in their order.
#[kernel]
pub fn quantized_tiles_of_codes<
    X: Float,
    S: Float,
    B: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const GROUPS: usize,
    const LANES: usize,
    const SPAN: usize,
    const BITS: usize,
    const ZERO: usize,
    const MINS: usize,
    const PARTS: usize,
    const SPLIT: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 2>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    bias: View<B, 1>,
    y: ViewMut<X, 2>,
    sums: PtrMut<f32>,
    done: PtrMut<i32>,
    each: i64,
) {
    static_assert!(GROUPS * LANES == BK, "BK is GROUPS * LANES");
    let (m, n, k) = (y.dim(0), y.dim(1), codes.dim(1));
    let (part, row, column) = place::<BM, BN>(program_id(0), m, n);
    let at = (row, column);
    if SPLIT > 0 {
        let first = part * each * BK;
        let to = (first, minimum(first + each * BK, k));
        let acc = part_of_any::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS>(
            x, codes, scales, mins, at, to,
        );
        let tiles = cdiv(m, BM) * cdiv(n, BN);
        let tile = program_id(0) - part * tiles;
        let places = (arange::<BM>() * BN).col() + arange::<BN>().row();
        let exist = (zeros::<i64, BM>().col() + (column + arange::<BN>()).row()) < n;
        store(sums + (program_id(0) * (BM * BN) + places), acc, exist);
        if atomic_add(done + tile, 1).to::<i64>() == PARTS - 1 {
            let mut total = zeros::<f32, BM, BN>();
            for other in range(0, PARTS, 1) {
                let from = (other * tiles + tile) * (BM * BN);
                total = total + load(sums + (from + places), exist);
            }
            let b = bias.load::<BM>([row]).to::<f32>().col();
            y.store([row, column], (total + b).to::<X>());
            atomic_xchg(done + tile, 0);
        }
    } else {
        let mut total = zeros::<f32, BM, BN>();
        for first in range(0, k, each * BK) {
            let to = (first, minimum(first + each * BK, k));
            let acc = part_of_any::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS>(
                x, codes, scales, mins, at, to,
            );
            total = total + acc;
        }
        let b = bias.load::<BM>([row]).to::<f32>().col();
        y.store([row, column], (total + b).to::<X>());
    }
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

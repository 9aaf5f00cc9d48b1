//! Products of 16-bit rows and a quantized weight for GPUs: tensor cores multiply the codes themselves.
//!
//! 16 bits hold a code exactly, and what a group adds up to is scaled in f32:
//!
//! ```text
//! sum += scale * dot(code - zero, x)                   a group is a step along K, or more
//! sum += dot(X((code - zero) * scale + min), x)        short groups, and where there are minimums
//! ```
//!
//! Codes become floats by their bits: an instruction for two of them, and another one that subtracts `zero`; how they
//! lie is told in [`crate::quantized`]. Which steps and parts of K a row's sum is made of depends on the weight and the
//! device alone. What follows the product is in [`crate::epilogue`].

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::epilogue::{
    finished, halves_of, joined, let_through, other_of, partial_offsets, put, rounded, scales_at,
};
use crate::matmul::scheduled_tile;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &quantized_tiles_of_codes::KERNEL,
    &quantized_tiles_of_codes_gated::KERNEL,
    &quantized_tiles_of_codes_paired::KERNEL,
];

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
    weight: (View<u8, 2>, View<S, 3>, View<S, 3>),
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    let (codes, scales, mins) = weight;
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

/// A tile, part after part of `each` elements of a half of K.
#[device]
fn in_turn<
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
    const PARTS: usize,
>(
    x: View<X, 3>,
    weight: (View<u8, 2>, View<S, 3>, View<S, 3>),
    at: (i64, i64),
    each: i64,
) -> Tile2<f32, BM, BN> {
    let k = weight.0.dim(1);
    if PARTS == 1 {
        part_of_any::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS>(
            x,
            weight,
            at,
            (0, k),
        )
    } else {
        let mut total = zeros::<f32, BM, BN>();
        for first in range(0, k, each) {
            let bounds = (first, minimum(first + each, k));
            total = total
                + part_of_any::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS>(
                    x, weight, at, bounds,
                );
        }
        total
    }
}

/// `y = x W^T + bias` by codes, plus `added` where `ADD`: 16-bit `x: [n, halves, k]`, `codes: [m, k]`, `scales` and
/// `mins` `[m, halves, groups]`, `bias: [m]`, or empty where there is none, `added` and `y: [m, n]`. A scale is for
/// `SPAN` elements of a half of K, or for a row where that is 0. A step of `BK` has `GROUPS` scales, each for `LANES` of
/// it. K is cut into `PARTS` parts of `each`, a multiple of `BK`; the last may be shorter. With `NORM` the product is
/// scaled before the bias: `of: [K, n]`, `rms: [n]`. With `NEXT` there is `next = y (gain + offset)` too, `gain: [m]`.
///
/// With `SPLIT` a part is a program of its own: where there are several, `sums` has room for the tiles of all parts, and
/// `done` a zero for each tile, before and after. The last of a tile's programs to finish joins its parts in their order.
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
    const ADD: usize,
    const NORM: usize,
    const NEXT: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 2>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    bias: View<B, 1>,
    gain: View<X, 1>,
    added: View<X, 2>,
    of: View<X, 2>,
    rms: View<f32, 1>,
    y: ViewMut<X, 2>,
    next: ViewMut<X, 2>,
    sums: PtrMut<f32>,
    done: PtrMut<i32>,
    each: i64,
    eps: f32,
    offset: f32,
) {
    static_assert!(GROUPS * LANES == BK, "BK is GROUPS * LANES");
    let (m, n, k) = (y.dim(0), y.dim(1), codes.dim(1));
    let (weight, norm) = ((codes, scales, mins), (of, rms, eps));
    let number = program_id(0);
    let (part, row, column) = scheduled_tile::<BM, BN>(number, m, n);
    let at = (row, column);
    if SPLIT == 1 {
        // What follows the product is asked for ahead of it.
        let own = bias.load::<BM>([row]).to::<f32>();
        let g = gain.load::<BM>([row]);
        let other = other_of::<X, BM, BN, ADD>(added, at);
        let by = scales_at::<X, BN, NORM>(norm, column);
        let bounds = (part * each, minimum((part + 1) * each, k));
        let acc = part_of_any::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS>(
            x, weight, at, bounds,
        );
        if PARTS == 1 {
            let all = finished::<X, BM, BN, ADD, NORM>(acc, by, own, other);
            put::<X, BM, BN, NEXT>(y, next, at, all, g, offset);
        } else {
            let tiles = cdiv(m, BM) * cdiv(n, BN);
            let tile = number - part * tiles;
            let (places, exist) = partial_offsets::<BM, BN>(number, column, n);
            store(sums + places, acc, exist);
            if atomic_add(done + tile, 1).to::<i64>() == PARTS - 1 {
                let total = joined::<BM, BN, PARTS>(sums, tile, tiles, column, n);
                let all = finished::<X, BM, BN, ADD, NORM>(total, by, own, other);
                put::<X, BM, BN, NEXT>(y, next, at, all, g, offset);
                atomic_xchg(done + tile, 0);
            }
        }
    } else {
        let total = in_turn::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS, PARTS>(
            x, weight, at, each,
        );
        let own = bias.load::<BM>([row]).to::<f32>();
        let other = other_of::<X, BM, BN, ADD>(added, at);
        let by = scales_at::<X, BN, NORM>(norm, column);
        let all = finished::<X, BM, BN, ADD, NORM>(total, by, own, other);
        put::<X, BM, BN, NEXT>(y, next, at, all, gain.load::<BM>([row]), offset);
    }
}

/// `y = f(g) u` of the halves `g, u` of `x W^T + bias`, as [`mod@quantized_tiles_of_codes`] and [`mod@crate::gated`]
/// compute them: `codes: [2 m, k]`, `scales` and `mins` `[2 m, halves, groups]`, `bias: [2 m]`, `y: [m, n]`.
///
/// With `SPLIT` a part of a tile of `g` or of `u` is a program of its own. The parts of `u` are numbered, and lie in
/// `sums`, behind those of `g`; the last of both to finish stores the tile.
#[kernel]
pub fn quantized_tiles_of_codes_gated<
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
    const ACT: usize,
    const NORM: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 2>,
    scales: View<S, 3>,
    mins: View<S, 3>,
    bias: View<B, 1>,
    of: View<X, 2>,
    rms: View<f32, 1>,
    y: ViewMut<X, 2>,
    sums: PtrMut<f32>,
    done: PtrMut<i32>,
    each: i64,
    eps: f32,
) {
    static_assert!(GROUPS * LANES == BK, "BK is GROUPS * LANES");
    let (m, n, k) = (y.dim(0), y.dim(1), codes.dim(1));
    let (weight, norm) = ((codes, scales, mins), (of, rms, eps));
    let number = program_id(0);
    let (turn, row, column) = scheduled_tile::<BM, BN>(number, m, n);
    let by = scales_at::<X, BN, NORM>(norm, column);
    if SPLIT == 1 {
        let gate_bias = bias.load::<BM>([row]).to::<f32>();
        let up_bias = bias.load::<BM>([row + m]).to::<f32>();
        let half = turn / PARTS;
        let part = turn - half * PARTS;
        let bounds = (part * each, minimum((part + 1) * each, k));
        let acc = part_of_any::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS>(
            x,
            weight,
            (row + half * m, column),
            bounds,
        );
        let tiles = cdiv(m, BM) * cdiv(n, BN);
        let tile = number - turn * tiles;
        let (places, exist) = partial_offsets::<BM, BN>(number, column, n);
        store(sums + places, acc, exist);
        if atomic_add(done + tile, 1).to::<i64>() == 2 * PARTS - 1 {
            let gates = joined::<BM, BN, PARTS>(sums, tile, tiles, column, n);
            let ups = joined::<BM, BN, PARTS>(sums, PARTS * tiles + tile, tiles, column, n);
            let gate = rounded::<X, BM, BN, NORM>(gates, by, gate_bias);
            let up = rounded::<X, BM, BN, NORM>(ups, by, up_bias);
            y.store([row, column], let_through::<X, BM, BN, ACT>(gate, up));
            atomic_xchg(done + tile, 0);
        }
    } else {
        // One loop, so that both halves have the same memory for what is on its way.
        let mut kept = zeros::<X, BM, BN>();
        for first in range(row, row + 2 * m, m) {
            let total = in_turn::<X, S, BM, BN, BK, GROUPS, LANES, SPAN, BITS, ZERO, MINS, PARTS>(
                x,
                weight,
                (first, column),
                each,
            );
            let own = bias.load::<BM>([first]).to::<f32>();
            let half = rounded::<X, BM, BN, NORM>(total, by, own);
            if first == row {
                kept = half;
            } else {
                kept = let_through::<X, BM, BN, ACT>(kept, half);
            }
        }
        y.store([row, column], kept);
    }
}

/// A part of a tile of `HALF` gates and of what these let through, of rows that have one scale each: see
/// [`mod@quantized_tiles_of_codes_paired`].
#[device]
fn pairs_of_rows<
    X: Float,
    const BANDS: usize,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const BITS: usize,
    const ZERO: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 4>,
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    let ((group, column), (first, end)) = (at, k);
    let mut acc = zeros::<f32, BM, BN>();
    for p in range(first, end, BK) {
        let c = codes.load::<BANDS, 2, 8, BK>([group, 0, 0, p]).reshape::<BM, BK>();
        let v = x.load::<BN, 1, BK>([column, 0, p]).squeeze(1).trans();
        if BITS == 4 {
            acc = dot((c & 15).to::<X>() - ZERO.to::<X>(), v, acc);
            let w = x.load::<BN, 1, BK>([column, 1, p]).squeeze(1).trans();
            acc = dot((c >> 4).to::<X>() - ZERO.to::<X>(), w, acc);
        } else {
            acc = dot(c.to::<X>() - ZERO.to::<X>(), v, acc);
        }
    }
    acc
}

/// [`mod@quantized_tiles_of_codes_gated`] of few rows of `x`, by a weight whose rows have one scale each: both halves of a
/// tile are one product, as in [`mod@crate::linear_tiles::linear_tiles_paired`]. `codes: [m / 8, 2, 8, k]`.
#[kernel]
pub fn quantized_tiles_of_codes_paired<
    X: Float,
    S: Float,
    B: Float,
    const BANDS: usize,
    const HALF: usize,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const BITS: usize,
    const ZERO: usize,
    const PARTS: usize,
    const ACT: usize,
    const NORM: usize,
>(
    x: View<X, 3>,
    codes: View<u8, 4>,
    scales: View<S, 3>,
    bias: View<B, 1>,
    of: View<X, 2>,
    rms: View<f32, 1>,
    y: ViewMut<X, 2>,
    each: i64,
    eps: f32,
) {
    static_assert!(BANDS * 16 == BM, "a band is 8 gates and what they let through");
    static_assert!(2 * HALF == BM, "half of a tile are gates");
    let (m, n, k) = (y.dim(0), y.dim(1), codes.dim(3));
    let (_, row, column) = scheduled_tile::<HALF, BN>(program_id(0), m, n);
    let at = (row / 8, column);
    let gate_bias = bias.load::<HALF>([row]).to::<f32>();
    let up_bias = bias.load::<HALF>([row + m]).to::<f32>();
    let gate_scale = scales.load::<HALF, 1, 1>([row, 0, 0]).squeeze(2).to::<f32>();
    let up_scale = scales.load::<HALF, 1, 1>([row + m, 0, 0]).squeeze(2).to::<f32>();
    let by = scales_at::<X, BN, NORM>((of, rms, eps), column);
    let mut gates = zeros::<f32, HALF, BN>();
    let mut ups = zeros::<f32, HALF, BN>();
    // Parts are scaled before they are added, as where gates are tiles of their own.
    if PARTS == 1 {
        let both = pairs_of_rows::<X, BANDS, BM, BN, BK, BITS, ZERO>(x, codes, at, (0, k));
        let (gate, up) = halves_of::<BANDS, HALF, BM, BN>(both);
        gates = gate * gate_scale;
        ups = up * up_scale;
    } else {
        for first in range(0, k, each) {
            let bounds = (first, minimum(first + each, k));
            let both = pairs_of_rows::<X, BANDS, BM, BN, BK, BITS, ZERO>(x, codes, at, bounds);
            let (gate, up) = halves_of::<BANDS, HALF, BM, BN>(both);
            gates = gates + gate * gate_scale;
            ups = ups + up * up_scale;
        }
    }
    let gate = rounded::<X, HALF, BN, NORM>(gates, by, gate_bias);
    let up = rounded::<X, HALF, BN, NORM>(ups, by, up_bias);
    y.store([row, column], let_through::<X, HALF, BN, ACT>(gate, up));
}

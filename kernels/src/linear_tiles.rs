//! Batch-invariant linear layers (a weight's rows are outputs) for GPUs: every row's bits are its own.
//!
//! An element is the sum of parts of K, one after the other, each of which tensor cores add up in steps of 16 (of
//! f32 it is a chain of multiply-adds). Where parts are cut follows from K alone. Tiles, and what computes them,
//! follow the number of rows: on Hopper `mma.sync` and `wgmma` give the same bits, whichever operand is the left one
//! (102,400 sums of 256 products with outliers, none differs).
//!
//! ```text
//! K = 4864 in 4 parts of 1280     p0 = k 0..1280    p1 = k 1280..2560    ..    p3 = k 3840..4864
//! a row, SPLIT = 1                a program for each part of 16 outputs; the last to finish adds ((p0 + p1) + p2) + p3
//! 8192 rows, SPLIT = 0            a program for 128 outputs: total = 0; total += p0; total += p1; ..
//! ```
//!
//! One row is bound by reading the weight, which small programs share evenly among multiprocessors. What follows a
//! product is in [`crate::epilogue`].

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

use crate::epilogue::{
    finished, halves_of, joined, let_through, other_of, partial_offsets, put, rounded, scales_at,
};
use crate::matmul::scheduled_tile;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&linear_tiles::KERNEL, &linear_tiles_gated::KERNEL, &linear_tiles_paired::KERNEL];

/// A part of a tile of products: outputs from `at.0` on, rows of `x` from `at.1` on, K from `k.0` to `k.1`.
#[device]
fn part_of<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    weight: View<T, 2>,
    x: View<T, 2>,
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    let ((row, column), (first, end)) = (at, k);
    let mut acc = zeros::<f32, BM, BN>();
    for p in range(first, end, BK) {
        acc = dot(weight.load::<BM, BK>([row, p]), x.load::<BK, BN>([p, column]), acc);
    }
    acc
}

/// A tile of products, part after part.
#[device]
fn in_turn<T: Float, const BM: usize, const BN: usize, const BK: usize, const PARTS: usize>(
    weight: View<T, 2>,
    x: View<T, 2>,
    at: (i64, i64),
    each: i64,
) -> Tile2<f32, BM, BN> {
    let k = weight.dim(1);
    if PARTS == 1 {
        part_of::<T, BM, BN, BK>(weight, x, at, (0, k))
    } else {
        let mut total = zeros::<f32, BM, BN>();
        for first in range(0, k, each) {
            let bounds = (first, minimum(first + each, k));
            total = total + part_of::<T, BM, BN, BK>(weight, x, at, bounds);
        }
        total
    }
}

/// `y = x W^T + bias`, plus `added` where `ADD`: `weight: [m, k]`, `x: [k, n]`, `bias: [m]`, or empty where there is
/// none, `added` and `y: [m, n]`. K is cut into `PARTS` parts of `each`, a multiple of `BK`; the last may be shorter.
/// With `NORM` the product is scaled before the bias: `of: [k, n]`, `scales: [n]`. With `NEXT` there is
/// `next = y (gain + offset)` too, `gain: [m]`.
///
/// With `SPLIT` a part is a program of its own, which asks for its share of the weight before all else: where there
/// are several, `sums` has room for the tiles of all parts, and `done` a zero for each tile, before and after.
#[kernel]
pub fn linear_tiles<
    T: Float,
    B: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const PARTS: usize,
    const SPLIT: usize,
    const ADD: usize,
    const NORM: usize,
    const NEXT: usize,
>(
    weight: View<T, 2>,
    x: View<T, 2>,
    bias: View<B, 1>,
    added: View<T, 2>,
    of: View<T, 2>,
    scales: View<f32, 1>,
    gain: View<T, 1>,
    y: ViewMut<T, 2>,
    next: ViewMut<T, 2>,
    sums: PtrMut<f32>,
    done: PtrMut<i32>,
    each: i64,
    eps: f32,
    offset: f32,
) {
    let (m, n, k) = (y.dim(0), y.dim(1), weight.dim(1));
    let tiles = cdiv(m, BM) * cdiv(n, BN);
    if SPLIT == 1 {
        let number = program_id(0);
        let (part, row, column) = scheduled_tile::<BM, BN>(number, m, n);
        // What follows the product is asked for ahead of it.
        let own = bias.load::<BM>([row]).to::<f32>();
        let other = other_of::<T, BM, BN, ADD>(added, (row, column));
        let g = gain.load::<BM>([row]);
        let by = scales_at::<T, BN, NORM>((of, scales, eps), column);
        let bounds = (part * each, minimum((part + 1) * each, k));
        let acc = part_of::<T, BM, BN, BK>(weight, x, (row, column), bounds);
        if PARTS == 1 {
            let all = finished::<T, BM, BN, ADD, NORM>(acc, by, own, other);
            put::<T, BM, BN, NEXT>(y, next, (row, column), all, g, offset);
        } else {
            let (places, exist) = partial_offsets::<BM, BN>(number, column, n);
            store(sums + places, acc, exist);
            let tile = number - part * tiles;
            if atomic_add(done + tile, 1).to::<i64>() == PARTS - 1 {
                let total = joined::<BM, BN, PARTS>(sums, tile, tiles, column, n);
                let all = finished::<T, BM, BN, ADD, NORM>(total, by, own, other);
                put::<T, BM, BN, NEXT>(y, next, (row, column), all, g, offset);
                atomic_xchg(done + tile, 0);
            }
        }
    } else {
        for tile in persistent(tiles) {
            let (_, row, column) = scheduled_tile::<BM, BN>(tile, m, n);
            let total = in_turn::<T, BM, BN, BK, PARTS>(weight, x, (row, column), each);
            let own = bias.load::<BM>([row]).to::<f32>();
            let other = other_of::<T, BM, BN, ADD>(added, (row, column));
            let by = scales_at::<T, BN, NORM>((of, scales, eps), column);
            let all = finished::<T, BM, BN, ADD, NORM>(total, by, own, other);
            put::<T, BM, BN, NEXT>(y, next, (row, column), all, gain.load::<BM>([row]), offset);
        }
    }
}

/// A part of a tile of gates and of what they let through, whose weights are `m` outputs behind.
#[device]
fn both_of<T: Float, const BM: usize, const BN: usize, const BK: usize>(
    weight: View<T, 2>,
    x: View<T, 2>,
    at: (i64, i64),
    m: i64,
    k: (i64, i64),
) -> (Tile2<f32, BM, BN>, Tile2<f32, BM, BN>) {
    let ((row, column), (first, end)) = (at, k);
    let mut gate = zeros::<f32, BM, BN>();
    let mut up = zeros::<f32, BM, BN>();
    for p in range(first, end, BK) {
        let v = x.load::<BK, BN>([p, column]);
        gate = dot(weight.load::<BM, BK>([row, p]), v, gate);
        up = dot(weight.load::<BM, BK>([row + m, p]), v, up);
    }
    (gate, up)
}

/// A tile of outputs behind their gates.
#[device]
fn gated_tile<
    T: Float,
    B: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const PARTS: usize,
    const ACT: usize,
    const NORM: usize,
>(
    weight: View<T, 2>,
    x: View<T, 2>,
    bias: View<B, 1>,
    norm: (View<T, 2>, View<f32, 1>, f32),
    at: (i64, i64),
    m: i64,
    each: i64,
) -> Tile2<T, BM, BN> {
    let (row, column) = at;
    let k = weight.dim(1);
    let by = scales_at::<T, BN, NORM>(norm, column);
    let mut gates = zeros::<f32, BM, BN>();
    let mut ups = zeros::<f32, BM, BN>();
    if PARTS == 1 {
        let (gate, up) = both_of::<T, BM, BN, BK>(weight, x, (row, column), m, (0, k));
        gates = gate;
        ups = up;
    } else {
        for first in range(0, k, each) {
            let bounds = (first, minimum(first + each, k));
            let (gate, up) = both_of::<T, BM, BN, BK>(weight, x, (row, column), m, bounds);
            gates = gates + gate;
            ups = ups + up;
        }
    }
    let (own, other) = (bias.load::<BM>([row]), bias.load::<BM>([row + m]));
    let gate = rounded::<T, BM, BN, NORM>(gates, by, own.to::<f32>());
    let up = rounded::<T, BM, BN, NORM>(ups, by, other.to::<f32>());
    let_through::<T, BM, BN, ACT>(gate, up)
}

/// `y = f(g) u` of the halves `g, u` of `x W^T + bias`, as [`mod@linear_tiles`] and [`mod@crate::gated`] compute
/// them: `weight: [2 m, k]`, `bias: [2 m]`, `y: [m, n]`. With `ONE` a program has one tile.
#[kernel]
pub fn linear_tiles_gated<
    T: Float,
    B: Float,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const PARTS: usize,
    const ACT: usize,
    const ONE: usize,
    const NORM: usize,
>(
    weight: View<T, 2>,
    x: View<T, 2>,
    bias: View<B, 1>,
    of: View<T, 2>,
    scales: View<f32, 1>,
    y: ViewMut<T, 2>,
    each: i64,
    eps: f32,
) {
    let (m, n) = (y.dim(0), y.dim(1));
    let norm = (of, scales, eps);
    if ONE == 1 {
        let (_, row, column) = scheduled_tile::<BM, BN>(program_id(0), m, n);
        let at = (row, column);
        y.store(
            [row, column],
            gated_tile::<T, B, BM, BN, BK, PARTS, ACT, NORM>(weight, x, bias, norm, at, m, each),
        );
    } else {
        for tile in persistent(cdiv(m, BM) * cdiv(n, BN)) {
            let (_, row, column) = scheduled_tile::<BM, BN>(tile, m, n);
            let at = (row, column);
            y.store(
                [row, column],
                gated_tile::<T, B, BM, BN, BK, PARTS, ACT, NORM>(
                    weight, x, bias, norm, at, m, each,
                ),
            );
        }
    }
}

/// A part of a tile of `HALF` gates and of what these let through: see [`mod@linear_tiles_paired`].
#[device]
fn pairs_of<T: Float, const BANDS: usize, const BM: usize, const BN: usize, const BK: usize>(
    weight: View<T, 4>,
    x: View<T, 2>,
    at: (i64, i64),
    k: (i64, i64),
) -> Tile2<f32, BM, BN> {
    let ((group, column), (first, end)) = (at, k);
    let mut acc = zeros::<f32, BM, BN>();
    for p in range(first, end, BK) {
        let w = weight.load::<BANDS, 2, 8, BK>([group, 0, 0, p]).reshape::<BM, BK>();
        acc = dot(w, x.load::<BK, BN>([p, column]), acc);
    }
    acc
}

/// [`mod@linear_tiles_gated`] of few rows: both halves of a tile are one product, so that there are twice the programs and
/// half of the products in each one's chain. `weight: [m / 8, 2, 8, k]`, of which `[.., 0, .., ..]` are gates.
///
/// ```text
/// rows of the left operand     8 gates | what they let through | 8 gates | ..
/// ```
///
/// A thread's accumulators of an MMA are of rows 8 apart, so that it has both of a pair.
#[kernel]
pub fn linear_tiles_paired<
    T: Float,
    B: Float,
    const BANDS: usize,
    const HALF: usize,
    const BM: usize,
    const BN: usize,
    const BK: usize,
    const PARTS: usize,
    const ACT: usize,
    const NORM: usize,
>(
    weight: View<T, 4>,
    x: View<T, 2>,
    bias: View<B, 1>,
    of: View<T, 2>,
    scales: View<f32, 1>,
    y: ViewMut<T, 2>,
    each: i64,
    eps: f32,
) {
    static_assert!(BANDS * 16 == BM, "a band is 8 gates and what they let through");
    static_assert!(2 * HALF == BM, "half of a tile are gates");
    let (m, n, k) = (y.dim(0), y.dim(1), weight.dim(3));
    let (_, row, column) = scheduled_tile::<HALF, BN>(program_id(0), m, n);
    let at = (row / 8, column);
    let (gate_bias, up_bias) = (bias.load::<HALF>([row]), bias.load::<HALF>([row + m]));
    let by = scales_at::<T, BN, NORM>((of, scales, eps), column);
    let mut both = zeros::<f32, BM, BN>();
    if PARTS == 1 {
        both = pairs_of::<T, BANDS, BM, BN, BK>(weight, x, at, (0, k));
    } else {
        for first in range(0, k, each) {
            let bounds = (first, minimum(first + each, k));
            both = both + pairs_of::<T, BANDS, BM, BN, BK>(weight, x, at, bounds);
        }
    }
    let (gates, ups) = halves_of::<BANDS, HALF, BM, BN>(both);
    let gate = rounded::<T, HALF, BN, NORM>(gates, by, gate_bias.to::<f32>());
    let up = rounded::<T, HALF, BN, NORM>(ups, by, up_bias.to::<f32>());
    y.store([row, column], let_through::<T, HALF, BN, ACT>(gate, up));
}

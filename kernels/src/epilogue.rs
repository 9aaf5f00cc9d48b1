//! Epilogues of products of rows: what follows a product in a transformer's layer happens to its sums in registers.
//!
//! Each step is rounded as if it was an op of its own:
//!
//! ```text
//! sums          f32; where K is cut among programs, the last of a tile's programs adds the parts up in their order
//! * 1 / rms     NORM: the norm in front of the product, see norm_rows
//! + bias        rounded to the dtype of the rows
//! + residual    ADD: rounded
//! f(g) u        gated: of the two halves of the outputs
//! * gain        NEXT: a second result, what the norm behind gives to its products
//! ```
//!
//! Where `NORM` is 1 a program sums up the squares of the rows before the norm, where it is 3 those of the only row, and
//! where it is 2 their scales are known.

use genesis_kernel::prelude::*;

use crate::gated::opened;
use crate::norm_rows::{scales_of, weighted};

/// Where the elements of a tile's part lie in `sums`, and which of them there are.
#[device]
pub fn partial_offsets<const BM: usize, const BN: usize>(
    number: i64,
    column: i64,
    n: i64,
) -> (Tile2<i64, BM, BN>, Tile2<bool, BM, BN>) {
    let places = (arange::<BM>() * BN).col() + arange::<BN>().row() + number * (BM * BN);
    let exist = (zeros::<i64, BM>().col() + (column + arange::<BN>()).row()) < n;
    (places, exist)
}

/// The parts of a tile, joined in their order. Part after part is `tiles` tiles behind `first`.
#[device]
pub fn joined<const BM: usize, const BN: usize, const PARTS: usize>(
    sums: PtrMut<f32>,
    first: i64,
    tiles: i64,
    column: i64,
    n: i64,
) -> Tile2<f32, BM, BN> {
    let mut total = zeros::<f32, BM, BN>();
    // All loads are under way before the first is added.
    for part in range(0, PARTS, 1) {
        let (places, exist) = partial_offsets::<BM, BN>(part * tiles + first, column, n);
        total = total + load(sums + places, exist);
    }
    total
}

/// What columns are multiplied by behind the product, where `NORM`: `norm` is the rows before the norm, `[k, n]`, their
/// scales `[n]`, and what is added to mean squares.
#[device]
pub fn scales_at<T: Float, const BN: usize, const NORM: usize>(
    norm: (View<T, 2>, View<f32, 1>, f32),
    column: i64,
) -> Tile1<f32, BN> {
    let (of, scales, eps) = norm;
    let mut by = ones::<f32, BN>();
    if NORM == 1 {
        by = scales_of::<T, BN>(of, column, eps);
    }
    if NORM == 2 {
        by = scales.load::<BN>([column]);
    }
    if NORM == 3 {
        by = full::<f32, BN>(sum(scales_of::<T, 1>(of, column, eps), 0));
    }
    by
}

/// Sums as they are stored: scaled where `NORM`, with the bias.
#[device]
pub fn rounded<T: Float, const BM: usize, const BN: usize, const NORM: usize>(
    sums: Tile2<f32, BM, BN>,
    by: Tile1<f32, BN>,
    bias: Tile1<f32, BM>,
) -> Tile2<T, BM, BN> {
    let mut all = sums;
    if NORM > 0 {
        all = all * by.row();
    }
    (all + bias.col()).to::<T>()
}

/// What is added to a tile where `ADD`.
#[device]
pub fn other_of<T: Float, const BM: usize, const BN: usize, const ADD: usize>(
    added: View<T, 2>,
    at: (i64, i64),
) -> Tile2<T, BM, BN> {
    let mut other = zeros::<T, BM, BN>();
    if ADD == 1 {
        other = added.load::<BM, BN>([at.0, at.1]);
    }
    other
}

/// [`rounded`], with `other` where `ADD`.
#[device]
pub fn finished<T: Float, const BM: usize, const BN: usize, const ADD: usize, const NORM: usize>(
    sums: Tile2<f32, BM, BN>,
    by: Tile1<f32, BN>,
    bias: Tile1<f32, BM>,
    other: Tile2<T, BM, BN>,
) -> Tile2<T, BM, BN> {
    let mut all = rounded::<T, BM, BN, NORM>(sums, by, bias);
    if ADD == 1 {
        all = (all.to::<f32>() + other.to::<f32>()).to::<T>();
    }
    all
}

/// Gates and what they let through of a tile in which eight of each take turns.
#[device]
pub fn halves_of<const BANDS: usize, const HALF: usize, const BM: usize, const BN: usize>(
    both: Tile2<f32, BM, BN>,
) -> (Tile2<f32, HALF, BN>, Tile2<f32, HALF, BN>) {
    let (gates, ups) = split(both.reshape::<BANDS, 2, 8, BN>().permute([0, 2, 3, 1]));
    (gates.reshape::<HALF, BN>(), ups.reshape::<HALF, BN>())
}

/// What gates let through.
#[device]
pub fn let_through<T: Float, const BM: usize, const BN: usize, const ACT: usize>(
    gate: Tile2<T, BM, BN>,
    up: Tile2<T, BM, BN>,
) -> Tile2<T, BM, BN> {
    let open = opened::<f32, BM, BN, ACT>(gate.to::<f32>()).to::<T>();
    (open.to::<f32>() * up.to::<f32>()).to::<T>()
}

/// Stores a tile, and where `NEXT` what the norm behind it weighs it to.
#[device]
pub fn put<T: Float, const BM: usize, const BN: usize, const NEXT: usize>(
    y: ViewMut<T, 2>,
    next: ViewMut<T, 2>,
    at: (i64, i64),
    all: Tile2<T, BM, BN>,
    gain: Tile1<T, BM>,
    offset: f32,
) {
    y.store([at.0, at.1], all);
    if NEXT == 1 {
        next.store([at.0, at.1], weighted::<T, BM, BN>(all, gain, offset));
    }
}

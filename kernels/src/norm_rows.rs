//! RMS norm in front of products of rows: the division comes behind the product.
//!
//! A row of a product is linear in the row of `x`, so that one number for a row can wait:
//!
//! ```text
//! W ((x / rms) g)  =  (W (x g)) / rms                 rms = sqrt(mean(x^2) + eps)
//! ```
//!
//! What is left to do before the product, `x g`, is elementwise, and part of the launch that makes `x`. The square
//! root is of no use before the product ends: its programs compute it beside, of few rows each for itself, of many
//! rows [`mod@rms_of_rows`] once for all. As many numbers are rounded as with a norm in between.
//!
//! So that a row has the same bits in both, its squares are added up in an order that no layout and no tile sets:
//!
//! ```text
//! lane j of 256        x[j]^2 + x[j + 256]^2 + x[j + 512]^2 + ..       by fused multiply-adds
//! the row              lanes in pairs: 0 + 1, 2 + 3, ..; these in pairs; and so on
//! ```
//!
//! A sum of two is the same whichever is the first, so that neither threads nor warps can change it.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&rms_of_rows::KERNEL];

/// The sums of 256 lanes: pairs of neighbours, pairs of pairs, and so on.
#[device]
fn in_pairs<const N: usize>(lanes: Tile2<f32, 256, N>) -> Tile1<f32, N> {
    let s = sum(lanes.reshape::<128, 2, N>(), 1);
    let s = sum(s.reshape::<64, 2, N>(), 1);
    let s = sum(s.reshape::<32, 2, N>(), 1);
    let s = sum(s.reshape::<16, 2, N>(), 1);
    let s = sum(s.reshape::<8, 2, N>(), 1);
    let s = sum(s.reshape::<4, 2, N>(), 1);
    let s = sum(s.reshape::<2, 2, N>(), 1);
    sum(s, 0)
}

/// `1 / sqrt(mean(x^2) + eps)` of `N` columns of `x: [k, n]`, from this one on.
#[device]
pub fn scales_of<T: Float, const N: usize>(x: View<T, 2>, column: i64, eps: f32) -> Tile1<f32, N> {
    let mut squares = zeros::<f32, 256, N>();
    // Four loads are under way at once.
    for p in range(0, x.dim(0), 1024) {
        let a = x.load::<256, N>([p, column]).to::<f32>();
        let b = x.load::<256, N>([p + 256, column]).to::<f32>();
        let c = x.load::<256, N>([p + 512, column]).to::<f32>();
        let d = x.load::<256, N>([p + 768, column]).to::<f32>();
        squares = fma(d, d, fma(c, c, fma(b, b, fma(a, a, squares))));
    }
    rsqrt(in_pairs::<N>(squares) / x.dim(0).to::<f32>() + eps)
}

/// `x (gain + offset)` of a tile, rounded once.
#[device]
pub fn weighted<T: Float, const K: usize, const N: usize>(
    x: Tile2<T, K, N>,
    gain: Tile1<T, K>,
    offset: f32,
) -> Tile2<T, K, N> {
    (x.to::<f32>() * (gain.to::<f32>() + offset).col()).to::<T>()
}

/// The scales of the columns of `x: [k, n]`, `ROWS` in a program; and where `WEIGH` `y = x (gain + offset)`.
#[kernel]
pub fn rms_of_rows<T: Float, const ROWS: usize, const WEIGH: usize>(
    x: View<T, 2>,
    gain: View<T, 1>,
    y: ViewMut<T, 2>,
    scales: ViewMut<f32, 1>,
    eps: f32,
    offset: f32,
) {
    let column = program_id(0) * ROWS;
    scales.store([column], scales_of::<T, ROWS>(x, column, eps));
    if WEIGH == 1 {
        for p in range(0, x.dim(0), 256) {
            let (v, g) = (x.load::<256, ROWS>([p, column]), gain.load::<256>([p]));
            y.store([p, column], weighted::<T, 256, ROWS>(v, g, offset));
        }
    }
}

//! Normalization along the last axis: layer norm and RMS norm.
//!
//! Statistics are in `A` and kept for the backward; the deviations are taken from the exact mean
//! (two steps, never `E[x^2] - mean^2`). Rows that fit are held in registers, `ROWS` of them in a
//! program; longer ones are read twice.
//!
//! Parameters are of `W` and results of `Y`, which is not `T` where a product reads them in 16 bits beside a residual stream in
//! f32. The norm of a sum, `x + r`, also stores the sum, of which it is as it is stored: the bits of a sum and a norm of it.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[
    &layer_norm::KERNEL,
    &rms_norm::KERNEL,
    &layer_norm_long::KERNEL,
    &rms_norm_long::KERNEL,
    &add_layer_norm::KERNEL,
    &add_rms_norm::KERNEL,
];

/// Of rows of `n` elements, the means, the deviations from them, which are 0 behind the row, and one over the root of their
/// mean square.
#[device]
fn moments<A: Float, const ROWS: usize, const COLS: usize>(
    v: Tile2<A, ROWS, COLS>,
    n: i64,
    eps: A,
) -> (Tile1<A, ROWS>, Tile2<A, ROWS, COLS>, Tile1<A, ROWS>) {
    let center = sum(v, 1) / A::from(n);
    let d = where_(arange::<COLS>().row() < n, v - center.col(), A::ZERO);
    (center, d, rsqrt(sum(d * d, 1) / A::from(n) + eps))
}

/// `x + r`, rounded to the dtype of `x`.
#[device]
fn added<T: Float, R: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    r: View<R, 2>,
    i: i64,
) -> Tile2<T, ROWS, COLS> {
    (x.load::<ROWS, COLS>([i, 0]).to::<A>() + r.load::<ROWS, COLS>([i, 0]).to::<A>()).to::<T>()
}

/// `y = (x - mean) / sqrt(var + eps) * weight + bias` for each row of `x: [m, n]`, `n <= COLS`.
#[kernel]
pub fn layer_norm<T: Float, W: Float, Y: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    weight: View<W, 1>,
    bias: View<W, 1>,
    y: ViewMut<Y, 2>,
    mean: ViewMut<A, 1>,
    rstd: ViewMut<A, 1>,
    eps: A,
) {
    let i = program_id(0) * ROWS;
    let v = x.load::<ROWS, COLS>([i, 0]).to::<A>();
    let (center, d, scale) = moments(v, x.dim(1), eps);
    // After the sums: until then the registers are for the row.
    let w = weight.load::<COLS>([0]).to::<A>();
    let b = bias.load::<COLS>([0]).to::<A>();
    y.store([i, 0], (d * scale.col() * w.row() + b.row()).to::<Y>());
    mean.store([i], center);
    rstd.store([i], scale);
}

/// `y = x / sqrt(mean(x^2) + eps) * weight` for each row of `x: [m, n]`, `n <= COLS`.
#[kernel]
pub fn rms_norm<T: Float, W: Float, Y: Float, A: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 2>,
    weight: View<W, 1>,
    y: ViewMut<Y, 2>,
    rstd: ViewMut<A, 1>,
    eps: A,
) {
    let i = program_id(0) * ROWS;
    let v = x.load::<ROWS, COLS>([i, 0]).to::<A>();
    let scale = rsqrt(sum(v * v, 1) / A::from(x.dim(1)) + eps);
    let w = weight.load::<COLS>([0]).to::<A>();
    y.store([i, 0], (v * scale.col() * w.row()).to::<Y>());
    rstd.store([i], scale);
}

/// [`mod@layer_norm`] of rows of any length.
///
/// Each place of the block keeps the mean and the squared deviations of its own elements as they
/// come (Welford's way); the places are joined after the loop.
#[kernel]
pub fn layer_norm_long<T: Float, W: Float, Y: Float, A: Float, const COLS: usize>(
    x: View<T, 2>,
    weight: View<W, 1>,
    bias: View<W, 1>,
    y: ViewMut<Y, 2>,
    mean: ViewMut<A, 1>,
    rstd: ViewMut<A, 1>,
    eps: A,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let mut own = zeros::<A, 1, COLS>();
    let mut squares = zeros::<A, 1, COLS>();
    for j in range(0, n, COLS) {
        let inside = (j + arange::<COLS>()).row() < n;
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        let d = where_(inside, v - own, A::ZERO);
        own = own + d * (A::ONE / A::from(j / COLS + 1));
        squares = squares + d * (v - own);
    }
    let count = cdiv(n - arange::<COLS>(), COLS).to::<A>().row();
    let center = sum(own * count, 1) / A::from(n);
    let d = own - center.col();
    let scale = rsqrt(sum(squares + d * d * count, 1) / A::from(n) + eps);
    mean.store([i], center);
    rstd.store([i], scale);
    for j in range(0, n, COLS) {
        let d = x.load::<1, COLS>([i, j]).to::<A>() - center.col();
        let w = weight.load::<COLS>([j]).to::<A>();
        let b = bias.load::<COLS>([j]).to::<A>();
        y.store([i, j], (d * scale.col() * w.row() + b.row()).to::<Y>());
    }
}

/// [`mod@rms_norm`] of rows of any length.
#[kernel]
pub fn rms_norm_long<T: Float, W: Float, Y: Float, A: Float, const COLS: usize>(
    x: View<T, 2>,
    weight: View<W, 1>,
    y: ViewMut<Y, 2>,
    rstd: ViewMut<A, 1>,
    eps: A,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let mut squares = zeros::<A, 1, COLS>();
    for j in range(0, n, COLS) {
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        squares = squares + v * v;
    }
    let scale = rsqrt(sum(squares, 1) / A::from(n) + eps);
    rstd.store([i], scale);
    for j in range(0, n, COLS) {
        let v = x.load::<1, COLS>([i, j]).to::<A>();
        let w = weight.load::<COLS>([j]).to::<A>();
        y.store([i, j], (v * scale.col() * w.row()).to::<Y>());
    }
}

/// `s = x + r` and [`mod@layer_norm`] of it.
#[kernel]
pub fn add_layer_norm<
    T: Float,
    R: Float,
    W: Float,
    Y: Float,
    A: Float,
    const ROWS: usize,
    const COLS: usize,
>(
    x: View<T, 2>,
    r: View<R, 2>,
    weight: View<W, 1>,
    bias: View<W, 1>,
    s: ViewMut<T, 2>,
    y: ViewMut<Y, 2>,
    mean: ViewMut<A, 1>,
    rstd: ViewMut<A, 1>,
    eps: A,
) {
    let i = program_id(0) * ROWS;
    let stored = added::<T, R, A, ROWS, COLS>(x, r, i);
    s.store([i, 0], stored);
    let (center, d, scale) = moments(stored.to::<A>(), x.dim(1), eps);
    let w = weight.load::<COLS>([0]).to::<A>();
    let b = bias.load::<COLS>([0]).to::<A>();
    y.store([i, 0], (d * scale.col() * w.row() + b.row()).to::<Y>());
    mean.store([i], center);
    rstd.store([i], scale);
}

/// `s = x + r` and [`mod@rms_norm`] of it.
#[kernel]
pub fn add_rms_norm<
    T: Float,
    R: Float,
    W: Float,
    Y: Float,
    A: Float,
    const ROWS: usize,
    const COLS: usize,
>(
    x: View<T, 2>,
    r: View<R, 2>,
    weight: View<W, 1>,
    s: ViewMut<T, 2>,
    y: ViewMut<Y, 2>,
    rstd: ViewMut<A, 1>,
    eps: A,
) {
    let i = program_id(0) * ROWS;
    let stored = added::<T, R, A, ROWS, COLS>(x, r, i);
    s.store([i, 0], stored);
    let v = stored.to::<A>();
    let scale = rsqrt(sum(v * v, 1) / A::from(x.dim(1)) + eps);
    let w = weight.load::<COLS>([0]).to::<A>();
    y.store([i, 0], (v * scale.col() * w.row()).to::<Y>());
    rstd.store([i], scale);
}

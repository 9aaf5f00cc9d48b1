//! Normalization along the last axis: layer norm and RMS norm.
//!
//! Statistics are in `A`, the deviations are taken from the exact mean (two steps, never
//! `E[x^2] - mean^2`).

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::prelude::*;

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&layer_norm::KERNEL, &rms_norm::KERNEL];

/// `y = (x - mean) / sqrt(var + eps) * weight + bias` for each row of `x: [m, n]`, `n <= COLS`.
#[kernel]
pub fn layer_norm<T: Float, A: Float, const COLS: usize>(
    x: View<T, 2>,
    weight: View<T, 1>,
    bias: View<T, 1>,
    y: ViewMut<T, 2>,
    eps: A,
) {
    let i = program_id(0);
    let n = x.dim(1);
    let v = x.load::<1, COLS>([i, 0]).to::<A>();
    let mean = sum(v, 1) / A::from(n);
    let d = where_(arange::<COLS>().row() < n, v - mean.col(), A::ZERO);
    let rstd = rsqrt(sum(d * d, 1) / A::from(n) + eps);
    let w = weight.load::<COLS>([0]).to::<A>();
    let b = bias.load::<COLS>([0]).to::<A>();
    y.store([i, 0], (d * rstd.col() * w.row() + b.row()).to::<T>());
}

/// `y = x / sqrt(mean(x^2) + eps) * weight` for each row of `x: [m, n]`, `n <= COLS`.
#[kernel]
pub fn rms_norm<T: Float, A: Float, const COLS: usize>(
    x: View<T, 2>,
    weight: View<T, 1>,
    y: ViewMut<T, 2>,
    eps: A,
) {
    let i = program_id(0);
    let v = x.load::<1, COLS>([i, 0]).to::<A>();
    let rstd = rsqrt(sum(v * v, 1) / A::from(x.dim(1)) + eps);
    let w = weight.load::<COLS>([0]).to::<A>();
    y.store([i, 0], (v * rstd.col() * w.row()).to::<T>());
}

//! Logarithms of sums of two powers, which do not overflow: `m + log(1 + exp(-d))` with the larger `m` and the distance `d`.
//!
//! Beside 0 the two parts cancel, and what is left are the errors of the logarithm. In f32 it is therefore a sum of two
//! numbers, the second of which holds what rounding leaves of the first: off by 2^-30 in all, where one f32 is by
//! 2^-24. That takes 60 instructions of f32; the same in f64 takes half as many, at half the rate or a
//! 64th of it, and conversions.

use genesis_kernel::lang::library::single::log1p_short;
use genesis_kernel::prelude::*;

/// `log(1 + t)` of a power `t = 2^n exp(r + rest)` from 0 to 1, where `n` stands in the low bits of `shifted` and
/// `|r| < 0.35`: as `2 q + left`, and 1 where to that `log(3/2)` is to be added, else 0.
///
/// `exp(r)` is `(1 + w) / (1 - w)` with `w = tanh(r / 2) = r / 2 + r^3 P(r^2)`, 2^-35.7, of which only the second part,
/// less than 2^-9, is rounded. The logarithm of `1 + t` over 1 or 3/2 is `2 atanh(q)` of the quotient `q` of their
/// difference and their sum, whose divisor `1 - w` cancels: `|q| <= 0.151`, `2 q + q^3 P(q^2)`, 2^-31.7.
#[device]
fn log1p_of_power<S: Shape>(
    r: Tile<f32, S>,
    rest: Tile<f32, S>,
    shifted: Tile<f32, S>,
) -> (Tile<f32, S>, Tile<f32, S>, Tile<f32, S>) {
    let square = r * r;
    let p = fma(square, -0.000411357, 0.004165894);
    let p = fma(p, square, -0.04166665);
    let beyond_half = fma(rest, fma(square, -0.125, 0.5), r * square * p);
    let w = fma(r, 0.5, beyond_half);
    let w_rest = fma(r, 0.5, -w) + beyond_half;
    let scale = bitcast::<f32>((bitcast::<i32>(shifted) << 23) + 1065353216);
    let is_high = (scale >= 0.5).to::<f32>();
    // Of t - h and of t + 2 + h, with h = 1/2 or 0, and t = scale (1 + w) / (1 - w).
    let (less, more) = (fma(is_high, -0.5, scale), fma(is_high, 0.5, scale));
    let over = fma(more, w, less);
    let over_rest = fma(more, w_rest, fma(more, w, less - over));
    let (start, slope) = (more + 2.0, less - 2.0);
    let under = fma(slope, w, start);
    let under_rest = fma(slope, w_rest, fma(slope, w, start - under));
    let share = fast::recip(under);
    let q = over * share;
    let q_rest = (fma(-q, under_rest, fma(-q, under, over)) + over_rest) * share;
    let z = q * q;
    let p = fma(z, 0.29565826, 0.39986795);
    let p = fma(p, z, 0.66666716);
    (q, fma(fma(q_rest, z, q_rest), 2.0, q * z * p), is_high)
}

/// The larger of two, and what the smaller is beyond it, 0 or less: a number and what rounding leaves of it. What is below
/// `-far` counts as that. NaN is the larger of all, and of an infinity there is no distance.
#[device]
fn beyond<S: Shape>(
    x: Tile<f32, S>,
    y: Tile<f32, S>,
    far: f32,
) -> (Tile<f32, S>, Tile<f32, S>, Tile<f32, S>) {
    let m = maximum(x, y);
    let n = maximum(minimum(x, y), m - far);
    let d = n - m;
    (m, d, (n - d) - m)
}

/// `log(exp(x) + exp(y))` of f32.
#[device]
fn log_add_single<S: Shape>(x: Tile<f32, S>, y: Tile<f32, S>) -> Tile<f32, S> {
    let (m, d, d_rest) = beyond(x, y, 88.0);
    // The sum has the whole part in its low bits.
    let shifted = fma(d, 1.442695, 12582912.0);
    let n = shifted - 12582912.0;
    // log(2) with a first part of so few bits that the product is exact.
    let r = fma(n, -0.693145751953125, d);
    let (q, left, is_high) = log1p_of_power(r, fma(n, -1.4286068e-6, d_rest), shifted);
    // log(3/2) likewise.
    let sum = fma(q, 2.0, fma(is_high, 0.40625, m)) + fma(is_high, -0.0007848919, left);
    where_(is_inf(m), m, sum)
}

/// `log2(2^x + 2^y)` of f32.
#[device]
fn log_add2_single<S: Shape>(x: Tile<f32, S>, y: Tile<f32, S>) -> Tile<f32, S> {
    let (m, d, d_rest) = beyond(x, y, 127.0);
    let shifted = d + 12582912.0;
    let f = d - (shifted - 12582912.0);
    let r = f * 0.6931472;
    let r_rest = fma(d_rest, 0.6931472, fma(f, -1.904654e-9, fma(f, 0.6931472, -r)));
    let (q, left, is_high) = log1p_of_power(r, r_rest, shifted);
    let double = q * 2.88539;
    let double_rest = fma(q, 3.8519256e-8, fma(q, 2.88539, -double));
    let left = fma(left, 1.442695, fma(is_high, -0.00097499928, double_rest));
    let sum = (double + fma(is_high, 0.5859375, m)) + left;
    where_(is_inf(m), m, sum)
}

/// `log(exp(x) + exp(y))`; of 16 bits by the functions of the hardware.
#[device]
pub fn log_add_of<T: Float, A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    if T::EPSILON > T::from(1e-5) {
        let distance = where_(x == y, A::ZERO, abs(x - y));
        maximum(x, y) + log1p_short(fast::exp(-distance.to::<f32>())).to::<A>()
    } else if A::EPSILON > A::from(1e-10) {
        log_add_single(x.to::<f32>(), y.to::<f32>()).to::<A>()
    } else {
        let distance = where_(x == y, A::ZERO, abs(x - y));
        maximum(x, y) + log1p(exp(-distance))
    }
}

/// `log2(2^x + 2^y)`, as [`log_add_of`].
#[device]
pub fn log_add2_of<T: Float, A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    if T::EPSILON > T::from(1e-5) {
        let distance = where_(x == y, A::ZERO, abs(x - y));
        let part = log1p_short(fast::exp2(-distance.to::<f32>())) * 1.442695;
        maximum(x, y) + part.to::<A>()
    } else if A::EPSILON > A::from(1e-10) {
        log_add2_single(x.to::<f32>(), y.to::<f32>()).to::<A>()
    } else {
        let distance = where_(x == y, A::ZERO, abs(x - y));
        maximum(x, y) + log1p(exp2(-distance)) * A::from(1.4426950408889634)
    }
}

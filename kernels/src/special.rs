//! Gamma functions and the cardinal sine; for any strides.
//!
//! Gamma functions are computed in f64, whatever the tensor. The gamma functions move their argument up by ten, where
//! the asymptotic series in powers of one over it has f64's precision, and come back by the recurrence;
//! below one half they are reflected.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::lang::library::off_whole;
use genesis_kernel::prelude::*;

use crate::copy::tile_origin;

/// The derivative of the logarithm of the gamma function, for `x >= 0.5`.
#[device]
pub fn digamma_right<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_low = x < 10.0;
    // The sum of 1 / (x + k) as one quotient.
    let low = minimum(x, 10.0);
    let mut over = full_like(x, 1.0);
    let mut under = low;
    for k in range(1, 10, 1) {
        let next = low + k as f64;
        over = over * next + under;
        under = under * next;
    }
    let steps = over / under;
    let s = where_(is_low, x + 10.0, x);
    let z = 1.0 / (s * s);
    let p = fma(z, 0.021092796092796094, -0.007575757575757576);
    let p = fma(p, z, 0.004166666666666667);
    let p = fma(p, z, -0.003968253968253968);
    let p = fma(p, z, 0.008333333333333333);
    let p = fma(p, z, -0.08333333333333333);
    log(s) - 0.5 / s + p * z - where_(is_low, steps, 0.0)
}

/// The derivative of the logarithm of the gamma function; NaN at the negative integers.
#[device]
pub fn digamma_of<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_left = x < 0.5;
    let right = digamma_right(where_(is_left, 1.0 - x, x));
    let angle = off_whole(x) * 3.141592653589793;
    let left = right - 3.141592653589793 * (cos(angle) / sin(angle));
    let left = where_(floor(x) == x, f64::NAN, left);
    let result = where_(is_left, left, right);
    let result = where_(x == 0.0, -1.0 / x, result);
    where_(is_inf(x), where_(x > 0.0, x, x - x), result)
}

/// `x` to the power of a whole number above 0.
#[device]
pub fn whole_power<S: Shape>(x: Tile<f64, S>, s: f64) -> Tile<f64, S> {
    let mut power = x;
    for _ in range(1, s.to::<i64>(), 1) {
        power = power * x;
    }
    power
}

/// `sum over k >= 0 of (x + k)^-s` for `x > 0` and `s > 1`: twelve terms, then the formula of Euler and
/// Maclaurin.
#[device]
pub fn zeta_right<S: Shape>(x: Tile<f64, S>, s: f64) -> Tile<f64, S> {
    let mut sum = x * 0.0;
    for k in range(0, 12, 1) {
        sum = sum + whole_power(1.0 / (x + k as f64), s);
    }
    let a = x + 12.0;
    let one_over = 1.0 / a;
    let power = whole_power(one_over, s);
    let z = one_over * one_over;
    let factor = power * s * one_over;
    let tail = power * a / (s - 1.0) + power * 0.5 + factor * 0.08333333333333333;
    let factor = factor * (s + 1.0) * (s + 2.0) * z;
    let tail = tail - factor * 0.001388888888888889;
    let factor = factor * (s + 3.0) * (s + 4.0) * z;
    let tail = tail + factor * 3.3068783068783071e-5;
    let factor = factor * (s + 5.0) * (s + 6.0) * z;
    let tail = tail - factor * 8.2671957671957675e-7;
    let factor = factor * (s + 7.0) * (s + 8.0) * z;
    let tail = tail + factor * 2.0876756987868099e-8;
    let factor = factor * (s + 9.0) * (s + 10.0) * z;
    sum + (tail - factor * 5.2841901386874932e-10)
}

/// The zeta function of Hurwitz, whose multiple a derivative of digamma is; `s` is a whole number above 1.
/// Left of 0 it is reflected for `s = 2`, and NaN for others.
#[device]
pub fn zeta_of<S: Shape>(x: Tile<f64, S>, s: f64) -> Tile<f64, S> {
    let is_left = x < 0.0;
    let right = zeta_right(where_(is_left, 1.0 - x, x), s);
    let sine = sin(off_whole(x) * 3.141592653589793);
    let left = 9.869604401089358 / (sine * sine) - right;
    let left = where_(s == 2.0, left, f64::NAN);
    let result = where_(is_left, left, right);
    where_((floor(x) == x) & (x <= 0.0), 1.0 / abs(x - x), result)
}

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] = &[&digamma::KERNEL, &zeta::KERNEL];

/// The derivative of the logarithm of the gamma function.
#[kernel]
pub fn digamma<T: Float, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: ViewMut<T, 4>) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    // Row by row: what a formula keeps in f64 would fill the registers for more.
    for r in range(i, i + ROWS, 1) {
        let v = x.load::<1, 1, 1, COLS>([a, b, r, j]).to::<f64>();
        y.store([a, b, r, j], digamma_of(v).to::<T>());
    }
}

/// The zeta function of Hurwitz, of `s`, times a factor.
#[kernel]
pub fn zeta<T: Float, const ROWS: usize, const COLS: usize>(
    x: View<T, 4>,
    y: ViewMut<T, 4>,
    s: f64,
    factor: f64,
) {
    let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
    for r in range(i, i + ROWS, 1) {
        let v = x.load::<1, 1, 1, COLS>([a, b, r, j]).to::<f64>();
        y.store([a, b, r, j], (zeta_of(v, s) * factor).to::<T>());
    }
}

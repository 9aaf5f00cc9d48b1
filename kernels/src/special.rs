//! Gamma functions, the inverse of the error function, and the cardinal sine; for any strides.
//!
//! All are computed in f64, whatever the tensor. The gamma functions move their argument up by ten, where
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
    let mut steps = x * 0.0;
    for k in range(0, 10, 1) {
        steps = steps + 1.0 / (x + k as f64);
    }
    let s = where_(is_low, x + 10.0, x);
    let z = 1.0 / (s * s);
    let p = z * 0.021092796092796094 + -0.007575757575757576;
    let p = p * z + 0.004166666666666667;
    let p = p * z + -0.003968253968253968;
    let p = p * z + 0.008333333333333333;
    let p = p * z + -0.08333333333333333;
    log(s) - 0.5 / s + p * z - where_(is_low, steps, 0.0)
}

/// The derivative of the logarithm of the gamma function; NaN at the negative integers.
#[device]
pub fn digamma_of<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_left = x < 0.5;
    let right = digamma_right(where_(is_left, 1.0 - x, x));
    let angle = off_whole(x) * 3.141592653589793;
    let left = right - 3.141592653589793 * (cos(angle) / sin(angle));
    let left = where_(floor(x) == x, (x - x) / (x - x), left);
    let result = where_(is_left, left, right);
    let result = where_(x == 0.0, -1.0 / x, result);
    where_(is_inf(x), where_(x > 0.0, x, x - x), result)
}

/// `sum over k >= 0 of (x + k)^-s` for `x > 0` and `s > 1`: twelve terms, then the formula of Euler and
/// Maclaurin.
#[device]
pub fn zeta_right<S: Shape>(x: Tile<f64, S>, s: f64) -> Tile<f64, S> {
    let mut sum = x * 0.0;
    for k in range(0, 12, 1) {
        sum = sum + exp2(log2(x + k as f64) * -s);
    }
    let a = x + 12.0;
    let power = exp2(log2(a) * -s);
    let z = 1.0 / (a * a);
    let factor = power * s / a;
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
    let left = where_(s == 2.0, left, (x - x) / (x - x));
    let result = where_(is_left, left, right);
    where_((floor(x) == x) & (x <= 0.0), 1.0 / abs(x - x), result)
}

/// The inverse of the error function: an approximation to three digits, made exact by steps of third
/// order.
#[device]
pub fn erfinv_of<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let size = abs(x);
    // 1 - x^2 without a loss near 1.
    let l = log((1.0 - size) * (1.0 + size));
    let t = 4.330746750799873 + l * 0.5;
    let root = sqrt(t * t - l * 6.802721088435375);
    let mut y = sqrt(maximum(-l * 6.802721088435375 / (root + t), 0.0));
    for _ in range(0, 3, 1) {
        let off = (erf(y) - size) * exp(y * y) * 0.886226925452758;
        y = y - off / (1.0 + y * off);
    }
    // The exponential of what rounds to 1 overflows.
    let y = where_(size == 1.0, 1.0 / (size - size), y);
    let y = where_(size > 1.0, (x - x) / (x - x), y);
    where_(x < 0.0, -y, where_(x == 0.0, x, y))
}

/// `sin(pi x) / (pi x)`
#[device]
pub fn sinc_of<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let whole = round(x);
    let sine = sin(off_whole(x) * 3.141592653589793);
    let half = whole * 0.5;
    let signed = where_(floor(half) == half, sine, -sine);
    where_(x == 0.0, 1.0, signed / (x * 3.141592653589793))
}

/// Every kernel of this file.
pub static KERNELS: &[&KernelDef] =
    &[&lgamma::KERNEL, &digamma::KERNEL, &erfinv::KERNEL, &sinc::KERNEL, &zeta::KERNEL];

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = |$x:ident| { $($body:tt)* })*) => {$(
        $(#[$doc])*
        #[kernel]
        pub fn $name<T: Float, const ROWS: usize, const COLS: usize>(x: View<T, 4>, y: ViewMut<T, 4>) {
            let (a, b, i, j) = tile_origin::<ROWS, COLS>(y.dim(1), y.dim(2), y.dim(3));
            // Row by row: what a formula keeps in f64 would fill the registers for more.
            for r in range(i, i + ROWS, 1) {
                let $x = x.load::<1, 1, 1, COLS>([a, b, r, j]).to::<f64>();
                y.store([a, b, r, j], ($($body)*).to::<T>());
            }
        }
    )*};
}

unary! {
    /// The logarithm of the magnitude of the gamma function.
    lgamma = |v| { lgamma(v) }
    /// Its derivative.
    digamma = |v| { digamma_of(v) }
    /// The inverse of the error function.
    erfinv = |v| { erfinv_of(v) }
    /// The cardinal sine.
    sinc = |v| { sinc_of(v) }
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

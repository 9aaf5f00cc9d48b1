//! Derivatives of the logarithm of the gamma function.
//!
//! In f64 they move their argument up by ten, where the asymptotic series in powers of one over it has f64's precision, and
//! come back by the recurrence; below one half they are reflected. In f32 digamma is `(x - x0) P(x)` between 1 and 2, where
//! its zero `x0` lies, and a step or two of the recurrence from there below 4; polynomials are the least in the largest
//! relative error, given as a power of 2.

use genesis_kernel::kernel::KernelDef;
use genesis_kernel::lang::library::off_whole;
use genesis_kernel::lang::library::single::sine_of_half_turn;
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
pub fn digamma_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_left = x < 0.5;
    let right = digamma_right(where_(is_left, 1.0 - x, x));
    let angle = off_whole(x) * 3.141592653589793;
    let left = right - 3.141592653589793 * (cos(angle) / sin(angle));
    let left = where_(floor(x) == x, f64::NAN, left);
    let result = where_(is_left, left, right);
    let result = where_(x == 0.0, -1.0 / x, result);
    where_(is_inf(x), where_(x > 0.0, x, x - x), result)
}

/// Digamma for `1 <= x <= 2`, 2^-25.4: its zero is 1.4616321 + 1.243815e-8.
#[device]
pub fn digamma_near<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let t = x - 1.5;
    let p = fma(t, -0.016221324, 0.023924332);
    let p = fma(p, t, -0.025872361);
    let p = fma(p, t, 0.03936182);
    let p = fma(p, t, -0.062040001);
    let p = fma(p, t, 0.095117405);
    let p = fma(p, t, -0.14839996);
    let p = fma(p, t, 0.24053839);
    let p = fma(p, t, -0.42362747);
    let p = fma(p, t, 0.9510559);
    ((x - 1.4616321) - 1.243815e-8) * p
}

/// Digamma for `x >= 4`: `log(x) - 1 / 2x - P(1 / x^2) / x^2` from 6 on, 2^-28, and three steps down to there.
#[device]
pub fn digamma_far<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let is_low = x < 6.0;
    let s = where_(is_low, x + 3.0, x);
    let w = fast::recip(s);
    let z = w * w;
    let tail = fma(fma(z, -0.0081847813, 0.08333207), z, 0.5 * w);
    // 1 / x + 1 / (x + 1) + 1 / (x + 2)
    let low = minimum(x, 6.0);
    let steps = fma(fma(low, 3.0, 6.0), low, 2.0) * fast::recip(low * (low + 1.0) * (low + 2.0));
    (log(s) - tail) - where_(is_low, steps, 0.0)
}

/// Digamma in f32: within a few ULP right of 0, beside its zero too.
#[device]
pub fn digamma_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let is_left = x < 0.0;
    let right = where_(is_left, 1.0 - x, x);
    let (is_small, is_above, is_far) = (right < 1.0, right >= 2.0, right >= 4.0);
    // Between 1 and 2, a step up or one or two down from there: -1 / x, 1 / (x - 1), 1 / (x - 1) + 1 / (x - 2).
    let down = right - where_(right >= 3.0, 2.0_f32, 1.0);
    let place = where_(is_small, right + 1.0, where_(is_above, down, right));
    let is_two = (right >= 3.0) & !is_far;
    let under = where_(is_small, -right, (right - 1.0) * where_(is_two, down, 1.0));
    let step = where_(is_two, fma(right, 2.0, -3.0), 1.0) * fast::recip(under);
    let near = digamma_near(where_(is_far, 1.5, place)) + where_(is_small | is_above, step, 0.0);
    let result = where_(is_far, digamma_far(right), near);
    // psi(x) = psi(1 - x) - pi / tan(pi x)
    let tangent = tan(off_whole(x) * 3.1415927);
    let left = result - 3.1415927 * fast::recip(tangent);
    let left = where_(floor(x) == x, f32::NAN, left);
    where_(is_left, left, result)
}

/// The derivative of the logarithm of the gamma function.
#[device]
pub fn digamma_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    if A::EPSILON < A::from(1e-10) {
        digamma_wide(x.to::<f64>()).to::<A>()
    } else {
        digamma_single(x.to::<f32>()).to::<A>()
    }
}

/// The derivative of digamma in f32: `1 / x + 1 / 2x^2 + P(1 / x^2) / x^3` from 6 on, 2^-25.7 of the last, and six steps down
/// to there. Left of 0 it is reflected, within 8 ULP; infinite at 0 and the negative integers.
#[device]
pub fn trigamma_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let is_left = x < 0.0;
    let right = where_(is_left, 1.0 - x, x);
    let is_low = right < 6.0;
    let w = fast::recip(where_(is_low, right + 6.0, right));
    let z = w * w;
    let far = fma(fma(fma(z, -0.032451373, 0.1666592), w, 0.5), z, w);
    let mut steps = zeros_like(x);
    for k in range(0, 6, 1) {
        let part = fast::recip(right + k as f32);
        steps = fma(part, part, steps);
    }
    let result = far + where_(is_low, steps, 0.0);
    // psi'(x) = pi^2 / sin^2(pi x) - psi'(1 - x)
    let part = 3.1415927 * fast::recip(sine_of_half_turn(off_whole(x)));
    where_(is_left, part * part - result, result)
}

/// The derivative of digamma.
#[device]
pub fn trigamma_of<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    if A::EPSILON < A::from(1e-10) {
        let wide = zeta_of(x.to::<f64>(), 2.0).to::<A>();
        where_(is_inf(x) & (x > A::ZERO), A::ZERO, wide)
    } else {
        trigamma_single(x.to::<f32>()).to::<A>()
    }
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
pub static KERNELS: &[&KernelDef] = &[&zeta::KERNEL];

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

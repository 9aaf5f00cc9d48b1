//! The functions of the library whose formula for f32 is another than that for f64: shorter polynomials, fewer
//! divisions, at most 4 ULP. One named `f_short` keeps the digits that f16 has, about 2^-13: `fast::demanded` takes it
//! where no more are left of the result.
//!
//! The coefficients are weighted minimax fits (Lawson's iteration), rounded to f32 one at a time with the rest
//! fitted again; the error beside each is relative, of the function, before rounding. A constant that f32 rounds
//! stands as its value and what rounding leaves: `pi / 2 = 1.5707964 - 4.371139e-8`.

use genesis_macros::device;

use super::super::Tile;

/// `size`, which has no sign, with the sign bit of `x`.
#[device]
pub fn with_sign<S: Shape>(size: Tile<f32, S>, x: Tile<f32, S>) -> Tile<f32, S> {
    bitcast::<f32>(bitcast::<i32>(size) | (bitcast::<i32>(x) & -2147483648))
}

/// Whether the sign bit is set.
#[device]
pub fn has_sign_bit<S: Shape>(x: Tile<f32, S>) -> Tile<bool, S> {
    bitcast::<i32>(x) < 0
}

/// `e^x` in parts: `2^(n - 2)` and `e^r - 1` with `x = n log(2) + r`; beyond -30 and 100 as there.
#[device]
pub fn exp_parts<S: Shape>(x: Tile<f32, S>) -> (Tile<f32, S>, Tile<f32, S>) {
    let x = minimum(maximum(x, -30.0), 100.0);
    let n = round(x * 1.442695);
    let r = fma(n, 1.904654299957768e-9, fma(n, -0.6931471824645996, x));
    let p = fma(r, 0.0013822736, 0.0083688507);
    let p = fma(p, r, 0.041668247);
    let p = fma(p, r, 0.1666652);
    let p = fma(p, r, 0.49999994);
    (exp2(n - 2.0), fma(p, r * r, r))
}

/// `exp(x) - 1`
#[device]
pub fn expm1_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let (scale, beyond_one) = exp_parts(x);
    // The sum loses the sign of a zero.
    let exact = where_(x == 0.0, x, fma(scale, beyond_one, scale - 0.25) * 4.0);
    let near = fma(fma(x, 0.16666667, 0.5), x, 1.0) * x;
    fast::demanded(exact, where_(abs(x) < 0.0625, near, fast::exp2(x * 1.442695) - 1.0))
}

/// The hyperbolic sine, by a quarter of `e = exp(|x|) - 1`: `(e + e / (e + 1)) / 2`.
#[device]
pub fn sinh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let (scale, beyond_one) = exp_parts(abs(x));
    let t = fma(scale, beyond_one, scale - 0.25);
    // Far out the quotient is lost in the sum, and infinity times zero would be no number.
    let size = fma(minimum(t, 1e30), fast::recip(fma(t, 4.0, 1.0)), t) * 2.0;
    fast::demanded(with_sign(size, x), sinh_short(x))
}

/// The same for 16 bits: from 1/4 on by exponentials.
#[device]
pub fn sinh_short<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let half = fast::exp2(fma(size, 1.442695, -1.0));
    let z = size * size;
    let near = fma(fma(z, 0.008333334, 0.16666667) * z, size, size);
    with_sign(where_(size < 0.25, near, fma(fast::recip(half), -0.25, half)), x)
}

/// The hyperbolic cosine, by half of the exponential and a quarter of one over that.
#[device]
pub fn cosh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let (scale, beyond_one) = exp_parts(abs(x));
    let half = fma(scale, beyond_one, scale) * 2.0;
    let rough = fast::exp2(fma(abs(x), 1.442695, -1.0));
    fast::demanded(fma(fast::recip(half), 0.25, half), fma(fast::recip(rough), 0.25, rough))
}

/// `log(1 + x)` for 16 bits: to 2^-6 by three terms of its series.
#[device]
pub fn log1p_short<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let near = fma(fma(x, 0.33333334, -0.5) * x, x, x);
    where_(abs(x) < 0.015625, near, fast::log2(x + 1.0) * 0.6931472)
}

/// `asin(x)` for `|x| <= 1/2`: `x + x^3 P(x^2)`, 2^-24.0 of the cubic part; for 16 bits 2^-14.7.
#[device]
pub fn asin_near<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let z = x * x;
    let p = fma(z, 0.03845908, 0.014287578);
    let p = fma(p, z, 0.03169644);
    let p = fma(p, z, 0.04454936);
    let p = fma(p, z, 0.075002395);
    let p = fma(p, z, 0.16666666);
    fma(p * z, x, x)
}

/// See [`asin_near`].
#[device]
pub fn asin_near_short<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let z = x * x;
    fma(fma(z, 0.09429868, 0.16505776) * z, x, x)
}

/// The arc sine: beyond one half `pi / 2 - 2 asin(sqrt((1 - x) / 2))`.
#[device]
pub fn asin_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_far = size > 0.5;
    let t = where_(is_far, fast::sqrt(fma(size, -0.5, 0.5)), size);
    let near = asin_near(t);
    let angle = where_(is_far, (near + 2.1855694e-8) * -2.0 + 1.5707964, near);
    let near = asin_near_short(t);
    let short = where_(is_far, fma(near, -2.0, 1.5707964), near);
    fast::demanded(with_sign(angle, x), with_sign(short, x))
}

/// The arc cosine, by the same polynomial.
#[device]
pub fn acos_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_far = size > 0.5;
    let t = where_(is_far, fast::sqrt(fma(size, -0.5, 0.5)), x);
    let near = asin_near(t);
    let right = near + near;
    let left = 3.1415927 - (right + 8.742278e-8);
    let exact = where_(is_far, where_(x < 0.0, left, right), 1.5707964 - (near + 4.371139e-8));
    // The same as one multiple of the arc and a constant.
    let (factor, turn) = (where_(x < 0.0, -2.0_f32, 2.0), where_(x < 0.0, 3.1415927_f32, 0.0));
    let (factor, turn) = (where_(is_far, factor, -1.0), where_(is_far, turn, 1.5707964));
    fast::demanded(exact, fma(asin_near_short(t), factor, turn))
}

/// `atan(t)` for `0 <= t <= 1`: `t + t^3 P(t^2)`, 2^-26.0 of the cubic part; for 16 bits 2^-14.8.
#[device]
pub fn atan_near<S: Shape>(t: Tile<f32, S>) -> Tile<f32, S> {
    let z = t * t;
    let p = fma(z, 0.0029811941, -0.016608338);
    let p = fma(p, z, 0.043599147);
    let p = fma(p, z, -0.07584595);
    let p = fma(p, z, 0.106809162);
    let p = fma(p, z, -0.14214742);
    let p = fma(p, z, 0.19994208);
    let p = fma(p, z, -0.3333317);
    fma(p * z, t, t)
}

/// See [`atan_near`].
#[device]
pub fn atan_near_short<S: Shape>(t: Tile<f32, S>) -> Tile<f32, S> {
    let z = t * t;
    let p = fma(z, 0.02484028, -0.09409794);
    let p = fma(p, z, 0.18681417);
    let p = fma(p, z, -0.33213073);
    fma(p * z, t, t)
}

/// The arc tangent: beyond one `pi / 2 - atan(1 / x)`.
#[device]
pub fn atan_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_far = size > 1.0;
    let t = where_(is_far, fast::recip(size), size);
    let near = atan_near(t);
    let angle = where_(is_far, 1.5707964 - (near + 4.371139e-8), near);
    let near = atan_near_short(t);
    let short = where_(is_far, 1.5707964 - near, near);
    fast::demanded(with_sign(angle, x), with_sign(short, x))
}

/// The angle of the point `(x, y)`.
#[device]
pub fn atan2_single<S: Shape>(y: Tile<f32, S>, x: Tile<f32, S>) -> Tile<f32, S> {
    let (up, across) = (abs(y), abs(x));
    let is_steep = up > across;
    let (small, large) = (where_(is_steep, across, up), where_(is_steep, up, across));
    let ratio = where_(is_inf(small), 1.0, small / large);
    let ratio = where_(large == 0.0, large, ratio);
    let near = atan_near(ratio);
    let angle = where_(is_steep, 1.5707964 - (near + 4.371139e-8), near);
    let angle = where_(has_sign_bit(x), 3.1415927 - (angle + 8.742278e-8), angle);
    let exact = where_(is_nan(x) | is_nan(y), x + y, with_sign(angle, y));
    // What a GPU's reciprocal has no normal number for.
    let scale = where_(large > 1e30, 8.271806e-25, where_(large < 1e-20, 1.2089258e24_f32, 1.0));
    let ratio = (small * scale) * fast::recip(large * scale);
    let ratio = where_(is_inf(small), 1.0, where_(large == 0.0, large, ratio));
    let near = atan_near_short(ratio);
    let angle = where_(is_steep, 1.5707964 - near, near);
    let angle = with_sign(where_(has_sign_bit(x), 3.1415927 - angle, angle), y);
    fast::demanded(exact, where_(is_nan(x) | is_nan(y), x + y, angle))
}

/// The length of the vector `(x, y)`, which overflows only where it has to: both are scaled by the power of two that
/// brings the larger one to 1 to 2.
#[device]
pub fn hypot_single<S: Shape>(x: Tile<f32, S>, y: Tile<f32, S>) -> Tile<f32, S> {
    let large = maximum_num(abs(x), abs(y));
    let small = minimum(abs(x), abs(y));
    let exponent = minimum(maximum(bitcast::<i32>(large) & 2139095040, 8388608), 2122317824);
    let (down, up) = (bitcast::<f32>(2130706432 - exponent), bitcast::<f32>(exponent));
    let (large, small) = (large * down, small * down);
    let length = fast::sqrt(fma(large, large, small * small)) * up;
    where_(is_inf(large), large, length)
}

/// The inverse of the hyperbolic sine: `log(1 + t)` with `t = |x| + x^2 / (1 + sqrt(x^2 + 1))`.
#[device]
pub fn asinh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    // Where the square would overflow, and one is lost in it.
    let is_far = size > 1e9;
    let root = fast::sqrt(fma(size, size, 1.0));
    let part = size * fast::recip(root + 1.0);
    let exact =
        log1p(where_(is_far, size, fma(part, size, size))) + where_(is_far, 0.6931472_f32, 0.0);
    let near = fma(size * size * -0.16666667, size, size);
    let sum = where_(is_far, size, size + root);
    let far = (fast::log2(sum) + where_(is_far, 1.0_f32, 0.0)) * 0.6931472;
    let short = where_(size < 0.125, near, far);
    fast::demanded(with_sign(exact, x), with_sign(short, x))
}

/// The inverse of the hyperbolic cosine; NaN below 1, where one of the roots is.
#[device]
pub fn acosh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let t = x - 1.0;
    let is_far = x > 1e9;
    let beyond_one = where_(is_far, x, fma(fast::sqrt(t), fast::sqrt(x + 1.0), t));
    let exact = log1p(beyond_one) + where_(is_far, 0.6931472_f32, 0.0);
    let near = log1p_short(beyond_one);
    let far = fma(fast::log2(x), 0.6931472, 0.6931472);
    fast::demanded(exact, where_(is_far, far, near))
}

/// The inverse of the hyperbolic tangent: `log(1 + 2 x / (1 - x)) / 2`; NaN beyond 1.
#[device]
pub fn atanh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let beyond_one = (size + size) * fast::recip(1.0 - size);
    let (exact, short) = (log1p(beyond_one) * 0.5, log1p_short(beyond_one) * 0.5);
    fast::demanded(with_sign(exact, x), with_sign(short, x))
}

/// `1 - erf(x)`; from 3/4 on `exp(-x^2) P(t) / (x + 1.5)` with `t = (x - 1.5) / (x + 1.5)`, 2^-25.6.
///
/// `exp(-x^2)` is `2^n e^r`, where `r` takes all digits of the square, and `e^r = 1 + r + r^2 P(r)`
/// multiplies by one fused multiply-add: a GPU's own `exp` alone is off by 3.5 ULP. The power has 32 more in its
/// exponent, so that it is a normal number.
#[device]
pub fn erfc_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    // Beyond 10.1 it is 0.
    let size = minimum(abs(x), 10.25);
    let share = fast::recip(size + 1.5);
    let t = (size - 1.5) * share;
    let p = fma(t, 0.00229578, -0.0006548666);
    let p = fma(p, t, -0.009605597);
    let p = fma(p, t, -0.008124633);
    let p = fma(p, t, 0.04778025);
    let p = fma(p, t, 0.07562175);
    let p = fma(p, t, -0.5078503);
    let p = fma(p, t, 0.96475625);
    let square = size * size;
    // The sum has the whole part in its low bits.
    let shifted = fma(square, -1.442695, 12582912.0);
    let n = shifted - 12582912.0;
    // log(2) with a first part of so few bits that the product is exact.
    let r = fma(n, -1.4286068e-6, fma(-size, size, n * -0.693145751953125));
    let power = bitcast::<f32>((bitcast::<i32>(shifted) << 23) + 1333788672);
    let scaled = share * power * p;
    let p = fma(r, 0.0013822736, 0.0083688507);
    let p = fma(p, r, 0.041668247);
    let p = fma(p, r, 0.1666652);
    let p = fma(p, r, 0.49999994);
    let far = fma(scaled, fma(p, r * r, r), scaled);
    // 2 minus that where x is negative.
    let factor = with_sign(full_like(x, 2.3283064e-10), x);
    let far = fma(far, factor, fma(factor, -4294967296.0, 1.0));
    // `erf(x) = x P(x^2)` to there, 2^-24 of the first coefficient, and else 2^-29.4.
    let p = fma(square, -0.0001824106, 0.004416015);
    let p = fma(p, square, -0.026487274);
    let p = fma(p, square, 0.11276298);
    let p = fma(p, square, -0.3761211);
    let p = fma(p, square, 1.1283791);
    let exact = where_(abs(x) < 0.75, fma(-x, p, 1.0), far);
    fast::demanded(exact, erfc_short(x))
}

/// The same for 16 bits: 2^-14.6, and 2^-19 of `erf`.
#[device]
pub fn erfc_short<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = minimum(abs(x), 12.0);
    let t = (size - 2.0) * fast::recip(size + 2.0);
    let p = fma(t, -0.04962378, 0.16017991);
    let p = fma(p, t, -0.16673216);
    let p = fma(p, t, -0.09237806);
    let p = fma(p, t, 1.276998);
    let scaled = p * fast::recip(fma(size, 2.0, 1.0));
    let far = scaled * exp2(size * size * -1.442695);
    let z = x * x;
    let p = fma(z, 0.103066444, -0.37507477);
    let p = fma(p, z, 1.1283506);
    where_(size < 0.46875, fma(-x, p, 1.0), where_(x < 0.0, 2.0 - far, far))
}

/// The inverse of the error function, by `w = -log(1 - x^2)`: `x P(w - 3)` below 6, 2^-24.2, and then
/// `P(sqrt(w) - 3)`, 2^-25.2; infinite at 1, NaN beyond. Near 0 the digits that a GPU's own logarithm lacks are those of
/// a small part of the polynomial.
#[device]
pub fn erfinv_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let w = fast::log2(fma(-x, x, 1.0)) * -0.6931472;
    let root = fast::sqrt(w) - 3.0;
    let is_one = abs(x) == 1.0;
    let t = w - 3.0;
    let p = fma(t, -5.826962e-9, -4.3999755e-9);
    let p = fma(p, t, 4.5554847e-7);
    let p = fma(p, t, -1.8840368e-6);
    let p = fma(p, t, -1.2756594e-5);
    let p = fma(p, t, 0.00019546779);
    let p = fma(p, t, -0.000836075);
    let p = fma(p, t, -0.00573856);
    let p = fma(p, t, 0.24163033);
    let near = fma(p, t, 1.6235421) * x;
    let p = fma(root, -2.946312e-5, 0.00010130692);
    let p = fma(p, root, -7.8535144e-5);
    let p = fma(p, root, -0.00023563211);
    let p = fma(p, root, 0.0011656274);
    let p = fma(p, root, -0.0034446733);
    let p = fma(p, root, 0.0068403906);
    let p = fma(p, root, 1.0026624);
    let far = with_sign(fma(p, root, 2.8328021), x);
    let exact = where_(is_one, x * f32::INFINITY, where_(w < 6.0, near, far));
    // For 16 bits: 2^-13.9 and 2^-15.7.
    let p = fma(t, 0.00017035397, -0.0009349982);
    let p = fma(p, t, -0.0056596925);
    let p = fma(p, t, 0.24181652);
    let near = fma(p, t, 1.623511) * x;
    let p = fma(root, -0.002553, 0.007203058);
    let p = fma(p, root, 1.0024118);
    let far = with_sign(fma(p, root, 2.8327742), x);
    fast::demanded(exact, where_(is_one, x * f32::INFINITY, where_(w < 6.0, near, far)))
}

/// `log gamma(2 + t)` for `-1 <= t <= 1`: `t (t + 1) P(t)`, 2^-25.4.
#[device]
pub fn lgamma_near<S: Shape>(t: Tile<f32, S>) -> Tile<f32, S> {
    let p = fma(t, -3.8620878e-5, 7.79506e-5);
    let p = fma(p, t, -5.2765216e-5);
    let p = fma(p, t, 0.0001312523);
    let p = fma(p, t, -0.0004251754);
    let p = fma(p, t, 0.00094367657);
    let p = fma(p, t, -0.0021022703);
    let p = fma(p, t, 0.0049918313);
    let p = fma(p, t, -0.012384926);
    let p = fma(p, t, 0.03296558);
    let p = fma(p, t, -0.10031728);
    let p = fma(p, t, 0.42278433);
    t * (t + 1.0) * p
}

/// `log(x) = e log(2) 2^-23 + y` of a normal number: with `2^(e 2^-23)` taken out what is left is from 2/3 to 4/3.
#[device]
pub fn log_parts<S: Shape>(x: Tile<f32, S>) -> (Tile<f32, S>, Tile<f32, S>) {
    let exponent = (bitcast::<i32>(x) - 1059760811) & -8388608;
    let f = bitcast::<f32>(bitcast::<i32>(x) - exponent) - 1.0;
    // `log(1 + f) = f + f^2 P(f)` for `|f| <= 1/3`: 2^-27.6.
    let p = fma(f, -0.12832248, 0.14002587);
    let p = fma(p, f, -0.12198627);
    let p = fma(p, f, 0.14001654);
    let p = fma(p, f, -0.16679384);
    let p = fma(p, f, 0.20010713);
    let p = fma(p, f, -0.24999824);
    let p = fma(p, f, 0.3333321);
    let p = fma(p, f, -0.5);
    (exponent.to::<f32>(), fma(f * f, p, f))
}

/// `log gamma(x)` for `x >= 3`, given its [`log_parts`]: `(x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + P(1 / x^2) / x`,
/// 2^-29.7.
#[device]
pub fn lgamma_far<S: Shape>(x: Tile<f32, S>, e: Tile<f32, S>, y: Tile<f32, S>) -> Tile<f32, S> {
    let w = fast::recip(x);
    let z = w * w;
    let p = fma(z, 0.000679211, -0.0027699333);
    let p = fma(p, z, 0.083333164);
    // One less than the logarithm has more digits near `x = e` than the logarithm.
    fma(x - 0.5, fma(e, 8.262958e-8, -1.0) + y, fma(p, w, 0.41893853))
}

/// `|sin(pi z)|` for `|z| <= 1/2`: `z P(z^2)`, 2^-25.1.
#[device]
pub fn sine_of_half_turn<S: Shape>(z: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(z);
    let t = size * size;
    let p = fma(t, -0.043720774, 0.105503306);
    let p = fma(p, t, -0.60453176);
    let p = fma(p, t, 2.550653);
    let p = fma(p, t, -5.167729);
    fma(p, t, 3.1415927) * size
}

/// The logarithm of the magnitude of the gamma function: below 0 reflected, so that it is absolute beside its zeros
/// there; infinite at 0 and the negative integers.
///
/// One logarithm is of `x` where that is far, and else of what the gamma function of another place is divided by; where
/// there are both, left of -2, the second is a GPU's own, whose last digits are lost in the sum.
#[device]
pub fn lgamma_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    // From there on there are negative integers only.
    let x = maximum(x, -8388608.0);
    let is_left = x < 0.0;
    let right = where_(is_left, 1.0 - x, x);
    let (is_small, is_far) = (right < 1.0, right >= 3.0);
    let sine = sine_of_half_turn(x - round(x));
    let argument = where_(is_left & !is_far, sine, right);
    let (e, y) = log_parts(argument);
    // Of what is no normal number, or zero, 2^24 as much is.
    let tiny = fma(fast::log2(argument * 16777216.0), 0.6931472, -16.635532);
    let log = where_(argument < 1.1754944e-38, tiny, fma(e, 8.262958e-8, y));
    // gamma(x) = gamma(1 + x) / x, and gamma(x) gamma(1 - x) = pi / sin(pi x)
    let near = lgamma_near(right - where_(is_small, 1.0_f32, 2.0)) + where_(is_small, -log, 0.0);
    let result = where_(is_far, lgamma_far(right, e, y), near);
    let over = where_(is_far, fast::log2(sine) * 0.6931472, log);
    let exact = where_(is_left, (1.1447299 - over) - result, result);
    fast::demanded(exact, lgamma_short(x))
}

/// The same for 16 bits, 2^-13: logarithms are a GPU's own, but beside 1, where the polynomial goes on to.
#[device]
pub fn lgamma_short<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let is_left = x < 0.0;
    let right = where_(is_left, 1.0 - x, x);
    let (is_small, is_far) = (right < 0.75, right >= 3.0);
    let sine = sine_of_half_turn(x - round(x));
    let divisor = where_(is_left, sine, x);
    // bf16 has numbers that are not normal.
    let over = fma(fast::log2(divisor * 16777216.0), 0.6931472, -16.635532);
    let t = right - where_(is_small, 1.0_f32, 2.0);
    let p = fma(t, -0.0014030413, 0.0014501878);
    let p = fma(p, t, -0.0005535448);
    let p = fma(p, t, 0.0045696516);
    let p = fma(p, t, -0.013136774);
    let p = fma(p, t, 0.033082332);
    let p = fma(p, t, -0.100225516);
    let p = fma(p, t, 0.42277887);
    let near = t * (t + 1.0) * p - where_(is_small, over, 0.0);
    let log = fast::log2(right) * 0.6931472;
    let far = fma(right - 0.5, log - 1.0, fma(fast::recip(right), 0.0832, 0.41893853));
    let result = where_(is_far, far, near);
    where_(is_left, (1.1447299 - over) - result, result)
}

/// `x` to the power of `y`, by `2^(y log2 |x|)` with the logarithm in two parts, so that its product with `y` keeps the
/// digits that are left once its whole part is an exponent.
///
/// With `|x| = 2^e m` and `m` from the square root of 1/2 to that of 2 it is `log(m) = 2 atanh(s)` for
/// `s = f / (2 + f)` and `f = m - 1`: `2 s + s z P(z)` with `z = s^2`, 2^-36.
#[device]
pub fn pow_single<S: Shape>(x: Tile<f32, S>, y: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_small = size < 1.1754944e-38;
    let bits = bitcast::<i32>(where_(is_small, size * 16777216.0, size));
    let exponent = (bits - 1060439283) & -8388608;
    let e = fma(exponent.to::<f32>(), 1.1920929e-7, where_(is_small, -24.0_f32, 0.0));
    let f = bitcast::<f32>(bits - exponent) - 1.0;
    // s and what the quotient lacks.
    let share = fast::recip(f + 2.0);
    let s = f * share;
    let s_rest = fma(-s, f, fma(s, -2.0, f)) * share;
    let z = s * s;
    // The factor 2 log2(e) of s is 2.88539 + 3.851926e-8.
    let p = fma(z, 0.336492, 0.41192722);
    let p = fma(p, z, 0.5770788);
    let p = fma(p, z, 0.9617967);
    let p = fma(p, z, 3.851926e-8);
    let l = s * 2.88539;
    let l_rest = fma(s_rest, fma(z, 2.88539, 2.88539), fma(s, p, fma(s, 2.88539, -l)));
    let whole = e + l;
    let rest = ((e - whole) + l) + l_rest;
    // Of what has no logarithm.
    let whole = where_(size == 0.0, f32::NEG_INFINITY, where_(size < f32::INFINITY, whole, size));
    // A larger exponent does the same: it is an even number, and the power 0, 1 or infinite.
    let y_near = maximum(minimum(y, 8589934592.0), -8589934592.0);
    let q = fma(y_near, whole, y_near * rest);
    let off = fma(y_near, rest, fma(y_near, whole, -q));
    let power = exp2(q);
    let power = where_((q < 128.0) & (q > -160.0), fma(power, off * 0.6931472, power), power);
    // A negative number has only whole powers: by the bits of those that are finite and not -0, which stand together.
    let half = y_near * 0.5;
    let part = half - trunc(half);
    let is_odd = abs(part) == 0.5;
    let signed = where_(is_odd & has_sign_bit(x), -power, power);
    let is_negative = bitcast::<u32>(x) - 2147483649 < 2139095039;
    let is_none = is_negative & (part != 0.0) & !is_odd;
    let signed = where_(is_none, f32::NAN, signed);
    where_((y == 0.0) | (x == 1.0), 1.0, where_(y == 1.0, x, signed))
}

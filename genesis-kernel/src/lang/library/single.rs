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

/// `1 - erf(x)`; from 0.47 on `exp(-x^2) P(t) / (1 + 2 x)` with `t = (x - 2) / (x + 2)`, 2^-27.1.
///
/// `exp(-x^2)` is `2^n e^r`, where `r` takes what rounding the square lost, and `e^r = 1 + r + r^2 P(r)`
/// multiplies by one fused multiply-add: a GPU's own `exp` alone is off by 3.5 ULP.
#[device]
pub fn erfc_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    // Beyond 10.1 it is 0.
    let size = minimum(maximum(abs(x), 0.46875), 12.0);
    let t = (size - 2.0) * fast::recip(size + 2.0);
    let p = fma(t, -0.00025484202, -0.0012663475);
    let p = fma(p, t, 0.0011722867);
    let p = fma(p, t, 0.008663574);
    let p = fma(p, t, -0.0080138985);
    let p = fma(p, t, -0.05421356);
    let p = fma(p, t, 0.16404983);
    let p = fma(p, t, -0.16603048);
    let p = fma(p, t, -0.09276381);
    let p = fma(p, t, 1.2769784);
    let scaled = p * fast::recip(fma(size, 2.0, 1.0));
    let square = size * size;
    let rest = fma(size, size, -square);
    let n = round(square * -1.442695);
    let r = fma(n, 1.904654299957768e-9, fma(n, -0.6931471824645996, -square)) - rest;
    let p = fma(r, 0.0013822736, 0.0083688507);
    let p = fma(p, r, 0.041668247);
    let p = fma(p, r, 0.1666652);
    let p = fma(p, r, 0.49999994);
    let beyond_one = fma(p, r * r, r);
    let scaled = scaled * exp2(n);
    let far = fma(scaled, beyond_one, scaled);
    // `erf(x) = x P(x^2)` to there, 2^-32.4.
    let z = x * x;
    let p = fma(z, 0.004735058, -0.02676079);
    let p = fma(p, z, 0.11282789);
    let p = fma(p, z, -0.376126);
    let p = fma(p, z, 1.1283791);
    let near = fma(-x, p, 1.0);
    let exact = where_(abs(x) < 0.46875, near, where_(x < 0.0, 2.0 - far, far));
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

/// `log |gamma(1 + t)|` for `-1/2 <= t <= 1/2`: `t P(t)`, 2^-26.4.
#[device]
pub fn lgamma_near_one<S: Shape>(t: Tile<f32, S>) -> Tile<f32, S> {
    let p = fma(t, -0.15493596, 0.17387654);
    let p = fma(p, t, -0.0667501);
    let p = fma(p, t, 0.069573894);
    let p = fma(p, t, -0.11454111);
    let p = fma(p, t, 0.12994742);
    let p = fma(p, t, -0.14384784);
    let p = fma(p, t, 0.16927359);
    let p = fma(p, t, -0.2073941);
    let p = fma(p, t, 0.27058706);
    let p = fma(p, t, -0.40068525);
    let p = fma(p, t, 0.822467);
    // Plus a zero, so that its sign is that of a sum.
    fma(fma(p, t, -0.5772157), t, 0.0)
}

/// `log gamma(2 + t)` for `-1/2 <= t <= 2`: `t P(t)`, 2^-25.9.
#[device]
pub fn lgamma_near_two<S: Shape>(t: Tile<f32, S>) -> Tile<f32, S> {
    let p = fma(t, 1.5931352e-6, -1.5969965e-5);
    let p = fma(p, t, 7.296402e-5);
    let p = fma(p, t, -0.00021549773);
    let p = fma(p, t, 0.0005170523);
    let p = fma(p, t, -0.0011985253);
    let p = fma(p, t, 0.0028910884);
    let p = fma(p, t, -0.007385465);
    let p = fma(p, t, 0.020580731);
    let p = fma(p, t, -0.06735215);
    let p = fma(p, t, 0.32246703);
    fma(p, t, 0.42278433) * t
}

/// `log gamma(x)` for `x >= 4`, given `log(x)`: `(x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + P(1 / x^2) / x`, 2^-24.0 of the last.
#[device]
pub fn lgamma_far<S: Shape>(x: Tile<f32, S>, log_x: Tile<f32, S>) -> Tile<f32, S> {
    let w = fast::recip(x);
    let z = w * w;
    let p = fma(z, 0.00073903427, -0.0027764381);
    let p = fma(p, z, 0.08333333);
    fma(x - 0.5, log_x - 1.0, fma(p, w, 0.41893853))
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
/// there are both, left of -3, the second is a GPU's own, whose last digits are lost in the sum.
#[device]
pub fn lgamma_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let is_left = x < 0.0;
    let right = where_(is_left, 1.0 - x, x);
    let (is_small, is_near, is_far) = (right < 0.5, right < 1.5, right >= 4.0);
    let divisor = where_(is_left, sine_of_half_turn(x - round(x)), x);
    let exact = log(where_(is_far, right, divisor));
    let one = lgamma_near_one(where_(is_small, right, where_(is_near, right - 1.0, 0.0)));
    let two = lgamma_near_two(where_(is_far, 0.0, right - 2.0));
    let result = where_(is_near, one, where_(is_far, lgamma_far(right, exact), two));
    // gamma(x) = gamma(1 + x) / x, and gamma(x) gamma(1 - x) = pi / sin(pi x)
    let over = where_(is_far, fast::log2(divisor) * 0.6931472, exact);
    let left = (1.1447299 - over) - result;
    let result = where_(is_left, left, where_(is_small, result - over, result));
    where_(is_inf(x) | (is_left & (floor(x) == x)), f32::INFINITY, result)
}

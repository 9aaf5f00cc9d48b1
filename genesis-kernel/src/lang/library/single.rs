//! The functions of the library whose formula for f32 is another than that for f64: shorter polynomials, fewer
//! divisions, at most 4 ULP.
//!
//! The coefficients are weighted minimax fits (Lawson's iteration), rounded to f32 one at a time with the rest
//! fitted again; the error beside each is relative, of the function, before rounding. A constant that f32 rounds
//! stands as its value and what rounding leaves: `pi / 2 = 1.5707964 - 4.371139e-8`.

use genesis_macros::device;

use super::super::Tile;

/// `a / b` to one ULP, without the cases of correct rounding: `b` between 2^-126 and 2^126.
#[device]
pub fn quotient<S: Shape>(a: Tile<f32, S>, b: Tile<f32, S>) -> Tile<f32, S> {
    let r = fast::recip(b);
    let q = a * r;
    fma(r, fma(-b, q, a), q)
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
    where_(x == 0.0, x, fma(scale, beyond_one, scale - 0.25) * 4.0)
}

/// The hyperbolic sine, by a quarter of `e = exp(|x|) - 1`: `(e + e / (e + 1)) / 2`.
#[device]
pub fn sinh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let (scale, beyond_one) = exp_parts(abs(x));
    let t = fma(scale, beyond_one, scale - 0.25);
    // Far out the quotient is lost in the sum, and infinity times zero would be no number.
    let size = fma(minimum(t, 1e30), fast::recip(fma(t, 4.0, 1.0)), t) * 2.0;
    where_(x < 0.0, -size, where_(x == 0.0, x, size))
}

/// The hyperbolic cosine, by half of the exponential and a quarter of one over that.
#[device]
pub fn cosh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let (scale, beyond_one) = exp_parts(abs(x));
    let half = fma(scale, beyond_one, scale) * 2.0;
    fma(fast::recip(half), 0.25, half)
}

/// `log(1 + x)`: what rounding `u = 1 + x` lost is put back by the slope of the logarithm, `1 / u`.
#[device]
pub fn log1p_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let u = x + 1.0;
    let lost = x - (u - 1.0);
    let exact = fma(lost, fast::recip(maximum(u, 1e-30)), log(u));
    where_((u == 1.0) | (x > 1e38), where_(u == 1.0, x, log(u)), exact)
}

/// The tangent.
#[device]
pub fn tan_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    // The steps of the quotient lose the sign of a zero.
    where_(x == 0.0, x, quotient(sin(x), cos(x)))
}

/// `asin(x)` for `|x| <= 1/2`: `x + x^3 P(x^2)`, 2^-24.0 of the cubic part.
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

/// The arc sine: beyond one half `pi / 2 - 2 asin(sqrt((1 - x) / 2))`.
#[device]
pub fn asin_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_far = size > 0.5;
    let near = asin_near(where_(is_far, sqrt(size * -0.5 + 0.5), size));
    let angle = where_(is_far, (near + 2.1855694e-8) * -2.0 + 1.5707964, near);
    where_(x < 0.0, -angle, where_(x == 0.0, x, angle))
}

/// The arc cosine, by the same polynomial.
#[device]
pub fn acos_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_far = size > 0.5;
    let near = asin_near(where_(is_far, sqrt(size * -0.5 + 0.5), x));
    let right = near + near;
    let left = 3.1415927 - (right + 8.742278e-8);
    where_(is_far, where_(x < 0.0, left, right), 1.5707964 - (near + 4.371139e-8))
}

/// `atan(t)` for `0 <= t <= 1`: `t + t^3 P(t^2)`, 2^-26.0 of the cubic part.
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

/// The arc tangent: beyond one `pi / 2 - atan(1 / x)`.
#[device]
pub fn atan_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let is_far = size > 1.0;
    let near = atan_near(where_(is_far, fast::recip(size), size));
    let angle = where_(is_far, 1.5707964 - (near + 4.371139e-8), near);
    where_(x < 0.0, -angle, where_(x == 0.0, x, angle))
}

/// The angle of the point `(x, y)`.
#[device]
pub fn atan2_single<S: Shape>(y: Tile<f32, S>, x: Tile<f32, S>) -> Tile<f32, S> {
    let (up, across) = (abs(y), abs(x));
    let is_steep = up > across;
    let (small, large) = (where_(is_steep, across, up), where_(is_steep, up, across));
    let ratio = where_(is_inf(small), 1.0, small / large);
    let near = atan_near(where_(large == 0.0, large, ratio));
    let angle = where_(is_steep, 1.5707964 - (near + 4.371139e-8), near);
    let angle = where_(has_sign_bit(x), 3.1415927 - (angle + 8.742278e-8), angle);
    let angle = where_(has_sign_bit(y), -angle, angle);
    where_(is_nan(x) | is_nan(y), x + y, angle)
}

/// The inverse of the hyperbolic sine: to one half `x + x^3 P(x^2)`, 2^-33.9 of the cubic part, then the logarithm.
#[device]
pub fn asinh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let z = size * size;
    let p = fma(z, 0.00925654, -0.020049548);
    let p = fma(p, z, 0.030033566);
    let p = fma(p, z, -0.044616096);
    let p = fma(p, z, 0.07499907);
    let p = fma(p, z, -0.16666666);
    let near = fma(p * z, size, size);
    // Where the square would overflow, and one is lost in it.
    let is_far = size > 1e9;
    let far = log(where_(is_far, size, size + sqrt(z + 1.0))) + where_(is_far, 0.6931472_f32, 0.0);
    let result = where_(size < 0.5, near, far);
    where_(x < 0.0, -result, where_(x == 0.0, x, result))
}

/// The inverse of the hyperbolic cosine; NaN below 1.
#[device]
pub fn acosh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let t = x - 1.0;
    let is_far = x > 1e9;
    let beyond_one = where_(is_far, x, t + sqrt(t * (t + 2.0)));
    let result = log1p_single(beyond_one) + where_(is_far, 0.6931472_f32, 0.0);
    where_(x < 1.0, f32::NAN, result)
}

/// The inverse of the hyperbolic tangent: to one half `x + x^3 P(x^2)`, 2^-29.3 of the cubic part, then the
/// logarithm; NaN beyond 1.
#[device]
pub fn atanh_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let size = abs(x);
    let z = size * size;
    let p = fma(z, 0.17660819, 0.051448163);
    let p = fma(p, z, 0.1182018);
    let p = fma(p, z, 0.14223401);
    let p = fma(p, z, 0.20002466);
    let p = fma(p, z, 0.333333015);
    let near = fma(p * z, size, size);
    let far = log((size + 1.0) * fast::recip(1.0 - size)) * 0.5;
    let result = where_(size < 0.5, near, where_(size > 1.0, f32::NAN, far));
    where_(x < 0.0, -result, where_(x == 0.0, x, result))
}

/// `1 - erf(x)`; from 0.47 on `exp(-x^2) P(t) / (1 + 2 x)` with `t = (x - 2) / (x + 2)`, 2^-27.1.
///
/// `exp(-x^2)` is `2^n e^r`, where `r` takes what rounding the square lost, and `e^r = 1 + r + r^2 P(r)`
/// multiplies by one fused multiply-add: a GPU's own `exp` alone is off by 3.5 ULP.
#[device]
pub fn erfc_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    // Beyond 10.1 it is 0.
    let size = minimum(maximum(x, 0.46875), 12.0);
    let t = (size - 2.0) / (size + 2.0);
    let p = fma(t, -0.00025484202, -0.0012663475);
    let p = fma(p, t, 0.0011722867);
    let p = fma(p, t, 0.008663574);
    let p = fma(p, t, -0.0080138985);
    let p = fma(p, t, -0.05421356);
    let p = fma(p, t, 0.16404983);
    let p = fma(p, t, -0.16603048);
    let p = fma(p, t, -0.09276381);
    let p = fma(p, t, 1.2769784);
    let scaled = quotient(p, fma(size, 2.0, 1.0));
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
    where_(x > 0.46875, fma(scaled, beyond_one, scaled), 1.0 - erf(x))
}

/// The inverse of the error function, by `w = -log(1 - x^2)`: `x P(w - 3)` below 6, 2^-24.2, and then
/// `P(sqrt(w) - 3)`, 2^-25.2; infinite at 1, NaN beyond.
#[device]
pub fn erfinv_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let w = -log(fma(-x, x, 1.0));
    let t = w - 3.0;
    let p = fma(t, -5.826962e-9, -4.3999755e-9);
    let p = fma(p, t, 4.5554847e-7);
    let p = fma(p, t, -1.8840368e-6);
    let p = fma(p, t, -1.2756594e-5);
    let p = fma(p, t, 0.00019546779);
    let p = fma(p, t, -0.000836075);
    let p = fma(p, t, -0.00573856);
    let p = fma(p, t, 0.24163033);
    let p = fma(p, t, 1.6235421);
    let near = p * x;
    let t = sqrt(w) - 3.0;
    let p = fma(t, -2.946312e-5, 0.00010130692);
    let p = fma(p, t, -7.8535144e-5);
    let p = fma(p, t, -0.00023563211);
    let p = fma(p, t, 0.0011656274);
    let p = fma(p, t, -0.0034446733);
    let p = fma(p, t, 0.0068403906);
    let p = fma(p, t, 1.0026624);
    let p = fma(p, t, 2.8328021);
    let far = where_(x < 0.0, -p, p);
    let result = where_(w < 6.0, near, far);
    where_(abs(x) == 1.0, x * f32::INFINITY, result)
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

/// `log gamma(x)` for `x >= 4`: `(x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + P(1 / x^2) / x`, 2^-24.0 of the last.
#[device]
pub fn lgamma_far<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let w = fast::recip(x);
    let z = w * w;
    let p = fma(z, 0.00073903427, -0.0027764381);
    let p = fma(p, z, 0.08333333);
    fma(x - 0.5, log(x) - 1.0, fma(p, w, 0.41893853))
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
#[device]
pub fn lgamma_single<S: Shape>(x: Tile<f32, S>) -> Tile<f32, S> {
    let is_left = x < 0.0;
    let right = where_(is_left, 1.0 - x, x);
    let (is_small, is_near) = (right < 0.5, right < 1.5);
    let one = lgamma_near_one(where_(is_small, right, where_(is_near, right - 1.0, 0.0)));
    let two = lgamma_near_two(where_(right < 4.0, right - 2.0, 0.0));
    let far = where_(right < 4.0, two, lgamma_far(right));
    let result = where_(is_near, one, far);
    // gamma(x) = gamma(1 + x) / x, and gamma(x) gamma(1 - x) = pi / sin(pi x)
    let over = log(where_(is_left, sine_of_half_turn(x - round(x)), x));
    let left = (1.1447299 - over) - result;
    let result = where_(is_left, left, where_(is_small, result - over, result));
    where_(is_inf(x) | (is_left & (floor(x) == x)), f32::INFINITY, result)
}

//! Functions of the language that are written in the language: what `pow(x, y)` in a kernel runs is `pow_of`.
//!
//! A function `f_of` takes any float and computes in f64 where that is the dtype, and else in f32, once rounded to
//! it; `f_wide` is the formula, in the dtype it is given, and `f_single` one for f32 alone. Formulas are chosen so
//! that they lose no more than a few bits: where a difference would cancel stands a series. docs/language.md says
//! what each is right to.

pub mod bessel;
pub mod normal;
pub mod shared;
pub mod single;

use genesis_macros::device;

use self::bessel::{i0_wide, i1_wide, j0_wide, j1_wide, y0_wide, y1_wide};
use self::normal::{erfcinv_wide, erfcx_wide, normcdf_wide, normcdfinv_wide};
use self::shared::{erfc_wide, is_negative};
use self::single::{
    acos_single, acosh_single, asin_single, asinh_single, atan_single, atan2_single, atanh_single,
    cosh_single, erfc_single, erfinv_single, expm1_single, hypot_single, lgamma_single, pow_single,
    sinh_single,
};

use super::Tile;

macro_rules! in_single_or_double {
    ($($(#[$doc:meta])* $name:ident = $wide:ident, $single:ident;)*) => {$(
        $(#[$doc])*
        #[device]
        pub fn $name<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<T, S> {
            if T::EPSILON < T::from(1e-10) { $wide(x) } else { $single(x.to::<f32>()).to::<T>() }
        }
    )*};
}

in_single_or_double! {
    /// `exp(x) - 1`
    expm1_of = expm1_wide, expm1_single;
    /// 10 to the power of x.
    exp10_of = exp10_wide, exp10_wide;
    /// The logarithm to base 10.
    log10_of = log10_wide, log10_wide;
    /// The cube root.
    cbrt_of = cbrt_wide, cbrt_wide;
    /// The arc sine.
    asin_of = asin_wide, asin_single;
    /// The arc cosine.
    acos_of = acos_wide, acos_single;
    /// The arc tangent.
    atan_of = atan_wide, atan_single;
    /// The hyperbolic sine.
    sinh_of = sinh_wide, sinh_single;
    /// The hyperbolic cosine.
    cosh_of = cosh_wide, cosh_single;
    /// The inverse of the hyperbolic sine.
    asinh_of = asinh_wide, asinh_single;
    /// The inverse of the hyperbolic cosine.
    acosh_of = acosh_wide, acosh_single;
    /// The inverse of the hyperbolic tangent.
    atanh_of = atanh_wide, atanh_single;
    /// `1 - erf(x)`
    erfc_of = erfc_wide, erfc_single;
    /// The inverse of the error function.
    erfinv_of = erfinv_wide, erfinv_single;
    /// One over the cube root.
    rcbrt_of = rcbrt_wide, rcbrt_wide;
    /// `sin(pi x)`
    sinpi_of = sinpi_wide, sinpi_wide;
    /// `cos(pi x)`
    cospi_of = cospi_wide, cospi_wide;
}

macro_rules! in_double {
    ($($(#[$doc:meta])* $name:ident = $wide:ident;)*) => {$(
        $(#[$doc])*
        #[device]
        pub fn $name<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<T, S> {
            $wide(x.to::<f64>()).to::<T>()
        }
    )*};
}

in_double! {
    /// The gamma function.
    tgamma_of = tgamma_wide;
    /// `exp(x^2) erfc(x)`
    erfcx_of = erfcx_wide;
    /// The inverse of `erfc`.
    erfcinv_of = erfcinv_wide;
    /// The normal distribution below x.
    normcdf_of = normcdf_wide;
    /// The inverse of the normal distribution.
    normcdfinv_of = normcdfinv_wide;
    /// The Bessel function of the first kind and order 0.
    bessel_j0_of = j0_wide;
    /// The Bessel function of the first kind and order 1.
    bessel_j1_of = j1_wide;
    /// The Bessel function of the second kind and order 0.
    bessel_y0_of = y0_wide;
    /// The Bessel function of the second kind and order 1.
    bessel_y1_of = y1_wide;
    /// The modified Bessel function of the first kind and order 0.
    bessel_i0_of = i0_wide;
    /// The modified Bessel function of the first kind and order 1.
    bessel_i1_of = i1_wide;
}

macro_rules! pairs_in_single_or_double {
    ($($(#[$doc:meta])* $name:ident = $wide:ident, $single:ident;)*) => {$(
        $(#[$doc])*
        #[device]
        pub fn $name<T: Float, S: Shape>(x: Tile<T, S>, y: Tile<T, S>) -> Tile<T, S> {
            if T::EPSILON < T::from(1e-10) {
                $wide(x, y)
            } else {
                $single(x.to::<f32>(), y.to::<f32>()).to::<T>()
            }
        }
    )*};
}

pairs_in_single_or_double! {
    /// The angle of the point `(y, x)`, given as `atan2(x, y)`.
    atan2_of = atan2_wide, atan2_single;
    /// The length of a vector.
    hypot_of = hypot_wide, hypot_single;
    /// One over the length of a vector.
    rhypot_of = rhypot_wide, rhypot_single;
    /// What the one has more than the other.
    fdim_of = fdim_wide, fdim_wide;
}

/// `x` to the power of `y`.
#[device]
pub fn pow_of<T: Float, S: Shape>(x: Tile<T, S>, y: Tile<T, S>) -> Tile<T, S> {
    if T::EPSILON < T::from(1e-10) {
        let size = power_of_size::<_, i64, _>(x, y, T::from(4503599627370496.0), 52, 1023);
        pow_wide(x, y, size)
    } else {
        pow_single(x.to::<f32>(), y.to::<f32>()).to::<T>()
    }
}

/// `atan(t)` for `t >= 0`: by a difference of angles the argument comes below `tan(pi / 8)`, where a
/// series of 21 terms is exact for f64.
///
/// `atan(t) = pi / 4 + atan((t - 1) / (t + 1)) = pi / 2 - atan(1 / t)`
#[device]
pub fn atan_size<A: Float, S: Shape>(t: Tile<A, S>) -> Tile<A, S> {
    let is_far = t > A::from(2.414213562373095);
    let is_middle = t > A::from(0.4142135623730951);
    let small = where_(is_middle, (t - A::ONE) / (t + A::ONE), t);
    let small = where_(is_far, A::ZERO - A::ONE / t, small);
    let turn = where_(is_middle, A::from(0.7853981633974483), A::ZERO);
    let turn = where_(is_far, A::from(1.5707963267948966), turn);
    let z = -(small * small);
    let p = fma(z, A::from(0.024390243902439025), A::from(0.02564102564102564));
    let p = fma(p, z, A::from(0.027027027027027029));
    let p = fma(p, z, A::from(0.028571428571428571));
    let p = fma(p, z, A::from(0.030303030303030304));
    let p = fma(p, z, A::from(0.032258064516129031));
    let p = fma(p, z, A::from(0.034482758620689655));
    let p = fma(p, z, A::from(0.037037037037037035));
    let p = fma(p, z, A::from(0.040000000000000001));
    let p = fma(p, z, A::from(0.043478260869565216));
    let p = fma(p, z, A::from(0.047619047619047616));
    let p = fma(p, z, A::from(0.052631578947368418));
    let p = fma(p, z, A::from(0.058823529411764705));
    let p = fma(p, z, A::from(0.066666666666666666));
    let p = fma(p, z, A::from(0.076923076923076927));
    let p = fma(p, z, A::from(0.090909090909090912));
    let p = fma(p, z, A::from(0.1111111111111111));
    let p = fma(p, z, A::from(0.14285714285714285));
    let p = fma(p, z, A::from(0.20000000000000001));
    let p = fma(p, z, A::from(0.33333333333333331));
    turn + (p * z * small + small)
}

/// The arc tangent.
#[device]
pub fn atan_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let angle = atan_size(abs(x));
    where_(x < A::ZERO, -angle, where_(x == A::ZERO, x, angle))
}

/// The angle of the point `(x, y)`.
#[device]
pub fn atan2_wide<A: Float, S: Shape>(y: Tile<A, S>, x: Tile<A, S>) -> Tile<A, S> {
    let (up, across) = (abs(y), abs(x));
    let is_steep = up > across;
    let (small, large) = (where_(is_steep, across, up), where_(is_steep, up, across));
    let ratio = where_(is_inf(small), A::ONE, small / large);
    let ratio = where_(large == A::ZERO, large, ratio);
    let near = atan_size(ratio);
    let angle = where_(is_steep, A::from(1.5707963267948966) - near, near);
    let angle = where_(is_negative(x), A::from(3.141592653589793) - angle, angle);
    let angle = where_(is_negative(y), -angle, angle);
    where_(is_nan(x) | is_nan(y), x + y, angle)
}

/// `exp(x) - 1`, by the series where the difference would have fewer digits than the exponential.
#[device]
pub fn expm1_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let p = fma(x, A::from(4.1103176233121648e-19), A::from(8.2206352466243295e-18));
    let p = fma(p, x, A::from(1.5619206968586225e-16));
    let p = fma(p, x, A::from(2.8114572543455206e-15));
    let p = fma(p, x, A::from(4.7794773323873853e-14));
    let p = fma(p, x, A::from(7.6471637318198164e-13));
    let p = fma(p, x, A::from(1.1470745597729725e-11));
    let p = fma(p, x, A::from(1.6059043836821613e-10));
    let p = fma(p, x, A::from(2.08767569878681e-09));
    let p = fma(p, x, A::from(2.505210838544172e-08));
    let p = fma(p, x, A::from(2.7557319223985888e-07));
    let p = fma(p, x, A::from(2.7557319223985893e-06));
    let p = fma(p, x, A::from(2.4801587301587302e-05));
    let p = fma(p, x, A::from(0.00019841269841269841));
    let p = fma(p, x, A::from(0.0013888888888888889));
    let p = fma(p, x, A::from(0.0083333333333333332));
    let p = fma(p, x, A::from(0.041666666666666664));
    let p = fma(p, x, A::from(0.16666666666666666));
    let p = fma(p, x, A::from(0.5));
    let near = p * x * x + x;
    let is_near = (x > A::from(-0.7)) & (x < A::from(1.1));
    // The sum loses the sign of a zero.
    where_(x == A::ZERO, x, where_(is_near, near, exp(x) - A::ONE))
}

/// The hyperbolic sine; far out `e / 2 * exp(|x| - 1)`, which overflows where it has to.
#[device]
pub fn sinh_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let e = expm1_wide(abs(x));
    let near = (e + e / (e + A::ONE)) * A::from(0.5);
    let far = exp(abs(x) - A::ONE) * A::from(1.3591409142295225);
    let size = where_(abs(x) > A::from(20.0), far, near);
    where_(x < A::ZERO, -size, where_(x == A::ZERO, x, size))
}

/// The hyperbolic cosine.
#[device]
pub fn cosh_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let e = exp(where_(size < A::from(2.0), size, A::ZERO));
    let near = (e + A::ONE / e) * A::from(0.5);
    let h = exp(size - A::ONE);
    let far = h * A::from(1.3591409142295225) + A::from(0.18393972058572117) / h;
    where_(size < A::from(2.0), near, far)
}

/// The inverse of the hyperbolic sine.
#[device]
pub fn asinh_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let near = log1p(size + size * size / (A::ONE + sqrt(A::ONE + size * size)));
    // Where the square would overflow or the one is lost in it.
    let far = log(size) + A::from(0.6931471805599453);
    let result = where_(size > A::from(1e9), far, near);
    where_(x < A::ZERO, -result, where_(x == A::ZERO, x, result))
}

/// The inverse of the hyperbolic cosine; NaN below 1.
#[device]
pub fn acosh_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let t = x - A::ONE;
    let near = log1p(t + sqrt(t * (t + A::from(2.0))));
    let far = log(x) + A::from(0.6931471805599453);
    let result = where_(x > A::from(1e9), far, near);
    where_(x < A::ONE, A::NAN, result)
}

/// The inverse of the hyperbolic tangent; NaN beyond 1.
#[device]
pub fn atanh_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let result = log1p(size * A::from(2.0) / (A::ONE - size)) * A::from(0.5);
    where_(x < A::ZERO, -result, where_(x == A::ZERO, x, result))
}

/// The length of the vector `(x, y)`, which overflows only where it has to.
#[device]
pub fn hypot_wide<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    let (u, v) = (abs(x), abs(y));
    let (large, small) = (maximum_num(u, v), minimum_num(u, v));
    let ratio = where_(large == A::ZERO, large, small / large);
    let length = large * sqrt(A::ONE + ratio * ratio);
    let length = where_(is_nan(x) | is_nan(y), x + y, length);
    where_(is_inf(x), u, where_(is_inf(y), v, length))
}

/// 10 to the power of x: what rounding `x log2(10)` lost is put back as a factor.
#[device]
pub fn exp10_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let high = A::from(3.3219280948873623);
    // What rounding log2(10) to the dtype lost.
    let low = if A::EPSILON < A::from(1e-10) {
        A::from(1.661617516973592e-16)
    } else {
        A::from(7.059537016037032e-08)
    };
    let p = x * high;
    let rest = fma(x, high, -p) + x * low;
    let power = exp2(p);
    where_(is_inf(p) | is_inf(power), power, fma(power, rest * A::from(0.6931471805599453), power))
}

/// The logarithm to base 10.
#[device]
pub fn log10_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    log(x) * A::from(0.4342944819032518)
}

/// The cube root: a guess by logarithms and one step of Newton's; subnormal numbers are scaled.
#[device]
pub fn cbrt_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    let is_small = size < A::MIN_POSITIVE * A::from(16777216.0);
    let t = where_(is_small, size * A::from(18014398509481984.0), size);
    let guess = exp2(log2(t) * A::from(0.3333333333333333));
    let square = guess * guess;
    let root = guess - fma(square, guess, -t) / (square * A::from(3.0));
    let root = where_(is_small, root * A::from(3.814697265625e-06), root);
    let is_plain = (size > A::ZERO) & is_finite(x);
    where_(is_plain, where_(x < A::ZERO, -root, root), x)
}

/// One over the cube root.
#[device]
pub fn rcbrt_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    A::ONE / cbrt_wide(x)
}

/// Whether the whole number next to `x` is even.
#[device]
pub fn is_near_even<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<bool, S> {
    let half = round(x) * A::from(0.5);
    floor(half) == half
}

/// `sin(pi x)`: the argument loses its whole part exactly; a zero has the sign of `x`.
#[device]
pub fn sinpi_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let off = off_whole(x);
    let sine = sin(off * A::from(3.141592653589793));
    where_(off == A::ZERO, x * A::ZERO, where_(is_near_even(x), sine, -sine))
}

/// `cos(pi x)`, as the sine of what is left to a half.
#[device]
pub fn cospi_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = sin((A::from(0.5) - abs(off_whole(x))) * A::from(3.141592653589793));
    where_(is_near_even(x) | (size == A::ZERO), size, -size)
}

/// `x - y` where that is above 0, else 0.
#[device]
pub fn fdim_wide<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    where_(is_nan(x) | is_nan(y), x + y, where_(x > y, x - y, A::ZERO))
}

/// One over the length of a vector.
#[device]
pub fn rhypot_wide<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>) -> Tile<A, S> {
    A::ONE / hypot_wide(x, y)
}

/// The same in f32.
#[device]
pub fn rhypot_single<S: Shape>(x: Tile<f32, S>, y: Tile<f32, S>) -> Tile<f32, S> {
    1.0 / hypot_single(x, y)
}

/// The remainder of the quotient that is rounded to nearest: of twice `y` what is left has the parity of the quotient,
/// and the differences are exact.
#[device]
pub fn remainder_of<T: Float, S: Shape>(x: Tile<T, S>, y: Tile<T, S>) -> Tile<T, S> {
    let size = abs(y);
    let left = abs(x % (size + size));
    let is_past = left + left > size;
    let once = where_(is_past, left - size, left);
    let twice = where_(is_past & (once + once >= size), once - size, once);
    let is_none = (size == T::ZERO) | is_inf(x);
    where_(is_none, T::NAN, where_(has_sign(x), -twice, twice))
}

/// The exponent of 2 in `x`, by its bits as the integer `I`, of which `fraction` are the fraction's; `one_up` is
/// `2^fraction`.
#[device]
pub fn exponent_of<A: Float, I: Int, S: Shape>(
    x: Tile<A, S>,
    one_up: A,
    fraction: I,
    bias: I,
) -> Tile<A, S> {
    let size = abs(x);
    let is_small = size < A::MIN_POSITIVE;
    let bits = bitcast::<I>(where_(is_small, size * one_up, size));
    let exponent = ((bits >> fraction) - bias).to::<A>();
    let exponent = where_(is_small, exponent - fraction.to::<A>(), exponent);
    let exponent = where_(size == A::ZERO, A::NEG_INFINITY, exponent);
    where_(is_finite(x), exponent, size)
}

/// The exponent of 2.
#[device]
pub fn logb_of<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<T, S> {
    if T::EPSILON < T::from(1e-10) {
        exponent_of::<_, i64, _>(x, T::from(4503599627370496.0), 52, 1023)
    } else {
        exponent_of::<_, i32, _>(x.to::<f32>(), 8388608.0_f32, 23, 127).to::<T>()
    }
}

/// The arc sine.
#[device]
pub fn asin_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    atan_wide(x / sqrt((A::ONE - x) * (A::ONE + x)))
}

/// The arc cosine.
#[device]
pub fn acos_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    atan_wide(sqrt((A::ONE - x) / (A::ONE + x))) * A::from(2.0)
}

/// Whether the sign bit is set, of NaN too.
#[device]
pub fn has_sign<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<bool, S> {
    if T::EPSILON < T::from(1e-10) {
        bitcast::<i64>(x) < 0
    } else if T::EPSILON < T::from(1e-5) {
        bitcast::<i32>(x) < 0
    } else {
        bitcast::<i16>(x) < 0
    }
}

/// Whether the sign bit is set.
#[device]
pub fn signbit_of<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<bool, S> {
    has_sign(x)
}

/// The magnitude of `x` with the sign bit of `y`.
#[device]
pub fn copysign_of<T: Float, S: Shape>(x: Tile<T, S>, y: Tile<T, S>) -> Tile<T, S> {
    let size = abs(x);
    where_(has_sign(y), -size, size)
}

/// The number beside `x`, by its bits as the integer `I`, whose least above 0 is `least`.
#[device]
pub fn beside<T: Float, I: Int, S: Shape>(x: Tile<T, S>, y: Tile<T, S>, least: I) -> Tile<T, S> {
    let bits = bitcast::<I>(x);
    let grows = (y > x) == (x > T::ZERO);
    let next = bitcast::<T>(where_(grows, bits + I::ONE, bits - I::ONE));
    let first = bitcast::<T>(zeros_like(bits) + least);
    where_(x == T::ZERO, where_(y > x, first, -first), next)
}

/// The next number from `x` on the way to `y`.
#[device]
pub fn nextafter_of<T: Float, S: Shape>(x: Tile<T, S>, y: Tile<T, S>) -> Tile<T, S> {
    let next = if T::EPSILON < T::from(1e-10) {
        beside::<_, i64, _>(x, y, 1_i64)
    } else if T::EPSILON < T::from(1e-5) {
        beside::<_, i32, _>(x, y, 1_i32)
    } else {
        beside::<_, i16, _>(x, y, 1_i16)
    };
    where_(is_nan(x) | is_nan(y), x + y, where_(x == y, y, next))
}

/// `|x|` to the power of `y`, with the logarithm in two parts, so that its product with `y` keeps the digits that
/// are left once its whole part is an exponent.
///
/// `I` is the integer of as many bits, `2^fraction` is `one_up`, and `bias` that of the exponent. With
/// `|x| = 2^e m` and `m` near 1, `log(m) = 2 atanh(s)` for `s = (m - 1) / (m + 1)`.
#[device]
pub fn power_of_size<A: Float, I: Int, S: Shape>(
    x: Tile<A, S>,
    y: Tile<A, S>,
    one_up: A,
    fraction: I,
    bias: I,
) -> Tile<A, S> {
    let size = abs(x);
    let is_small = size < A::MIN_POSITIVE;
    let bits = bitcast::<I>(where_(is_small, size * one_up, size));
    let shift = where_(is_small, bias + fraction, bias);
    let one = bitcast::<I>(full_like(x, A::ONE));
    let below_two = (bits & ((I::ONE << fraction) - I::ONE)) | one;
    let m = bitcast::<A>(below_two);
    let is_high = m > A::from(1.4142135623730951);
    let m = where_(is_high, m * A::from(0.5), m);
    let e = ((bits >> fraction) - shift + where_(is_high, I::ONE, I::ZERO)).to::<A>();
    // s in two parts.
    let t = m + A::ONE;
    let t_rest = m - (t - A::ONE);
    // Between 1 and 3, and what the quotient lacks is added.
    let one_over = fast::recip(t);
    let s = (m - A::ONE) * one_over;
    let s_rest = (fma(-s, t, m - A::ONE) - s * t_rest) * one_over;
    let z = s * s;
    let p = if A::EPSILON < A::from(1e-10) {
        let p = fma(z, A::from(0.037037037037037035), A::from(0.04));
        let p = fma(p, z, A::from(0.043478260869565216));
        let p = fma(p, z, A::from(0.047619047619047616));
        let p = fma(p, z, A::from(0.052631578947368418));
        let p = fma(p, z, A::from(0.058823529411764705));
        let p = fma(p, z, A::from(0.066666666666666666));
        let p = fma(p, z, A::from(0.076923076923076927));
        p * z + A::from(0.090909090909090912)
    } else {
        z * A::from(0.076923076923076927) + A::from(0.090909090909090912)
    };
    let p = fma(p, z, A::from(0.1111111111111111));
    let p = fma(p, z, A::from(0.14285714285714285));
    let p = fma(p, z, A::from(0.2));
    let p = (p * z + A::from(0.33333333333333331)) * z;
    // log2(m) = 2 log2(e) (s + s_rest + s p), the factor in two parts.
    let (high, low) = if A::EPSILON < A::from(1e-10) {
        (A::from(2.8853900817779268), A::from(4.0710547481862066e-17))
    } else {
        (A::from(2.885390043258667), A::from(3.851925982253235e-08))
    };
    let l = s * high;
    let l_rest = fma(s, high, -l) + s * low + (s_rest + s * p) * high;
    let log = l + l_rest;
    let log_rest = (l - log) + l_rest;
    let whole = e + log;
    let rest = (e - whole) + log + log_rest;
    let q = y * whole;
    let q_rest = fma(y, whole, -q) + y * rest;
    let power = exp2(q);
    let exact = fma(power, q_rest * A::from(0.6931471805599453), power);
    let power = where_(is_finite(q_rest) & is_finite(power), exact, power);
    // What has no logarithm.
    let of_zero = where_(y < A::ZERO, A::INFINITY, A::ZERO);
    let of_infinity = where_(y < A::ZERO, A::ZERO, A::INFINITY);
    let power = where_(size == A::ZERO, of_zero, where_(is_inf(x), of_infinity, power));
    where_(is_nan(x) | is_nan(y), x + y, power)
}

/// A power with its sign, and what is exact.
#[device]
pub fn pow_wide<A: Float, S: Shape>(x: Tile<A, S>, y: Tile<A, S>, size: Tile<A, S>) -> Tile<A, S> {
    let is_whole = floor(y) == y;
    let half = y * A::from(0.5);
    let is_odd = is_whole & (floor(half) != half);
    let signed = where_(is_odd & has_sign(x), -size, size);
    // A negative number has only whole powers; an infinite exponent counts as even.
    let signed = where_((x < A::ZERO) & !is_whole & !is_inf(x), A::NAN, signed);
    let signed = where_((abs(x) == A::ONE) & is_inf(y), A::ONE + x - x, signed);
    where_((y == A::ZERO) | (x == A::ONE), A::ONE, where_(y == A::ONE, x, signed))
}

/// The inverse of the error function: an approximation to three digits, made exact by steps of third order.
#[device]
pub fn erfinv_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let size = abs(x);
    // 1 - x^2 without a loss near 1.
    let l = log((A::ONE - size) * (A::ONE + size));
    let t = l * A::from(0.5) + A::from(4.330746750799873);
    let root = sqrt(t * t - l * A::from(6.802721088435375));
    let mut y = sqrt(maximum(-l * A::from(6.802721088435375) / (root + t), A::ZERO));
    for _ in range(0, 3, 1) {
        let off = (erf(y) - size) * exp(y * y) * A::from(0.886226925452758);
        y = y - off / (y * off + A::ONE);
    }
    // The exponential of what rounds to 1 overflows.
    let y = where_(size == A::ONE, A::ONE / (size - size), y);
    let y = where_(size > A::ONE, A::NAN, y);
    where_(x < A::ZERO, -y, where_(x == A::ZERO, x, y))
}

/// How far `x` is from the nearest integer, which loses nothing of what is left.
#[device]
pub fn off_whole<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    x - round(x)
}

/// The logarithm of the magnitude of the gamma function, for `x >= 0.5`: the argument is moved up by ten, where the
/// series in powers of one over it has f64's precision.
#[device]
pub fn lgamma_right<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_low = x < 10.0;
    let mut product = x * 0.0 + 1.0;
    for k in range(0, 10, 1) {
        product = product * (x + k as f64);
    }
    let product = where_(is_low, product, 1.0);
    let s = where_(is_low, x + 10.0, x);
    let z = 1.0 / (s * s);
    let p = fma(z, -0.0019175269175269176, 0.0008417508417508417);
    let p = fma(p, z, -0.0005952380952380953);
    let p = fma(p, z, 0.0007936507936507937);
    let p = fma(p, z, -0.002777777777777778);
    let p = fma(p, z, 0.08333333333333333);
    let tail = where_(is_inf(s), s, (s - 0.5) * log(s) - s);
    tail + 0.9189385332046728 + p / s - log(product)
}

/// The logarithm of the magnitude of the gamma function; infinite at 0 and the negative integers.
#[device]
pub fn lgamma_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_left = x < 0.5;
    let right = lgamma_right(where_(is_left, 1.0 - x, x));
    let sine = abs(sin(off_whole(x) * 3.141592653589793));
    let left = 1.1447298858494002 - log(sine) - right;
    let left = where_(floor(x) == x, 1.0 / abs(x - x), left);
    let result = where_(is_left, left, right);
    // At its zeros the parts cancel to their rounding.
    let result = where_((x == 1.0) | (x == 2.0), 0.0, result);
    where_(is_inf(x), abs(x), result)
}

/// The logarithm of the magnitude of the gamma function.
#[device]
pub fn lgamma_of<T: Float, S: Shape>(x: Tile<T, S>) -> Tile<T, S> {
    if T::EPSILON < T::from(1e-10) {
        lgamma_wide(x.to::<f64>()).to::<T>()
    } else {
        lgamma_single(x.to::<f32>()).to::<T>()
    }
}

/// The gamma function: below one half reflected, with the sign of the sine.
#[device]
pub fn tgamma_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let is_left = x < 0.5;
    let right = exp(lgamma_right(where_(is_left, 1.0 - x, x)));
    let half = round(x) * 0.5;
    let sine = sin(off_whole(x) * 3.141592653589793);
    let sine = where_(floor(half) == half, sine, -sine);
    let left = where_(floor(x) == x, f64::NAN, 3.141592653589793 / (sine * right));
    let left = where_(x == 0.0, 1.0 / x, where_(is_inf(right) & (floor(x) != x), sine * 0.0, left));
    let result = where_(is_left, left, right);
    where_(is_inf(x), where_(x > 0.0, x, x - x), result)
}

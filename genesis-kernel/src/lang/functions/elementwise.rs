//! Functions of numbers one by one that are written in the language itself, in
//! [`library`](super::super::library), and functions of bits.

use super::super::operators::{Same, Sides, Values};
use super::super::{Broadcast, Float, Int, Pair, Shape, typed};

/// How many bits of an integer are set.
pub fn popcount<X: Values<Element: Int>>(x: X) -> X {
    x
}

/// How many bits of an integer above its highest that is set are not; of 0 all.
pub fn clz<X: Values<Element: Int>>(x: X) -> X {
    x
}

/// The place of the lowest bit of an integer that is set, counted from 1; 0 where none is.
pub fn ffs<X: Values<Element: Int>>(x: X) -> X {
    x
}

/// With the bits of an integer in the reverse order.
pub fn brev<X: Values<Element: Int>>(x: X) -> X {
    x
}

/// `x * 2^exponent`, rounded once; the exponent is an integer, or a tile of them that broadcasts with `x`.
pub fn ldexp<X, N: Values<Element: Int>>(
    _x: X,
    _exponent: N,
) -> <<X::Shape as Broadcast<N::Shape>>::Out as Shape>::Of<X::Element>
where
    X: Values<Element: Float, Shape: Broadcast<N::Shape>>,
{
    typed()
}

/// Whether the sign bit of a float is set, of -0 and NaN too.
pub fn signbit<X: Values<Element: Float>>(_x: X) -> X::With<bool> {
    typed()
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<X: Values<Element: Float>>(x: X) -> X {
            x
        }
    )*};
}

unary! {
    /// `exp(x) - 1`, with all digits near 0.
    expm1;
    /// `log(1 + x)`, with all digits near 0.
    log1p;
    /// 10 to the power of x.
    exp10;
    /// The logarithm to base 10.
    log10;
    /// The cube root, of negative numbers too.
    cbrt;
    /// The tangent of x in radians.
    tan;
    /// The arc sine; NaN beyond 1.
    asin;
    /// The arc cosine; NaN beyond 1.
    acos;
    /// The arc tangent.
    atan;
    /// The hyperbolic sine.
    sinh;
    /// The hyperbolic cosine.
    cosh;
    /// The inverse of the hyperbolic sine.
    asinh;
    /// The inverse of the hyperbolic cosine; NaN below 1.
    acosh;
    /// The inverse of the hyperbolic tangent; NaN beyond 1.
    atanh;
    /// `1 - erf(x)`, with all digits where that is small.
    erfc;
    /// The inverse of `erf`; infinite at 1, NaN beyond.
    erfinv;
    /// One over the cube root.
    rcbrt;
    /// The exponent of 2 in x, as a whole number: `floor(log2(abs(x)))` without rounding. Minus infinity of 0, infinity
    /// of infinity.
    logb;
    /// The sine of pi times x, exact where x is a multiple of a half.
    sinpi;
    /// The cosine of pi times x, exact where x is a multiple of a half.
    cospi;
    /// The logarithm of the magnitude of the gamma function; computed in f64.
    lgamma;
    /// The gamma function; NaN at the negative integers; computed in f64.
    tgamma;
    /// `exp(x * x) * erfc(x)`, which does not underflow; computed in f64.
    erfcx;
    /// The inverse of `erfc`: infinite at 0, minus infinite at 2, NaN beyond; computed in f64.
    erfcinv;
    /// How much of the normal distribution lies below x; computed in f64.
    normcdf;
    /// The inverse of `normcdf`: infinite at 0 and 1, NaN beyond; computed in f64.
    normcdfinv;
    /// The Bessel function of the first kind and order 0; computed in f64.
    bessel_j0;
    /// The Bessel function of the first kind and order 1; computed in f64.
    bessel_j1;
    /// The Bessel function of the second kind and order 0; minus infinity at 0, NaN below; computed in f64.
    bessel_y0;
    /// The Bessel function of the second kind and order 1; minus infinity at 0, NaN below; computed in f64.
    bessel_y1;
    /// The modified Bessel function of the first kind and order 0; computed in f64.
    bessel_i0;
    /// The modified Bessel function of the first kind and order 1; computed in f64.
    bessel_i1;
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name<A: Pair<B, Element: Float>, B>(_: Sides<A, B>) -> Same<A, B> {
            typed()
        }
    )*};
}

binary! {
    /// `a - b` where that is above 0, else 0; NaN where one is.
    fdim;
    /// `a` to the power of `b`. 1 where `b` is 0 or `a` is 1, whatever the other; NaN for a negative `a` and a `b`
    /// that is not whole.
    pow;
    /// The angle of the point `(b, a)` in radians, from -pi to pi.
    atan2;
    /// The length of the vector `(a, b)`, which overflows only where it has to.
    hypot;
    /// One over the length of the vector `(a, b)`; 0 where that is infinite.
    rhypot;
    /// `a - n b` for the whole number `n` nearest to `a / b`, the even one of two, without rounding; a zero has the sign
    /// of `a`. NaN for an infinite `a` or a `b` of 0.
    remainder;
    /// The magnitude of `a` with the sign bit of `b`.
    copysign;
    /// The next number from `a` on the way to `b`; `b` where they are equal.
    nextafter;
}

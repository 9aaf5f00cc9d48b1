//! Functions that give up digits for speed: a power of two whose argument is rounded, and little
//! around it.
//!
//! | function | f32: error at most |
//! |---|---|
//! | `fast::exp(x)` | `2^-23 (2 + abs(x))` of the result |
//! | `fast::exp2(x)` | `2^-22` of the result, and 0 where that is below `2^-126` |
//! | `fast::recip(x)` | `2^-23` of the result, and 0 or infinite where `x` or that is below `2^-126` |
//! | `fast::sqrt(x)` | `2^-23` of the result, and 0 where `x` is below `2^-126` |
//! | `fast::log2(x)` | `2^-22` of the result; for `x` between 1/2 and 2 `2^-22`, absolute; minus infinity below `2^-126` |
//! | `fast::sigmoid(x)` | `2^-21` of the result for `x > -1`, below that as `exp` |
//! | `fast::tanh(x)` | `2^-21`, absolute: a small `x` loses its digits |
//!
//! `fast::dot` multiplies floats of 8 bits with the sums that tensor cores of Hopper make of them, which
//! keep 13 bits: see [`dot`].
//!
//! 16-bit floats are computed in f32 and lose nothing. Infinities and NaN are as in the exact ones.

use super::operators::{Same, Sides, Values};
use super::{Extent, Float, Float8, Pair, Tile, typed};

/// e to the power of x.
pub fn exp<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// 2 to the power of x, or 0 for a power below the least normal number.
pub fn exp2<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// One over x, or 0 where that is below the least normal number; infinite for an `x` below it.
pub fn recip<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The square root, or 0 of what is below the least normal number.
pub fn sqrt<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The logarithm to base 2; beside `x = 1` its digits are lost, and minus infinity is that of a subnormal `x`.
pub fn log2<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// Two ways to about the same: `a`, or the shorter `b` where a GPU computes it and each use of the result rounds it to
/// f16 or bf16, at once or after products, quotients and selections. What is not taken is not computed.
pub fn demanded<A: Pair<B, Element: Float>, B>(_: Sides<A, B>) -> Same<A, B> {
    typed()
}

/// The logistic function.
pub fn sigmoid<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The hyperbolic tangent.
pub fn tanh<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// `accumulator + x y` of floats of 8 bits, added up by the tensor cores alone. On Hopper their running
/// sum keeps 13 bits of fraction, so that a long sum of 8-bit products is right to about 2^-11 of its
/// largest partial sum, where [`dot`](super::functions::dot) adds what each call multiplies in f32, at about a
/// tenth of the speed. Elsewhere the two are the same.
pub fn dot<T: Float8, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
    accumulator: Tile<f32, (M, N)>,
) -> Tile<f32, (M, N)> {
    accumulator
}

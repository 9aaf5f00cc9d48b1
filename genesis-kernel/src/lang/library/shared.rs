//! What formulas for f32 and those for f64 are both made of.

use genesis_macros::device;

use super::super::Tile;

/// Whether the sign bit is set, of zeros too.
#[device]
pub fn is_negative<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<bool, S> {
    (x < A::ZERO) | ((x == A::ZERO) & (A::ONE / x < A::ZERO))
}

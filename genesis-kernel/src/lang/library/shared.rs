//! What formulas for f32 and those for f64 are both made of.

use genesis_macros::device;

use super::super::Tile;

/// Whether the sign bit is set, of zeros too.
#[device]
pub fn is_negative<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<bool, S> {
    (x < A::ZERO) | ((x == A::ZERO) & (A::ONE / x < A::ZERO))
}

/// `log(1 + x)`: what rounding `1 + x` lost is put back as a factor.
#[device]
pub fn log1p_wide<A: Float, S: Shape>(x: Tile<A, S>) -> Tile<A, S> {
    let u = x + A::ONE;
    let exact = log(u) * (x / (u - A::ONE));
    where_(u == A::ONE, x, where_(is_inf(u) & (u > A::ZERO), u, exact))
}

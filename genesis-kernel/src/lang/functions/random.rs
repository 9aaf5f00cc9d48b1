//! Random numbers: each a function of a seed and an offset.

use super::super::random::{Offsets, Seed};
use super::super::{ScalarOf, typed};

/// Uniform in 0..1, as f32: number `offset` of the sequence of `seed`.
pub fn rand<S: Seed, O: Offsets>(_seed: S, _offset: O) -> O::With<f32> {
    typed()
}

/// Normal with mean 0 and deviation 1, as f32: number `offset` of the sequence of `seed`.
pub fn randn<S: Seed, O: Offsets>(_seed: S, _offset: O) -> O::With<f32> {
    typed()
}

/// 32 random bits, as u32: number `offset` of the sequence of `seed`.
pub fn randint<S: Seed, O: Offsets>(_seed: S, _offset: O) -> O::With<u32> {
    typed()
}

/// Four times 32 random bits, as u32, of one computation: number `offset` of the sequence of `seed`. The first is what
/// [`randint`] gives.
#[allow(clippy::type_complexity, reason = "the four have the one type")]
pub fn randint4x<S: Seed, O: Offsets>(
    _seed: S,
    _offset: O,
) -> (O::With<u32>, O::With<u32>, O::With<u32>, O::With<u32>) {
    typed()
}

/// Uniform in `low..high`, as i64: number `offset` of the sequence of `seed`.
pub fn randint_between<S: Seed, O: Offsets, L: ScalarOf<i64>, H: ScalarOf<i64>>(
    _seed: S,
    _offset: O,
    _low: L,
    _high: H,
) -> O::With<i64> {
    typed()
}

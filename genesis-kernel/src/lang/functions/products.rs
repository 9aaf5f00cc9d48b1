//! Products of matrices.

use super::super::{Accumulator, Extent, Factor, Float, Float8, Microscaled, Tile, typed};

/// `accumulator + x y`: `x` is `[M, K]`, `y` is `[K, N]`. The accumulator is f32, f64 for f64, and i32 for i8 and
/// u8, whose sums wrap.
pub fn dot<T: Factor, A: Accumulator, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
    accumulator: Tile<A, (M, N)>,
) -> Tile<A, (M, N)> {
    accumulator
}

/// See [`fast::dot`](super::super::fast::dot).
#[doc(hidden)]
pub fn fast_dot<T: Float8, A: Float, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
    accumulator: Tile<A, (M, N)>,
) -> Tile<A, (M, N)> {
    accumulator
}

/// [`fast::dot`](super::super::fast::dot) with an accumulator that starts at zero.
#[doc(hidden)]
pub fn fast_dot_new<T: Float8, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
) -> Tile<f32, (M, N)> {
    typed()
}

/// [`dot`] with an accumulator that starts at zero.
pub fn dot_new<T: Factor, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
) -> Tile<T::Sum, (M, N)> {
    typed()
}

/// [`dot`] of f32 tiles whose elements are rounded to tf32 first.
pub fn dot_tf32<T: Float, A: Float, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
    accumulator: Tile<A, (M, N)>,
) -> Tile<A, (M, N)> {
    accumulator
}

/// [`dot_tf32`] with an accumulator that starts at zero.
pub fn dot_tf32_new<T: Float, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
) -> Tile<f32, (M, N)> {
    typed()
}

/// [`dot`] of f32 tiles on tensor cores whose error is near that of f32: each element is the sum of two
/// tf32 numbers, and three of the four products are added. Numbers above f32's largest divided by
/// 1.0005 and infinities give NaN. On the CPU it is `dot`.
pub fn dot_tf32x3<T: Float, A: Float, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
    accumulator: Tile<A, (M, N)>,
) -> Tile<A, (M, N)> {
    accumulator
}

/// [`dot_tf32x3`] with an accumulator that starts at zero.
pub fn dot_tf32x3_new<T: Float, M: Extent, K: Extent, N: Extent>(
    _x: Tile<T, (M, K)>,
    _y: Tile<T, (K, N)>,
) -> Tile<f32, (M, N)> {
    typed()
}

/// `accumulator + x y` of floats of 8 or 4 bits with a scale for each 32 of them along K (OCP microscaling, MX): `x` is
/// `[M, K]` with scales `[M, K / 32]`, `y` is `[K, N]` with scales `[N, K / 32]`. A scale `s` is `2^(s - 127)`, and 255 is
/// no number. Elements are scaled as bf16, which is exact within its range, and multiplied so.
///
/// A tile of u8 has two floats of 4 bits (e2m1) in each byte along K, the first in the lower half: `x` is `[M, K / 2]` or
/// `y` is `[K / 2, N]`. Either side may have either.
pub fn dot_scaled<
    T: Microscaled,
    U: Microscaled,
    M: Extent,
    K: Extent,
    L: Extent,
    N: Extent,
    B: Extent,
>(
    _x: Tile<T, (M, K)>,
    _x_scale: Tile<u8, (M, B)>,
    _y: Tile<U, (L, N)>,
    _y_scale: Tile<u8, (N, B)>,
    accumulator: Tile<f32, (M, N)>,
) -> Tile<f32, (M, N)> {
    accumulator
}

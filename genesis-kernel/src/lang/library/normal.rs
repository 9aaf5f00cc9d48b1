//! The scaled complementary error function, its inverse, and the normal distribution, computed in f64 whatever the dtype.

use genesis_macros::device;

use super::shared::{erfc_far, erfc_middle, erfc_wide};
use crate::lang::Tile;

/// `exp(x^2) erfc(x)`, which neither underflows nor loses digits for large `x`.
#[device]
pub fn erfcx_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let middle = minimum(maximum(x, 0.46875), 4.0);
    let far = maximum(x, 4.0);
    let right = where_(x > 4.0, erfc_far(far), erfc_middle(middle));
    // What rounding the square lost would come back as many times as it is large.
    let low = maximum(minimum(x, 0.46875), -30.0);
    let square = low * low;
    let rest = fma(low, low, -square);
    let power = exp(square);
    let left = (power + power * rest) * (1.0 - erf(low));
    let result = where_(x > 0.46875, right, left);
    where_(is_inf(x), where_(x > 0.0, 0.0, -x), where_(is_nan(x), x, result))
}

/// The inverse of `erfc`: an approximation to three digits, made exact by steps of third order.
#[device]
pub fn erfcinv_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    // `erfc(-y) = 2 - erfc(y)`, and from one half on the difference is exact.
    let small = where_(x > 1.0, 2.0 - x, x);
    let l = log(small * (2.0 - small));
    let t = l * 0.5 + 4.330746750799873;
    let root = sqrt(t * t - l * 6.802721088435375);
    let mut y = sqrt(maximum(-l * 6.802721088435375 / (root + t), 0.0));
    for _ in range(0, 3, 1) {
        let off = (small / erfc_wide(y) - 1.0) * erfcx_wide(y) * 0.886226925452758;
        y = y - off / (y * off + 1.0);
    }
    let y = where_(small == 1.0, 0.0, where_(small == 0.0, f64::INFINITY, y));
    let y = where_(small < 0.0, f64::NAN, y);
    where_(x > 1.0, -y, y)
}

/// How much of the normal distribution lies below x.
#[device]
pub fn normcdf_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    let z = x * -0.7071067811865476;
    // What the argument lost, to first order: the function falls as the square of it.
    let rest = fma(x, -0.7071067811865476, -z) + x * 4.833646656726457e-17;
    let rest = where_(is_inf(x), 0.0, rest);
    0.5 * erfc_wide(z) - 0.5641895835477563 * exp(-(z * z)) * rest
}

/// The inverse of `normcdf`.
#[device]
pub fn normcdfinv_wide<S: Shape>(x: Tile<f64, S>) -> Tile<f64, S> {
    where_(x == 0.5, 0.0, erfcinv_wide(x * 2.0) * -1.4142135623730951)
}

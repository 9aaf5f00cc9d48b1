//! What logarithms on every target are made of: the exponent, and the logarithm of the fraction.

use super::super::Math;
use crate::ir::{BinaryOp, Value};

/// `log(1 + f) = f + f^2 P(f)` for `|f| <= 1/3`: 2^-27.6.
const LOG_F32: &[f64] = &[
    -5.000000000e-01,
    3.333320916e-01,
    -2.499982417e-01,
    2.001071274e-01,
    -1.667938381e-01,
    1.400165409e-01,
    -1.219862700e-01,
    1.400258690e-01,
    -1.283224821e-01,
];

/// `log((1 + s) / (1 - s)) = 2 s + s z P(z)`, `z = s^2`, for `|s| <= 0.1717`: 2^-58.5.
const LOG_F64: &[f64] = &[
    0.6666666666666735,
    0.3999999999940977,
    0.2857142874353054,
    0.2222219845003344,
    0.18183571041839036,
    0.1531387062881795,
    0.1479783033950631,
];

/// What ln(2) as f32 or f64 leaves.
pub(super) const LN_2_REST_F32: f64 = -1.904654299957768e-09;
pub(super) const LN_2_REST_F64: f64 = 2.3190468138462996e-17;

/// One in the place of an f32's exponent, as a number, is so much less.
pub(super) const EXPONENT_UNIT: f64 = 1.0 / (1u32 << 23) as f64;

/// The exponent `e` such that `x 2^-e` is in 2/3 to 4/3, where an f32 has its exponent; of normal numbers.
pub(super) fn exponent_bits(m: &mut Math<'_, '_>, x: Value) -> Value {
    let bits = m.bits(x);
    let above = m.int_op(BinaryOp::Sub, bits, i64::from((2f32 / 3.0).to_bits()));
    m.int_op(BinaryOp::And, above, -(1 << 23))
}

/// `log(1 + f)`, plus a small multiple of the exponent that goes in before the last rounding.
pub(super) fn log_of_fraction(
    m: &mut Math<'_, '_>,
    f: Value,
    small: Option<(Value, f64)>,
) -> Value {
    if m.is_f32() {
        let p = m.poly(f, LOG_F32);
        let square = m.mul(f, f);
        let y = m.fma(square, p, f);
        return match small {
            Some((e, factor)) => m.fma_c(e, factor, y),
            None => y,
        };
    }
    // f - (h - s (h + z P(z))) with h = f^2 / 2, which is 2 s + s z P(z) with smaller terms to round.
    let two = m.c(2.0);
    let denominator = m.add(f, two);
    let s = m.div(f, denominator);
    let z = m.mul(s, s);
    let p = m.poly(z, LOG_F64);
    let half = m.times(f, 0.5);
    let h = m.mul(half, f);
    let inner = m.fma(z, p, h);
    let mut product = m.mul(s, inner);
    if let Some((e, factor)) = small {
        product = m.fma_c(e, factor, product);
    }
    let correction = m.sub(h, product);
    m.sub(f, correction)
}

//! `log`, `log2` and `log1p`.
//!
//! `x = 2^e m` with `m` between 2/3 and 4/3 (the square roots of 1/2 and 2 in f64), found by integer
//! arithmetic on the bits; subnormal numbers are scaled up first. `log m` is a polynomial that is exact
//! in its first term, so that results near `x = 1` keep all their digits.
//!
//! On a GPU its own logarithm takes what is not a normal number, and all where 16 bits are left of the result.

mod gpu;
mod parts;

use self::parts::{EXPONENT_UNIT, LN_2_REST_F32, LN_2_REST_F64, exponent_bits, log_of_fraction};
use super::Math;
use crate::ir::{BinaryOp, Predicate, Value};
use std::f64::consts::{LN_2, LOG2_E};

/// `log(1 + x) = x + x^2 P(x)` for `0 <= x <= 1`: 2^-27.5.
const LOG1P_F32: &[f64] = &[
    -4.999992847e-01,
    3.333046436e-01,
    -2.495802045e-01,
    1.969212294e-01,
    -1.534499228e-01,
    1.066142544e-01,
    -5.746141076e-02,
    2.008921094e-02,
    -3.291307250e-03,
];

pub(super) fn log(m: &mut Math<'_, '_>, x: Value) -> Value {
    if m.may_approximate() {
        return gpu::log(m, x, gpu::Base::E);
    }
    let (e, f) = split(m, x);
    let rest = m.pick(LN_2_REST_F32, LN_2_REST_F64);
    let y = log_of_fraction(m, f, Some((e, rest)));
    let y = m.fma_c(e, LN_2, y);
    special_values(m, x, y)
}

pub(super) fn log2(m: &mut Math<'_, '_>, x: Value) -> Value {
    if m.may_approximate() {
        return gpu::log(m, x, gpu::Base::Two);
    }
    let (e, f) = split(m, x);
    let y = log_of_fraction(m, f, None);
    let y = m.fma_c(y, LOG2_E, e);
    special_values(m, x, y)
}

/// `log(1 + x)`
pub(super) fn log1p(m: &mut Math<'_, '_>, x: Value) -> Value {
    let one = m.c(1.0);
    let u = m.add(x, one);
    if m.may_approximate() && m.is_rounded {
        return gpu::rounded(m, u, x, gpu::Base::E);
    }
    match m.is_f32() {
        true if m.is_fraction => log1p_of_fraction(m, x),
        true => log1p_f32(m, x, u),
        false => log1p_f64(m, x, u),
    }
}

/// Of an `x` in `0..=1`, where it is one polynomial.
fn log1p_of_fraction(m: &mut Math<'_, '_>, x: Value) -> Value {
    let p = m.poly(x, LOG1P_F32);
    let square = m.mul(x, x);
    m.fma(square, p, x)
}

/// What rounding `u = 1 + x` lost is put back as a factor.
fn log1p_f64(m: &mut Math<'_, '_>, x: Value, u: Value) -> Value {
    let (one, log_u) = (m.c(1.0), log(m, u));
    let rounded = m.sub(u, one);
    let factor = m.div(x, rounded);
    let y = m.mul(log_u, factor);
    let is_finite = m.compare(Predicate::Lt, u, f64::INFINITY);
    let y = m.select(is_finite, y, u);
    let is_one = m.compare(Predicate::Eq, u, 1.0);
    m.select(is_one, x, y)
}

/// With `2^e` the power of two by which `u = 1 + x` is scaled to 2/3 to 4/3, the fraction minus 1 is
/// `x 2^-e - (1 - 2^-e)`, in which nothing of `x` is lost. Where `e` is not 0, `x` is a normal number and its exponent
/// can be lowered by subtraction.
fn log1p_f32(m: &mut Math<'_, '_>, x: Value, u: Value) -> Value {
    let exponent = exponent_bits(m, u);
    let (bits, four) = (m.bits(x), m.int(i64::from(4f32.to_bits())));
    let x_scaled = m.b.binary(BinaryOp::Sub, bits, exponent);
    let x_scaled = m.float_of(x_scaled);
    // Four times the power, since that of the largest `e` would be no normal number.
    let power = m.b.binary(BinaryOp::Sub, four, exponent);
    let (power, one) = (m.float_of(power), m.c(1.0));
    let below_one = m.fma_c(power, -0.25, one);
    let f = m.sub(x_scaled, below_one);
    let dtype = m.ty.dtype();
    let e = m.b.cast(exponent, dtype);
    let y = log_of_fraction(m, f, Some((e, LN_2_REST_F32 * EXPONENT_UNIT)));
    // Twice negated, so that the log of -0 stays -0.
    let y = m.neg(y);
    let y = m.fma_c(e, -LN_2 * EXPONENT_UNIT, y);
    let y = m.neg(y);
    if m.may_approximate() { gpu::special_values(m, u, y) } else { special_values(m, u, y) }
}

/// The exponent `e` and the fraction minus 1.
fn split(m: &mut Math<'_, '_>, x: Value) -> (Value, Value) {
    let (smallest, digits) = m.pick((f64::from(f32::MIN_POSITIVE), 24), (f64::MIN_POSITIVE, 54));
    let is_small = m.compare(Predicate::Lt, x, smallest);
    let scaled = m.times(x, (1u64 << digits) as f64);
    let x = m.select(is_small, scaled, x);
    let (zero, shift) = (m.c(0.0), m.c(-f64::from(digits)));
    let shift = m.select(is_small, shift, zero);

    let bits = m.bits(x);
    let lowest = m.pick(i64::from((2f32 / 3.0).to_bits()), 0x3fe6_a09e_667f_3bcd);
    let fraction_bits = m.fraction_bits();
    let above = m.int_op(BinaryOp::Sub, bits, lowest);
    let e = m.int_op(BinaryOp::Shr, above, fraction_bits);
    let exponent = m.int_op(BinaryOp::Shl, e, fraction_bits);
    let fraction = m.b.binary(BinaryOp::Sub, bits, exponent);
    let fraction = m.float_of(fraction);
    let one = m.c(1.0);
    let f = m.sub(fraction, one);
    let dtype = m.ty.dtype();
    let e = m.b.cast(e, dtype);
    (m.add(e, shift), f)
}

/// Infinity and NaN stay, zero gives -infinity, and less gives NaN.
fn special_values(m: &mut Math<'_, '_>, x: Value, y: Value) -> Value {
    let is_finite = m.compare(Predicate::Lt, x, f64::INFINITY);
    let y = m.select(is_finite, y, x);
    let is_negative = m.compare(Predicate::Lt, x, 0.0);
    let (nan, infinity) = (m.c(f64::NAN), m.c(f64::NEG_INFINITY));
    let low = m.select(is_negative, nan, infinity);
    let is_low = m.compare(Predicate::Le, x, 0.0);
    m.select(is_low, low, y)
}

//! Logarithms of f32 with the GPU's own: `lg2.approx` is off by 2^-22 of its result, or absolutely beside 1.

use super::super::Math;
use super::parts::{EXPONENT_UNIT, LN_2_REST_F32, exponent_bits, log_of_fraction};
use crate::ir::{BinaryOp, DType, Predicate, UnaryOp, Value};
use std::f64::consts::{LN_2, LOG2_E};

/// Of which number it is the logarithm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    E,
    Two,
}

/// The logarithm, within 4 ULP, or as many digits as f16 has if it is rounded.
pub(super) fn log(m: &mut Math<'_, '_>, x: Value, base: Base) -> Value {
    if m.is_rounded {
        let one = m.c(1.0);
        let f = m.sub(x, one);
        return rounded(m, x, f, base);
    }
    let exponent = exponent_bits(m, x);
    let bits = m.bits(x);
    let fraction = m.b.binary(BinaryOp::Sub, bits, exponent);
    let (fraction, one) = (m.float_of(fraction), m.c(1.0));
    let f = m.sub(fraction, one);
    let dtype = m.ty.dtype();
    let e = m.b.cast(exponent, dtype);
    let y = match base {
        Base::E => {
            let y = log_of_fraction(m, f, Some((e, LN_2_REST_F32 * EXPONENT_UNIT)));
            m.fma_c(e, LN_2 * EXPONENT_UNIT, y)
        }
        Base::Two => {
            let y = log_of_fraction(m, f, None);
            let e = m.times(e, EXPONENT_UNIT);
            m.fma_c(y, LOG2_E, e)
        }
    };
    let special = own(m, UnaryOp::Log2Approx, x, base);
    select_normal(m, x, y, special)
}

/// The logarithm of `x = 1 + f` in as many digits as f16 has: to `|f| = 2^-6` by three terms of its series.
pub(super) fn rounded(m: &mut Math<'_, '_>, x: Value, f: Value, base: Base) -> Value {
    let far = own(m, UnaryOp::Log2Approx, x, base);
    let scale = if base == Base::E { 1.0 } else { LOG2_E };
    let half = m.c(-0.5 * scale);
    let p = m.fma_c(f, scale / 3.0, half);
    let near = if base == Base::E {
        let square = m.mul(f, f);
        m.fma(p, square, f)
    } else {
        let scale = m.c(scale);
        let p = m.fma(p, f, scale);
        m.mul(p, f)
    };
    let size = m.abs(f);
    let is_near = m.compare(Predicate::Lt, size, 1.0 / 64.0);
    m.select(is_near, near, far)
}

/// `y`, or what a logarithm of zero, of what is below, of infinity and of NaN is; `x` is not subnormal.
pub(super) fn special_values(m: &mut Math<'_, '_>, x: Value, y: Value) -> Value {
    let special = m.b.unary(UnaryOp::Log2Flush, x);
    select_normal(m, x, y, special)
}

/// The GPU's own.
fn own(m: &mut Math<'_, '_>, op: UnaryOp, x: Value, base: Base) -> Value {
    let y = m.b.unary(op, x);
    if base == Base::E { m.times(y, LN_2) } else { y }
}

/// `y` where `x` is a positive normal number: their bits as unsigned integers are in one range.
fn select_normal(m: &mut Math<'_, '_>, x: Value, y: Value, otherwise: Value) -> Value {
    let least = f32::MIN_POSITIVE.to_bits();
    let bits = m.b.bitcast(x, DType::U32);
    let mut constant = |value: u32| {
        let scalar = crate::ir::Scalar::int(DType::U32, value.into());
        m.b.full(scalar, m.ty.shape)
    };
    let (first, count) = (constant(least), constant(f32::INFINITY.to_bits() - least));
    let place = m.b.binary(BinaryOp::Sub, bits, first);
    let is_normal = m.b.compare(Predicate::Lt, place, count);
    m.select(is_normal, y, otherwise)
}

//! `sin` and `cos`.
//!
//! The argument loses its nearest multiple of pi/2 in f64, by fused multiply-adds with pi/2 in three
//! parts: the first is exact, so an f32 keeps all its digits and an f64 all but half an ULP.
//!
//! Past 2^45 (3.5e13) an argument is taken as zero: neighboring f32 numbers are farther apart than a
//! thousand turns there, and the reduction would need hundreds of bits of pi.

use super::Math;
use crate::ir::{BinaryOp, DType, Predicate, Value};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// `sin r = r + r t P(t)`, `t = r^2`, for `|r| <= 0.8`: 2^-27.7 and 2^-57.6.
const SIN_F32: &[f64] = &[-1.666665375e-01, 8.332096040e-03, -1.950569858e-04];
const SIN_F64: &[f64] = &[
    -0.1666666666666662,
    0.008333333333319759,
    -0.0001984126982767859,
    2.7557312951118133e-06,
    -2.5050641793790318e-08,
    1.5890036490086252e-10,
];

/// `cos r = 1 - t/2 + t^2 P(t)` for the same `r`: 2^-32.6 and 2^-63.5.
const COS_F32: &[f64] = &[4.166664183e-02, -1.388714183e-03, 2.441425568e-05];
const COS_F64: &[f64] = &[
    0.041666666666666574,
    -0.0013888888888869777,
    2.4801587286788738e-05,
    -2.75573135797237e-07,
    2.0875618946430443e-09,
    -1.1354280223221573e-11,
];

/// What pi/2 as f64 leaves, rounded down, and what that leaves: positive, so that -0 stays -0.
const PI_2_SECOND: f64 = 6.123233995736765e-17;
const PI_2_THIRD: f64 = 1.082856673921914e-32;

/// The largest magnitude that is reduced.
const LARGEST: f64 = (1u64 << 45) as f64;

/// Added and taken away again, it rounds to an integer, whose low bits are then those of the sum.
const ROUNDER: f64 = 6755399441055744.0;

pub(super) fn sin(m: &mut Math<'_, '_>, x: Value) -> Value {
    let (quadrant, r) = reduce(m, x);
    turn(m, quadrant, r)
}

pub(super) fn cos(m: &mut Math<'_, '_>, x: Value) -> Value {
    let (quadrant, r) = reduce(m, x);
    let quadrant = m.int_op(BinaryOp::Add, quadrant, 1);
    turn(m, quadrant, r)
}

/// Quarter turns, as integers of the float's width, and the angle that is left.
fn reduce(m: &mut Math<'_, '_>, x: Value) -> (Value, Value) {
    let magnitude = m.abs(x);
    let is_near = m.compare(Predicate::Le, magnitude, LARGEST);
    // Zero, but NaN for what is no number.
    let far = m.times(x, 0.0);
    let x = m.select(is_near, x, far);

    let (dtype, int_dtype) = (m.ty.dtype(), m.int_dtype());
    let wide = m.b.cast(x, DType::F64);
    let mut w = Math::new(m.b, wide, m.target);
    let rounder = w.c(ROUNDER);
    let sum = w.fma_c(wide, FRAC_2_PI, rounder);
    let turns = w.sub(sum, rounder);
    let quadrant = w.bits(sum);
    let mut r = w.fma_c(turns, -FRAC_PI_2, wide);
    r = w.fma_c(turns, -PI_2_SECOND, r);
    if dtype == DType::F64 {
        r = w.fma_c(turns, -PI_2_THIRD, r);
    }
    (m.b.cast(quadrant, int_dtype), m.b.cast(r, dtype))
}

/// The sine of `quadrant` quarter turns and `r`.
fn turn(m: &mut Math<'_, '_>, quadrant: Value, r: Value) -> Value {
    let (sine, cosine) = (sin_reduced(m, r), cos_reduced(m, r));
    let odd = m.int_op(BinaryOp::And, quadrant, 1);
    let zero = m.int(0);
    let is_odd = m.b.compare(Predicate::Ne, odd, zero);
    let value = m.select(is_odd, cosine, sine);
    // The second bit of the quadrant, moved to the sign.
    let second = m.int_op(BinaryOp::And, quadrant, 2);
    let sign = m.int_op(BinaryOp::Shl, second, m.pick(30, 62));
    let bits = m.bits(value);
    let bits = m.b.binary(BinaryOp::Xor, bits, sign);
    m.float_of(bits)
}

fn sin_reduced(m: &mut Math<'_, '_>, r: Value) -> Value {
    let t = m.mul(r, r);
    let p = m.poly(t, m.pick(SIN_F32, SIN_F64));
    let one = m.c(1.0);
    // A product, and not a fused sum, so that -0 stays -0.
    let factor = m.fma(p, t, one);
    m.mul(r, factor)
}

fn cos_reduced(m: &mut Math<'_, '_>, r: Value) -> Value {
    let t = m.mul(r, r);
    let p = m.poly(t, m.pick(COS_F32, COS_F64));
    let half = m.c(-0.5);
    let inner = m.fma(p, t, half);
    let one = m.c(1.0);
    m.fma(inner, t, one)
}

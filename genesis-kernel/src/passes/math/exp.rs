//! `exp`, `exp2` and what is made of them: `sigmoid` and `tanh`.
//!
//! `e^x = 2^n e^r` with `n` the nearest integer to `x log2(e)` and `r = x - n ln(2)` by two fused
//! multiply-adds, of which the first is exact. The power of two goes in by two multiplications, so that
//! results may be subnormal, with one rounding, or infinite.

use super::Math;
use crate::ir::{BinaryOp, Predicate, UnaryOp, Value};
use std::f64::consts::{LN_2, LOG2_E};

/// `e^r = 1 + r + r^2 P(r)` for `|r| <= 0.3475`: 2^-28.2 and 2^-57.8.
const EXP_F32: &[f64] =
    &[4.999999404e-01, 1.666651964e-01, 4.166824743e-02, 8.368850686e-03, 1.382273622e-03];
const EXP_F64: &[f64] = &[
    0.5000000000000011,
    0.16666666666666413,
    0.04166666666652599,
    0.008333333333493235,
    0.0013888888944777102,
    0.00019841269511133378,
    2.480149185603357e-05,
    2.7557580543438865e-06,
    2.763071057586218e-07,
    2.5002476652159062e-08,
];

/// `2^r = 1 + r P(r)` for `|r| <= 0.5`: 2^-27.9.
const EXP2_F32: &[f64] = &[
    6.931471825e-01,
    2.402264327e-01,
    5.550358444e-02,
    9.618995711e-03,
    1.339147566e-03,
    1.519961806e-04,
];

/// `tanh x = x + x t P(t)`, `t = x^2`, for `|x| <= 0.6` (0.55 in f64): 2^-28.4 and 2^-60.6.
const TANH_F32: &[f64] =
    &[-3.333329856e-01, 1.333193630e-01, -5.378470570e-02, 2.079853974e-02, -5.897808354e-03];
const TANH_F64: &[f64] = &[
    -0.333333333333333,
    0.13333333333326586,
    -0.053968253963741664,
    0.021869488385333882,
    -0.008863232593056589,
    0.0035920919464623524,
    -0.0014555423057887754,
    0.0005884422570862179,
    -0.00023337585559022968,
    8.330819022228384e-05,
    -1.9489535968154077e-05,
];

/// ln(2) as f32 and what that leaves, and the same as f64.
const LN_2_F32: [f64; 2] = [0.6931471824645996, -1.904654299957768e-09];
const LN_2_F64: [f64; 2] = [LN_2, 2.3190468138462996e-17];

pub(super) fn exp(m: &mut Math<'_, '_>, x: Value) -> Value {
    if m.may_approximate() {
        return exp_by_exp2(m, x);
    }
    // Beyond these the result is zero or infinite, and the exponents below stay in range.
    let (low, high) = m.pick((-104.0, 89.0), (-746.0, 710.0));
    let x = m.at_least(x, low);
    let x = m.at_most(x, high);
    exp_in_range(m, x)
}

/// For arguments whose result's exponent is within twice the range of the dtype's.
fn exp_in_range(m: &mut Math<'_, '_>, x: Value) -> Value {
    let (n, r) = reduce(m, x);
    let power = exp_reduced(m, r);
    scale(m, power, n)
}

/// By the GPU's power of two, for every argument.
///
/// `t = x log2(e)` is rounded, so `e^x = 2^t (1 + r)` with a small `r = x - t ln(2)`, by two fused
/// multiply-adds. At an infinity `r` is not a number and 2^t already right, hence the maximum that
/// drops NaN. A product with `1 + r`, and not a fused `2^t + 2^t r`, keeps an infinite 2^t infinite.
/// Over all f32 numbers an H200 is off by 3.5 ULP at most.
fn exp_by_exp2(m: &mut Math<'_, '_>, x: Value) -> Value {
    let t = m.times(x, LOG2_E);
    let power = m.b.unary(UnaryOp::Exp2Approx, t);
    if m.is_rounded {
        // Off by 2^-17 at most, where the argument is largest: far less than f16 and bf16 show.
        return power;
    }
    let (r, one) = (left_of_exp2(m, x, t), m.c(1.0));
    let correction = m.add(r, one);
    m.mul(power, correction)
}

/// The same for arguments up to 0, where 2^t is finite and the fused form holds: one rounding less.
fn exp_below_zero(m: &mut Math<'_, '_>, x: Value) -> Value {
    let t = m.times(x, LOG2_E);
    let power = m.b.unary(UnaryOp::Exp2Approx, t);
    let r = left_of_exp2(m, x, t);
    m.fma(power, r, power)
}

/// `x - t ln(2)`, which is small.
fn left_of_exp2(m: &mut Math<'_, '_>, x: Value, t: Value) -> Value {
    let r = m.fma_c(t, -LN_2_F32[0], x);
    let r = m.fma_c(t, -LN_2_F32[1], r);
    let low = m.c(-1.0 / 1024.0);
    m.b.binary(BinaryOp::MaxNum, r, low)
}

pub(super) fn exp2(m: &mut Math<'_, '_>, x: Value) -> Value {
    if m.may_approximate() {
        return m.b.unary(UnaryOp::Exp2Approx, x);
    }
    let (low, high) = m.pick((-151.0, 129.0), (-1076.0, 1025.0));
    let x = m.at_least(x, low);
    let x = m.at_most(x, high);
    let (n, power) = exp2_parts(m, x);
    scale(m, power, n)
}

/// 2^x for an `x` at which it is a normal number.
pub(super) fn exp2_normal(m: &mut Math<'_, '_>, x: Value) -> Value {
    if m.may_approximate() {
        return m.b.unary(UnaryOp::Exp2Approx, x);
    }
    let (n, power) = exp2_parts(m, x);
    scale_normal(m, power, n)
}

fn exp2_parts(m: &mut Math<'_, '_>, x: Value) -> (Value, Value) {
    let n = m.b.unary(UnaryOp::Round, x);
    let r = m.sub(x, n);
    if m.is_f32() {
        let p = m.poly(r, EXP2_F32);
        let one = m.c(1.0);
        (n, m.fma(p, r, one))
    } else {
        let r = m.times(r, LN_2);
        (n, exp_reduced(m, r))
    }
}

/// `1 / (1 + e^-x)`, from `e^-|x|` so that small results keep their digits.
pub(super) fn sigmoid(m: &mut Math<'_, '_>, x: Value) -> Value {
    let one = m.c(1.0);
    if m.may_approximate() && m.is_rounded {
        // Zero where the result is below 2^-126.
        let t = m.times(x, -LOG2_E);
        let z = m.b.unary(UnaryOp::Exp2Flush, t);
        let denominator = m.add(z, one);
        return m.b.unary(UnaryOp::RecipApprox, denominator);
    }
    let magnitude = m.abs(x);
    let minus = m.neg(magnitude);
    if m.may_approximate() {
        return sigmoid_by_exp2(m, x, minus);
    }
    let low = m.pick(-104.0, -746.0);
    let minus = m.at_least(minus, low);
    let z = exp_in_range(m, minus);
    let is_negative = m.compare(Predicate::Lt, x, 0.0);
    let numerator = m.select(is_negative, z, one);
    let denominator = m.add(z, one);
    m.div(numerator, denominator)
}

/// By the GPU's power of two and reciprocal: 17 instructions, where the quotient alone takes as many.
///
/// The divisor is in 1 to 2, where one step of Newton's brings the reciprocal to the last bit; the rest is
/// the error of `e^-|x|`.
fn sigmoid_by_exp2(m: &mut Math<'_, '_>, x: Value, minus: Value) -> Value {
    let (z, one) = (exp_below_zero(m, minus), m.c(1.0));
    let divisor = m.add(z, one);
    let rough = m.b.unary(UnaryOp::RecipApprox, divisor);
    let negative = m.neg(divisor);
    let rest = m.fma(negative, rough, one);
    let reciprocal = m.fma(rough, rest, rough);
    let is_negative = m.compare(Predicate::Lt, x, 0.0);
    let small = m.mul(z, reciprocal);
    m.select(is_negative, small, reciprocal)
}

/// `1 - 2 / (e^2|x| + 1)` with the sign of x; near zero, where that cancels, a polynomial.
pub(super) fn tanh(m: &mut Math<'_, '_>, x: Value) -> Value {
    let magnitude = m.abs(x);
    // From here on the result is 1.
    let highest = m.pick(10.0, 20.0);
    let bounded = m.at_most(magnitude, highest);
    let power = if m.may_approximate() {
        // What rounding the argument costs is lost in the sum with 1.
        let t = m.times(bounded, 2.0 * LOG2_E);
        m.b.unary(UnaryOp::Exp2Flush, t)
    } else {
        let twice = m.add(bounded, bounded);
        let (n, r) = reduce(m, twice);
        let power = exp_reduced(m, r);
        scale_normal(m, power, n)
    };
    let (one, two) = (m.c(1.0), m.c(2.0));
    let denominator = m.add(power, one);
    let far = if m.may_approximate() {
        // The last bit of what is subtracted from 1 is not seen.
        let quotient = m.b.unary(UnaryOp::RecipApprox, denominator);
        m.fma_c(quotient, -2.0, one)
    } else {
        let rest = m.div(two, denominator);
        m.sub(one, rest)
    };
    let far = m.copy_sign(far, x);

    let t = m.mul(x, x);
    let p = m.poly(t, m.pick(TANH_F32, TANH_F64));
    let factor = m.fma(p, t, one);
    let near = m.mul(x, factor);
    let is_near = m.compare(Predicate::Lt, magnitude, m.pick(0.6, 0.55));
    m.select(is_near, near, far)
}

/// The nearest integer `n` to `x log2(e)` and `x - n ln(2)`.
fn reduce(m: &mut Math<'_, '_>, x: Value) -> (Value, Value) {
    let t = m.times(x, LOG2_E);
    let n = m.b.unary(UnaryOp::Round, t);
    let [high, low] = m.pick(LN_2_F32, LN_2_F64);
    let r = m.fma_c(n, -high, x);
    (n, m.fma_c(n, -low, r))
}

/// `e^r` for a reduced `r`.
fn exp_reduced(m: &mut Math<'_, '_>, r: Value) -> Value {
    let p = m.poly(r, m.pick(EXP_F32, EXP_F64));
    let square = m.mul(r, r);
    let y = m.fma(square, p, r);
    let one = m.c(1.0);
    m.add(y, one)
}

/// `x 2^n` for an integer `n` up to twice the dtype's range, rounded once.
fn scale(m: &mut Math<'_, '_>, x: Value, n: Value) -> Value {
    let dtype = m.int_dtype();
    let n = m.b.cast(n, dtype);
    let half = m.int_op(BinaryOp::Shr, n, 1);
    let rest = m.b.binary(BinaryOp::Sub, n, half);
    let (half, rest) = (power_of_two(m, half), power_of_two(m, rest));
    let x = m.mul(x, half);
    m.mul(x, rest)
}

/// `x 2^n` where that is a normal number; exact.
fn scale_normal(m: &mut Math<'_, '_>, x: Value, n: Value) -> Value {
    let dtype = m.int_dtype();
    let n = m.b.cast(n, dtype);
    let power = power_of_two(m, n);
    m.mul(x, power)
}

/// 2^n for an integer tile `n` in the range of normal exponents.
fn power_of_two(m: &mut Math<'_, '_>, n: Value) -> Value {
    let bias = m.pick(127, 1023);
    let biased = m.int_op(BinaryOp::Add, n, bias);
    let fraction_bits = m.fraction_bits();
    let bits = m.int_op(BinaryOp::Shl, biased, fraction_bits);
    m.float_of(bits)
}

//! `sin`, `cos` and `tan`.
//!
//! The argument loses its nearest multiple of pi/2 by fused multiply-adds with pi/2 in three parts, whose first leaves
//! an exact rest: an f32 within 1 ULP to 1.5 2^16, an f64 within half an ULP to 2^45 (3.5e13). Beyond, hundreds of bits
//! of pi are needed: [`UnaryOp::SinFar`] and its twin are code behind a branch, which arguments that are small by what
//! they are computed from leave out.

use super::Math;
use crate::ir::far::{COS as COS_F64, FAR, FAR_SINGLE, SIN as SIN_F64};
use crate::ir::{BinaryOp, DType, Elem, Func, OpKind, Predicate, UnaryOp, Value};
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// `sin r = r + r t P(t)`, `t = r^2`, for `|r| <= 0.8`: 2^-27.7.
const SIN_F32: &[f64] = &[-1.666665375e-01, 8.332096040e-03, -1.950569858e-04];

/// `cos r = 1 - t/2 + t^2 P(t)` for the same `r`: 2^-32.6.
const COS_F32: &[f64] = &[4.166664183e-02, -1.388714183e-03, 2.441425568e-05];

/// The same where 16 bits are left of the result: 2^-18.8 and 2^-14.3.
const SIN_HALF: &[f64] = &[-1.666313857e-01, 8.156920783e-03];
const COS_HALF: &[f64] = &[4.087048024e-02];

/// `tan r = r + r t P(t)` for the same `r`: 2^-25.7, and 2^-14.3 for 16 bits.
const TAN_F32: &[f64] = &[
    3.333315551e-01,
    1.333883256e-01,
    5.340864137e-02,
    2.443933487e-02,
    3.105353797e-03,
    9.393975139e-03,
];
const TAN_HALF: &[f64] = &[3.349661827e-01, 1.180362627e-01, 9.219405055e-02];

/// What pi/2 as f64 leaves, rounded down, and what that leaves: positive, so that -0 stays -0.
const PI_2_SECOND: f64 = 6.123233995736765e-17;
const PI_2_THIRD: f64 = 1.082856673921914e-32;

/// Added and taken away again, it rounds to an integer, whose low bits are then those of the sum.
const ROUNDER: f64 = 6755399441055744.0;
const ROUNDER_SINGLE: f64 = 12582912.0;

pub(super) fn sin(m: &mut Math<'_, '_>, x: Value) -> Value {
    let (quadrant, r) = reduce(m, x);
    let near = turn(m, quadrant, r);
    with_far(m, UnaryOp::SinFar, x, near)
}

pub(super) fn cos(m: &mut Math<'_, '_>, x: Value) -> Value {
    let (quadrant, r) = reduce(m, x);
    let quadrant = m.int_op(BinaryOp::Add, quadrant, 1);
    let near = turn(m, quadrant, r);
    with_far(m, UnaryOp::CosFar, x, near)
}

/// The tangent of what is left, after odd quarter turns minus one over it. In f64 it is the sine over the cosine.
pub(super) fn tan(m: &mut Math<'_, '_>, x: Value) -> Value {
    let (quadrant, r) = reduce(m, x);
    let (odd, zero) = (m.int_op(BinaryOp::And, quadrant, 1), m.int(0));
    let is_odd = m.b.compare(Predicate::Ne, odd, zero);
    let near = if m.is_f32() { tan_single(m, r, is_odd) } else { tan_double(m, r, is_odd) };
    with_far(m, UnaryOp::TanFar, x, near)
}

fn tan_single(m: &mut Math<'_, '_>, r: Value, is_odd: Value) -> Value {
    let t = m.mul(r, r);
    let is_short = m.is_rounded && m.may_approximate();
    let p = m.poly(t, if is_short { TAN_HALF } else { TAN_F32 });
    let p = m.mul(p, t);
    let tangent = m.fma(p, r, r);
    let over = if m.may_approximate() {
        let over = m.b.unary(UnaryOp::RecipApprox, tangent);
        m.neg(over)
    } else {
        let minus_one = m.c(-1.0);
        m.div(minus_one, tangent)
    };
    m.select(is_odd, over, tangent)
}

fn tan_double(m: &mut Math<'_, '_>, r: Value, is_odd: Value) -> Value {
    let (sine, cosine) = (sin_reduced(m, r), cos_reduced(m, r));
    let minus = m.neg(cosine);
    let (top, bottom) = (m.select(is_odd, minus, sine), m.select(is_odd, sine, cosine));
    m.div(top, bottom)
}

/// The result, by another op where the argument is large.
fn with_far(m: &mut Math<'_, '_>, op: UnaryOp, x: Value, near: Value) -> Value {
    let limit = m.pick(FAR_SINGLE, FAR);
    if largest(m.b.func, x, LOOKS) <= limit {
        return near;
    }
    let magnitude = m.abs(x);
    let is_far = m.compare(Predicate::Gt, magnitude, limit);
    let far = m.b.unary(op, x);
    m.select(is_far, far, near)
}

/// As many ops back an argument is looked at.
const LOOKS: u32 = 8;

/// No element that is a number is greater in magnitude, by what computes it.
fn largest(func: &Func, value: Value, looks: u32) -> f64 {
    let tile = func.tile(value);
    let Elem::Data(dtype) = tile.elem else { return f64::INFINITY };
    let of_dtype = match dtype {
        DType::F64 | DType::F32 | DType::BF16 => f64::INFINITY,
        DType::F16 => 65504.0,
        DType::F8E4M3 | DType::F8E5M2 => 57344.0,
        integer => 2f64.powi(integer.bits() as i32),
    };
    let Some(op) = func.def_op(value).filter(|_| looks > 0) else { return of_dtype };
    let data = func.op(op);
    let operand = |i: usize| largest(func, data.operands[i], looks - 1);
    // A sum or a product may be rounded up, once for each look.
    let more = 1.0 + 2f64.powi(-7);
    let by_op = match &data.kind {
        OpKind::Const(scalar) => scalar.to_f64().abs(),
        OpKind::Cast => operand(0) * more,
        kind if kind.is_view() => operand(0) * more,
        OpKind::Unary(UnaryOp::Neg | UnaryOp::Abs) => operand(0),
        OpKind::Unary(UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tanh | UnaryOp::Erf) => 1.0 + more,
        OpKind::Binary(BinaryOp::Mul) if dtype.is_float() => operand(0) * operand(1) * more,
        OpKind::Binary(BinaryOp::Sub) if is_fraction(func, &data.operands) => 1.0,
        OpKind::Binary(BinaryOp::Add | BinaryOp::Sub) if dtype.is_float() => {
            (operand(0) + operand(1)) * more
        }
        OpKind::Fma if dtype.is_float() => (operand(0) * operand(1) + operand(2)) * more,
        OpKind::Select => operand(1).max(operand(2)),
        _ => f64::INFINITY,
    };
    // Zero times what has no bound.
    if by_op.is_nan() { of_dtype } else { by_op.min(of_dtype) }
}

/// Whether the second operand is the first one rounded to an integer.
fn is_fraction(func: &Func, operands: &[Value]) -> bool {
    let Some(op) = func.def_op(operands[1]) else { return false };
    let rounds = matches!(
        func.op(op).kind,
        OpKind::Unary(UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc)
    );
    rounds && func.op(op).operands[0] == operands[0]
}

/// pi/2 in three parts of f32, each rounded down: positive, so that -0 stays -0. With fused multiply-adds the first
/// leaves an exact rest for as many quarter turns as 16 bits count, and the others round once each.
const PI_2_SINGLE: [f64; 3] = [1.570796251296997, 7.549789415861596e-8, 5.390302529957765e-15];

/// The same of an f32 up to [`FAR_SINGLE`].
fn reduce_single(m: &mut Math<'_, '_>, x: Value) -> (Value, Value) {
    let rounder = m.c(ROUNDER_SINGLE);
    let sum = m.fma_c(x, FRAC_2_PI, rounder);
    let turns = m.sub(sum, rounder);
    let quadrant = m.bits(sum);
    let r = PI_2_SINGLE.iter().fold(x, |r, &part| m.fma_c(turns, -part, r));
    (quadrant, r)
}

/// Quarter turns, as integers of the float's width, and the angle that is left; of arguments up to [`FAR`].
fn reduce(m: &mut Math<'_, '_>, x: Value) -> (Value, Value) {
    if m.is_f32() {
        return reduce_single(m, x);
    }
    let rounder = m.c(ROUNDER);
    let sum = m.fma_c(x, FRAC_2_PI, rounder);
    let turns = m.sub(sum, rounder);
    let quadrant = m.bits(sum);
    let parts = [FRAC_PI_2, PI_2_SECOND, PI_2_THIRD];
    (quadrant, parts.iter().fold(x, |r, &part| m.fma_c(turns, -part, r)))
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
    let of_f32 = if m.is_rounded && m.may_approximate() { SIN_HALF } else { SIN_F32 };
    let p = m.poly(t, m.pick(of_f32, SIN_F64));
    let one = m.c(1.0);
    // A product, and not a fused sum, so that -0 stays -0.
    let factor = m.fma(p, t, one);
    m.mul(r, factor)
}

fn cos_reduced(m: &mut Math<'_, '_>, r: Value) -> Value {
    let t = m.mul(r, r);
    let of_f32 = if m.is_rounded && m.may_approximate() { COS_HALF } else { COS_F32 };
    let p = m.poly(t, m.pick(of_f32, COS_F64));
    let half = m.c(-0.5);
    let inner = m.fma(p, t, half);
    let one = m.c(1.0);
    m.fma(inner, t, one)
}

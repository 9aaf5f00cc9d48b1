//! Functions in f32 between casts from and to 16 bits, as kernels write them: every number of 16 bits.

use super::*;
use crate::ir::BinaryOp;

/// Compares a function on a GPU with its reference for every f16 and bf16: at most one step between
/// neighbors apart, or both too small to matter.
fn check(write: impl Fn(&mut Builder<'_>, Value) -> Value, reference: impl Fn(f64) -> f64) {
    for dtype in [DType::BF16, DType::F16] {
        let mut evaluator = Evaluator::of(dtype, MathTarget::Nvptx, |b, x| {
            let wide = b.cast(x, DType::F32);
            let y = write(b, wide);
            b.cast(y, dtype)
        });
        for bits in 0..1 << 16 {
            let x = Scalar { dtype, bits };
            let (got, want) = (evaluator.at(x), Scalar::float(dtype, reference(x.to_f64())));
            let (a, b) = (got.to_f64(), want.to_f64());
            let tiny = 2f64.powi(-118);
            let is_close = (a.is_nan() && b.is_nan())
                || steps(got).abs_diff(steps(want)) <= 1
                || (a.abs() < tiny && b.abs() < tiny);
            assert!(is_close, "{dtype}: f({}) = {a}, not {b}", x.to_f64());
        }
    }
}

/// The number of steps from zero.
fn steps(x: Scalar) -> i64 {
    let magnitude = (x.bits & 0x7fff) as i64;
    if x.bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The probability that a normal variable is above `t`, for `t >= 0`.
fn upper_tail(t: f64) -> f64 {
    if t < 2.0 {
        return 0.5 * (1.0 - super::reference(UnaryOp::Erf, t / 2f64.sqrt()));
    }
    let fraction = (1..=300).rev().fold(t, |f, k| t + f64::from(k) / f);
    (-0.5 * t * t).exp() / (fraction * std::f64::consts::TAU.sqrt())
}

#[test]
fn gelu() {
    let write = |b: &mut Builder<'_>, x: Value| {
        let c = |b: &mut Builder<'_>, value| b.constant(Scalar::float(DType::F32, value));
        let (half, root, one) = (c(b, 0.5), c(b, std::f64::consts::FRAC_1_SQRT_2), c(b, 1.0));
        let (halved, inner) = (b.binary(BinaryOp::Mul, x, half), b.binary(BinaryOp::Mul, x, root));
        let erf = b.unary(UnaryOp::Erf, inner);
        let sum = b.binary(BinaryOp::Add, erf, one);
        b.binary(BinaryOp::Mul, halved, sum)
    };
    let reference = |x: f64| match x {
        f64::NEG_INFINITY => 0.0,
        _ if x < 0.0 => x * upper_tail(-x),
        _ => x * (1.0 - upper_tail(x)),
    };
    check(write, reference);
}

#[test]
fn sigmoid_and_silu() {
    let sigmoid =
        |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
    check(|b, x| b.unary(UnaryOp::Sigmoid, x), sigmoid);
    let silu = |b: &mut Builder<'_>, x: Value| {
        let y = b.unary(UnaryOp::Sigmoid, x);
        b.binary(BinaryOp::Mul, x, y)
    };
    check(silu, |x| x * sigmoid(x));
}

#[test]
fn exp_and_tanh() {
    check(|b, x| b.unary(UnaryOp::Exp, x), f64::exp);
    check(|b, x| b.unary(UnaryOp::Tanh, x), f64::tanh);
    check(|b, x| b.unary(UnaryOp::Erf, x), |x| super::reference(UnaryOp::Erf, x));
}

//! Transcendental functions become polynomials: fused multiply-adds, integer ops and selects.
//!
//! Every op they expand to is exact on every target, so `exp` gives the same bits on the interpreter,
//! the CPU and the GPU, and no back end needs a mathematical library. f32 results are within 4 ULP
//! (`rsqrt` 2), f64 results within 2 to 3; f16 and bf16 are computed in f32. The functions are in
//! `super::math`, one file each.
//!
//! On a GPU a function in f32 whose result only goes to f16 or bf16 takes a shorter way that those
//! can't tell from the long one: within 1 ULP of the correctly rounded result (subnormal ones may be
//! zero), which the tests look at for every number that has 16 bits.

use super::demanded_precision::DemandedPrecision;
pub use super::math::MathTarget;
use super::math::{self, Math};
use super::rewrite::{Action, rewrite};
use super::{DCE, Pass};
use crate::ir::{BinaryOp, DType, Func, Op, OpKind, UnaryOp, Value};

/// Expands for the interpreter and the CPU.
pub const EXPAND_MATH: Pass =
    Pass { name: "expand_math", run: |func| expand_math(func, MathTarget::Exact) };

/// Expands for an NVIDIA GPU.
pub const EXPAND_MATH_NVPTX: Pass =
    Pass { name: "expand_math", run: |func| expand_math(func, MathTarget::Nvptx) };

/// Takes one of the two ways of each `short`, and rewrites `exp`, `exp2`, `log`, `log2`, `log1p`, `sin`, `cos`, `tan`,
/// `tanh`, `erf`, `sigmoid` and `rsqrt`.
pub fn expand_math(func: &mut Func, target: MathTarget) {
    choose_ways(func, target);
    let mut demanded = DemandedPrecision::of(func);
    if target == MathTarget::Nvptx {
        short_gelu(func, &demanded);
        demanded = DemandedPrecision::of(func);
    }
    // Before what computes them is expanded.
    let fractions = arguments_in_unit_interval(func);
    rewrite(func, &mut |cx, op| {
        let data = cx.func.op(op);
        let (OpKind::Unary(function), [x]) = (&data.kind, data.operands.as_slice()) else {
            return Action::Keep;
        };
        let (function, x) = (*function, *x);
        if !is_expanded(function) {
            return Action::Keep;
        }
        let dtype = cx.func.tile(x).dtype();
        let is_fraction = fractions.contains(&op);
        let is_rounded = demanded.bits(data.results[0]).is_some();
        let mut builder = cx.builder();
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let x = builder.cast(x, wide);
        let mut m = Math::new(&mut builder, x, target);
        if wide != dtype || is_rounded {
            m = m.rounded();
        }
        if is_fraction {
            m = m.of_fraction();
        }
        let result = math::expand(&mut m, function);
        Action::value(builder.cast(result, dtype))
    });
}

/// The ops `log1p` of an exponential of what is not above 0: their arguments are in `0..=1`.
fn arguments_in_unit_interval(func: &Func) -> Vec<Op> {
    let by = |value: Value| {
        let data = func.op(func.def_op(value)?);
        data.operands.first().map(|&x| (&data.kind, x))
    };
    let is_of_fraction = |&op: &Op| {
        let data = func.op(op);
        let exponential = match data.kind {
            OpKind::Unary(UnaryOp::Log1p) => by(data.operands[0]),
            _ => None,
        };
        let Some((OpKind::Unary(UnaryOp::Exp | UnaryOp::Exp2), x)) = exponential else {
            return false;
        };
        let Some((OpKind::Unary(UnaryOp::Neg), size)) = by(x) else { return false };
        matches!(by(size), Some((OpKind::Unary(UnaryOp::Abs), _)))
    };
    func.walk().into_iter().filter(is_of_fraction).collect()
}

/// Takes one of the two ways of each `short`. What leads to the other one goes before it would be expanded.
fn choose_ways(func: &mut Func, target: MathTarget) {
    let is_choice = |func: &Func, op| matches!(func.op(op).kind, OpKind::Binary(BinaryOp::Short));
    if !func.walk().into_iter().any(|op| is_choice(func, op)) {
        return;
    }
    let demanded = DemandedPrecision::of(func);
    rewrite(func, &mut |cx, op| {
        if !is_choice(cx.func, op) {
            return Action::Keep;
        }
        let data = cx.func.op(op);
        let is_half = matches!(cx.func.tile(data.results[0]).dtype(), DType::F16 | DType::BF16);
        let is_rounded = is_half || demanded.bits(data.results[0]).is_some();
        let is_short = is_rounded && target == MathTarget::Nvptx;
        Action::value(data.operands[usize::from(is_short)])
    });
    (DCE.run)(func);
}

/// GELU in fewer steps where 16 bits are left of it. The `erf` stays, for nobody if that was its use.
fn short_gelu(func: &mut Func, demanded: &DemandedPrecision) {
    rewrite(func, &mut |cx, op| {
        let Some((x, bits)) = math::gelu::find(cx.func, demanded, op) else { return Action::Keep };
        let mut builder = cx.builder();
        let mut m = Math::new(&mut builder, x, MathTarget::Nvptx);
        Action::value(math::gelu::gelu(&mut m, bits))
    });
}

fn is_expanded(function: UnaryOp) -> bool {
    match function {
        UnaryOp::Rsqrt
        | UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Exp2Flush
        | UnaryOp::Exp2Approx
        | UnaryOp::RecipApprox
        | UnaryOp::Log2Approx
        | UnaryOp::Log2Flush
        | UnaryOp::SqrtApprox
        | UnaryOp::Log1p
        | UnaryOp::Tan
        | UnaryOp::Log
        | UnaryOp::Log2
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Sigmoid => true,
        UnaryOp::Neg
        | UnaryOp::Not
        | UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::PopCount
        | UnaryOp::LeadingZeros
        | UnaryOp::SinFar
        | UnaryOp::CosFar
        | UnaryOp::TanFar => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::check;
    use super::{EXPAND_MATH, EXPAND_MATH_NVPTX};
    use expect_test::expect;

    #[test]
    fn rsqrt_is_a_quotient_and_the_rest_stays() {
        check(
            &EXPAND_MATH,
            "kernel k(%p: *f64, %x: f64) {
                %0 = rsqrt %x : f64
                %1 = sqrt %0 : f64
                store %p, %1
                return
            }",
            expect![[r#"
                kernel k(%p: *f64, %x: f64) {
                  %0 = const 1.0 : f64
                  %1 = sqrt %x : f64
                  %2 = div %0, %1 : f64
                  %3 = sqrt %2 : f64
                  store %p, %3
                  return
                }
            "#]],
        );
    }

    #[test]
    fn bf16_is_computed_in_f32_and_rounded_once() {
        check(
            &EXPAND_MATH_NVPTX,
            "kernel k(%p: *bf16, %x: bf16) {
                %0 = exp %x : bf16
                store %p, %0
                return
            }",
            expect![[r#"
                kernel k(%p: *bf16, %x: bf16) {
                  %0 = cast %x : f32
                  %1 = const 1.442695 : f32
                  %2 = mul %0, %1 : f32
                  %3 = exp2_approx %2 : f32
                  %4 = cast %3 : bf16
                  store %p, %4
                  return
                }
            "#]],
        );
    }
}

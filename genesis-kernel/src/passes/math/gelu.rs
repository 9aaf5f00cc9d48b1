//! Exact GELU where the result is rounded to 16 bits: one polynomial and one power of two.
//!
//! `x Phi(x)` is `max(x, 0) - |x| Q(|x|)` with the upper tail `Q = 1 - Phi`, whose logarithm is close
//! to a parabola. Written with `erf`, the tail of a negative x is lost in `1 + erf`; here it keeps its
//! digits down to results of 2^-122, below which they are zero. Over all bf16 and all f16 numbers the
//! result is within 1 ULP of the correctly rounded one.
//!
//! ```text
//! %1 = mul %x, 0.5                            %1 = min (abs %x), 13.25
//! %2 = mul %x, 0.707107                       %2 = exp2_flush P(%1)
//! %3 = erf %2                        ->       %3 = max %x, 0
//! %4 = add %3, 1                              %4 = fma (neg %1), %2, %3
//! %5 = mul %1, %4         cast %5 : bf16      cast %4 : bf16
//! ```

use super::super::demanded_precision::DemandedPrecision;
use super::Math;
use crate::ir::{BinaryOp, DType, Func, Op, OpKind, UnaryOp, Value};

/// `log2 Q(t)` for `0 <= t <= 13`: 2^-9 of Q, as much as rounding to bf16 costs. A step more would be
/// 2^-10.8, and make a product of 4096 under GELU 2 % slower.
const LOG_TAIL_8: &[f64] = &[
    -1.002803087234497,
    -1.1266300678253174,
    -0.4939825236797333,
    -0.03438415378332138,
    0.0032066090498119593,
    -0.0001613468921277672,
    3.326021214888897e-06,
];
/// The same: 2^-15.
const LOG_TAIL_11: &[f64] = &[
    -1.000025749206543,
    -1.1510510444641113,
    -0.45863625407218933,
    -0.05408890172839165,
    0.008723316714167595,
    -0.0010343980975449085,
    8.553010411560535e-05,
    -4.617325885192258e-06,
    1.4528762903864845e-07,
    -2.012392474881608e-09,
];

/// GELU of the argument, of which `bits` significant bits are wanted.
pub(crate) fn gelu(m: &mut Math<'_, '_>, bits: u32) -> Value {
    let x = m.x;
    let magnitude = m.abs(x);
    // From here on the tail is zero, and an infinite argument would make it no number.
    let t = m.at_most_number(magnitude, 13.25);
    let log = m.poly(t, if bits <= 8 { LOG_TAIL_8 } else { LOG_TAIL_11 });
    let tail = m.b.unary(UnaryOp::Exp2Flush, log);
    let positive = m.at_least(x, 0.0);
    let minus = m.neg(t);
    m.fma(minus, tail, positive)
}

/// The argument of GELU and the bits that are wanted of it, where an op is the last of GELU's and its
/// result is rounded: `x * 0.5 * (erf(x * 0.7071) + 1)`, the factors in any order.
pub(crate) fn find(func: &Func, demanded: &DemandedPrecision, op: Op) -> Option<(Value, u32)> {
    let data = func.op(op);
    let (OpKind::Binary(BinaryOp::Mul), &[a, b]) = (&data.kind, &data.operands[..]) else {
        return None;
    };
    let bits = demanded.bits(data.results[0])?;
    if func.tile(a).dtype() != DType::F32 {
        return None;
    }
    let x = gelu_of(func, a, b).or_else(|| gelu_of(func, b, a))?;
    Some((x, bits))
}

fn gelu_of(func: &Func, half: Value, cdf: Value) -> Option<Value> {
    let x = by_constant(func, half, BinaryOp::Mul, 0.5)?;
    let erf = func.op(func.def_op(by_constant(func, cdf, BinaryOp::Add, 1.0)?)?);
    let inner = matches!(erf.kind, OpKind::Unary(UnaryOp::Erf)).then(|| erf.operands[0])?;
    let other = by_constant(func, inner, BinaryOp::Mul, std::f64::consts::FRAC_1_SQRT_2)?;
    (other == x).then_some(x)
}

/// The operand that a value is an op of with this constant, as f32.
fn by_constant(func: &Func, value: Value, op: BinaryOp, constant: f64) -> Option<Value> {
    let data = func.op(func.def_op(value)?);
    let &[a, b] = &data.operands[..] else { return None };
    if data.kind != OpKind::Binary(op) {
        return None;
    }
    let is = |v: Value| func.as_const(v).is_some_and(|c| c.to_f64() as f32 == constant as f32);
    if is(b) { Some(a) } else { is(a).then_some(b) }
}

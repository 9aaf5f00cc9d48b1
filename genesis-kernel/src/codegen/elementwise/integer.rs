//! Arithmetic of integers: what LLVM leaves undefined is guarded.

use super::super::llvm::{Emitter, IntPred, Val};
use crate::ir::{BinaryOp, DType};

pub(super) fn int_binary(e: &Emitter, op: BinaryOp, dtype: DType, a: Val, b: Val) -> Val {
    let signed = dtype.is_signed_int();
    let call = |name| e.intrinsic(name, &[e.type_of(a)], &[a, b]);
    match op {
        BinaryOp::Add => e.add(a, b),
        BinaryOp::Sub => e.sub(a, b),
        BinaryOp::Mul => e.mul(a, b),
        BinaryOp::Div => divide(e, signed, a, b),
        BinaryOp::Rem => remainder(e, signed, a, b),
        BinaryOp::And => e.and(a, b),
        BinaryOp::Or => e.or(a, b),
        BinaryOp::Xor => e.xor(a, b),
        BinaryOp::Shl => e.shl(a, shift_amount(e, b)),
        BinaryOp::Shr if signed => e.ashr(a, shift_amount(e, b)),
        BinaryOp::Shr => e.lshr(a, shift_amount(e, b)),
        BinaryOp::Min | BinaryOp::MinNum => call(if signed { "llvm.smin" } else { "llvm.umin" }),
        BinaryOp::Max | BinaryOp::MaxNum => call(if signed { "llvm.smax" } else { "llvm.umax" }),
        BinaryOp::MulHi => mul_hi(e, signed, a, b),
        BinaryOp::Short => a,
    }
}

fn shift_amount(e: &Emitter, amount: Val) -> Val {
    let ty = e.type_of(amount);
    e.and(amount, e.int(ty, i64::from(e.int_bits(ty)) - 1))
}

/// A divisor that neither traps nor overflows, and whether the real one is zero. `MIN / -1` becomes
/// `MIN / 1`, which is what it wraps to, and `MIN % -1` becomes `MIN % 1`, which is 0.
fn safe_divisor(e: &Emitter, signed: bool, a: Val, b: Val) -> (Val, Val) {
    let ty = e.type_of(b);
    let is_zero = e.icmp(IntPred::Eq, b, e.zero(ty));
    let mut replace = is_zero;
    if signed {
        let min = e.int(ty, i64::MIN >> (64 - e.int_bits(ty)));
        let overflows = e.and(e.icmp(IntPred::Eq, a, min), e.icmp(IntPred::Eq, b, e.int(ty, -1)));
        replace = e.or(is_zero, overflows);
    }
    (e.select(replace, e.int(ty, 1), b), is_zero)
}

fn divide(e: &Emitter, signed: bool, a: Val, b: Val) -> Val {
    let (divisor, is_zero) = safe_divisor(e, signed, a, b);
    let quotient = if signed { e.sdiv(a, divisor) } else { e.udiv(a, divisor) };
    e.select(is_zero, e.zero(e.type_of(a)), quotient)
}

fn remainder(e: &Emitter, signed: bool, a: Val, b: Val) -> Val {
    let (divisor, is_zero) = safe_divisor(e, signed, a, b);
    let rest = if signed { e.srem(a, divisor) } else { e.urem(a, divisor) };
    e.select(is_zero, a, rest)
}

pub(super) fn mul_hi(e: &Emitter, signed: bool, a: Val, b: Val) -> Val {
    let ty = e.type_of(a);
    let bits = e.int_bits(ty);
    let wide = e.vec(e.int_ty(bits * 2), e.lanes(ty));
    let extend = |x| if signed { e.sext(x, wide) } else { e.zext(x, wide) };
    let product = e.mul(extend(a), extend(b));
    e.trunc(e.lshr(product, e.int(wide, i64::from(bits))), ty)
}

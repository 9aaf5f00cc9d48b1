//! Conversions between dtypes: saturating, wrapping, and rounded once to nearest even.
//!
//! bf16, f16 and floats of 8 bits are reached from f32. What f32 can't hold exactly goes there rounded *to odd*: the last
//! bit is set wherever anything was cut off, so that the second rounding sees which side of a tie it is
//! on and the pair is one correct rounding.

use super::super::llvm::{Emitter, FloatPred, IntPred, Val};
use super::float8;
use super::target::{Target, is_half, with_lanes_of};
use crate::ir::DType;

/// To another dtype: float to int saturates and NaN gives 0, int to int wraps, to bool is `!= 0`.
pub(crate) fn cast(e: &Emitter, target: Target, x: Val, from: DType, to: DType) -> Val {
    match (from, to) {
        _ if from == to => x,
        (DType::F8E4M3 | DType::F8E5M2, DType::F32) => float8::widen(e, x, from),
        (DType::F8E4M3 | DType::F8E5M2, _) => {
            cast(e, target, float8::widen(e, x, from), DType::F32, to)
        }
        (DType::F16 | DType::BF16, DType::F32) => widen_half(e, target, x, from),
        (DType::F16 | DType::BF16, _) => {
            cast(e, target, widen_half(e, target, x, from), DType::F32, to)
        }
        (DType::F32, DType::F16 | DType::BF16) => narrow_half(e, target, x, to),
        (DType::F32, DType::F8E4M3 | DType::F8E5M2) => float8::narrow(e, x, to),
        (_, DType::F8E4M3 | DType::F8E5M2) => float8::narrow(e, to_odd_f32(e, x, from, to), to),
        (_, DType::F16 | DType::BF16) => narrow_half(e, target, to_odd_f32(e, x, from, to), to),
        (_, DType::Bool) => is_nonzero(e, x, from),
        (DType::F32, DType::F64) => e.fpext(x, with_lanes_of(e, e.f64(), x)),
        (DType::F64, DType::F32) => e.fptrunc(x, with_lanes_of(e, e.f32(), x)),
        (DType::F32 | DType::F64, _) => saturate(e, target, x, to),
        (_, DType::F32 | DType::F64) => int_to_float(e, x, from, to),
        _ => resize(e, x, from, to),
    }
}

/// The same bits as another dtype of the same width.
///
/// For NVPTX, bits that become a float of 16 bits pass through a `mov` that LLVM does not see through. LLVM 22
/// takes a comparison with zero of `bitcast half to bfloat` for one of an integer, and makes `and half` of it.
pub(crate) fn bitcast(e: &Emitter, target: Target, x: Val, to: DType) -> Val {
    let y = e.bitcast(x, with_lanes_of(e, e.register_ty(to), x));
    match (target, e.lanes(e.type_of(y))) {
        (Target::Nvptx, 1) if is_half(to) => {
            e.inline_asm(e.i16(), "mov.b16 $0, $1;", "=h,h", &[y], false)
        }
        _ => y,
    }
}

fn is_nonzero(e: &Emitter, x: Val, from: DType) -> Val {
    let zero = e.zero(e.type_of(x));
    if from.is_float() { e.fcmp(FloatPred::Une, x, zero) } else { e.icmp(IntPred::Ne, x, zero) }
}

fn saturate(e: &Emitter, target: Target, x: Val, to: DType) -> Val {
    let result = with_lanes_of(e, e.register_ty(to), x);
    if target == Target::Host && e.lanes(result) > 1 {
        return saturate_lanes(e, x, to);
    }
    let name = if to.is_signed_int() { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
    e.intrinsic(name, &[result, e.type_of(x)], &[x])
}

/// The same by comparisons: LLVM's intrinsic takes vectors apart on the host.
fn saturate_lanes(e: &Emitter, x: Val, to: DType) -> Val {
    let (floats, ints) = (e.type_of(x), with_lanes_of(e, e.register_ty(to), x));
    let signed = to.is_signed_int();
    let bits = to.bits() - u32::from(signed);
    // Both limits are powers of two, so exact: what is below `high` and not below `low` fits.
    let high = e.float(floats, 2f64.powi(bits as i32));
    let low = e.float(floats, if signed { -2f64.powi(bits as i32) } else { 0.0 });
    let smallest = if signed { i64::MIN >> (63 - bits) } else { 0 };
    let largest = if signed { !smallest } else { -1 };
    let below = e.fcmp(FloatPred::Olt, x, low);
    let above = e.fcmp(FloatPred::Oge, x, high);
    let is_nan = e.fcmp(FloatPred::Uno, x, x);
    // What does not fit gives some number here, which the selects replace.
    let converted = e.freeze(if signed { e.fptosi(x, ints) } else { e.fptoui(x, ints) });
    let converted = e.select(is_nan, e.zero(ints), converted);
    let converted = e.select(above, e.int(ints, largest), converted);
    e.select(below, e.int(ints, smallest), converted)
}

fn int_to_float(e: &Emitter, x: Val, from: DType, to: DType) -> Val {
    let result = with_lanes_of(e, e.register_ty(to), x);
    if from.is_signed_int() { e.sitofp(x, result) } else { e.uitofp(x, result) }
}

fn resize(e: &Emitter, x: Val, from: DType, to: DType) -> Val {
    let result = with_lanes_of(e, e.register_ty(to), x);
    match (from.bits(), to.bits()) {
        (a, b) if a == b => x,
        (a, b) if a > b => e.trunc(x, result),
        _ if from.is_signed_int() => e.sext(x, result),
        _ => e.zext(x, result),
    }
}

fn widen_half(e: &Emitter, target: Target, x: Val, from: DType) -> Val {
    let f32s = with_lanes_of(e, e.f32(), x);
    if from == DType::F16 {
        return e.fpext(e.bitcast(x, with_lanes_of(e, e.f16(), x)), f32s);
    }
    if target == Target::Nvptx {
        return e.fpext(e.bitcast(x, with_lanes_of(e, e.bf16(), x)), f32s);
    }
    let i32s = with_lanes_of(e, e.i32(), x);
    e.bitcast(e.shl(e.zext(x, i32s), e.int(i32s, 16)), f32s)
}

fn narrow_half(e: &Emitter, target: Target, x: Val, to: DType) -> Val {
    let i16s = with_lanes_of(e, e.i16(), x);
    if to == DType::F16 {
        return e.bitcast(e.fptrunc(x, with_lanes_of(e, e.f16(), x)), i16s);
    }
    if target == Target::Nvptx {
        return e.bitcast(e.fptrunc(x, with_lanes_of(e, e.bf16(), x)), i16s);
    }
    // By integers, since the processor's own instruction flushes subnormal numbers to zero.
    let i32s = with_lanes_of(e, e.i32(), x);
    let bits = e.bitcast(x, i32s);
    let upper = e.lshr(bits, e.int(i32s, 16));
    let tie = e.add(e.int(i32s, 0x7fff), e.and(upper, e.int(i32s, 1)));
    let rounded = e.lshr(e.add(bits, tie), e.int(i32s, 16));
    let quiet = e.or(upper, e.int(i32s, 0x40));
    let is_nan = e.fcmp(FloatPred::Uno, x, x);
    e.trunc(e.select(is_nan, quiet, rounded), i16s)
}

/// An f32 from which rounding to a shorter float gives what rounding `x` itself would give.
fn to_odd_f32(e: &Emitter, x: Val, from: DType, to: DType) -> Val {
    debug_assert!((is_half(to) || to.is_f8()) && from != DType::F32);
    // An integer that f32 can't hold exactly is over the largest number of all but bf16 anyway.
    if from.bits() <= 16 || (from != DType::F64 && to != DType::BF16) {
        return int_to_float(e, x, from, DType::F32);
    }
    if from == DType::F64 {
        return f64_to_odd_f32(e, x);
    }
    let exact = if from.bits() == 64 { compress(e, x, from) } else { x };
    f64_to_odd_f32(e, int_to_float(e, exact, from, DType::F64))
}

/// A 64-bit integer with the low 16 bits gathered into one, where it has more than the 53 bits that an
/// f64 holds; those bits are far below what a bf16 keeps.
fn compress(e: &Emitter, x: Val, from: DType) -> Val {
    let ty = e.type_of(x);
    let low = e.and(x, e.int(ty, 0xffff));
    let any = e.icmp(IntPred::Ne, low, e.zero(ty));
    let sticky = e.select(any, e.int(ty, 0x8000), e.zero(ty));
    let gathered = e.or(e.and(x, e.int(ty, !0xffff)), sticky);
    let magnitude = match from {
        DType::I64 => e.intrinsic("llvm.abs", &[ty], &[x, e.bool(false)]),
        _ => x,
    };
    let is_large = e.icmp(IntPred::Ugt, magnitude, e.int(ty, 1 << 48));
    e.select(is_large, gathered, x)
}

fn f64_to_odd_f32(e: &Emitter, x: Val) -> Val {
    let (f32s, i32s) = (with_lanes_of(e, e.f32(), x), with_lanes_of(e, e.i32(), x));
    let nearest = e.fptrunc(x, f32s);
    let back = e.fpext(nearest, e.type_of(x));
    let abs = |v| e.intrinsic("llvm.fabs", &[e.type_of(v)], &[v]);
    let is_above = e.fcmp(FloatPred::Ogt, abs(back), abs(x));
    let is_inexact = e.fcmp(FloatPred::One, back, x);
    let bits = e.bitcast(nearest, i32s);
    let toward_zero = e.sub(bits, e.zext(is_above, i32s));
    let odd = e.or(toward_zero, e.int(i32s, 1));
    e.bitcast(e.select(is_inexact, odd, bits), f32s)
}

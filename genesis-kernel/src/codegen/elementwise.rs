//! Elementwise ops of tile IR as LLVM instructions, for a scalar or a vector of any number of lanes.
//!
//! Both back ends lower through this file, so that an op means the same on each. What LLVM leaves
//! undefined is guarded here: division by zero, shifts by the width, floats that do not fit an integer.
//! Values have register types ([`Emitter::register_ty`]): f16 and bf16 are `i16` that are widened to
//! f32 for every operation and rounded once after it; floats of 8 bits are `i8` that are only cast and
//! compared.
//!
//! What is not in the tables below never reaches LLVM, which ends the process on some of its own
//! intrinsics: transcendental functions are polynomials long before they come here.

mod cast;
mod far;
mod float8;
mod inline_asm;
mod integer;
mod target;

use self::far::Turned;
use self::integer::int_binary;
use self::target::{is_half, with_lanes_of};
use super::llvm::{Emitter, FloatPred, IntPred, Val};
use crate::Error;
use crate::ir::{BinaryOp, DType, Func, Op, OpKind, Predicate, UnaryOp};

pub(crate) use cast::{bitcast, cast};
pub(crate) use inline_asm::packed as packed_asm;
pub(crate) use target::Target;

/// One elementwise op on operands that are already LLVM values.
///
/// # Errors
/// If code generation does not know the op for this dtype: a pass should have expanded it.
pub(crate) fn lower(
    e: &Emitter,
    target: Target,
    func: &Func,
    op: Op,
    operands: &[Val],
) -> Result<Val, Error> {
    let data = func.op(op);
    let dtype = |i: usize| func.tile(data.operands[i]).dtype();
    let result = || func.tile(data.results[0]).dtype();
    match &data.kind {
        OpKind::Unary(unary_op) => unary(e, target, *unary_op, dtype(0), operands[0]),
        OpKind::Binary(binary_op) => binary(e, target, *binary_op, dtype(0), operands),
        OpKind::Compare(predicate) if func.tile(data.operands[0]).is_ptr() => {
            Ok(e.icmp(int_predicate(*predicate, false), operands[0], operands[1]))
        }
        OpKind::Compare(predicate) => Ok(compare(e, target, *predicate, dtype(0), operands)),
        OpKind::Select => Ok(e.select(operands[0], operands[1], operands[2])),
        OpKind::Fma => fma(e, target, dtype(0), operands),
        OpKind::Asm { .. } => inline_asm::lower(e, target, func, op, operands),
        OpKind::Cast => Ok(cast(e, target, operands[0], dtype(0), result())),
        OpKind::Bitcast => Ok(bitcast(e, target, operands[0], result())),
        OpKind::PtrAdd => Ok(e.gep(e.memory_ty(dtype(0)), operands[0], operands[1])),
        OpKind::MultipleOf(_) => Ok(operands[0]),
        kind => Err(Error::bug(format!("{kind:?} is not elementwise"))),
    }
}

fn unknown(op: impl std::fmt::Debug, dtype: DType) -> Error {
    Error::bug(format!("{op:?} of {dtype} reached code generation"))
}

/// The operands as f32.
fn widen(e: &Emitter, target: Target, dtype: DType, operands: &[Val]) -> Vec<Val> {
    operands.iter().map(|&x| cast(e, target, x, dtype, DType::F32)).collect()
}

/// An op of one operand.
pub(crate) fn unary(
    e: &Emitter,
    target: Target,
    op: UnaryOp,
    dtype: DType,
    x: Val,
) -> Result<Val, Error> {
    if is_half(dtype) {
        let wide = unary(e, target, op, DType::F32, cast(e, target, x, dtype, DType::F32))?;
        return Ok(cast(e, target, wide, DType::F32, dtype));
    }
    let ty = e.type_of(x);
    let call = |name| Ok(e.intrinsic(name, &[ty], &[x]));
    match op {
        UnaryOp::Not if !dtype.is_float() => Ok(e.not(x)),
        UnaryOp::Neg if dtype.is_float() => Ok(e.fneg(x)),
        UnaryOp::Neg if dtype.is_int() => Ok(e.sub(e.zero(ty), x)),
        UnaryOp::Abs if dtype.is_float() => call("llvm.fabs"),
        UnaryOp::Abs if dtype.is_signed_int() => {
            Ok(e.intrinsic("llvm.abs", &[ty], &[x, e.bool(false)]))
        }
        UnaryOp::Abs if dtype.is_int() => Ok(x),
        UnaryOp::Sqrt if dtype.is_float() => call("llvm.sqrt"),
        UnaryOp::Rsqrt if dtype.is_float() => {
            Ok(e.fdiv(e.float(ty, 1.0), e.intrinsic("llvm.sqrt", &[ty], &[x])))
        }
        UnaryOp::Floor if dtype.is_float() => call("llvm.floor"),
        UnaryOp::Ceil if dtype.is_float() => call("llvm.ceil"),
        UnaryOp::Round if dtype.is_float() => call("llvm.roundeven"),
        UnaryOp::Trunc if dtype.is_float() => call("llvm.trunc"),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc if dtype.is_int() => Ok(x),
        UnaryOp::PopCount if dtype.is_int() => call("llvm.ctpop"),
        UnaryOp::LeadingZeros if dtype.is_int() => {
            Ok(e.intrinsic("llvm.ctlz", &[ty], &[x, e.bool(false)]))
        }
        // The one LLVM intrinsic for it that the target's code generator selects as its instruction.
        UnaryOp::Exp2Approx if dtype == DType::F32 && target == Target::Nvptx => call("llvm.exp2"),
        UnaryOp::Exp2Flush if dtype == DType::F32 && target == Target::Nvptx => {
            Ok(e.inline_asm(ty, "ex2.approx.ftz.f32 $0, $1;", "=f,f", &[x], false))
        }
        UnaryOp::RecipApprox if dtype == DType::F32 && target == Target::Nvptx => {
            Ok(e.inline_asm(ty, "rcp.approx.ftz.f32 $0, $1;", "=f,f", &[x], false))
        }
        UnaryOp::SqrtApprox if dtype == DType::F32 && target == Target::Nvptx => {
            Ok(e.inline_asm(ty, "sqrt.approx.ftz.f32 $0, $1;", "=f,f", &[x], false))
        }
        UnaryOp::Log2Flush if dtype == DType::F32 && target == Target::Nvptx => {
            Ok(e.inline_asm(ty, "lg2.approx.ftz.f32 $0, $1;", "=f,f", &[x], false))
        }
        // Subnormal numbers have a logarithm.
        UnaryOp::Log2Approx if dtype == DType::F32 && target == Target::Nvptx => {
            Ok(e.inline_asm(ty, "lg2.approx.f32 $0, $1;", "=f,f", &[x], false))
        }
        UnaryOp::SinFar if dtype.is_float() => Ok(far::turned(e, target, dtype, x, Turned::Sine)),
        UnaryOp::CosFar if dtype.is_float() => Ok(far::turned(e, target, dtype, x, Turned::Cosine)),
        UnaryOp::TanFar if dtype.is_float() => {
            Ok(far::turned(e, target, dtype, x, Turned::Tangent))
        }
        _ => Err(unknown(op, dtype)),
    }
}

/// An op of two operands of one type.
pub(crate) fn binary(
    e: &Emitter,
    target: Target,
    op: BinaryOp,
    dtype: DType,
    operands: &[Val],
) -> Result<Val, Error> {
    if is_half(dtype) {
        let wide = widen(e, target, dtype, operands);
        let result = binary(e, target, op, DType::F32, &wide)?;
        return Ok(cast(e, target, result, DType::F32, dtype));
    }
    let (a, b) = (operands[0], operands[1]);
    match dtype {
        DType::Bool => bool_binary(e, op, a, b),
        DType::F32 | DType::F64 => float_binary(e, target, op, dtype, a, b),
        _ => Ok(int_binary(e, op, dtype, a, b)),
    }
}

fn bool_binary(e: &Emitter, op: BinaryOp, a: Val, b: Val) -> Result<Val, Error> {
    match op {
        BinaryOp::And | BinaryOp::Min | BinaryOp::MinNum | BinaryOp::Mul => Ok(e.and(a, b)),
        BinaryOp::Or | BinaryOp::Max | BinaryOp::MaxNum => Ok(e.or(a, b)),
        // The integers modulo 2.
        BinaryOp::Xor | BinaryOp::Add | BinaryOp::Sub => Ok(e.xor(a, b)),
        BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::MulHi
        | BinaryOp::Short => Err(unknown(op, DType::Bool)),
    }
}

fn float_binary(
    e: &Emitter,
    target: Target,
    op: BinaryOp,
    dtype: DType,
    a: Val,
    b: Val,
) -> Result<Val, Error> {
    let call = |name| Ok(e.intrinsic(name, &[e.type_of(a)], &[a, b]));
    match op {
        BinaryOp::Add => Ok(e.fadd(a, b)),
        BinaryOp::Sub => Ok(e.fsub(a, b)),
        BinaryOp::Mul => Ok(e.fmul(a, b)),
        BinaryOp::Div => Ok(e.fdiv(a, b)),
        BinaryOp::Rem => Ok(far::remainder(e, target, dtype, a, b)),
        BinaryOp::Min => call("llvm.minimum"),
        BinaryOp::Max => call("llvm.maximum"),
        BinaryOp::MinNum | BinaryOp::MaxNum => Ok(extreme_number(e, target, op, a, b)),
        BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::MulHi
        | BinaryOp::Short => Err(unknown(op, dtype)),
    }
}

/// The larger or smaller of two floats; where one is NaN the other.
///
/// The x86 back end of LLVM 22 gives NaN for two scalars of which one is NaN and the other, as it is of an
/// integer, known not to be (`vfpclass` sorts them, for AVX-512). It does not look at vectors.
fn extreme_number(e: &Emitter, target: Target, op: BinaryOp, a: Val, b: Val) -> Val {
    let is_least = op == BinaryOp::MinNum;
    let ty = e.type_of(a);
    if target != Target::Host || e.lanes(ty) > 1 {
        let name = if is_least { "llvm.minimumnum" } else { "llvm.maximumnum" };
        return e.intrinsic(name, &[ty], &[a, b]);
    }
    let name = if is_least { "llvm.minimum" } else { "llvm.maximum" };
    let is_nan = |x| e.fcmp(FloatPred::Uno, x, x);
    let of_two = e.intrinsic(name, &[ty], &[a, b]);
    e.select(is_nan(a), b, e.select(is_nan(b), a, of_two))
}

/// `a * b + c`, rounded once for floats.
pub(crate) fn fma(
    e: &Emitter,
    target: Target,
    dtype: DType,
    operands: &[Val],
) -> Result<Val, Error> {
    match dtype {
        DType::F16 | DType::BF16 => {
            let wide = widen(e, target, dtype, operands);
            let result = fma(e, target, DType::F32, &wide)?;
            Ok(cast(e, target, result, DType::F32, dtype))
        }
        DType::F32 | DType::F64 => Ok(e.intrinsic("llvm.fma", &[e.type_of(operands[0])], operands)),
        DType::Bool => Err(unknown(OpKind::Fma, dtype)),
        _ => Ok(e.add(e.mul(operands[0], operands[1]), operands[2])),
    }
}

/// A comparison of two operands of one type; only `Ne` is true for NaN.
pub(crate) fn compare(
    e: &Emitter,
    target: Target,
    predicate: Predicate,
    dtype: DType,
    operands: &[Val],
) -> Val {
    if is_half(dtype) || dtype.is_f8() {
        let wide = widen(e, target, dtype, operands);
        return compare(e, target, predicate, DType::F32, &wide);
    }
    let (a, b) = (operands[0], operands[1]);
    if dtype.is_float() {
        let ordered = match predicate {
            Predicate::Eq => FloatPred::Oeq,
            Predicate::Ne => FloatPred::Une,
            Predicate::Lt => FloatPred::Olt,
            Predicate::Le => FloatPred::Ole,
            Predicate::Gt => FloatPred::Ogt,
            Predicate::Ge => FloatPred::Oge,
        };
        return e.fcmp(ordered, a, b);
    }
    e.icmp(int_predicate(predicate, dtype.is_signed_int()), a, b)
}

fn int_predicate(predicate: Predicate, signed: bool) -> IntPred {
    match (predicate, signed) {
        (Predicate::Eq, _) => IntPred::Eq,
        (Predicate::Ne, _) => IntPred::Ne,
        (Predicate::Lt, true) => IntPred::Slt,
        (Predicate::Le, true) => IntPred::Sle,
        (Predicate::Gt, true) => IntPred::Sgt,
        (Predicate::Ge, true) => IntPred::Sge,
        (Predicate::Lt, false) => IntPred::Ult,
        (Predicate::Le, false) => IntPred::Ule,
        (Predicate::Gt, false) => IntPred::Ugt,
        (Predicate::Ge, false) => IntPred::Uge,
    }
}

/// A register value as memory holds it: bool becomes a byte of 0 or 1.
pub(crate) fn to_memory(e: &Emitter, dtype: DType, x: Val) -> Val {
    if dtype == DType::Bool { e.zext(x, with_lanes_of(e, e.i8(), x)) } else { x }
}

/// A memory value as registers hold it: any byte but 0 is true.
pub(crate) fn from_memory(e: &Emitter, dtype: DType, x: Val) -> Val {
    if dtype == DType::Bool { e.icmp(IntPred::Ne, x, e.zero(e.type_of(x))) } else { x }
}

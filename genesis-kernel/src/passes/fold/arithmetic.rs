//! Identities of elementwise ops.

use super::super::rewrite::Rewriter;
use super::shapes::is_int;
use crate::ir::{
    BinaryOp, DType, Func, Op, OpKind, Predicate, Scalar, TileType, UnaryOp, Value, scalar,
};

pub(super) const TRUE: Scalar = Scalar { dtype: DType::Bool, bits: 1 };

pub(super) const FALSE: Scalar = Scalar { dtype: DType::Bool, bits: 0 };

/// A value that the op's result equals in every bit.
pub(super) fn simplify(cx: &mut Rewriter<'_>, op: Op) -> Option<Value> {
    constants_last(cx.func, op);
    let data = cx.func.op(op);
    let ty = cx.func.tile(data.results[0]);
    match (&data.kind, data.operands.as_slice()) {
        (OpKind::Unary(unary_op), &[x]) => unary(cx.func, *unary_op, x),
        (OpKind::Binary(binary_op), &[a, b]) => binary(cx, *binary_op, a, b, ty),
        (OpKind::Compare(predicate), &[a, b]) => compare(cx, *predicate, a, b, ty),
        (OpKind::Select, &[cond, a, b]) => select(cx, cond, a, b),
        (OpKind::Cast, &[x]) => cast(cx, x, ty.dtype()),
        (OpKind::Bitcast, &[x]) => {
            let source = of_kind(cx.func, x, &OpKind::Bitcast)?;
            Some(cx.builder().bitcast(source, ty.dtype()))
        }
        (OpKind::PtrAdd, &[ptr, offset]) => pointer(cx, ptr, offset),
        (OpKind::MultipleOf(0 | 1), &[x]) => Some(x),
        _ => None,
    }
}

/// The operand of the op that defines a value, where that op is of this kind.
fn of_kind(func: &Func, value: Value, kind: &OpKind) -> Option<Value> {
    let op = func.op(func.def_op(value)?);
    (op.kind == *kind).then(|| op.operands[0])
}

/// Puts a constant to the right where the order makes no difference.
fn constants_last(func: &mut Func, op: Op) {
    let data = func.op(op);
    let &[a, b] = data.operands.as_slice() else { return };
    if func.ty(a) != func.ty(b) || func.as_const(a).is_none() || func.as_const(b).is_some() {
        return;
    }
    let kind = match &data.kind {
        OpKind::Binary(binary_op) if is_commutative(*binary_op) => data.kind.clone(),
        OpKind::Compare(predicate) => OpKind::Compare(swapped(*predicate)),
        _ => return,
    };
    let data = func.op_mut(op);
    data.kind = kind;
    data.operands.swap(0, 1);
}

fn is_commutative(op: BinaryOp) -> bool {
    match op {
        BinaryOp::Add
        | BinaryOp::Mul
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNum
        | BinaryOp::MaxNum
        | BinaryOp::MulHi => true,
        BinaryOp::Sub
        | BinaryOp::Div
        | BinaryOp::Rem
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Short => false,
    }
}

fn swapped(predicate: Predicate) -> Predicate {
    match predicate {
        Predicate::Eq => Predicate::Eq,
        Predicate::Ne => Predicate::Ne,
        Predicate::Lt => Predicate::Gt,
        Predicate::Le => Predicate::Ge,
        Predicate::Gt => Predicate::Lt,
        Predicate::Ge => Predicate::Le,
    }
}

fn unary(func: &Func, op: UnaryOp, x: Value) -> Option<Value> {
    let same = |other| of_kind(func, x, &OpKind::Unary(other));
    match op {
        UnaryOp::Neg => same(UnaryOp::Neg),
        UnaryOp::Not => same(UnaryOp::Not),
        UnaryOp::Abs => same(UnaryOp::Abs).map(|_| x),
        _ => None,
    }
}

fn binary(cx: &mut Rewriter<'_>, op: BinaryOp, a: Value, b: Value, ty: TileType) -> Option<Value> {
    if a == b && is_idempotent(op) {
        return Some(a);
    }
    match ty.dtype() {
        DType::Bool => bool_binary(cx, op, a, b),
        dtype if dtype.is_float() => float_binary(cx, op, a, b),
        _ => int_binary(cx, op, a, b, ty),
    }
}

fn is_idempotent(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::MinNum
            | BinaryOp::MaxNum
    )
}

fn bool_binary(cx: &mut Rewriter<'_>, op: BinaryOp, a: Value, b: Value) -> Option<Value> {
    match (op, cx.func.as_const(b)?) {
        (BinaryOp::And, TRUE) | (BinaryOp::Or | BinaryOp::Xor, FALSE) => Some(a),
        (BinaryOp::And, FALSE) | (BinaryOp::Or, TRUE) => Some(b),
        (BinaryOp::Xor, TRUE) => Some(cx.builder().unary(UnaryOp::Not, a)),
        _ => None,
    }
}

fn int_binary(
    cx: &mut Rewriter<'_>,
    op: BinaryOp,
    a: Value,
    b: Value,
    ty: TileType,
) -> Option<Value> {
    if a == b && matches!(op, BinaryOp::Sub | BinaryOp::Xor) {
        return Some(cx.full(Scalar::zero(ty.dtype()), ty));
    }
    let constant = cx.func.as_const(b);
    constant?;
    let (zero, one) = (is_int(constant, 0), is_int(constant, 1));
    let all = is_int(constant, -1);
    match op {
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
            if zero =>
        {
            Some(a)
        }
        BinaryOp::Mul | BinaryOp::Div if one => Some(a),
        BinaryOp::And if all => Some(a),
        BinaryOp::Mul | BinaryOp::And if zero => Some(b),
        BinaryOp::Or if all => Some(b),
        BinaryOp::Rem if one => Some(cx.full(Scalar::zero(ty.dtype()), ty)),
        BinaryOp::Add | BinaryOp::Mul => chained(cx, op, a, b, ty),
        _ => None,
    }
}

/// `(x + 1) + 2` is `x + 3`, where integers wrap.
fn chained(cx: &mut Rewriter<'_>, op: BinaryOp, a: Value, b: Value, ty: TileType) -> Option<Value> {
    let inner = cx.func.op(cx.func.def_op(a)?);
    if inner.kind != OpKind::Binary(op) {
        return None;
    }
    let x = inner.operands[0];
    let both = scalar::binary(op, cx.func.as_const(inner.operands[1])?, cx.func.as_const(b)?);
    let both = cx.full(both, ty);
    Some(cx.builder().binary(op, x, both))
}

fn float_binary(cx: &mut Rewriter<'_>, op: BinaryOp, a: Value, b: Value) -> Option<Value> {
    let constant = cx.func.as_const(b)?;
    let value = constant.to_f64();
    let is_zero = value == 0.0;
    match op {
        BinaryOp::Mul | BinaryOp::Div if value == 1.0 => Some(a),
        BinaryOp::Mul | BinaryOp::Div if value == -1.0 => Some(cx.builder().unary(UnaryOp::Neg, a)),
        BinaryOp::Add if is_zero && value.is_sign_negative() => Some(a),
        BinaryOp::Sub if is_zero && value.is_sign_positive() => Some(a),
        BinaryOp::Div => {
            let reciprocal = exact_reciprocal(constant)?;
            let ty = cx.func.tile(b);
            let factor = cx.full(reciprocal, ty);
            Some(cx.builder().binary(BinaryOp::Mul, a, factor))
        }
        _ => None,
    }
}

/// The reciprocal of a power of two, where both are normal numbers.
fn exact_reciprocal(constant: Scalar) -> Option<Scalar> {
    let value = constant.to_f64();
    let is_power = value.is_normal() && value.to_bits() << 12 == 0;
    // f16 has the smallest range: 2^-14 to 2^15.
    let is_small = (2f64.powi(-14)..=2f64.powi(14)).contains(&value.abs());
    (is_power && is_small).then(|| Scalar::float(constant.dtype, 1.0 / value))
}

fn compare(
    cx: &mut Rewriter<'_>,
    predicate: Predicate,
    a: Value,
    b: Value,
    ty: TileType,
) -> Option<Value> {
    let operand = cx.func.tile(a);
    if a != b || operand.is_ptr() || operand.dtype().is_float() {
        return None;
    }
    let result = matches!(predicate, Predicate::Eq | Predicate::Le | Predicate::Ge);
    Some(cx.full(if result { TRUE } else { FALSE }, ty))
}

fn select(cx: &mut Rewriter<'_>, cond: Value, a: Value, b: Value) -> Option<Value> {
    if a == b {
        return Some(a);
    }
    if let Some(cond) = cx.func.as_const(cond) {
        return Some(if cond == TRUE { a } else { b });
    }
    match (cx.func.as_const(a), cx.func.as_const(b)) {
        (Some(TRUE), Some(FALSE)) => return Some(cond),
        (Some(FALSE), Some(TRUE)) => return Some(cx.builder().unary(UnaryOp::Not, cond)),
        _ => {}
    }
    let opposite = of_kind(cx.func, cond, &OpKind::Unary(UnaryOp::Not))?;
    Some(cx.builder().select(opposite, b, a))
}

/// A cast to its own dtype, or after a cast that lost nothing.
fn cast(cx: &mut Rewriter<'_>, x: Value, to: DType) -> Option<Value> {
    if cx.func.tile(x).dtype() == to {
        return Some(x);
    }
    let source = of_kind(cx.func, x, &OpKind::Cast)?;
    let (from, middle) = (cx.func.tile(source).dtype(), cx.func.tile(x).dtype());
    // A float saturates to an integer where an integer would have wrapped.
    let saturates = !from.is_float() && middle.is_float() && to.is_int() && !holds_every(to, from);
    (holds_every(middle, from) && !saturates).then(|| cx.builder().cast(source, to))
}

/// Whether `wide` has every value of `narrow`.
fn holds_every(wide: DType, narrow: DType) -> bool {
    if narrow == DType::Bool {
        return true;
    }
    // The bits of a number of either sign, and of the fraction of a float.
    let digits = |dtype: DType| match dtype {
        DType::F8E4M3 => 4,
        DType::F8E5M2 => 3,
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        DType::F64 => 53,
        dtype if dtype.is_signed_int() => dtype.bits() - 1,
        dtype => dtype.bits(),
    };
    match (narrow.is_float(), wide.is_float()) {
        (true, true) => {
            digits(narrow) < digits(wide)
                && !wide.is_f8()
                && (narrow, wide) != (DType::BF16, DType::F16)
        }
        (true, false) => false,
        // Of the floats with a small range, no integer of their digits leaves it.
        (false, true) => digits(narrow) <= digits(wide),
        (false, false) => {
            digits(narrow) <= digits(wide)
                && wide != DType::Bool
                && (wide.is_signed_int() || narrow.is_unsigned_int())
        }
    }
}

/// A pointer moved by nothing.
fn pointer(cx: &Rewriter<'_>, ptr: Value, offset: Value) -> Option<Value> {
    is_int(cx.func.as_const(offset), 0).then_some(ptr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_what_agrees_with_casting() {
        for wide in DType::ALL {
            for narrow in DType::ALL.into_iter().filter(|d| !d.is_float()) {
                let width = narrow.bits().min(63);
                let ends = [0, 1, (1i64 << (width - 1)) - 1, -1, i64::MIN, i64::MAX];
                let kept = ends.iter().all(|&v| {
                    let x = Scalar::int(narrow, v);
                    scalar::cast(scalar::cast(x, wide), narrow) == x
                        && scalar::cast(x, DType::F64)
                            == scalar::cast(scalar::cast(x, wide), DType::F64)
                });
                assert!(kept || !holds_every(wide, narrow), "{narrow} in {wide}");
            }
        }
        assert!(holds_every(DType::F32, DType::BF16) && !holds_every(DType::F16, DType::BF16));
        assert!(holds_every(DType::I64, DType::U32) && !holds_every(DType::U64, DType::I8));
    }
}

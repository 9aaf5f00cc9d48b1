//! Arithmetic on what is known while the body is walked: literals and constants.
//!
//! It is what steers the walk: extents, conditions, bounds of unrolled loops. Constants with a dtype
//! follow the one definition of scalar arithmetic; literals are computed in i128 and f64 until they
//! meet a dtype.

use crate::ir::{BinaryOp, DType, Predicate, Scalar, scalar};

use super::value::{Lit, Val};

/// The value of an integer or bool constant, unsigned ones by magnitude.
pub(super) fn integer(scalar: Scalar) -> Option<i128> {
    match scalar.dtype {
        DType::U64 => Some(i128::from(scalar.bits)),
        dtype if dtype.is_float() => None,
        _ => Some(i128::from(scalar.to_i64())),
    }
}

/// A binary op over two things known now, if both are and the result is exact.
pub(super) fn binary(op: BinaryOp, a: &Val, b: &Val) -> Option<Val> {
    match (a, b) {
        (Val::Lit(Lit::Int(a)), Val::Lit(Lit::Int(b))) => {
            integer_op(op, *a, *b).map(|value| Val::Lit(Lit::Int(value)))
        }
        (Val::Lit(a), Val::Lit(b)) => {
            float_op(op, as_float(*a), as_float(*b)).map(|value| Val::Lit(Lit::Float(value)))
        }
        (Val::Const(a), Val::Const(b)) if a.dtype == b.dtype => {
            Some(Val::Const(scalar::binary(op, *a, *b)))
        }
        (Val::Const(a), Val::Lit(Lit::Int(b))) => binary(op, &Val::Const(*a), &typed(a.dtype, *b)?),
        (Val::Lit(Lit::Int(a)), Val::Const(b)) => binary(op, &typed(b.dtype, *a)?, &Val::Const(*b)),
        _ => None,
    }
}

/// A comparison of two things known now.
pub(super) fn compare(predicate: Predicate, a: &Val, b: &Val) -> Option<Val> {
    let result = match (a, b) {
        (Val::Lit(Lit::Int(a)), Val::Lit(Lit::Int(b))) => holds(predicate, a, b),
        (Val::Lit(a), Val::Lit(b)) => holds(predicate, &as_float(*a), &as_float(*b)),
        (Val::Const(a), Val::Const(b)) if a.dtype == b.dtype => scalar::compare(predicate, *a, *b),
        (Val::Const(a), Val::Lit(Lit::Int(b))) if a.dtype.is_int() => {
            holds(predicate, &integer(*a)?, b)
        }
        (Val::Lit(Lit::Int(a)), Val::Const(b)) if b.dtype.is_int() => {
            holds(predicate, a, &integer(*b)?)
        }
        _ => return None,
    };
    Some(Val::bool(result))
}

/// A literal as f64.
pub(super) fn as_float(lit: Lit) -> f64 {
    match lit {
        Lit::Int(value) => value as f64,
        Lit::Float(value) => value,
    }
}

/// Whether an integer is one of a dtype.
pub(super) fn fits(dtype: DType, value: i128) -> bool {
    let bits = dtype.bits();
    if dtype.is_signed_int() {
        let limit = 1i128 << (bits - 1);
        (-limit..limit).contains(&value)
    } else {
        (0..1i128 << bits).contains(&value)
    }
}

fn typed(dtype: DType, value: i128) -> Option<Val> {
    (dtype.is_int() && fits(dtype, value)).then(|| Val::Const(Scalar::int(dtype, value as i64)))
}

fn holds<T: PartialOrd>(predicate: Predicate, a: &T, b: &T) -> bool {
    match predicate {
        Predicate::Eq => a == b,
        Predicate::Ne => a != b,
        Predicate::Lt => a < b,
        Predicate::Le => a <= b,
        Predicate::Gt => a > b,
        Predicate::Ge => a >= b,
    }
}

/// Arithmetic of integer literals, none where the result is too large.
fn integer_op(op: BinaryOp, a: i128, b: i128) -> Option<i128> {
    let amount = b.rem_euclid(64) as u32;
    match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Sub => a.checked_sub(b),
        BinaryOp::Mul => a.checked_mul(b),
        BinaryOp::Div => Some(a.checked_div(b).unwrap_or(0)),
        BinaryOp::Rem => Some(a.checked_rem(b).unwrap_or(a)),
        BinaryOp::And => Some(a & b),
        BinaryOp::Or => Some(a | b),
        BinaryOp::Xor => Some(a ^ b),
        BinaryOp::Shl => a.checked_mul(1 << amount),
        BinaryOp::Shr => Some(a >> amount),
        BinaryOp::Min | BinaryOp::MinNum => Some(a.min(b)),
        BinaryOp::Max | BinaryOp::MaxNum => Some(a.max(b)),
        BinaryOp::Short => Some(a),
        BinaryOp::MulHi => None,
    }
}

fn float_op(op: BinaryOp, a: f64, b: f64) -> Option<f64> {
    match op {
        BinaryOp::Add => Some(a + b),
        BinaryOp::Sub => Some(a - b),
        BinaryOp::Mul => Some(a * b),
        BinaryOp::Div => Some(a / b),
        BinaryOp::Short => Some(a),
        BinaryOp::Rem
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::Min
        | BinaryOp::Max
        | BinaryOp::MinNum
        | BinaryOp::MaxNum
        | BinaryOp::MulHi => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_languages_rules_for_division_and_shifts() {
        let check = |op, a, b, expected| {
            assert_eq!(binary(op, &Val::int(a), &Val::int(b)), Some(Val::int(expected)), "{op:?}");
        };
        check(BinaryOp::Div, -7, 2, -3);
        check(BinaryOp::Div, 7, 0, 0);
        check(BinaryOp::Rem, 7, 0, 7);
        check(BinaryOp::Div, i64::MIN, -1, i64::MIN);
        check(BinaryOp::Mul, i64::MAX, 2, -2);
        check(BinaryOp::Shl, 1, 65, 2);
    }

    #[test]
    fn a_literal_takes_the_constants_dtype() {
        let two = Val::Lit(Lit::Int(2));
        assert_eq!(binary(BinaryOp::Mul, &Val::int(64), &two), Some(Val::int(128)));
        assert_eq!(compare(Predicate::Lt, &two, &Val::int(64)), Some(Val::bool(true)));
    }
}

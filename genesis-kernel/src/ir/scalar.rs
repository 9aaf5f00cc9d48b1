//! What every elementwise op means, exactly, on single values.
//!
//! Constant folding and the interpreter use these functions, and both back ends agree with them bit
//! for bit (the bits of a NaN are free). The rules that are not obvious:
//!
//! - f16 and bf16 are computed in f32 and rounded once. A conversion to them from f64 or from an
//!   integer goes through f32: that is what all targets can do.
//! - Integers wrap; division by zero gives 0 and the remainder by zero the dividend.
//! - A float becomes an integer by truncation, saturating; NaN gives 0.
//! - `Min` and `Max` propagate NaN and hold -0 below +0; `MinNum` and `MaxNum` prefer the number.
//! - Transcendental functions are computed in f64 and rounded: a reference for tests. Back ends never
//!   see them, since a pass replaces them by polynomials first.

use half::{bf16, f16};

use super::ops::{BinaryOp, Predicate, UnaryOp};
use super::types::{DType, Scalar};

/// The value of a 16- or 32-bit float as f32.
fn to_f32(x: Scalar) -> f32 {
    match x.dtype {
        DType::F16 => f16::from_bits(x.bits as u16).to_f32(),
        DType::BF16 => bf16::from_bits(x.bits as u16).to_f32(),
        _ => f32::from_bits(x.bits as u32),
    }
}

/// An f32 rounded to a 16- or 32-bit float dtype.
fn from_f32(dtype: DType, value: f32) -> Scalar {
    let bits = match dtype {
        DType::F16 => u64::from(f16::from_f32(value).to_bits()),
        DType::BF16 => u64::from(bf16::from_f32(value).to_bits()),
        _ => u64::from(value.to_bits()),
    };
    Scalar { dtype, bits }
}

fn from_bool(value: bool) -> Scalar {
    Scalar { dtype: DType::Bool, bits: u64::from(value) }
}

/// An elementwise op of one operand.
pub fn unary(op: UnaryOp, x: Scalar) -> Scalar {
    match x.dtype {
        DType::F64 => {
            Scalar { dtype: DType::F64, bits: unary_f64(op, f64::from_bits(x.bits)).to_bits() }
        }
        dtype if dtype.is_float() => unary_f32(op, x),
        _ => unary_int(op, x),
    }
}

fn unary_f32(op: UnaryOp, x: Scalar) -> Scalar {
    let sign = 1u64 << (x.dtype.bits() - 1);
    match op {
        UnaryOp::Neg => Scalar { bits: x.bits ^ sign, ..x },
        UnaryOp::Abs => Scalar { bits: x.bits & !sign, ..x },
        // The square root in f64 of an f32 rounds to the correctly rounded f32.
        _ => from_f32(x.dtype, unary_f64(op, f64::from(to_f32(x))) as f32),
    }
}

fn unary_f64(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Not => x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 | UnaryOp::Exp2Approx => x.exp2(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log2 => x.log2(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => erf(x),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
    }
}

/// The error function: a series near 0, a continued fraction far away.
fn erf(x: f64) -> f64 {
    let z = x.abs();
    if x.is_nan() || x == 0.0 {
        return x;
    }
    if z > 6.0 {
        return x.signum();
    }
    if z < 2.5 {
        let (mut term, mut sum) = (z, z);
        for n in 1..200 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return x.signum() * sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    let fraction = (1..=120).rev().fold(z, |f, k| z + f64::from(k) / 2.0 / f);
    x.signum() * (1.0 - (-z * z).exp() / (fraction * std::f64::consts::PI.sqrt()))
}

fn unary_int(op: UnaryOp, x: Scalar) -> Scalar {
    let value = x.to_i64();
    match op {
        UnaryOp::Neg => Scalar::int(x.dtype, value.wrapping_neg()),
        UnaryOp::Not if x.dtype == DType::Bool => from_bool(value == 0),
        UnaryOp::Not => Scalar::int(x.dtype, !value),
        UnaryOp::Abs if x.dtype.is_signed_int() => Scalar::int(x.dtype, value.wrapping_abs()),
        // The verifier allows no other op on integers; rounding an integer is the integer.
        _ => x,
    }
}

/// An elementwise op of two operands of one dtype.
pub fn binary(op: BinaryOp, a: Scalar, b: Scalar) -> Scalar {
    match a.dtype {
        DType::F64 => {
            let value = binary_f64(op, f64::from_bits(a.bits), f64::from_bits(b.bits));
            Scalar { dtype: DType::F64, bits: value.to_bits() }
        }
        dtype if dtype.is_float() => from_f32(dtype, binary_f32(op, to_f32(a), to_f32(b))),
        DType::Bool => from_bool(binary_bool(op, a.bits != 0, b.bits != 0)),
        dtype if dtype.is_signed_int() => {
            Scalar::int(dtype, binary_signed(op, dtype, a.to_i64(), b.to_i64()))
        }
        dtype => Scalar::int(dtype, binary_unsigned(op, dtype, a.bits, b.bits) as i64),
    }
}

macro_rules! binary_float {
    ($name:ident, $ty:ty) => {
        fn $name(op: BinaryOp, a: $ty, b: $ty) -> $ty {
            let is_less = a < b || (a == b && a.is_sign_negative());
            match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a / b,
                BinaryOp::Rem => a % b,
                BinaryOp::Min | BinaryOp::Max if a.is_nan() || b.is_nan() => <$ty>::NAN,
                BinaryOp::MinNum | BinaryOp::MaxNum if a.is_nan() => b,
                BinaryOp::MinNum | BinaryOp::MaxNum if b.is_nan() => a,
                BinaryOp::Min | BinaryOp::MinNum => {
                    if is_less {
                        a
                    } else {
                        b
                    }
                }
                BinaryOp::Max | BinaryOp::MaxNum => {
                    if is_less {
                        b
                    } else {
                        a
                    }
                }
                // The verifier allows no bitwise op on floats.
                BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => a,
                BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => a,
            }
        }
    };
}
binary_float!(binary_f32, f32);
binary_float!(binary_f64, f64);

/// Bool is the integers modulo 2 where arithmetic is asked of it.
fn binary_bool(op: BinaryOp, a: bool, b: bool) -> bool {
    match op {
        BinaryOp::And | BinaryOp::Mul | BinaryOp::Min | BinaryOp::MinNum => a & b,
        BinaryOp::Or | BinaryOp::Max | BinaryOp::MaxNum => a | b,
        BinaryOp::Xor | BinaryOp::Add | BinaryOp::Sub => a ^ b,
        BinaryOp::Div => a & b,
        BinaryOp::Rem => a & !b,
        BinaryOp::Shl | BinaryOp::Shr => a,
        BinaryOp::MulHi => false,
    }
}

fn binary_signed(op: BinaryOp, dtype: DType, a: i64, b: i64) -> i64 {
    let amount = (b as u64 & u64::from(dtype.bits() - 1)) as u32;
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => {
            if b == 0 {
                0
            } else {
                a.wrapping_div(b)
            }
        }
        BinaryOp::Rem => {
            if b == 0 {
                a
            } else {
                a.wrapping_rem(b)
            }
        }
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << amount,
        BinaryOp::Shr => a >> amount,
        BinaryOp::Min | BinaryOp::MinNum => a.min(b),
        BinaryOp::Max | BinaryOp::MaxNum => a.max(b),
        BinaryOp::MulHi => ((i128::from(a) * i128::from(b)) >> dtype.bits()) as i64,
    }
}

fn binary_unsigned(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    let amount = (b & u64::from(dtype.bits() - 1)) as u32;
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a << amount,
        BinaryOp::Shr => a >> amount,
        BinaryOp::Min | BinaryOp::MinNum => a.min(b),
        BinaryOp::Max | BinaryOp::MaxNum => a.max(b),
        BinaryOp::MulHi => ((u128::from(a) * u128::from(b)) >> dtype.bits()) as u64,
    }
}

/// A comparison of two operands of one dtype; IEEE on floats.
pub fn compare(predicate: Predicate, a: Scalar, b: Scalar) -> bool {
    fn by<T: PartialOrd>(predicate: Predicate, a: T, b: T) -> bool {
        match predicate {
            Predicate::Eq => a == b,
            Predicate::Ne => a != b,
            Predicate::Lt => a < b,
            Predicate::Le => a <= b,
            Predicate::Gt => a > b,
            Predicate::Ge => a >= b,
        }
    }
    match a.dtype {
        dtype if dtype.is_float() => by(predicate, a.to_f64(), b.to_f64()),
        dtype if dtype.is_signed_int() => by(predicate, a.to_i64(), b.to_i64()),
        _ => by(predicate, a.bits, b.bits),
    }
}

/// `a * b + c` rounded once; integers wrap.
pub fn fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    match a.dtype {
        DType::F64 => {
            let value =
                f64::from_bits(a.bits).mul_add(f64::from_bits(b.bits), f64::from_bits(c.bits));
            Scalar { dtype: DType::F64, bits: value.to_bits() }
        }
        dtype if dtype.is_float() => from_f32(dtype, to_f32(a).mul_add(to_f32(b), to_f32(c))),
        _ => binary(BinaryOp::Add, binary(BinaryOp::Mul, a, b), c),
    }
}

/// To another dtype.
pub fn cast(x: Scalar, dtype: DType) -> Scalar {
    if x.dtype == dtype {
        return x;
    }
    match (x.dtype.is_float(), dtype.is_float()) {
        (_, true) => cast_to_float(x, dtype),
        (true, false) if dtype == DType::Bool => from_bool(x.to_f64() != 0.0),
        (true, false) => float_to_int(x.to_f64(), dtype),
        (false, false) => Scalar::int(dtype, x.to_i64()),
    }
}

fn cast_to_float(x: Scalar, dtype: DType) -> Scalar {
    let is_unsigned = x.dtype.is_unsigned_int();
    if dtype == DType::F64 {
        let value = match x.dtype {
            from if from.is_float() => x.to_f64(),
            _ if is_unsigned => x.bits as f64,
            _ => x.to_i64() as f64,
        };
        return Scalar { dtype, bits: value.to_bits() };
    }
    let value = match x.dtype {
        DType::F64 => f64::from_bits(x.bits) as f32,
        from if from.is_float() => to_f32(x),
        _ if is_unsigned => x.bits as f32,
        _ => x.to_i64() as f32,
    };
    from_f32(dtype, value)
}

fn float_to_int(value: f64, dtype: DType) -> Scalar {
    // Rust's `as` truncates, saturates and takes NaN to 0.
    let bits = match dtype {
        DType::I8 => i64::from(value as i8) as u64,
        DType::I16 => i64::from(value as i16) as u64,
        DType::I32 => i64::from(value as i32) as u64,
        DType::U8 => u64::from(value as u8),
        DType::U16 => u64::from(value as u16),
        DType::U32 => u64::from(value as u32),
        DType::U64 => value as u64,
        _ => (value as i64) as u64,
    };
    Scalar { dtype, bits }
}

/// The same bits as another dtype of the same width.
pub fn bitcast(x: Scalar, dtype: DType) -> Scalar {
    let mask = if x.dtype.bits() == 64 { u64::MAX } else { (1 << x.dtype.bits()) - 1 };
    let bits = x.bits & mask;
    if dtype.is_float() { Scalar { dtype, bits } } else { Scalar::int(dtype, bits as i64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn i32s(value: i64) -> Scalar {
        Scalar::int(DType::I32, value)
    }

    fn f32s(value: f64) -> Scalar {
        Scalar::float(DType::F32, value)
    }

    #[test]
    fn integer_division_is_total() {
        assert_eq!(binary(BinaryOp::Div, i32s(7), i32s(0)), i32s(0));
        assert_eq!(binary(BinaryOp::Rem, i32s(7), i32s(0)), i32s(7));
        let least = i32s(i64::from(i32::MIN));
        assert_eq!(binary(BinaryOp::Div, least, i32s(-1)), least);
        assert_eq!(binary(BinaryOp::Rem, least, i32s(-1)), i32s(0));
    }

    #[test]
    fn shifts_take_the_amount_modulo_the_width() {
        assert_eq!(binary(BinaryOp::Shl, i32s(1), i32s(33)), i32s(2));
        assert_eq!(binary(BinaryOp::Shr, i32s(-8), i32s(1)), i32s(-4));
    }

    #[test]
    fn floats_saturate_to_integers() {
        assert_eq!(cast(f32s(1e20), DType::I32), i32s(i64::from(i32::MAX)));
        assert_eq!(cast(f32s(f64::NAN), DType::I32), i32s(0));
        assert_eq!(cast(f32s(-3.0), DType::U8), Scalar::int(DType::U8, 0));
    }

    #[test]
    fn extremes_order_zeros_and_propagate_nan() {
        let negative = unary(UnaryOp::Neg, f32s(0.0));
        assert_eq!(binary(BinaryOp::Max, negative, f32s(0.0)), f32s(0.0));
        assert_eq!(binary(BinaryOp::Min, f32s(0.0), negative), negative);
        assert!(binary(BinaryOp::Max, f32s(f64::NAN), f32s(1.0)).to_f64().is_nan());
        assert_eq!(binary(BinaryOp::MaxNum, f32s(f64::NAN), f32s(1.0)), f32s(1.0));
    }

    #[test]
    fn sixteen_bit_floats_round_once_an_op() {
        let x = Scalar::float(DType::BF16, 1.0);
        let small = Scalar::float(DType::BF16, 1.0 / 512.0);
        assert_eq!(binary(BinaryOp::Add, x, small), x);
    }

    #[test]
    fn the_upper_half_of_products() {
        let x = Scalar::int(DType::U32, 0xFFFF_FFFF);
        assert_eq!(binary(BinaryOp::MulHi, x, x), Scalar::int(DType::U32, 0xFFFF_FFFE));
        assert_eq!(binary(BinaryOp::MulHi, i32s(-1), i32s(1)), i32s(-1));
    }
}

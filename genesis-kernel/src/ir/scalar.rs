//! What every elementwise op means, on one number.
//!
//! This file is the definition: the interpreter calls it, constant folding calls it, and both back
//! ends are tested against it. Every function is total, because a lane whose mask is false still
//! computes something:
//!
//! * Integers wrap. `/` and `%` truncate; by zero they give 0 and the dividend; `MIN / -1` is `MIN`,
//!   `MIN % -1` is 0. Shifts take the amount modulo the width.
//! * Arithmetic of f16 and bf16 is computed in f32 and rounded once per op.
//! * Floats of 8 bits have no arithmetic; see [`super::float8`].
//! * A cast is one correct rounding to nearest even whatever the two dtypes are, so i64 to bf16 and
//!   f64 to f16 never round twice. Float to integer truncates and saturates, NaN gives 0. To bool is
//!   `!= 0`, so NaN gives true.
//! * `Min` and `Max` propagate NaN, `MinNum` and `MaxNum` drop it, and -0 is less than +0 in all four.
//! * NaN has no sign or payload that anyone may rely on.
//! * An op that its dtype does not have (`sqrt` of an integer) gives zero; the verifier refuses it
//!   long before.
//!
//! `exp` and its kin are here to within an ULP or so, for reference only: before a program runs,
//! `expand_math` has rewritten them into ops that are exact.

use super::far;
use super::number::{Scalar, from_f32};
pub use super::number::{cast, round_to_half};
use super::ops::{BinaryOp, Predicate, UnaryOp};
use super::types::DType;

/// An op of one operand.
pub fn unary(op: UnaryOp, x: Scalar) -> Scalar {
    match x.dtype {
        DType::F64 => Scalar::float(DType::F64, unary_f64(op, x.to_f64())),
        DType::F32 => from_f32(DType::F32, unary_f32(op, to_f32(x))),
        DType::F16 | DType::BF16 => from_f32(x.dtype, unary_f32(op, to_f32(x))),
        _ => Scalar::int(x.dtype, unary_int(op, x)),
    }
}

/// An op of two operands of one dtype.
pub fn binary(op: BinaryOp, a: Scalar, b: Scalar) -> Scalar {
    debug_assert_eq!(a.dtype, b.dtype, "the verifier checks that operands agree");
    match a.dtype {
        DType::F64 => Scalar::float(DType::F64, binary_f64(op, a.to_f64(), b.to_f64())),
        DType::F32 | DType::F16 | DType::BF16 => {
            from_f32(a.dtype, binary_f32(op, to_f32(a), to_f32(b)))
        }
        DType::Bool => Scalar::int(DType::Bool, binary_bool(op, a.bits, b.bits)),
        dtype => Scalar::int(dtype, binary_int(op, dtype, a.bits as i64, b.bits as i64)),
    }
}

/// A comparison of two operands of one dtype; for NaN only `Ne` is true.
pub fn compare(predicate: Predicate, a: Scalar, b: Scalar) -> bool {
    debug_assert_eq!(a.dtype, b.dtype, "the verifier checks that operands agree");
    if a.dtype.is_float() {
        holds(predicate, &a.to_f64(), &b.to_f64())
    } else if a.dtype.is_signed_int() {
        holds(predicate, &(a.bits as i64), &(b.bits as i64))
    } else {
        holds(predicate, &a.bits, &b.bits)
    }
}

/// `a * b + c`: rounded once for f32 and f64, wrapped for integers; f16 and bf16 by an f32 fma.
pub fn fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar {
    match a.dtype {
        DType::F64 => Scalar::float(DType::F64, a.to_f64().mul_add(b.to_f64(), c.to_f64())),
        DType::F32 | DType::F16 | DType::BF16 => {
            from_f32(a.dtype, to_f32(a).mul_add(to_f32(b), to_f32(c)))
        }
        _ => binary(BinaryOp::Add, binary(BinaryOp::Mul, a, b), c),
    }
}

/// `a` where the bool is true, else `b`.
pub fn select(cond: Scalar, a: Scalar, b: Scalar) -> Scalar {
    if cond.bits != 0 { a } else { b }
}

/// The same bits as another dtype of the same width.
pub fn bitcast(x: Scalar, to: DType) -> Scalar {
    let bits = match x.dtype.bytes() {
        1 => x.bits & 0xff,
        2 => x.bits & 0xffff,
        4 => x.bits & 0xffff_ffff,
        _ => x.bits,
    };
    if to.is_float() { Scalar { dtype: to, bits } } else { Scalar::int(to, bits as i64) }
}

/// An f32, f16 or bf16 as f32; exact.
fn to_f32(x: Scalar) -> f32 {
    match x.dtype {
        DType::F16 => half::f16::from_bits(x.bits as u16).to_f32(),
        DType::BF16 => half::bf16::from_bits(x.bits as u16).to_f32(),
        _ => f32::from_bits(x.bits as u32),
    }
}

fn unary_int(op: UnaryOp, x: Scalar) -> i64 {
    let value = x.bits as i64;
    match op {
        UnaryOp::Not if x.dtype == DType::Bool => i64::from(value == 0),
        UnaryOp::Not => !value,
        UnaryOp::Neg => value.wrapping_neg(),
        UnaryOp::Abs if x.dtype.is_signed_int() => value.wrapping_abs(),
        UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => value,
        UnaryOp::PopCount => i64::from(low_bits(x).count_ones()),
        UnaryOp::LeadingZeros => {
            i64::from(low_bits(x).leading_zeros()) - (64 - x.dtype.bits() as i64)
        }
        UnaryOp::Sqrt
        | UnaryOp::Rsqrt
        | UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Log
        | UnaryOp::Log2
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tanh
        | UnaryOp::Erf
        | UnaryOp::Sigmoid
        | UnaryOp::Exp2Approx
        | UnaryOp::Exp2Flush
        | UnaryOp::RecipApprox
        | UnaryOp::Log2Approx
        | UnaryOp::Log2Flush
        | UnaryOp::SqrtApprox
        | UnaryOp::Log1p
        | UnaryOp::Tan
        | UnaryOp::SinFar
        | UnaryOp::CosFar
        | UnaryOp::TanFar => 0,
    }
}

/// The bits that an integer of its dtype has.
fn low_bits(x: Scalar) -> u64 {
    x.bits & (u64::MAX >> (64 - x.dtype.bits()))
}

fn unary_f32(op: UnaryOp, x: f32) -> f32 {
    match op {
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::SinFar => far::sine_of(DType::F32, f64::from(x), 0) as f32,
        UnaryOp::CosFar => far::sine_of(DType::F32, f64::from(x), 1) as f32,
        UnaryOp::TanFar => {
            let [sine, cosine] = [0, 1].map(|i| far::sine_of(DType::F32, f64::from(x), i) as f32);
            far::quotient(sine, cosine)
        }
        // Exact in f64 or a reference value: one rounding either way.
        _ => unary_f64(op, f64::from(x)) as f32,
    }
}

/// Zero where an f32 would be subnormal.
fn flushed(x: f64) -> f64 {
    if x.abs() < f64::from(f32::MIN_POSITIVE) { x.signum() * 0.0 } else { x }
}

fn unary_f64(op: UnaryOp, x: f64) -> f64 {
    match op {
        UnaryOp::Neg => -x,
        UnaryOp::Not => 0.0,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sqrt | UnaryOp::SqrtApprox => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 | UnaryOp::Exp2Approx => x.exp2(),
        UnaryOp::Exp2Flush => flushed(x.exp2()),
        UnaryOp::RecipApprox => flushed(1.0 / x),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log2 | UnaryOp::Log2Approx | UnaryOp::Log2Flush => x.log2(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Tan => x.tan(),
        UnaryOp::SinFar => far::sine_of(DType::F64, x, 0),
        UnaryOp::CosFar => far::sine_of(DType::F64, x, 1),
        UnaryOp::TanFar => {
            let [sine, cosine] = [0, 1].map(|i| far::sine_of(DType::F64, x, i));
            far::quotient(sine, cosine)
        }
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Erf => erf(x),
        UnaryOp::Sigmoid => sigmoid(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Ceil => x.ceil(),
        UnaryOp::Round => x.round_ties_even(),
        UnaryOp::Trunc => x.trunc(),
        UnaryOp::PopCount | UnaryOp::LeadingZeros => 0.0,
    }
}

/// From e^-|x|, so that small results keep their digits.
fn sigmoid(x: f64) -> f64 {
    let z = (-x.abs()).exp();
    let numerator = if x < 0.0 { z } else { 1.0 };
    numerator / (1.0 + z)
}

/// The error function: its series with positive terms, and the continued fraction of its complement.
fn erf(x: f64) -> f64 {
    let magnitude = x.abs();
    if x.is_nan() || x == 0.0 {
        return x;
    }
    if magnitude > 6.0 {
        return 1f64.copysign(x);
    }
    let gauss = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if magnitude < 2.5 {
        let (mut term, mut sum, mut n) = (magnitude, magnitude, 0.0);
        while term > sum * 1e-18 {
            n += 1.0;
            term *= 2.0 * x * x / (2.0 * n + 1.0);
            sum += term;
        }
        return (2.0 * gauss * sum).copysign(x);
    }
    let tail = (1..80).rev().fold(magnitude, |rest, n| magnitude + f64::from(n) / 2.0 / rest);
    (1.0 - gauss / tail).copysign(x)
}

/// Bool is the integers modulo 2 where arithmetic is asked of it.
fn binary_bool(op: BinaryOp, a: u64, b: u64) -> i64 {
    let value = match op {
        BinaryOp::And | BinaryOp::Mul | BinaryOp::Min | BinaryOp::MinNum => a & b,
        BinaryOp::Or | BinaryOp::Max | BinaryOp::MaxNum => a | b,
        BinaryOp::Xor | BinaryOp::Add | BinaryOp::Sub => a ^ b,
        BinaryOp::Short => a,
        BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shl | BinaryOp::Shr | BinaryOp::MulHi => 0,
    };
    value as i64
}

/// Operands and result are 64-bit patterns; the caller wraps the result to the dtype.
fn binary_int(op: BinaryOp, dtype: DType, a: i64, b: i64) -> i64 {
    let amount = (b as u32) & (dtype.bits() - 1);
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a.wrapping_shl(amount),
        BinaryOp::Short => a,
        _ if dtype.is_unsigned_int() => binary_unsigned(op, dtype, a as u64, b as u64) as i64,
        BinaryOp::Shr => a >> amount,
        BinaryOp::Div if b == 0 => 0,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::Rem if b == 0 => a,
        BinaryOp::Rem => a.wrapping_rem(b),
        BinaryOp::Min | BinaryOp::MinNum => a.min(b),
        BinaryOp::Max | BinaryOp::MaxNum => a.max(b),
        BinaryOp::MulHi => ((i128::from(a) * i128::from(b)) >> dtype.bits()) as i64,
    }
}

/// The ops that need to know that the operands are not negative; the rest is in [`binary_int`].
fn binary_unsigned(op: BinaryOp, dtype: DType, a: u64, b: u64) -> u64 {
    match op {
        BinaryOp::Shr => a >> ((b as u32) & (dtype.bits() - 1)),
        BinaryOp::Div => a.checked_div(b).unwrap_or(0),
        BinaryOp::Rem => a.checked_rem(b).unwrap_or(a),
        BinaryOp::Min | BinaryOp::MinNum => a.min(b),
        BinaryOp::Max | BinaryOp::MaxNum => a.max(b),
        BinaryOp::MulHi => ((u128::from(a) * u128::from(b)) >> dtype.bits()) as u64,
        BinaryOp::Add
        | BinaryOp::Sub
        | BinaryOp::Mul
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Short => 0,
    }
}

macro_rules! float_binary {
    ($name:ident, $float:ty) => {
        fn $name(op: BinaryOp, a: $float, b: $float) -> $float {
            match op {
                BinaryOp::Add => a + b,
                BinaryOp::Sub => a - b,
                BinaryOp::Mul => a * b,
                BinaryOp::Div => a / b,
                BinaryOp::Rem => a % b,
                BinaryOp::Short => a,
                BinaryOp::Min | BinaryOp::Max if a.is_nan() || b.is_nan() => <$float>::NAN,
                BinaryOp::MinNum | BinaryOp::MaxNum if a.is_nan() => b,
                BinaryOp::MinNum | BinaryOp::MaxNum if b.is_nan() => a,
                BinaryOp::Min | BinaryOp::MinNum if a < b || (a == b && a.is_sign_negative()) => a,
                BinaryOp::Min | BinaryOp::MinNum => b,
                BinaryOp::Max | BinaryOp::MaxNum if a > b || (a == b && a.is_sign_positive()) => a,
                BinaryOp::Max | BinaryOp::MaxNum => b,
                BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr
                | BinaryOp::MulHi => 0.0,
            }
        }
    };
}

float_binary!(binary_f32, f32);
float_binary!(binary_f64, f64);

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

#[cfg(test)]
mod tests {
    use super::*;

    fn f32_(value: f32) -> Scalar {
        from_f32(DType::F32, value)
    }

    #[test]
    fn integers_wrap_and_divide_totally() {
        for dtype in DType::ALL.into_iter().filter(|d| d.is_signed_int()) {
            let int = |value| Scalar::int(dtype, value);
            let min = int(i64::MIN >> (64 - dtype.bits()));
            assert_eq!(binary(BinaryOp::Div, min, int(-1)), min, "{dtype}");
            assert_eq!(binary(BinaryOp::Rem, min, int(-1)), int(0), "{dtype}");
            assert_eq!(binary(BinaryOp::Div, int(-7), int(2)), int(-3), "{dtype}");
            assert_eq!(binary(BinaryOp::Rem, int(-7), int(2)), int(-1), "{dtype}");
            assert_eq!(binary(BinaryOp::Sub, min, int(1)), int(!min.to_i64()), "{dtype}");
            assert_eq!(unary(UnaryOp::Abs, min), min, "{dtype}");
        }
        for dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
            let int = |value| Scalar::int(dtype, value);
            assert_eq!(binary(BinaryOp::Div, int(5), int(0)), int(0), "{dtype}");
            assert_eq!(binary(BinaryOp::Rem, int(5), int(0)), int(5), "{dtype}");
            let width = i64::from(dtype.bits());
            assert_eq!(binary(BinaryOp::Shl, int(3), int(width + 1)), int(6), "{dtype}");
            assert_eq!(binary(BinaryOp::Shr, int(6), int(width + 1)), int(3), "{dtype}");
        }
    }

    #[test]
    fn unsigned_ops_see_large_numbers() {
        let max = Scalar::int(DType::U64, -1);
        let two = Scalar::int(DType::U64, 2);
        assert_eq!(binary(BinaryOp::Div, max, two).bits, u64::MAX / 2);
        assert_eq!(binary(BinaryOp::MulHi, max, max).bits, u64::MAX - 1);
        assert_eq!(binary(BinaryOp::Max, max, two), max);
        assert!(compare(Predicate::Gt, max, two));
        let bytes = |value| Scalar::int(DType::I8, value);
        assert_eq!(binary(BinaryOp::MulHi, bytes(-128), bytes(127)), bytes(-64));
    }

    #[test]
    fn extremes_order_zeros_and_treat_nan() {
        let (nan, zero, minus) = (f32_(f32::NAN), f32_(0.0), f32_(-0.0));
        assert_eq!(binary(BinaryOp::Min, zero, minus), minus);
        assert_eq!(binary(BinaryOp::Max, minus, zero), zero);
        assert_eq!(binary(BinaryOp::MaxNum, zero, minus), zero);
        assert_eq!(binary(BinaryOp::MinNum, nan, zero), zero);
        assert!(binary(BinaryOp::Max, nan, zero).to_f64().is_nan());
        assert!(binary(BinaryOp::MinNum, nan, nan).to_f64().is_nan());
        assert!(compare(Predicate::Ne, nan, nan) && !compare(Predicate::Eq, nan, nan));
    }

    #[test]
    fn floats_saturate_to_integers() {
        assert_eq!(cast(f32_(f32::NAN), DType::I32), Scalar::int(DType::I32, 0));
        assert_eq!(cast(f32_(1e30), DType::I8), Scalar::int(DType::I8, 127));
        assert_eq!(cast(f32_(-5.0), DType::U16), Scalar::int(DType::U16, 0));
        assert_eq!(cast(f32_(f32::INFINITY), DType::U64).bits, u64::MAX);
        assert_eq!(cast(f32_(-1.9), DType::I64), Scalar::int(DType::I64, -1));
        assert_eq!(cast(f32_(f32::NAN), DType::Bool).bits, 1);
        assert_eq!(cast(f32_(-0.0), DType::Bool).bits, 0);
    }

    /// Rounding twice would give the even neighbor in each case.
    #[test]
    fn casts_round_once() {
        // 1 + 2^-8 is a tie of bf16; the last bit decides and f32 would lose it.
        let above_tie = Scalar::float(DType::F64, 1.0 + 2f64.powi(-8) + 2f64.powi(-40));
        assert_eq!(cast(above_tie, DType::BF16).to_f64(), 1.0 + 2f64.powi(-7));
        let above_tie = Scalar::float(DType::F64, 1.0 + 2f64.powi(-11) + 2f64.powi(-50));
        assert_eq!(cast(above_tie, DType::F16).to_f64(), 1.0 + 2f64.powi(-10));
        let int = Scalar::int(DType::I64, -((1 << 62) + (1 << 54) + 1));
        assert_eq!(cast(int, DType::BF16).to_f64(), -((1i64 << 62) + (1 << 55)) as f64);
        let int = Scalar::int(DType::I64, (1 << 60) + (1 << 36) + 1);
        assert_eq!(cast(int, DType::F32).to_f64(), ((1i64 << 60) + (1 << 37)) as f64);
        assert_eq!(cast(Scalar::int(DType::I64, 65520), DType::F16).to_f64(), f64::INFINITY);
        assert_eq!(cast(Scalar::int(DType::I64, 65519), DType::F16).to_f64(), 65504.0);
        let tiny = Scalar::float(DType::F64, 2f64.powi(-25) * 1.0001);
        assert_eq!(cast(tiny, DType::F16).to_f64(), 2f64.powi(-24));
    }

    #[test]
    fn half_arithmetic_rounds_once_per_op() {
        let half = |value| Scalar::float(DType::F16, value);
        let product = binary(BinaryOp::Mul, half(0.1), half(0.1));
        let exact = half(0.1).to_f64() * half(0.1).to_f64();
        assert_eq!(product, half(exact));
        assert_eq!(binary(BinaryOp::Add, half(65504.0), half(16.0)).to_f64(), f64::INFINITY);
        assert_eq!(unary(UnaryOp::Neg, half(0.0)).bits, 0x8000);
    }

    #[test]
    fn bitcasts_keep_bits() {
        let one = bitcast(f32_(-1.0), DType::I32);
        assert_eq!(one, Scalar::int(DType::I32, 0xbf80_0000u32 as i32 as i64));
        assert_eq!(bitcast(one, DType::F32), f32_(-1.0));
        assert_eq!(bitcast(Scalar::int(DType::I16, -1), DType::U16).bits, 0xffff);
        assert_eq!(bitcast(Scalar::int(DType::I16, -1), DType::BF16).bits, 0xffff);
    }

    #[test]
    fn the_reference_erf_is_right() {
        let at = [(0.5, 0.5204998778130465), (1.0, 0.8427007929497149), (3.0, 0.9999779095030014)];
        for (x, want) in at {
            assert!((erf(x) - want).abs() < 4e-16, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }
}

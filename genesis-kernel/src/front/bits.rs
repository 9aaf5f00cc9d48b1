//! Bits of numbers: `ffs` and `brev` of integers, and `ldexp`, which adds to the exponent of a float.

use crate::ir::{BinaryOp, Builder, DType, Predicate, Scalar, UnaryOp, Value};

use super::arguments::Call;
use super::broadcast::Class;
use super::lower::{Lower, Res};
use super::value::Val;

/// Larger exponents than that of every quotient of two numbers.
const FAR: i64 = 8000;

/// `ffs(x)`: the lowest bit that is set is what `x` and `-x` have in common.
pub(super) fn ffs(lower: &mut Lower, call: &Call) -> Res {
    let aligned = lower.align("`ffs`", Class::Int, &[&call.args[0]])?;
    let x = aligned.values[0];
    let mut b = lower.build();
    let width = b.full(Scalar::int(aligned.dtype, aligned.dtype.bits() as i64), aligned.shape);
    let negative = b.unary(UnaryOp::Neg, x);
    let lowest = b.binary(BinaryOp::And, x, negative);
    let above = b.unary(UnaryOp::LeadingZeros, lowest);
    let value = b.binary(BinaryOp::Sub, width, above);
    Ok(aligned.wrap(value))
}

/// `brev(x)`: neighbours change places, then pairs, then fours, up to the halves.
pub(super) fn brev(lower: &mut Lower, call: &Call) -> Res {
    let aligned = lower.align("`brev`", Class::Int, &[&call.args[0]])?;
    let (own, bits, shape) = (aligned.dtype, aligned.dtype.bits(), aligned.shape);
    let unsigned = own.unsigned();
    let mut b = lower.build();
    let mut x = b.cast(aligned.values[0], unsigned);
    let mut width = 1;
    while width < bits {
        // Every other group of so many bits.
        let low =
            (0..bits).filter(|bit| bit / width % 2 == 0).fold(0, |mask, bit| mask | 1_u64 << bit);
        let [low, width_of] =
            [low as i64, width as i64].map(|n| b.full(Scalar::int(unsigned, n), shape));
        let high = b.binary(BinaryOp::Shr, x, width_of);
        let high = b.binary(BinaryOp::And, high, low);
        let low = b.binary(BinaryOp::And, x, low);
        let low = b.binary(BinaryOp::Shl, low, width_of);
        x = b.binary(BinaryOp::Or, low, high);
        width *= 2;
    }
    let value = b.cast(x, own);
    Ok(aligned.wrap(value))
}

/// `ldexp(x, n)`: `x * 2^n`, rounded once; 16-bit floats are computed in f32.
pub(super) fn ldexp(lower: &mut Lower, call: &Call) -> Res {
    let (x, n) = (&call.args[0], &call.args[1]);
    let (dtype, soft) = lower.common_dtype("`ldexp`", Class::Float, &[x])?;
    let (power, _) = lower.common_dtype("the exponent of `ldexp`", Class::Int, &[n])?;
    let shape = lower.common_shape(&[x, n])?;
    let (x, n) = (lower.coerce(x, dtype)?, lower.coerce(n, power)?);
    let mut b = lower.build();
    let (x, n) = (b.broadcast(x, shape), b.broadcast(n, shape));
    let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
    let x = b.cast(x, wide);
    let n = near(&mut b, n);
    let value = scaled(&mut b, x, n);
    let value = b.cast(value, dtype);
    Ok(if soft { Val::Soft(value) } else { Val::Ir(value) })
}

/// An exponent as an i32; one far from 0 as one less far.
fn near(b: &mut Builder<'_>, n: Value) -> Value {
    let tile = b.func.tile(n);
    let dtype = tile.dtype();
    if dtype.bits() == 8 {
        return b.cast(n, DType::I32);
    }
    let most = b.full(Scalar::int(dtype, FAR), tile.shape);
    let mut n = b.binary(BinaryOp::Min, n, most);
    if dtype.is_signed_int() {
        let least = b.full(Scalar::int(dtype, -FAR), tile.shape);
        n = b.binary(BinaryOp::Max, n, least);
    }
    b.cast(n, DType::I32)
}

/// `x * 2^n` by three powers. The steps down leave the last one so far below 1 that what they may have rounded is
/// nothing in the end (as in musl's `scalbn`).
fn scaled(b: &mut Builder<'_>, x: Value, n: Value) -> Value {
    let tile = b.func.tile(x);
    let (wide, shape) = (tile.dtype(), tile.shape);
    // The largest exponent, and the bits of a fraction.
    let (most, fraction) = if wide == DType::F64 { (1023, 52) } else { (127, 23) };
    let int = |b: &mut Builder<'_>, n: i64| b.full(Scalar::int(DType::I32, n), shape);
    let bits = if wide == DType::F64 { DType::I64 } else { DType::I32 };
    let power = |b: &mut Builder<'_>, n: Value| {
        let bias = int(b, most);
        let biased = b.binary(BinaryOp::Add, n, bias);
        let biased = b.cast(biased, bits);
        let place = b.full(Scalar::int(bits, fraction), shape);
        let raw = b.binary(BinaryOp::Shl, biased, place);
        b.bitcast(raw, wide)
    };
    let (mut x, mut n) = (x, n);
    for _ in 0..2 {
        let [up, down, zero] = [most, fraction + 2 - most, 0].map(|n| int(b, n));
        let least = int(b, 1 - most);
        let is_high = b.compare(Predicate::Gt, n, up);
        let is_low = b.compare(Predicate::Lt, n, least);
        let step = b.select(is_low, down, zero);
        let step = b.select(is_high, up, step);
        let factor = power(b, step);
        x = b.binary(BinaryOp::Mul, x, factor);
        n = b.binary(BinaryOp::Sub, n, step);
    }
    let [low, high] = [1 - most, most].map(|n| int(b, n));
    let n = b.binary(BinaryOp::Max, n, low);
    let n = b.binary(BinaryOp::Min, n, high);
    let factor = power(b, n);
    b.binary(BinaryOp::Mul, x, factor)
}

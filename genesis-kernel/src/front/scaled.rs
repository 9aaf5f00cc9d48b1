//! `dot_scaled`: products of tiles of floats of few bits, with a scale for each 32 of them along K (OCP microscaling).
//!
//! ```text
//! x: u8[16x32]      e2m1, two to a byte       interleave (x & 15), (x >> 4) : i16[16x64]
//!                   bits to bf16              0 and 0.5 by selection, else (bits & 7) << 6 plus the exponent of 0.5
//! x_scale: u8[16x2] powers of two             (scale << 7) as bf16, repeated 32 times : bf16[16x64]
//! ```
//!
//! Elements are scaled as bf16 and multiplied so: each of them is exact there, and so is its product with a power of two
//! within bf16's range.

use crate::ir::{BinaryOp, Builder, DType, DotPrecision, Predicate, Scalar, Shape, Value};

use super::arguments::Call;
use super::lower::{Lower, Res};
use super::value::{Operand, Val};

/// Elements that share a scale.
const BLOCK: usize = 32;

/// One side of the product: K is the last axis of the left one and the first of the right one.
struct Side {
    elements: Value,
    /// Elements of 4 bits, two to a byte along K.
    is_packed: bool,
    axis_of_k: usize,
    /// Extents along K and the other axis.
    k: usize,
    other: usize,
    /// `[other, k / 32]`
    scales: Value,
}

/// `dot_scaled(x, x_scale, y, y_scale, accumulator)`
pub(super) fn dot_scaled(lower: &mut Lower, call: &Call) -> Res {
    lower.refuse_in_combine(call.span, "`dot_scaled`")?;
    let left = side(lower, [&call.args[0], &call.args[1]], 1)?;
    let right = side(lower, [&call.args[2], &call.args[3]], 0)?;
    if left.k != right.k {
        let (k, other) = (left.k, right.k);
        let message = format!("`dot_scaled` needs equal inner extents, {k} and {other} differ");
        let error = lower.error(call.span, message);
        return Err(error.help("a tile of u8 has two elements of 4 bits in each byte along K"));
    }
    let shape = Shape::new(&[left.other, right.other]);
    let accumulator = lower.coerce(&call.args[4], DType::F32)?;
    if lower.func.tile(accumulator).shape != shape {
        let found = lower.describe(&call.args[4].val);
        let message = format!("the accumulator is {found}, the product is {shape}");
        return Err(lower.error(call.args[4].span(), message));
    }
    let mut b = lower.build();
    let (left, right) = (left.scaled(&mut b), right.scaled(&mut b));
    Ok(Val::Ir(b.dot(left, right, accumulator, DotPrecision::Ieee)))
}

fn side(lower: &mut Lower, [x, scale]: [&Operand; 2], axis_of_k: usize) -> Res<Side> {
    let (elements, _) = lower.number("`dot_scaled`", x)?;
    let (scales, _) = lower.number("a scale", scale)?;
    let (of, of_scales) = (lower.func.tile(elements), lower.func.tile(scales));
    let is_packed = of.dtype() == DType::U8;
    if of.shape.rank() != 2 || !is_packed && !of.dtype().is_f8() {
        let found = lower.describe(&x.val);
        let message =
            format!("`dot_scaled` multiplies matrices of floats of 8 or 4 bits, this is {found}");
        return Err(lower
            .error(x.span(), message)
            .help("those of 4 bits are two to a byte, in a tile of u8"));
    }
    let k = of.shape.extent(axis_of_k) * if is_packed { 2 } else { 1 };
    let other = of.shape.extent(1 - axis_of_k);
    let expected = Shape::new(&[other, k / BLOCK]);
    if !k.is_multiple_of(BLOCK) || of_scales.dtype() != DType::U8 || of_scales.shape != expected {
        let found = lower.describe(&scale.val);
        let message = format!(
            "`dot_scaled` takes a scale of u8 for each {BLOCK} elements along K, this is {found}"
        );
        let help =
            format!("{k} elements along K of {other} lines have scales `[{other}, {k} / {BLOCK}]`");
        return Err(lower.error(scale.span(), message).help(help));
    }
    Ok(Side { elements, is_packed, axis_of_k, k, other, scales })
}

impl Side {
    /// The elements times their scales, as bf16.
    fn scaled(&self, b: &mut Builder<'_>) -> Value {
        let elements = match self.is_packed {
            true => {
                let bits = self.unpacked(b);
                bf16_of_e2m1(b, bits)
            }
            false => b.cast(self.elements, DType::BF16),
        };
        let scales = power_of_scale(b, self.scales);
        let blocks = self.k / BLOCK;
        // [other, blocks] or [blocks, other], each scale as often as there are elements that share it.
        let (scales, at, extents) = match self.axis_of_k {
            1 => (scales, 2, [self.other, blocks, BLOCK]),
            _ => (b.transpose(scales, &[1, 0]), 1, [blocks, BLOCK, self.other]),
        };
        let scales = b.expand_dims(scales, at);
        let scales = b.broadcast(scales, Shape::new(&extents));
        let scales = b.reshape(scales, self.shape());
        b.binary(BinaryOp::Mul, elements, scales)
    }

    /// The bits of each element of 4 bits: the lower half of a byte is before the upper one along K.
    fn unpacked(&self, b: &mut Builder<'_>) -> Value {
        let bytes = b.cast(self.elements, DType::I16);
        let low = with(b, BinaryOp::And, bytes, 15);
        let high = with(b, BinaryOp::Shr, bytes, 4);
        let mut pairs = b.join(low, high);
        if self.axis_of_k == 0 {
            pairs = b.transpose(pairs, &[0, 2, 1]);
        }
        b.reshape(pairs, self.shape())
    }

    fn shape(&self) -> Shape {
        match self.axis_of_k {
            1 => Shape::new(&[self.other, self.k]),
            _ => Shape::new(&[self.k, self.other]),
        }
    }
}

/// The number of each 4 bits: a sign, two bits of exponent and one of fraction, from 0 and 0.5 to 6; without infinity and
/// NaN.
fn bf16_of_e2m1(b: &mut Builder<'_>, bits: Value) -> Value {
    const HALF: i64 = 126 << 7;
    let magnitude = with(b, BinaryOp::And, bits, 7);
    // What is below 1 has no bit before the fraction: 0 or 0.5.
    let small = with(b, BinaryOp::Mul, magnitude, HALF);
    let normal = with(b, BinaryOp::Shl, magnitude, 6);
    let normal = with(b, BinaryOp::Add, normal, HALF);
    let shape = b.func.tile(bits).shape;
    let one = b.full(Scalar::int(DType::I16, 1), shape);
    let is_small = b.compare(Predicate::Le, magnitude, one);
    let magnitude = b.select(is_small, small, normal);
    let sign = with(b, BinaryOp::And, bits, 8);
    let sign = with(b, BinaryOp::Shl, sign, 12);
    let bits = b.binary(BinaryOp::Or, magnitude, sign);
    b.bitcast(bits, DType::BF16)
}

/// `2^(scale - 127)`, whose bits are the exponent; the least of them is no normal number, and 255 none at all.
fn power_of_scale(b: &mut Builder<'_>, scale: Value) -> Value {
    let shape = b.func.tile(scale).shape;
    let scale = b.cast(scale, DType::I16);
    let bits = with(b, BinaryOp::Shl, scale, 7);
    let instead = |b: &mut Builder<'_>, of: i64, bits: i64, other: Value| {
        let of = b.full(Scalar::int(DType::I16, of), shape);
        let is_it = b.compare(Predicate::Eq, scale, of);
        let bits = b.full(Scalar::int(DType::I16, bits), shape);
        b.select(is_it, bits, other)
    };
    let bits = instead(b, 0, 64, bits);
    let bits = instead(b, 255, 0x7fc0, bits);
    b.bitcast(bits, DType::BF16)
}

/// A number on the right of every element.
fn with(b: &mut Builder<'_>, op: BinaryOp, x: Value, number: i64) -> Value {
    let ty = b.func.tile(x);
    let number = b.full(Scalar::int(ty.dtype(), number), ty.shape);
    b.binary(op, x, number)
}

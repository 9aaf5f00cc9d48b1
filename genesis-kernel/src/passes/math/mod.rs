//! Transcendental functions as polynomials, one file for each family.
//!
//! Each function is written once for f32 and f64: an argument reduction that is exact or carries its
//! error along, a polynomial on the small range that is left, and selects for the special values. The
//! coefficients are weighted minimax fits (Lawson's iteration at 80 digits), rounded one at a time with
//! the rest fitted again; the error noted beside each is relative, of the function, before rounding.

mod erf;
mod exp;
pub(crate) mod gelu;
mod log;
#[cfg(test)]
mod tests;
mod trig;

use super::expand_math::MathTarget;
use crate::ir::{BinaryOp, Builder, DType, Predicate, Scalar, TileType, UnaryOp, Value};

/// What a function's expansion is written with: the argument and the ops of its type.
pub(crate) struct Math<'m, 'f> {
    b: &'m mut Builder<'f>,
    x: Value,
    ty: TileType,
    target: MathTarget,
    /// Whether the result is rounded to f16 or bf16 afterwards.
    is_rounded: bool,
}

/// The function of the argument, in the argument's type.
pub(crate) fn expand(m: &mut Math<'_, '_>, function: UnaryOp) -> Value {
    let x = m.x;
    match function {
        UnaryOp::Exp => exp::exp(m, x),
        UnaryOp::Exp2 => exp::exp2(m, x),
        UnaryOp::Sigmoid => exp::sigmoid(m, x),
        UnaryOp::Tanh => exp::tanh(m, x),
        UnaryOp::Log => log::log(m, x),
        UnaryOp::Log2 => log::log2(m, x),
        UnaryOp::Sin => trig::sin(m, x),
        UnaryOp::Cos => trig::cos(m, x),
        UnaryOp::Erf => erf::erf(m, x),
        UnaryOp::Rsqrt => {
            let (one, root) = (m.c(1.0), m.b.unary(UnaryOp::Sqrt, x));
            m.div(one, root)
        }
        UnaryOp::Exp2Flush | UnaryOp::Exp2Approx if !m.may_approximate() => exp::exp2(m, x),
        UnaryOp::RecipApprox if !m.may_approximate() => {
            let one = m.c(1.0);
            m.div(one, x)
        }
        UnaryOp::Neg
        | UnaryOp::Not
        | UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::Exp2Approx
        | UnaryOp::Exp2Flush
        | UnaryOp::RecipApprox
        | UnaryOp::SinFar
        | UnaryOp::CosFar => m.b.unary(function, x),
    }
}

impl<'m, 'f> Math<'m, 'f> {
    /// Ops that go where the builder stands; `x` is a tile of f32 or f64.
    pub(crate) fn new(b: &'m mut Builder<'f>, x: Value, target: MathTarget) -> Math<'m, 'f> {
        let ty = b.func.tile(x);
        Math { b, x, ty, target, is_rounded: false }
    }

    /// The same for a result that is rounded to f16 or bf16 afterwards.
    pub(crate) fn rounded(self) -> Math<'m, 'f> {
        Math { is_rounded: true, ..self }
    }

    fn is_f32(&self) -> bool {
        self.ty.dtype() == DType::F32
    }

    /// Whether the GPU's own power of two may be used.
    fn may_approximate(&self) -> bool {
        self.target == MathTarget::Nvptx && self.is_f32()
    }

    /// The signed integer as wide as the float.
    fn int_dtype(&self) -> DType {
        if self.is_f32() { DType::I32 } else { DType::I64 }
    }

    /// The number of stored bits of the fraction.
    fn fraction_bits(&self) -> i64 {
        if self.is_f32() { 23 } else { 52 }
    }

    /// One of two constants: for f32, for f64.
    fn pick<T>(&self, f32s: T, f64s: T) -> T {
        if self.is_f32() { f32s } else { f64s }
    }

    fn c(&mut self, value: f64) -> Value {
        self.b.full(Scalar::float(self.ty.dtype(), value), self.ty.shape)
    }

    fn int(&mut self, value: i64) -> Value {
        self.b.full(Scalar::int(self.int_dtype(), value), self.ty.shape)
    }

    fn add(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Add, a, b)
    }

    fn sub(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Sub, a, b)
    }

    fn mul(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Mul, a, b)
    }

    fn div(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Div, a, b)
    }

    fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        self.b.fma(a, b, c)
    }

    /// `a * b` with a constant.
    fn times(&mut self, a: Value, b: f64) -> Value {
        let b = self.c(b);
        self.mul(a, b)
    }

    /// `a * b + c` with a constant `b`.
    fn fma_c(&mut self, a: Value, b: f64, c: Value) -> Value {
        let b = self.c(b);
        self.fma(a, b, c)
    }

    fn at_least(&mut self, a: Value, low: f64) -> Value {
        let low = self.c(low);
        self.b.binary(BinaryOp::Max, a, low)
    }

    fn at_most(&mut self, a: Value, high: f64) -> Value {
        let high = self.c(high);
        self.b.binary(BinaryOp::Min, a, high)
    }

    /// The smaller of `a` and a constant, which also stands for NaN.
    fn at_most_number(&mut self, a: Value, high: f64) -> Value {
        let high = self.c(high);
        self.b.binary(BinaryOp::MinNum, a, high)
    }

    fn abs(&mut self, a: Value) -> Value {
        self.b.unary(UnaryOp::Abs, a)
    }

    fn neg(&mut self, a: Value) -> Value {
        self.b.unary(UnaryOp::Neg, a)
    }

    fn compare(&mut self, predicate: Predicate, a: Value, b: f64) -> Value {
        let b = self.c(b);
        self.b.compare(predicate, a, b)
    }

    fn select(&mut self, cond: Value, a: Value, b: Value) -> Value {
        self.b.select(cond, a, b)
    }

    fn bits(&mut self, a: Value) -> Value {
        let dtype = self.int_dtype();
        self.b.bitcast(a, dtype)
    }

    fn float_of(&mut self, a: Value) -> Value {
        let dtype = self.ty.dtype();
        self.b.bitcast(a, dtype)
    }

    /// An integer op with a constant.
    fn int_op(&mut self, op: BinaryOp, a: Value, b: i64) -> Value {
        let b = self.int(b);
        self.b.binary(op, a, b)
    }

    /// `c[0] + c[1] x + c[2] x^2 + ..`, by Horner's rule.
    fn poly(&mut self, x: Value, coefficients: &[f64]) -> Value {
        let (&last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
        let mut sum = self.c(last);
        for &coefficient in rest.iter().rev() {
            let coefficient = self.c(coefficient);
            sum = self.fma(sum, x, coefficient);
        }
        sum
    }

    /// `magnitude`, which is not negative, with the sign of `sign`.
    fn copy_sign(&mut self, magnitude: Value, sign: Value) -> Value {
        let (magnitude, sign) = (self.bits(magnitude), self.bits(sign));
        let mask = self.pick(i64::from(i32::MIN), i64::MIN);
        let sign = self.int_op(BinaryOp::And, sign, mask);
        let both = self.b.binary(BinaryOp::Or, magnitude, sign);
        self.float_of(both)
    }
}

//! What the functions are written with: the ops of an argument's type, and constants of it.

use crate::ir::{BinaryOp, Builder, DType, Predicate, Scalar, TileType, UnaryOp, Value};

/// Which instructions the expansion may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MathTarget {
    /// Only ops with one correct result.
    Exact,
    /// Also the GPU's own power of two, [`UnaryOp::Exp2Approx`], with the error of its argument put
    /// right: fewer instructions, still within 4 ULP, but not the CPU's bits.
    Nvptx,
}

/// What a function's expansion is written with: the argument and the ops of its type.
pub(crate) struct Math<'m, 'f> {
    pub(super) b: &'m mut Builder<'f>,
    pub(super) x: Value,
    pub(super) ty: TileType,
    pub(super) target: MathTarget,
    /// Whether the result is rounded to f16 or bf16 afterwards.
    pub(super) is_rounded: bool,
    /// Whether the argument is in `0..=1`, or NaN.
    pub(super) is_fraction: bool,
}

impl<'m, 'f> Math<'m, 'f> {
    /// Ops that go where the builder stands; `x` is a tile of f32 or f64.
    pub(crate) fn new(b: &'m mut Builder<'f>, x: Value, target: MathTarget) -> Math<'m, 'f> {
        let ty = b.func.tile(x);
        Math { b, x, ty, target, is_rounded: false, is_fraction: false }
    }

    /// The same for a result that is rounded to f16 or bf16 afterwards.
    pub(crate) fn rounded(self) -> Math<'m, 'f> {
        Math { is_rounded: true, ..self }
    }

    /// The same for an argument in `0..=1`, or NaN.
    pub(crate) fn of_fraction(self) -> Math<'m, 'f> {
        Math { is_fraction: true, ..self }
    }

    pub(super) fn is_f32(&self) -> bool {
        self.ty.dtype() == DType::F32
    }

    /// Whether the GPU's own power of two may be used.
    pub(super) fn may_approximate(&self) -> bool {
        self.target == MathTarget::Nvptx && self.is_f32()
    }

    /// The signed integer as wide as the float.
    pub(super) fn int_dtype(&self) -> DType {
        if self.is_f32() { DType::I32 } else { DType::I64 }
    }

    /// The number of stored bits of the fraction.
    pub(super) fn fraction_bits(&self) -> i64 {
        if self.is_f32() { 23 } else { 52 }
    }

    /// One of two constants: for f32, for f64.
    pub(super) fn pick<T>(&self, f32s: T, f64s: T) -> T {
        if self.is_f32() { f32s } else { f64s }
    }

    pub(super) fn c(&mut self, value: f64) -> Value {
        self.b.full(Scalar::float(self.ty.dtype(), value), self.ty.shape)
    }

    pub(super) fn int(&mut self, value: i64) -> Value {
        self.b.full(Scalar::int(self.int_dtype(), value), self.ty.shape)
    }

    pub(super) fn add(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Add, a, b)
    }

    pub(super) fn sub(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Sub, a, b)
    }

    pub(super) fn mul(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Mul, a, b)
    }

    pub(super) fn div(&mut self, a: Value, b: Value) -> Value {
        self.b.binary(BinaryOp::Div, a, b)
    }

    pub(super) fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        self.b.fma(a, b, c)
    }

    /// `a * b` with a constant.
    pub(super) fn times(&mut self, a: Value, b: f64) -> Value {
        let b = self.c(b);
        self.mul(a, b)
    }

    /// `a * b + c` with a constant `b`.
    pub(super) fn fma_c(&mut self, a: Value, b: f64, c: Value) -> Value {
        let b = self.c(b);
        self.fma(a, b, c)
    }

    pub(super) fn at_least(&mut self, a: Value, low: f64) -> Value {
        let low = self.c(low);
        self.b.binary(BinaryOp::Max, a, low)
    }

    pub(super) fn at_most(&mut self, a: Value, high: f64) -> Value {
        let high = self.c(high);
        self.b.binary(BinaryOp::Min, a, high)
    }

    /// The smaller of `a` and a constant, which also stands for NaN.
    pub(super) fn at_most_number(&mut self, a: Value, high: f64) -> Value {
        let high = self.c(high);
        self.b.binary(BinaryOp::MinNum, a, high)
    }

    pub(super) fn abs(&mut self, a: Value) -> Value {
        self.b.unary(UnaryOp::Abs, a)
    }

    pub(super) fn neg(&mut self, a: Value) -> Value {
        self.b.unary(UnaryOp::Neg, a)
    }

    pub(super) fn compare(&mut self, predicate: Predicate, a: Value, b: f64) -> Value {
        let b = self.c(b);
        self.b.compare(predicate, a, b)
    }

    pub(super) fn select(&mut self, cond: Value, a: Value, b: Value) -> Value {
        self.b.select(cond, a, b)
    }

    pub(super) fn bits(&mut self, a: Value) -> Value {
        let dtype = self.int_dtype();
        self.b.bitcast(a, dtype)
    }

    pub(super) fn float_of(&mut self, a: Value) -> Value {
        let dtype = self.ty.dtype();
        self.b.bitcast(a, dtype)
    }

    /// An integer op with a constant.
    pub(super) fn int_op(&mut self, op: BinaryOp, a: Value, b: i64) -> Value {
        let b = self.int(b);
        self.b.binary(op, a, b)
    }

    /// `c[0] + c[1] x + c[2] x^2 + ..`, by Horner's rule.
    pub(super) fn poly(&mut self, x: Value, coefficients: &[f64]) -> Value {
        let (&last, rest) = coefficients.split_last().expect("a polynomial has coefficients");
        let mut sum = self.c(last);
        for &coefficient in rest.iter().rev() {
            let coefficient = self.c(coefficient);
            sum = self.fma(sum, x, coefficient);
        }
        sum
    }

    /// `magnitude`, which is not negative, with the sign of `sign`.
    pub(super) fn copy_sign(&mut self, magnitude: Value, sign: Value) -> Value {
        let (magnitude, sign) = (self.bits(magnitude), self.bits(sign));
        let mask = self.pick(i64::from(i32::MIN), i64::MIN);
        let sign = self.int_op(BinaryOp::And, sign, mask);
        let both = self.b.binary(BinaryOp::Or, magnitude, sign);
        self.float_of(both)
    }
}

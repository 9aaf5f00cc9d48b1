//! Multiplications that a warp skips where its factors are all 1.
//!
//! Of a factor that is [`MostlyOne`](UnaryOp::MostlyOne) a thread has few different elements, each for
//! many of the other operand:
//!
//! ```text
//! %f = mostly_one %x : f32[128]                          two registers a thread
//! %b = broadcast (expand_dims 1 %f) : f32[128,64]
//! %y = mul %a, %b                                        32 multiplications
//!
//! any   = some thread of the warp has %f[0] != 1 or %f[1] != 1
//! block multiply, if any
//! done  %y = %a, or the products
//! ```
//!
//! A product by 1 is the other operand, bit for bit, so that nobody sees which way was taken; a NaN is
//! not 1.

use super::super::elementwise::{self, Target};
use super::super::llvm::Val;
use super::lower::{Lowering, Registers};
use super::pipeline::Role;
use super::thread;
use crate::Error;
use crate::ir::{BinaryOp, Func, Op, OpKind, Predicate, Scalar, UnaryOp, Value};

/// Multiplications that are saved for a factor that is looked at, at least.
const WORTH: usize = 8;

impl Lowering<'_> {
    /// Lowers a multiplication that may be skipped; false where the op is none.
    pub(super) fn skippable(&mut self, op: Op) -> Result<bool, Error> {
        let Some(factor) = self.rare_factor(op) else { return Ok(false) };
        let operands = self.operands(op)?;
        let different = distinct(&operands[factor]);
        if operands[0].len() < WORTH * different.len() {
            return Ok(false);
        }
        let e = self.e;
        let before = e.current_block();
        let changes = self.differs_from_one(self.func.op(op).operands[factor], &different);
        let (multiply, done) = (e.block("multiply"), e.block("multiplied"));
        e.cond_br(thread::any_in_warp(e, changes), multiply, done);
        e.position(multiply);
        let pairs = operands[0].iter().zip(operands[1].iter());
        let products: Vec<Val> =
            pairs.map(|(&x, &y)| self.one(op, &[x, y])).collect::<Result<_, _>>()?;
        let end = e.current_block();
        e.br(done);
        e.position(done);
        let same = operands[1 - factor].iter();
        let either = same
            .zip(products)
            .map(|(&x, y)| e.phi(e.type_of(x), &[(x, before), (y, end)]))
            .collect();
        self.result(op, either)?;
        Ok(true)
    }

    /// Which operand of a multiplication is mostly 1. A producer is one thread, which must not ask others.
    fn rare_factor(&self, op: Op) -> Option<usize> {
        let data = self.func.op(op);
        let is_product = data.kind == OpKind::Binary(BinaryOp::Mul)
            && self.dtype(data.operands[0]).is_float()
            && self.copies.as_ref().is_none_or(|copies| copies.role == Role::Consumer);
        let is_rare = |&value: &Value| is_mostly_one(self.func, value);
        if is_product { data.operands.iter().position(is_rare) } else { None }
    }

    /// Whether one of these registers of a value is not 1.
    fn differs_from_one(&self, value: Value, registers: &[Val]) -> Val {
        let (e, dtype) = (self.e, self.dtype(value));
        let one = e.scalar(Scalar::float(dtype, 1.0));
        let differs =
            |&x: &Val| elementwise::compare(e, Target::Nvptx, Predicate::Ne, dtype, &[x, one]);
        registers.iter().map(differs).fold(e.bool(false), |a, b| e.or(a, b))
    }
}

/// Whether a value is a factor that is mostly 1, or repeats one.
fn is_mostly_one(func: &Func, mut value: Value) -> bool {
    while let Some(op) = func.def_op(value) {
        let data = func.op(op);
        let repeats = matches!(
            data.kind,
            OpKind::Broadcast
                | OpKind::ExpandDims { .. }
                | OpKind::Reshape
                | OpKind::Transpose { .. }
                | OpKind::ConvertLayout
        );
        if !repeats {
            return data.kind == OpKind::Unary(UnaryOp::MostlyOne);
        }
        value = data.operands[0];
    }
    false
}

/// Registers without those that come again.
fn distinct(registers: &Registers) -> Vec<Val> {
    let mut found: Vec<Val> = Vec::new();
    for &register in registers.iter() {
        if !found.contains(&register) {
            found.push(register);
        }
    }
    found
}

//! Warp-uniform branches around multiplications whose factors are all 1.
//!
//! A factor that is [`MostlyOne`](UnaryOp::MostlyOne) has few distinct registers in a thread, each for many of the
//! other operand's:
//!
//! ```text
//! %f = mostly_one %x : f32[128]                          two registers a thread
//! %b = broadcast (expand_dims 1 %f) : f32[128,64]
//! %y = mul %a, %b                                        32 multiplications
//!
//! any   = vote.any(%f[0] != 1 or %f[1] != 1)
//! branch multiply, if any
//! done  %y = phi %a, the products
//! ```
//!
//! A product by 1 is the other operand, bit for bit, so the result does not depend on the branch; a NaN is not 1.

use super::super::elementwise::{self, Target};
use super::super::llvm::Val;
use super::lower::{Lowering, Registers};
use super::thread;
use super::tma_pipeline::Role;
use crate::Error;
use crate::ir::{BinaryOp, Func, Op, OpKind, Predicate, Scalar, UnaryOp, Value};

/// Multiplications that are saved for each register that is tested, at least.
const LEAST_SAVED: usize = 8;

impl Lowering<'_> {
    /// Lowers a multiplication under a warp-uniform branch; false where it is none by a mostly-one factor.
    pub(super) fn mul_by_mostly_one(&mut self, op: Op) -> Result<bool, Error> {
        let Some(factor) = self.mostly_one_factor(op) else { return Ok(false) };
        let operands = self.operands(op)?;
        let different = distinct(&operands[factor]);
        if operands[0].len() < LEAST_SAVED * different.len() {
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

    /// Which operand of a multiplication is mostly 1. A producer is one thread, which must not vote.
    fn mostly_one_factor(&self, op: Op) -> Option<usize> {
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

/// The distinct registers.
fn distinct(registers: &Registers) -> Vec<Val> {
    let mut found: Vec<Val> = Vec::new();
    for &register in registers.iter() {
        if !found.contains(&register) {
            found.push(register);
        }
    }
    found
}

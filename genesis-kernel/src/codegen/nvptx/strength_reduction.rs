//! Straight-line strength reduction of index tiles and addresses over the registers of a thread.
//!
//! A layout is linear, and so is an offset: the registers that one bit of their number tells apart differ by one
//! *increment*, the same in every thread. Each register of such a tile is computed from a neighbor by one addition, and a
//! multiplication by a stride is done once a bit:
//!
//! ```text
//! i = iota                  [t, t+128, t+256, t+384]           increments 128, 256
//! m = i * stride            m0 = t*stride, a = 128*stride, b = 256*stride
//!                           [m0, m0+a, m0+b, (m0+b)+a]         increments a, b
//! p = x + m                 [p0 = x+m0, p0+a, p0+b, (p0+b)+a]  increments a, b
//! ```
//!
//! LLVM's straight-line strength reduction finds the same, and took a quarter of the compilation of a kernel whose
//! operands may have any strides. It is left out (`llvm/machine.rs`).

use std::rc::Rc;

use super::lowering::Lowering;
use super::registers::Increments;
use crate::Error;
use crate::codegen::llvm::Val;
use crate::ir::{BinaryOp, DType, Op, OpKind, Value};

/// The bit by which a register is told from an earlier one that it is computed from, and that one.
fn origin(register: usize) -> Option<(usize, usize)> {
    let bit = register.checked_ilog2()?;
    Some((bit as usize, register & !(1 << bit)))
}

impl Lowering<'_> {
    /// The increments of a value, if its registers are linear in their number.
    fn increments(&self, value: Value) -> Option<Increments> {
        let known = self.values.increments[value.index()].clone();
        let is_single =
            || self.values.registers[value.index()].as_ref().is_some_and(|all| all.len() == 1);
        known.or_else(|| is_single().then(|| Rc::from([])))
    }

    /// The increments of an `iota`: constants, as its layout says.
    pub(super) fn note_iota_increments(&mut self, value: Value, bases: &[u32]) {
        if !is_wide(self.dtype(value)) {
            return;
        }
        let ty = self.e.register_ty(self.dtype(value));
        let increment = |&basis: &u32| (basis != 0).then(|| self.e.int(ty, i64::from(basis)));
        self.values.increments[value.index()] = Some(bases.iter().map(increment).collect());
    }

    /// The increments of a tile whose registers are those of another: `map` says which.
    pub(super) fn note_renamed_increments(&mut self, from: Value, to: Value, map: &[u32]) {
        self.values.increments[to.index()] =
            self.increments(from).and_then(|increments| renamed(&increments, map));
    }

    /// Lowers an op on linear tiles by increments; says whether it did.
    pub(super) fn strength_reduced(&mut self, op: Op) -> Result<bool, Error> {
        let data = self.func.op(op);
        let result = data.results[0];
        let n = self.lir.num_regs(result) as usize;
        if !n.is_power_of_two() || n == 1 {
            return Ok(false);
        }
        let Some(increments) = self.result_increments(op, n.ilog2() as usize) else {
            return Ok(false);
        };
        let first: Vec<Val> = self.operands(op)?.iter().map(|operand| operand[0]).collect();
        let mut all = vec![self.one(op, &first)?];
        for register in 1..n {
            let Some((bit, before)) = origin(register) else { continue };
            let before = all[before];
            all.push(match at(&increments, bit) {
                None => before,
                Some(increment) if self.is_ptr(result) => {
                    self.e.gep(self.e.memory_ty(self.dtype(result)), before, increment)
                }
                Some(increment) => self.e.add(before, increment),
            });
        }
        self.set(result, all);
        self.values.increments[result.index()] = Some(increments);
        Ok(true)
    }

    /// The increments of a result; code for them stands before the op's own.
    fn result_increments(&self, op: Op, bits: usize) -> Option<Increments> {
        let data = self.func.op(op);
        let operand = |i: usize| data.operands.get(i).and_then(|&value| self.increments(value));
        match data.kind {
            OpKind::MultipleOf(_) => operand(0),
            OpKind::Binary(op) if is_wide(self.dtype(data.results[0])) => {
                let (left, right) = (operand(0)?, operand(1)?);
                match op {
                    BinaryOp::Add => Some(self.sums(&left, &right, bits)),
                    BinaryOp::Sub if is_uniform(&right) => Some(left),
                    BinaryOp::Mul if is_uniform(&right) => self.scaled(&left, data.operands[1]),
                    BinaryOp::Mul if is_uniform(&left) => self.scaled(&right, data.operands[0]),
                    _ => None,
                }
            }
            // A narrower offset could wrap where an address does not.
            OpKind::PtrAdd if self.dtype(data.operands[1]).bytes() == 8 => {
                Some(self.sums(&operand(0)?, &operand(1)?, bits))
            }
            _ => None,
        }
    }

    fn sums(&self, left: &Increments, right: &Increments, bits: usize) -> Increments {
        let sum = |bit| match (at(left, bit), at(right, bit)) {
            (Some(left), Some(right)) => Some(self.e.add(left, right)),
            (one, other) => one.or(other),
        };
        (0..bits).map(sum).collect()
    }

    /// The increments times a factor whose registers are all equal.
    fn scaled(&self, increments: &Increments, factor: Value) -> Option<Increments> {
        let factor = self.values.registers[factor.index()].as_ref()?[0];
        Some(
            increments
                .iter()
                .map(|increment| increment.map(|increment| self.e.mul(increment, factor)))
                .collect(),
        )
    }
}

fn at(increments: &Increments, bit: usize) -> Option<Val> {
    increments.get(bit).copied().flatten()
}

/// Whether all registers are equal.
fn is_uniform(increments: &Increments) -> bool {
    increments.iter().all(Option::is_none)
}

/// Dtypes that indices have.
fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

/// The increments of registers taken from others, if each bit of a number selects at most one bit there.
fn renamed(increments: &Increments, map: &[u32]) -> Option<Increments> {
    let bits = map.len().checked_ilog2().filter(|_| map.len().is_power_of_two())?;
    if map.first() != Some(&0) {
        return None;
    }
    let is_linear = (1..map.len()).all(|register| {
        origin(register).is_some_and(|(bit, before)| map[register] == map[before] ^ map[1 << bit])
    });
    let increment = |bit: u32| match map[1 << bit] {
        0 => Some(None),
        from => from.is_power_of_two().then(|| at(increments, from.ilog2() as usize)),
    };
    if is_linear { (0..bits).map(increment).collect() } else { None }
}

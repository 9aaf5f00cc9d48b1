//! Registers of a tile that are computed from each other by their increments, as machine IR has selected; see
//! [`crate::machine`]'s `strength_reduction`.

use super::lowering::Lowering;
use super::registers::Increments;
use crate::Error;
use crate::codegen::llvm::Val;
use crate::ir::{Op, Value};
use crate::machine::Increments as Selected;

impl Lowering<'_> {
    /// Lowers an op by increments where that is selected; says whether it is.
    pub(super) fn by_increments(&mut self, op: Op) -> Result<bool, Error> {
        let Some(increments) = self.result_increments(op)? else { return Ok(false) };
        let result = self.func.op(op).results[0];
        let first: Vec<Val> = self.operands(op)?.iter().map(|operand| operand[0]).collect();
        let mut all = vec![self.one(op, &first)?];
        for register in 1..self.lir.num_regs(result) as usize {
            let bit = register.ilog2() as usize;
            let before = all[register & !(1 << bit)];
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

    /// Notes the increments of a result whose registers are there.
    pub(super) fn note_increments(&mut self, op: Op) -> Result<(), Error> {
        let increments = self.result_increments(op)?;
        self.values.increments[self.func.op(op).results[0].index()] = increments;
        Ok(())
    }

    /// The selected increments of a result; code for them stands before the op's own.
    fn result_increments(&self, op: Op) -> Result<Option<Increments>, Error> {
        let Some(selected) = self.facts.code.selection.increments.get(&op) else { return Ok(None) };
        let data = self.func.op(op);
        let result = data.results[0];
        let bits = self.lir.num_regs(result).ilog2() as usize;
        let operand = |i: usize| self.increments(data.operands[i]);
        Ok(Some(match selected {
            Selected::Constants(bases) => {
                let ty = self.e.register_ty(self.dtype(result));
                let increment =
                    |&basis: &u32| (basis != 0).then(|| self.e.int(ty, i64::from(basis)));
                bases.iter().map(increment).collect()
            }
            Selected::Renamed(from) => {
                let source = operand(0)?;
                from.iter().map(|bit| at(&source, (*bit)? as usize)).collect()
            }
            Selected::Same => operand(0)?,
            Selected::Sum => {
                let (left, right) = (operand(0)?, operand(1)?);
                let sum = |bit| match (at(&left, bit), at(&right, bit)) {
                    (Some(left), Some(right)) => Some(self.e.add(left, right)),
                    (one, other) => one.or(other),
                };
                (0..bits).map(sum).collect()
            }
            Selected::Scaled(operand) => {
                let factor = self.get(data.operands[1 - operand])?[0];
                let increments = self.increments(data.operands[*operand])?;
                let scale = |increment: &Option<Val>| increment.map(|one| self.e.mul(one, factor));
                increments.iter().map(scale).collect()
            }
        }))
    }

    /// The increments of a value; a single register has none.
    fn increments(&self, value: Value) -> Result<Increments, Error> {
        match self.values.increments[value.index()].clone() {
            Some(known) => Ok(known),
            None if self.get(value)?.len() == 1 => Ok(Increments::default()),
            None => Err(Error::bug(format!("%{} has no increments", value.0))),
        }
    }
}

fn at(increments: &Increments, bit: usize) -> Option<Val> {
    increments.get(bit).copied().flatten()
}

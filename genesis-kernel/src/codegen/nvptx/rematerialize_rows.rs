//! Rows of 16-bit floats that are recomputed from their packed registers, where machine IR says so; see
//! [`crate::machine`]'s `rematerialize_rows`.

use super::super::elementwise::{self, Target as Machine, from_memory, to_memory};
use super::super::llvm::{IntPred, Val};
use super::lowering::Lowering;
use super::registers::Registers;
use crate::Error;
use crate::ir::{Op, Value};
use crate::machine::Anew;

impl Lowering<'_> {
    /// The registers of each operand of an elementwise op, those that were recomputed where these are read.
    pub(super) fn operands_of_rows(&self, op: Op) -> Result<Vec<Registers>, Error> {
        match self.facts.code.selection.anew.get(&op) {
            Some(anew) => self.operands_anew(op, anew),
            None => self.operands(op),
        }
    }

    fn operands_anew(&self, op: Op, anew: &[usize]) -> Result<Vec<Registers>, Error> {
        let operands = self.func.op(op).operands.iter().enumerate();
        let registers = operands.map(|(number, &value)| match anew.contains(&number) {
            true => {
                let registers = self.values.recomputed.get(&value).cloned();
                registers.ok_or_else(|| Error::bug(format!("%{} is not recomputed", value.0)))
            }
            false => self.get(value),
        });
        registers.collect()
    }

    /// Computes an op's result again, beside the one that there is.
    pub(super) fn recompute(&mut self, op: Op, from: &Anew) -> Result<(), Error> {
        let data = self.func.op(op);
        let operands = match from {
            Anew::Packed(axis) => vec![self.opaque_words(data.operands[0], *axis)?],
            Anew::Operands(anew) => self.operands_anew(op, anew)?,
        };
        let result = data.results[0];
        let mut registers: Vec<Val> = Vec::new();
        for reg in 0..self.lir.num_regs(result) as usize {
            let parts: Vec<Val> = operands.iter().map(|o| o[reg]).collect();
            registers.push(match self.without_code(op, reg, &parts, &registers) {
                Some(known) => known,
                None => elementwise::lower(self.e, Machine::Nvptx, self.func, op, &parts)?,
            });
        }
        self.values.recomputed.insert(result, registers.into());
        Ok(())
    }

    /// The same 16-bit floats, opaque to LLVM and ptxas.
    fn opaque_words(&self, source: Value, axis: u8) -> Result<Registers, Error> {
        let e = self.e;
        let dtype = self.dtype(source);
        let zero = self.opaque_zero(axis);
        let known = self.get(source)?;
        let memory = e.memory_ty(dtype);
        let words = known.chunks(2).flat_map(|pair| {
            let pair: Vec<Val> = pair.iter().map(|&half| to_memory(e, dtype, half)).collect();
            let word = e.xor(e.bitcast(e.build_vec(&pair), e.i32()), zero);
            let halves = e.bitcast(word, e.vec(memory, 2));
            [0, 1].map(|i| from_memory(e, dtype, e.extract(halves, i)))
        });
        Ok(words.collect::<Vec<Val>>().into())
    }

    /// An opaque zero: no block index along an axis reaches the number of blocks.
    fn opaque_zero(&self, axis: u8) -> Val {
        let e = self.e;
        let axis = ["x", "y", "z"][usize::from(axis)];
        self.threads.in_entry(e, || {
            let read = |what: &str| {
                e.intrinsic(&format!("llvm.nvvm.read.ptx.sreg.{what}.{axis}"), &[], &[])
            };
            let beyond = e.icmp(IntPred::Uge, read("ctaid"), read("nctaid"));
            // All of its bits, lest one half of a word be found out.
            e.sext(beyond, e.i32())
        })
    }
}

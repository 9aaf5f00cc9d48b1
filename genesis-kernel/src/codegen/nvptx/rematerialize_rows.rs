//! Rematerializes long rows of 16-bit floats after barriers, from their packed registers.
//!
//! The code between two barriers of a program is a *stage* here. A tile of many registers that an earlier stage
//! computed from loaded 16-bit floats, masks and a few scalars a thread would stay live across the barrier, one
//! 32-bit register an element. Rematerialized from the packed pairs it keeps half of one, which raises occupancy: more
//! blocks fit on a multiprocessor, whose loads go on while one block waits.
//!
//! ```text
//! stage 0   w = load bf16;  max(f32(w))          keeps w
//! stage 1   sum(exp(f32(w) - max))               keeps w
//! stage 2   store(exp(f32(w) - max) * scale)     instead of keeping f32(w), then exp(..)
//! ```
//!
//! GVN and ptxas would see a common subexpression and keep the first result. So the packed words of each later stage
//! are XORed with a zero that is opaque to both.

use std::collections::BTreeMap;

use super::super::elementwise::{self, Target as Machine, from_memory, to_memory};
use super::super::llvm::{IntPred, Val};
use super::lowering::Lowering;
use super::registers::Registers;
use crate::Error;
use crate::ir::{DType, Op, OpKind, Region, Value};

/// Registers of a tile from which on rematerialization pays; smaller ones cause no register pressure.
const MANY_REGISTERS: usize = 32;
/// Ops that may be rematerialized for an element.
const MOST_OPS: usize = 12;
/// Distinct registers a thread may keep live in place of a whole tile.
const FEW_VALUES: usize = 4;

impl Lowering<'_> {
    /// The registers of each operand of an elementwise op, rematerialized where they are of an earlier
    /// stage and that saves registers.
    pub(super) fn rematerialized_operands(&mut self, op: Op) -> Result<Vec<Registers>, Error> {
        let operands = self.func.op(op).operands.clone();
        operands.into_iter().map(|value| self.operand_registers(value)).collect()
    }

    fn operand_registers(&mut self, value: Value) -> Result<Registers, Error> {
        let mut ops = 0;
        let is_worthwhile = self.is_of_earlier_stage(value)
            && self.is_wide(value)
            && self.can_rematerialize(value, &mut ops)
            && ops <= MOST_OPS;
        if is_worthwhile { self.rematerialize_value(value) } else { self.get(value) }
    }

    /// Whether a tile was computed before the last barrier, in the same region.
    fn is_of_earlier_stage(&self, value: Value) -> bool {
        self.values.born[value.index()]
            .is_some_and(|(region, stage)| region == self.here.region && stage < self.here.stage)
    }

    fn is_wide(&self, value: Value) -> bool {
        let tile = self.func.tile(value);
        !tile.is_ptr()
            && tile.dtype() == DType::F32
            && self.lir.num_regs(value) as usize >= MANY_REGISTERS
    }

    /// The loaded 16-bit floats that a value is a cast of.
    fn packed_source(&self, value: Value) -> Option<Value> {
        let data = self.func.op(self.func.def_op(value)?);
        let &[source] = data.operands.as_slice() else { return None };
        let is_half = matches!(self.func.tile(source).dtype(), DType::F16 | DType::BF16);
        let load = self.func.def_op(source)?;
        let in_words = self.lir.accesses.get(&load).is_some_and(|access| {
            access.groups.iter().all(|group| group.len() > 1 && group[1] == group[0] + 1)
        });
        let is_load = self.func.op(load).kind == OpKind::Load;
        (data.kind == OpKind::Cast && is_half && is_load && in_words).then_some(source)
    }

    /// Whether a value can be rematerialized from what takes few registers; counts the ops.
    fn can_rematerialize(&self, value: Value, ops: &mut usize) -> bool {
        let Some(op) = self.func.def_op(value) else { return false };
        let data = self.func.op(op);
        *ops += 1;
        if *ops > MOST_OPS || !self.is_of_earlier_stage(value) {
            return false;
        }
        if self.packed_source(value).is_some() {
            return true;
        }
        let is_simple = matches!(
            data.kind,
            OpKind::Unary(_) | OpKind::Binary(_) | OpKind::Select | OpKind::Fma
        );
        let kept = |&&operand: &&Value| !self.is_kept(operand);
        let wide: Vec<Value> = data.operands.iter().filter(kept).copied().collect();
        is_simple
            && !wide.is_empty()
            && wide.iter().all(|&operand| self.can_rematerialize(operand, ops))
    }

    /// Whether a value takes few registers of a thread: masks, and values with few distinct registers.
    fn is_kept(&self, value: Value) -> bool {
        let Ok(registers) = self.get(value) else { return false };
        let mut different: Vec<Val> = Vec::new();
        for &register in registers.iter() {
            if !different.contains(&register) {
                different.push(register);
            }
            if different.len() > FEW_VALUES {
                return self.func.tile(value).dtype() == DType::Bool;
            }
        }
        true
    }

    fn rematerialize_value(&mut self, value: Value) -> Result<Registers, Error> {
        if let Some((stage, registers)) = self.values.rows.known.get(&value)
            && *stage == self.here.stage
        {
            return Ok(registers.clone());
        }
        let op =
            self.func.def_op(value).ok_or_else(|| Error::bug("a parameter is rematerialized"))?;
        let operands: Vec<Registers> = match self.packed_source(value) {
            Some(source) => vec![self.opaque_words(source)?],
            None => {
                let operands = self.func.op(op).operands.clone();
                let again = operands.into_iter().map(|operand| match self.is_kept(operand) {
                    true => self.get(operand),
                    false => self.rematerialize_value(operand),
                });
                again.collect::<Result<_, _>>()?
            }
        };
        let mut registers: Vec<Val> = Vec::new();
        for reg in 0..self.lir.num_regs(value) as usize {
            let parts: Vec<Val> = operands.iter().map(|o| o[reg]).collect();
            registers.push(match self.without_code(op, reg, &parts, &registers) {
                Some(known) => known,
                None => elementwise::lower(self.e, Machine::Nvptx, self.func, op, &parts)?,
            });
        }
        let registers: Registers = registers.into();
        self.values.rows.known.insert(value, (self.here.stage, registers.clone()));
        Ok(registers)
    }

    /// The same 16-bit floats, opaque to LLVM and ptxas.
    fn opaque_words(&mut self, source: Value) -> Result<Registers, Error> {
        let e = self.e;
        let dtype = self.dtype(source);
        let zero = self.opaque_zero();
        let known = self.get(source)?;
        let memory = e.memory_ty(dtype);
        // What is padding in every thread was not loaded.
        let loads = self.func.def_op(source).and_then(|load| self.values.rows.loaded.get(&load));
        let loaded = loads.copied().unwrap_or(known.len());
        self.values.rows.packed.insert(source, (self.here.region, loaded.div_ceil(2) as u32));
        let words = known.chunks(2).flat_map(|pair| {
            let pair: Vec<Val> = pair.iter().map(|&half| to_memory(e, dtype, half)).collect();
            let word = e.xor(e.bitcast(e.build_vec(&pair), e.i32()), zero);
            let halves = e.bitcast(word, e.vec(memory, 2));
            [0, 1].map(|i| from_memory(e, dtype, e.extract(halves, i)))
        });
        Ok(words.collect::<Vec<Val>>().into())
    }

    /// Packed words that a thread keeps live at once to rematerialize from.
    pub(super) fn packed_words(&self) -> u32 {
        let mut words: BTreeMap<Region, u32> = BTreeMap::new();
        for &(region, count) in self.values.rows.packed.values() {
            *words.entry(region).or_insert(0) += count;
        }
        words.into_values().max().unwrap_or(0)
    }

    /// An opaque zero, a new one for each stage: no block index reaches the number of blocks.
    fn opaque_zero(&mut self) -> Val {
        let (e, stage) = (self.e, self.here.stage);
        let axis = ["x", "y", "z"][stage as usize % 3];
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

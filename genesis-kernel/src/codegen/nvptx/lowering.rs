//! The state of code generation: from one function of layout IR to one LLVM function.
//!
//! What an instruction or an op becomes is in the files beside this one, each with methods of its own.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::llvm::{Block as LlvmBlock, Emitter, Function, Ty, Val};
use super::collective::Partial;
use super::copying::Buffers;
use super::pipeline_state::Copies;
use super::registers::{GLOBAL, Registers};
use super::thread::Threads;
use super::values::Values;
use crate::Error;
use crate::ir::{DType, Elem, Func, Op, Type, Value};
use crate::layout::{LayoutIr, LinearLayout};
use crate::machine::{Code, SharedMemory};
use crate::target::GpuTarget;

/// A function on its way to LLVM.
pub(super) struct Lowering<'a> {
    pub(super) e: &'a Emitter,
    pub(super) lir: &'a LayoutIr,
    /// The function whose ops are lowered: that of the layout IR, or its producer in a tile of the other consumer.
    pub(super) func: &'a Func,
    pub(super) facts: Facts<'a>,
    pub(super) frame: Frame,
    pub(super) threads: Threads,
    pub(super) values: Values,
    /// Ops of which some instructions are still to come.
    pub(super) partial: BTreeMap<Op, Partial>,
    pub(super) buffers: Buffers,
    /// What is known of the copy engine, where the function uses it.
    pub(super) copies: Option<Copies>,
    /// The op that is lowered.
    pub(super) here: Op,
}

/// What is known of a function before any code is written.
pub(super) struct Facts<'a> {
    pub(super) gpu: &'a GpuTarget,
    /// Where everything lies in shared memory.
    pub(super) memory: &'a SharedMemory,
    /// What the threads do, in order.
    pub(super) code: &'a Code,
    /// How often each value is used.
    pub(super) uses: Vec<u32>,
}

impl<'a> Facts<'a> {
    /// Those of the layout IR's function.
    pub(super) fn of(
        lir: &'a LayoutIr,
        gpu: &'a GpuTarget,
        memory: &'a SharedMemory,
        code: &'a Code,
    ) -> Facts<'a> {
        Facts { gpu, memory, code, uses: lir.func.count_uses() }
    }
}

/// What stands around a function's code.
pub(super) struct Frame {
    /// The end of the function.
    pub(super) exit: LlvmBlock,
    /// Dynamic shared memory.
    pub(super) shared: Val,
    /// Where a failed assertion leaves its number; none without assertions.
    pub(super) status: Option<Val>,
    /// The number of each assertion.
    pub(super) asserts: BTreeMap<Op, usize>,
    /// The driver's print, once it is declared.
    pub(super) vprintf: Option<Function>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(
        e: &'a Emitter,
        lir: &'a LayoutIr,
        facts: Facts<'a>,
        frame: Frame,
        (threads, copies): (Threads, Option<Copies>),
    ) -> Lowering<'a> {
        let func = &lir.func;
        Lowering {
            e,
            lir,
            func,
            facts,
            frame,
            threads,
            values: Values::new(func.n_values()),
            partial: BTreeMap::new(),
            buffers: Buffers::default(),
            copies,
            here: Op(0),
        }
    }

    /// The registers of a value.
    pub(super) fn get(&self, value: Value) -> Result<Registers, Error> {
        let registers = self.values.registers[value.index()].clone();
        registers.ok_or_else(|| Error::bug(format!("%{} has no code yet", value.0)))
    }

    /// A scalar.
    pub(super) fn scalar(&self, value: Value) -> Result<Val, Error> {
        Ok(self.get(value)?[0])
    }

    /// The registers of each operand of an op.
    pub(super) fn operands(&self, op: Op) -> Result<Vec<Registers>, Error> {
        self.func.op(op).operands.iter().map(|&v| self.get(v)).collect()
    }

    /// Gives a value its registers.
    pub(super) fn set(&mut self, value: Value, registers: impl Into<Registers>) {
        self.values.registers[value.index()] = Some(registers.into());
        self.values.increments[value.index()] = None;
    }

    /// The layout of a tile.
    pub(super) fn layout(&self, value: Value) -> Result<&'a LinearLayout, Error> {
        let layout = self.lir.layout(value);
        layout
            .map(|layout| layout.as_ref())
            .ok_or_else(|| Error::bug(format!("%{} has no layout", value.0)))
    }

    /// The dtype of a tile's numbers.
    pub(super) fn dtype(&self, value: Value) -> DType {
        self.func.tile(value).dtype()
    }

    /// The LLVM type of one register of a value.
    pub(super) fn register_ty(&self, value: Value) -> Ty {
        match self.func.ty(value) {
            Type::Tile(tile) => match tile.elem {
                Elem::Data(dtype) => self.e.register_ty(dtype),
                Elem::Ptr(_) => self.e.ptr(GLOBAL),
            },
            Type::View { .. } => self.e.ptr(GLOBAL),
        }
    }

    /// An address in shared memory, by a byte offset, `i32`.
    pub(super) fn shared_at(&self, offset: Val) -> Val {
        self.e.gep(self.e.i8(), self.frame.shared, offset)
    }

    /// The scratch of an op.
    pub(super) fn scratch(&self, op: Op) -> Result<Range<u32>, Error> {
        self.facts.memory.scratch(op).ok_or_else(|| Error::bug("an op has no scratch memory"))
    }

    /// Gives the op's only result its registers.
    pub(super) fn result(&mut self, op: Op, registers: Vec<Val>) -> Result<(), Error> {
        let result = self.func.op(op).results[0];
        let expected = self.lir.num_regs(result) as usize;
        if registers.len() != expected {
            let kind = &self.func.op(op).kind;
            let found = registers.len();
            return Err(Error::bug(format!("{kind:?} has {found} registers for {expected}")));
        }
        self.set(result, registers);
        Ok(())
    }
}

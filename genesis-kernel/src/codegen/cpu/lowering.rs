//! The state of lowering one function: registers, places in scratch, and what waits to be computed.

use std::collections::BTreeSet;

use super::super::elementwise::Target;
use super::super::llvm::{Block, Emitter, Ty, Val};
use super::plan::{Plan, has_axes, may_alias};
use crate::Error;
use crate::ir::{DType, Func, Op, OpKind, TileType, Value};

/// Bytes after each buffer that a chunk may read over its end.
const SLACK_BYTES: u64 = 256;

/// A view's parts.
#[derive(Clone)]
pub(super) struct View {
    pub(super) ptr: Val,
    pub(super) dims: Vec<Val>,
    pub(super) strides: Vec<Val>,
}

/// The state of lowering one function.
pub(super) struct Lower<'a> {
    pub(super) e: &'a Emitter,
    pub(super) func: &'a Func,
    pub(super) plan: Plan,
    /// Registers of scalar values.
    pub(super) scalars: Vec<Option<Val>>,
    /// Addresses of kept tiles that are computed already or are being computed.
    pub(super) places: Vec<Option<Val>>,
    /// Kept tiles of virtual ops that no loop has computed yet, in program order.
    pub(super) pending: Vec<Op>,
    /// Where the results of some ops go instead of a buffer of their own.
    pub(super) targets: Vec<Option<Val>>,
    pub(super) program: Program,
    /// Asserts and prints met so far, which name them to the host.
    pub(super) n_asserts: i64,
    pub(super) n_prints: i64,
    pub(super) views: Vec<Option<View>>,
    pub(super) scratch_bytes: u64,
}

/// Values of the program that runs.
pub(super) struct Program {
    pub(super) ids: [Val; 3],
    pub(super) counts: [Val; 3],
    pub(super) linear: Val,
    pub(super) host: Val,
    /// An `i1` that is true, though LLVM does not know it.
    pub(super) always: Val,
    pub(super) scratch: Val,
    pub(super) entry_end: Block,
    pub(super) next: Block,
}

impl<'a> Lower<'a> {
    /// Goes on with the next program from here; what follows in this block is unreachable.
    pub(super) fn end_program(&mut self) {
        self.e.br(self.program.next);
    }

    /// The mask, so that LLVM never sees a constant in it. A truncating masked store whose mask it
    /// knows to have one lane is compiled wrongly by LLVM 22: the store has the width before the
    /// truncation and writes over what follows.
    pub(super) fn opaque_mask(&self, mask: Val) -> Val {
        let lanes = self.e.lanes(self.e.type_of(mask));
        self.e.and(mask, self.e.splat(self.program.always, lanes))
    }

    /// The address of 64 bytes that masked-off accesses may touch.
    pub(super) fn dummy(&self) -> Val {
        self.program.scratch
    }

    /// Room in scratch for a tile.
    pub(super) fn alloc(&mut self, tile: TileType) -> Val {
        let bytes = self.element_bytes(tile) * tile.shape.numel() as u64 + SLACK_BYTES;
        let offset = self.scratch_bytes;
        self.scratch_bytes += bytes.next_multiple_of(64);
        let e = self.e;
        e.gep(e.i8(), self.program.scratch, e.int(e.i64(), offset as i64))
    }

    /// Bytes of one element of a kept tile.
    pub(super) fn element_bytes(&self, tile: TileType) -> u64 {
        if tile.is_ptr() { 8 } else { tile.dtype().bytes() as u64 }
    }

    /// The type of one element of a kept tile.
    pub(super) fn kept_ty(&self, tile: TileType) -> Ty {
        if tile.is_ptr() { self.e.ptr(0) } else { self.e.memory_ty(tile.dtype()) }
    }

    /// The type of one element in a register.
    pub(super) fn register_ty(&self, tile: TileType) -> Ty {
        if tile.is_ptr() { self.e.ptr(0) } else { self.e.register_ty(tile.dtype()) }
    }

    /// What elementwise code is written for.
    pub(super) fn target(&self) -> Target {
        Target::Host
    }

    /// An `i64`.
    pub(super) fn index(&self, value: i64) -> Val {
        self.e.int(self.e.i64(), value)
    }

    /// A scalar value's register.
    pub(super) fn scalar(&self, value: Value) -> Result<Val, Error> {
        self.scalars[value.index()]
            .ok_or_else(|| Error::bug(format!("%{} is used before it is computed", value.0)))
    }

    /// Whether a value is a tile with axes.
    pub(super) fn has_axes(&self, value: Value) -> bool {
        has_axes(self.func, value)
    }

    /// Room for a kept value: where control flow wants it, else a buffer of its own.
    pub(super) fn new_place(&mut self, value: Value) -> Val {
        match self.targets[value.index()] {
            Some(place) => place,
            None => self.alloc(self.func.tile(value)),
        }
    }

    /// Computes everything that waits, before control flow.
    pub(super) fn flush_all(&mut self) -> Result<(), Error> {
        while let Some(&op) = self.pending.first() {
            self.flush(op)?;
        }
        Ok(())
    }

    /// Computes what waits and reads memory that an effect may change, before the effect.
    pub(super) fn flush_before(&mut self, effect: Op) -> Result<(), Error> {
        let waiting = self.pending.clone();
        for op in waiting {
            let clobbered =
                self.virtual_loads(op).into_iter().any(|load| may_alias(self.func, load, effect));
            if clobbered {
                self.flush(op)?;
            }
        }
        Ok(())
    }

    /// The loads that computing a waiting op would do.
    fn virtual_loads(&self, op: Op) -> Vec<Op> {
        let mut loads = Vec::new();
        let mut stack = vec![op];
        let mut seen = BTreeSet::new();
        while let Some(op) = stack.pop() {
            if !seen.insert(op) {
                continue;
            }
            if self.func.op(op).kind == OpKind::Load {
                loads.push(op);
            }
            for &operand in &self.func.op(op).operands {
                let is_there = self.places[operand.index()].is_some() || !self.has_axes(operand);
                if let (false, Some(def)) = (is_there, self.func.def_op(operand)) {
                    stack.push(def);
                }
            }
        }
        loads
    }

    /// Computes a waiting op in a nest of its own.
    pub(super) fn flush(&mut self, op: Op) -> Result<(), Error> {
        self.pending.retain(|&waiting| waiting != op);
        for &result in &self.func.op(op).results {
            if self.plan.kept[result.index()] {
                self.keep(result)?;
            }
        }
        Ok(())
    }

    /// The dtype of a scalar or tile of numbers.
    pub(super) fn dtype(&self, value: Value) -> DType {
        self.func.tile(value).dtype()
    }
}

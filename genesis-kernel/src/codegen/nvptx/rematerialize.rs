//! Rematerializes thread-dependent indices next to MMAs, to cut register pressure.
//!
//! Accumulators take most of a thread's registers. What follows from the thread index alone, such as the
//! positions that a mask compares, LLVM's GVN and LICM would compute once before all loops, where it stays live
//! across the MMAs and takes their registers, or is spilled. So a branch that most iterations skip, and the
//! epilogue behind a loop of MMAs, compute these indices again, from a thread index that is opaque to LLVM:
//!
//! ```text
//! for .. {
//!   %s = dot ..
//!   if at_an_edge {
//!     tid' = tid, by opaque inline assembly
//!     %i = iota : i64[64]      rematerialized, of tid'
//!     ..
//!   }
//! }
//! tid' = tid
//! ..
//! ```

use std::collections::BTreeSet;

use super::super::llvm::Block;
use super::lower::{Lowering, Registers};
use super::strength_reduction::Increments;
use super::thread::Threads;
use crate::Error;
use crate::ir::{Elem, Op, OpKind, Region, Value};

/// What to restore behind code whose indices are rematerialized.
pub(super) struct Rematerialized {
    threads: Threads,
    /// The block where indices are rematerialized, and the code that uses them.
    entry: Block,
    body: Block,
    known: Vec<(Value, Registers, Option<Increments>)>,
}

impl Lowering<'_> {
    /// Rematerializes the indices of a branch at the builder's position; none if it is empty or not next to
    /// MMAs.
    pub(super) fn begin_branch(
        &mut self,
        op: Op,
        branch: Region,
    ) -> Result<Option<Rematerialized>, Error> {
        let inside = self.func.walk_in(branch);
        if inside.len() == 1 || self.only_advances() || !self.is_next_to_mma(op) {
            return Ok(None);
        }
        self.begin_rematerialized(&inside).map(Some)
    }

    /// Rematerializes the indices of the epilogue: what follows the region's last loop with MMAs.
    pub(super) fn begin_epilogue(&mut self, op: Op) -> Result<(), Error> {
        let ops = &self.func.region(self.region).ops;
        let epilogue =
            ops.iter().position(|&other| other == op).map_or(&[][..], |at| &ops[at + 1..]);
        let multiplies = |&op: &Op| self.multiplies(op);
        if self.only_advances()
            || !self.multiplies(op)
            || epilogue.len() < 2
            || epilogue.iter().any(multiplies)
        {
            return Ok(());
        }
        let within = |&op: &Op| [op].into_iter().chain(self.ops_within(op));
        let epilogue: Vec<Op> = epilogue.iter().flat_map(within).collect();
        let saved = self.begin_rematerialized(&epilogue)?;
        self.rematerialized.push((self.region, saved));
        Ok(())
    }

    /// Ends a region's epilogue.
    pub(super) fn end_epilogue(&mut self, region: Region) {
        while let Some((_, saved)) = self.rematerialized.pop_if(|(of, _)| *of == region) {
            self.end_rematerialized(saved);
        }
    }

    fn begin_rematerialized(&mut self, inside: &[Op]) -> Result<Rematerialized, Error> {
        let e = self.e;
        let entry = e.current_block();
        let tid = e.inline_asm(e.i32(), "mov.b32 $0, $1;", "=r,r", &[self.threads.tid], true);
        let threads = std::mem::replace(&mut self.threads, Threads::of(e, tid));
        let body = e.block("rematerialize");
        e.position(body);
        let mut known = Vec::new();
        for op in self.rematerializable_in(inside) {
            let value = self.func.op(op).results[0];
            known.push((value, self.get(value)?, self.known_increments[value.index()].clone()));
            self.op(op)?;
        }
        Ok(Rematerialized { threads, entry, body, known })
    }

    /// Restores what held before; the builder may stand anywhere.
    pub(super) fn end_rematerialized(&mut self, saved: Rematerialized) {
        let e = self.e;
        let here = e.current_block();
        // The entry block filled up while the rematerialized code was written.
        e.position(saved.entry);
        e.br(saved.body);
        e.position(here);
        self.threads = saved.threads;
        for (value, registers, increments) in saved.known {
            self.set(value, registers);
            self.known_increments[value.index()] = increments;
        }
    }

    fn is_next_to_mma(&self, op: Op) -> bool {
        let is_outer = |&outer: &Op| {
            let is_loop = matches!(self.func.op(outer).kind, OpKind::For(_));
            is_loop && self.ops_within(outer).contains(&op)
        };
        self.func.walk().into_iter().filter(is_outer).any(|outer| self.multiplies(outer))
    }

    /// The ops outside of some ops that compute indices which these read, in program order.
    fn rematerializable_in(&self, inside: &[Op]) -> Vec<Op> {
        let mut indices = BTreeSet::new();
        for &value in inside.iter().flat_map(|&op| &self.func.op(op).operands) {
            self.add_indices(value, inside, &mut indices);
        }
        self.func.walk().into_iter().filter(|op| indices.contains(op)).collect()
    }

    /// Adds the slice that computes an index tile or mask from iotas and scalars; false if it needs more.
    fn add_indices(&self, value: Value, inside: &[Op], indices: &mut BTreeSet<Op>) -> bool {
        let Some(tile) = self.func.ty(value).as_tile() else { return false };
        if tile.shape.is_scalar() {
            return true;
        }
        let Some(op) = self.func.def_op(value).filter(|op| !inside.contains(op)) else {
            return false;
        };
        let data = self.func.op(op);
        let is_index = matches!(tile.elem, Elem::Data(dtype) if !dtype.is_float())
            && (data.kind == OpKind::Iota || data.kind.is_elementwise() || data.kind.is_view());
        if !is_index || self.values[value.index()].is_none() {
            return false;
        }
        let mut wanted = BTreeSet::new();
        if data.operands.iter().all(|&operand| self.add_indices(operand, inside, &mut wanted)) {
            indices.append(&mut wanted);
            indices.insert(op);
            return true;
        }
        false
    }
}

//! Code beside and behind products computes places anew.
//!
//! The sums of products take most of a thread's registers. What follows from a thread's number alone, as
//! the positions that a mask compares, LLVM would compute once before all loops, and it would lie in
//! registers that the products need, or be spilled. A branch that most iterations go past, and what comes
//! behind a loop with products, so begin with a number that LLVM does not know to be the thread's:
//!
//! ```text
//! for .. {
//!   %s = dot ..
//!   if at_an_edge {
//!     tid' = tid, by an instruction that is not looked into
//!     %i = iota : i64[64]      again, of tid'
//!     ..
//!   }
//! }
//! tid' = tid
//! ..
//! ```

use std::collections::BTreeSet;

use super::super::llvm::Block;
use super::lower::{Lowering, Registers};
use super::steps::Steps;
use super::thread::Threads;
use crate::Error;
use crate::ir::{Elem, Op, OpKind, Region, Value};

/// What held before a branch, or behind a loop.
pub(super) struct Aside {
    threads: Threads,
    /// Where places are computed, before all else, and what comes behind that.
    entry: Block,
    body: Block,
    known: Vec<(Value, Registers, Option<Steps>)>,
}

impl Lowering<'_> {
    /// Begins a branch of an op where the builder stands; none if it computes nothing or stands beside no
    /// products.
    pub(super) fn begin_branch(&mut self, op: Op, branch: Region) -> Result<Option<Aside>, Error> {
        let inside = self.func.walk_in(branch);
        if inside.len() == 1 || self.counts() || !self.is_beside_products(op) {
            return Ok(None);
        }
        self.begin_aside(&inside).map(Some)
    }

    /// Begins what is behind the last loop with products of the region.
    pub(super) fn begin_behind(&mut self, op: Op) -> Result<(), Error> {
        let ops = &self.func.region(self.region).ops;
        let behind = ops.iter().position(|&other| other == op).map_or(&[][..], |at| &ops[at + 1..]);
        let multiplies = |&op: &Op| self.multiplies(op);
        if self.counts()
            || !self.multiplies(op)
            || behind.len() < 2
            || behind.iter().any(multiplies)
        {
            return Ok(());
        }
        let within = |&op: &Op| [op].into_iter().chain(self.ops_within(op));
        let behind: Vec<Op> = behind.iter().flat_map(within).collect();
        let aside = self.begin_aside(&behind)?;
        self.asides.push((self.region, aside));
        Ok(())
    }

    /// Ends what was begun behind a loop of a region.
    pub(super) fn end_behind(&mut self, region: Region) {
        while let Some((_, aside)) = self.asides.pop_if(|(of, _)| *of == region) {
            self.end_aside(aside);
        }
    }

    fn begin_aside(&mut self, inside: &[Op]) -> Result<Aside, Error> {
        let e = self.e;
        let entry = e.current_block();
        let tid = e.inline_asm(e.i32(), "mov.b32 $0, $1;", "=r,r", &[self.threads.tid], true);
        let threads = std::mem::replace(&mut self.threads, Threads::of(e, tid));
        let body = e.block("aside");
        e.position(body);
        let mut known = Vec::new();
        for op in self.repeated_in(inside) {
            let value = self.func.op(op).results[0];
            known.push((value, self.get(value)?, self.known_steps[value.index()].clone()));
            self.op(op)?;
        }
        Ok(Aside { threads, entry, body, known })
    }

    /// Ends it; the builder may stand anywhere.
    pub(super) fn end_aside(&mut self, aside: Aside) {
        let e = self.e;
        let here = e.current_block();
        // The entry block filled up while what is aside was written.
        e.position(aside.entry);
        e.br(aside.body);
        e.position(here);
        self.threads = aside.threads;
        for (value, registers, steps) in aside.known {
            self.set(value, registers);
            self.known_steps[value.index()] = steps;
        }
    }

    fn is_beside_products(&self, op: Op) -> bool {
        let is_outer = |&outer: &Op| {
            let is_loop = matches!(self.func.op(outer).kind, OpKind::For(_));
            is_loop && self.ops_within(outer).contains(&op)
        };
        self.func.walk().into_iter().filter(is_outer).any(|outer| self.multiplies(outer))
    }

    /// The ops outside of some ops that make places which these read, in their order.
    fn repeated_in(&self, inside: &[Op]) -> Vec<Op> {
        let mut places = BTreeSet::new();
        for &value in inside.iter().flat_map(|&op| &self.func.op(op).operands) {
            self.add_places(value, inside, &mut places);
        }
        self.func.walk().into_iter().filter(|op| places.contains(op)).collect()
    }

    /// Takes up what makes a tile of integers or a mask from iotas and scalars; false if it is made of more.
    fn add_places(&self, value: Value, inside: &[Op], places: &mut BTreeSet<Op>) -> bool {
        let Some(tile) = self.func.ty(value).as_tile() else { return false };
        if tile.shape.is_scalar() {
            return true;
        }
        let Some(op) = self.func.def_op(value).filter(|op| !inside.contains(op)) else {
            return false;
        };
        let data = self.func.op(op);
        let is_place = matches!(tile.elem, Elem::Data(dtype) if !dtype.is_float())
            && (data.kind == OpKind::Iota || data.kind.is_elementwise() || data.kind.is_view());
        if !is_place || self.values[value.index()].is_none() {
            return false;
        }
        let mut wanted = BTreeSet::new();
        if data.operands.iter().all(|&operand| self.add_places(operand, inside, &mut wanted)) {
            places.append(&mut wanted);
            places.insert(op);
            return true;
        }
        false
    }
}

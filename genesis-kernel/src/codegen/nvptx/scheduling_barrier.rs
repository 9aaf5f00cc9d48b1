//! Scheduling barriers: keeps `wgmma.wait_group` after the independent work that it overlaps.
//!
//! ptxas sees no dependence between a wait and the code before it, and hoists it to the previous wait: then the
//! warps compute what was to overlap an MMA only after it. It moves no instruction across a branch, so a wait after
//! a reduction begins a basic block of its own:
//!
//! ```text
//! wait_group 1
//! %w = exp2 ..                      overlaps the MMA in flight
//! %t = add %old, (reduce add 1 %w)
//! branch, if some %t is NaN         never taken with numbers, and harmless
//! wait_group 0
//! ```
//!
//! The branch tests the last value computed from the reduction, which depends on all that went into it. Later
//! instructions can't be hoisted either, so this pays only for long MMAs: on an H200 `attention` with heads of 128 takes
//! 4 % less time, and with heads of 64 it would take 3 % more.

use super::super::llvm::{FloatPred, Val};
use super::lower::Lowering;
use super::thread;
use crate::Error;
use crate::ir::{DType, Op, OpKind, Value};

/// Registers of a value that the branch tests, at most.
const MOST_TESTED_REGISTERS: usize = 4;
/// Accumulator registers of a thread from which on an MMA is long.
const LONG_MMA_SUMS: usize = 64;

impl Lowering<'_> {
    /// Notes a reduction that overlaps MMAs in flight, or what was computed from it.
    pub(super) fn note_reduction(&mut self, op: Op) {
        let data = self.func.op(op);
        let Some(&result) = data.results.first().filter(|_| !self.in_flight.is_empty()) else {
            return;
        };
        let follows = || {
            let size = |value: Value| self.lir.num_regs(value);
            let reads = |from| data.operands.contains(&from) && size(from) == size(result);
            data.kind.is_elementwise() && self.reduced.is_some_and(reads)
        };
        if matches!(data.kind, OpKind::Reduce { .. }) || follows() {
            self.reduced = Some(result);
        }
    }

    /// Ends the basic block before a wait for the first `n` MMAs in flight, if a reduction overlaps them.
    pub(super) fn scheduling_barrier(&mut self, n: usize) -> Result<(), Error> {
        let Some(value) = self.reduced.take() else { return Ok(()) };
        let is_long = |sums: Value| self.lir.num_regs(sums) as usize >= LONG_MMA_SUMS;
        let here = self.born[value.index()].is_some_and(|(region, _)| region == self.region);
        let registers = self.get(value)?;
        let is_small = self.dtype(value) == DType::F32 && registers.len() <= MOST_TESTED_REGISTERS;
        if !here || !is_small || !self.in_flight[..n].iter().any(|mma| is_long(mma.sums)) {
            return Ok(());
        }
        let e = self.e;
        let is_nan = |&x: &Val| e.fcmp(FloatPred::Une, x, x);
        let any = registers.iter().map(is_nan).fold(e.bool(false), |a, b| e.or(a, b));
        let (rare, go) = (e.block("nan"), e.block("scheduled"));
        e.cond_br(thread::any_in_warp(e, any), rare, go);
        e.position(rare);
        // A side effect that neither LLVM nor ptxas removes.
        e.inline_asm(e.void(), "nanosleep.u32 0;", "~{memory}", &[], true);
        e.br(go);
        e.position(go);
        Ok(())
    }
}

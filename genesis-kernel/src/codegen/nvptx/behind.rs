//! Waits that stay behind what is computed beside the products in flight.
//!
//! ptxas sees nothing that the wait for a product has to stand behind, and moves it up to the wait before
//! it: then the warps compute what was to run beside the product only after it. It moves no instruction
//! over a branch, so that a wait behind a reduction begins a basic block of its own:
//!
//! ```text
//! wait for all but one
//! %w = exp2 ..                      beside the product that is in flight
//! %t = add %old, (reduce add 1 %w)
//! branch, if some %t is NaN         never taken with numbers, and harmless
//! wait for all
//! ```
//!
//! The branch looks at what was computed from the reduction last, which needs everything that went into
//! it. Instructions behind it can't move up either, so that it pays only for long products: on an H200
//! `attention` with heads of 128 takes 4 % less time, and with heads of 64 it would take 3 % more.

use super::super::llvm::{FloatPred, Val};
use super::lower::Lowering;
use super::thread;
use crate::Error;
use crate::ir::{DType, Op, OpKind, Value};

/// Registers of a value that is looked at.
const FEW_REGISTERS: usize = 4;
/// Sums of a thread from which on a product is long.
const MANY_SUMS: usize = 64;

impl Lowering<'_> {
    /// Notes a reduction beside products in flight, or what was computed from it.
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

    /// Ends the basic block before a wait for the first `n` products in flight, if a reduction was
    /// computed beside them.
    pub(super) fn stay_behind(&mut self, n: usize) -> Result<(), Error> {
        let Some(value) = self.reduced.take() else { return Ok(()) };
        let is_long = |sums: Value| self.lir.num_regs(sums) as usize >= MANY_SUMS;
        let here = self.born[value.index()].is_some_and(|(region, _)| region == self.region);
        let registers = self.get(value)?;
        let is_small = self.dtype(value) == DType::F32 && registers.len() <= FEW_REGISTERS;
        if !here || !is_small || !self.in_flight[..n].iter().any(|mma| is_long(mma.sums)) {
            return Ok(());
        }
        let e = self.e;
        let is_nan = |&x: &Val| e.fcmp(FloatPred::Une, x, x);
        let any = registers.iter().map(is_nan).fold(e.bool(false), |a, b| e.or(a, b));
        let (rare, go) = (e.block("nan"), e.block("behind"));
        e.cond_br(thread::any_in_warp(e, any), rare, go);
        e.position(rare);
        // What neither LLVM nor ptxas takes for nothing.
        e.inline_asm(e.void(), "nanosleep.u32 0;", "~{memory}", &[], true);
        e.br(go);
        e.position(go);
        Ok(())
    }
}

//! Scheduling barriers: a branch that the assembler moves no instruction across; see [`crate::machine`]'s `async_mma`.
//!
//! The branch tests the last value computed from a reduction, which depends on all that went into it. It is never taken
//! with numbers, and harmless.

use super::super::llvm::{FloatPred, Val};
use super::lowering::Lowering;
use super::thread;
use crate::Error;
use crate::ir::Op;

impl Lowering<'_> {
    /// Ends the basic block after what an op's result is computed from.
    pub(super) fn scheduling_barrier(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let registers = self.get(self.func.op(op).results[0])?;
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

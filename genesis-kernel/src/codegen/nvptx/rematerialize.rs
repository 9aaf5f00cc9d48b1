//! Indices computed anew next to MMAs, of a thread number that LLVM can't see through; which ones, says machine IR.

use super::lowering::Lowering;
use super::thread::Threads;
use super::values::Rematerialized;
use crate::Error;
use crate::ir::Op;

impl Lowering<'_> {
    /// Computes the results of some ops anew, at the builder's position.
    pub(super) fn begin_rematerialized(&mut self, ops: &[Op]) -> Result<(), Error> {
        let e = self.e;
        let entry = e.current_block();
        let tid = e.inline_asm(e.i32(), "mov.b32 $0, $1;", "=r,r", &[self.threads.tid], true);
        let threads = std::mem::replace(&mut self.threads, Threads::of(e, tid));
        let body = e.block("rematerialize");
        e.position(body);
        let mut known = Vec::new();
        for &op in ops {
            let value = self.func.op(op).results[0];
            known.push((value, self.get(value)?, self.values.increments[value.index()].clone()));
            self.op(op)?;
        }
        self.values.scopes.push(Rematerialized { threads, entry, body, known });
        Ok(())
    }

    /// Restores what held before the innermost of them; the builder may stand anywhere.
    pub(super) fn end_rematerialized(&mut self) {
        let Some(saved) = self.values.scopes.pop() else { return };
        let e = self.e;
        let here = e.current_block();
        // The entry block filled up while the rematerialized code was written.
        e.position(saved.entry);
        e.br(saved.body);
        e.position(here);
        self.threads = saved.threads;
        for (value, registers, increments) in saved.known {
            self.set(value, registers);
            self.values.increments[value.index()] = increments;
        }
    }
}

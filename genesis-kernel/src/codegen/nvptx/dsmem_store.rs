//! DSMEM stores: cross-block reductions in a cluster by `st.async`, counted by an mbarrier.
//!
//! Each partial result is stored to the distributed shared memory of every block that needs it, and completes
//! transaction bytes at that block's mbarrier. A cluster barrier would do too, and makes every thread wait until all
//! that it wrote is visible to the whole GPU. With it a softmax of 2048 rows of 151936 bf16 takes 352 us on an H200, with
//! DSMEM stores 314 us, where a copy takes 303 us.
//!
//! ```text
//! entry     thread 0 initializes the mbarrier and expects the bytes;  all blocks have begun
//! store     partial result -> its offset in each block, st.async to that block's mbarrier
//! await     wait for the phase;  read
//! ```
//!
//! An offset is written once and its mbarrier has one phase, so this is only for ops that run once: one in a loop, or
//! inside a branch, keeps the cluster barrier.

use super::super::elementwise::to_memory;
use super::super::llvm::Val;
use super::lowering::Lowering;
use super::pipeline_state::wait_parity;
use super::thread;
use crate::Error;
use crate::ir::{Op, Value};
use crate::machine::dsmem::barrier;

impl Lowering<'_> {
    /// The mbarrier of an op's DSMEM stores, if it has some.
    pub(super) fn dsmem_barrier(&self, op: Op) -> Option<Val> {
        let at = barrier(self.lir, self.facts.memory.scratch(op), op)?;
        Some(self.shared_at(self.e.int(self.e.i32(), i64::from(at))))
    }

    /// Stores one element to an address of shared memory in the block of a rank, in the threads where `on` is
    /// true.
    pub(super) fn store_async(
        &self,
        (value, part): (Value, Val),
        (address, rank): (Val, Val),
        barrier: Val,
        on: Option<Val>,
    ) {
        let e = self.e;
        let dtype = self.dtype(value);
        let bits = 8 * dtype.bytes() as u32;
        let part = e.bitcast(to_memory(e, dtype, part), e.int_ty(bits));
        let [address, barrier] =
            [address, barrier].map(|scratch| thread::in_block_of_rank(e, scratch, rank));
        let mut args = vec![address, part, barrier];
        args.extend(on);
        let guard = on.map_or("", |_| "@$3 ");
        let text = format!(
            "{guard}st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b{bits} \
             [$0], $1, [$2];"
        );
        let letter = if bits == 64 { "l" } else { "r" };
        let on = on.map_or("", |_| ",b");
        let constraints = format!("l,{letter},l{on},~{{memory}}");
        e.inline_asm(e.void(), &text, &constraints, &args, true);
    }

    /// Waits for all DSMEM stores of an op, whose bytes may then be read.
    pub(super) fn await_stores(&mut self, op: Op) -> Result<(), Error> {
        let barrier = self.dsmem_barrier(op).ok_or_else(|| Error::bug("nothing counts stores"))?;
        wait_parity(self.e, barrier, self.e.int(self.e.i32(), 0));
        Ok(())
    }
}

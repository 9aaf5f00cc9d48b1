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

use std::ops::Range;

use super::super::elementwise::to_memory;
use super::super::llvm::{Emitter, IntPred, Val};
use super::lower::Lowering;
use super::membar::{SMALL_BYTES, SharedAllocation};
use super::reduce::{Step, dtypes, most_bytes, steps_of};
use super::schedule::Step as Event;
use super::thread;
use super::tma_pipeline::wait_parity;
use crate::ir::{DType, Op, OpKind, Value};
use crate::layout::LayoutIr;

/// Bytes of an mbarrier after the scratch, with what keeps the next scratch aligned.
const BARRIER_BYTES: u32 = 16;

/// Bytes that each block receives for an op, if its partial results go by DSMEM stores.
fn received_bytes(lir: &LayoutIr, op: Op) -> Option<u32> {
    let runs_once = lir.func.region(lir.func.body).ops.contains(&op);
    let is_sum = matches!(lir.func.op(op).kind, OpKind::Reduce { .. });
    if lir.num_blocks == 1 || !is_sum || !runs_once || lir.producer.is_some() {
        return None;
    }
    let (steps, dtypes) = (steps_of(lir, op), dtypes(lir, op));
    let mut exchanges = steps.iter().filter_map(|step| match step {
        Step::Warps(exchange) => Some(exchange),
        Step::Reg(_) | Step::Lane(_) => None,
    });
    let exchange = exchanges.next().filter(|exchange| !exchange.blocks().is_empty())?;
    let is_small = most_bytes(&steps, &dtypes) + BARRIER_BYTES <= SMALL_BYTES;
    let fits =
        exchanges.next().is_none() && is_small && dtypes.iter().all(|&d| is_async_storable(d));
    let element: u32 = dtypes.iter().map(|dtype| dtype.bytes() as u32).sum();
    // Every offset is written by one thread.
    (fits && !crate::knobs::get().all_barriers).then_some(exchange.elements * element)
}

fn is_async_storable(dtype: DType) -> bool {
    matches!(dtype.bytes(), 4 | 8)
}

/// Bytes that an op's scratch has for a barrier.
pub(super) fn barrier_bytes(lir: &LayoutIr, op: Op) -> u32 {
    received_bytes(lir, op).map_or(0, |_| BARRIER_BYTES)
}

/// The offset of the mbarrier of an op's DSMEM stores in shared memory, if it has some.
fn barrier(lir: &LayoutIr, allocation: &SharedAllocation, op: Op) -> Option<u32> {
    received_bytes(lir, op)?;
    let scratch = allocation.of(op)?;
    Some(scratch.start + most_bytes(&steps_of(lir, op), &dtypes(lir, op)))
}

/// Thread 0 initializes all mbarriers and expects their bytes. Before another block stores to this one, all
/// must have come here.
pub(super) fn init_barriers(
    e: &Emitter,
    lir: &LayoutIr,
    allocation: &SharedAllocation,
    [tid, shared]: [Val; 2],
) {
    if lir.num_blocks == 1 {
        return;
    }
    let of_op = |op: Op| Some((barrier(lir, allocation, op)?, received_bytes(lir, op)?));
    let all: Vec<(u32, u32)> = lir.func.walk().into_iter().filter_map(of_op).collect();
    if all.is_empty() {
        return;
    }
    let int = |n: u32| e.int(e.i32(), i64::from(n));
    let (inside, done) = (e.block("dsmem"), e.block("ready"));
    e.cond_br(e.icmp(IntPred::Eq, tid, int(0)), inside, done);
    e.position(inside);
    for (at, bytes) in all {
        let barrier = e.gep(e.i8(), shared, int(at));
        e.intrinsic("llvm.nvvm.mbarrier.init.shared", &[], &[barrier, int(1)]);
        let expect = "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta";
        e.intrinsic(expect, &[], &[barrier, int(bytes)]);
    }
    e.intrinsic("llvm.nvvm.fence.mbarrier_init.release.cluster", &[], &[]);
    e.br(done);
    e.position(done);
}

impl Lowering<'_> {
    /// The mbarrier of an op's DSMEM stores, if it has some.
    pub(super) fn dsmem_barrier(&self, op: Op) -> Option<Val> {
        let at = barrier(self.lir, &self.allocation, op)?;
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
    pub(super) fn await_stores(&mut self, op: Op, bytes: Range<u32>, barrier: Val) {
        self.stage += 1;
        wait_parity(self.e, barrier, self.e.int(self.e.i32(), 0));
        self.recorder.push(Event::DsmemWait(bytes.clone().into()));
        self.recorder.push(Event::Read(op, bytes.clone().into()));
        self.membar.read_shared(bytes);
    }
}

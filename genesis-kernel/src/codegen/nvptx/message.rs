//! Sums over the blocks of a cluster by messages: each part is written to the memory of every block that
//! wants it, and counted there by a barrier in memory.
//!
//! A barrier of the cluster would do, and makes every thread wait until all that it wrote can be seen by
//! the whole GPU. With it a softmax of 2048 rows of 151936 bf16 takes 352 us on an H200, with messages
//! 314 us, where a copy takes 303 us.
//!
//! ```text
//! entry     thread 0 makes the barrier and says how many bytes will come;  all blocks have begun
//! send      part -> its place in each block, which that block's barrier counts
//! receive   wait until all bytes have come;  read
//! ```
//!
//! A place is written once and its barrier has one phase, so only what runs once is sent so: an op in a
//! loop, or inside a branch, keeps the barrier of the cluster.

use std::ops::Range;

use super::super::elementwise::to_memory;
use super::super::llvm::{Emitter, IntPred, Val};
use super::lower::Lowering;
use super::pipeline::wait_parity;
use super::reduce::{Step, dtypes, most_bytes, steps_of};
use super::schedule::Step as Happening;
use super::shared::{Places, SMALL_BYTES};
use super::thread;
use crate::ir::{DType, Op, OpKind, Value};
use crate::layout::LayoutIr;

/// Bytes of a barrier behind the places, with what keeps the next scratch aligned.
const ROOM: u32 = 16;

/// Bytes that each block gets for an op, if its parts go by messages.
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
    let is_small = most_bytes(&steps, &dtypes) + ROOM <= SMALL_BYTES;
    let fits = exchanges.next().is_none() && is_small && dtypes.iter().all(|&d| is_sent(d));
    let element: u32 = dtypes.iter().map(|dtype| dtype.bytes() as u32).sum();
    // Every place is written by one thread.
    (fits && !crate::knobs::get().all_barriers).then_some(exchange.elements * element)
}

fn is_sent(dtype: DType) -> bool {
    matches!(dtype.bytes(), 4 | 8)
}

/// Bytes that an op's scratch has for a barrier.
pub(super) fn room(lir: &LayoutIr, op: Op) -> u32 {
    received_bytes(lir, op).map_or(0, |_| ROOM)
}

/// Where the barrier of an op's messages is in shared memory, if it has some.
fn barrier(lir: &LayoutIr, places: &Places, op: Op) -> Option<u32> {
    received_bytes(lir, op)?;
    let place = places.of(op)?;
    Some(place.start + most_bytes(&steps_of(lir, op), &dtypes(lir, op)))
}

/// Thread 0 makes all barriers and says what will come. Before another block sends anything to this one,
/// all must have come here.
pub(super) fn prepare(e: &Emitter, lir: &LayoutIr, places: &Places, [tid, shared]: [Val; 2]) {
    if lir.num_blocks == 1 {
        return;
    }
    let of_op = |op: Op| Some((barrier(lir, places, op)?, received_bytes(lir, op)?));
    let all: Vec<(u32, u32)> = lir.func.walk().into_iter().filter_map(of_op).collect();
    if all.is_empty() {
        return;
    }
    let int = |n: u32| e.int(e.i32(), i64::from(n));
    let (inside, done) = (e.block("messages"), e.block("ready"));
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
    /// The barrier that counts an op's messages, if its parts go by messages.
    pub(super) fn message_barrier(&self, op: Op) -> Option<Val> {
        let at = barrier(self.lir, &self.places, op)?;
        Some(self.shared_at(self.e.int(self.e.i32(), i64::from(at))))
    }

    /// Sends one element to an address of shared memory in the block of a rank, in the threads where `on`
    /// is true.
    pub(super) fn send(
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
            [address, barrier].map(|place| thread::in_block_of_rank(e, place, rank));
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

    /// Waits for all messages of an op, which may then be read from these bytes.
    pub(super) fn receive(&mut self, op: Op, bytes: Range<u32>, barrier: Val) {
        self.stage += 1;
        wait_parity(self.e, barrier, self.e.int(self.e.i32(), 0));
        self.recorder.push(Happening::Delivered(bytes.clone().into()));
        self.recorder.push(Happening::Read(op, bytes.clone().into()));
        self.pending.read_shared(bytes);
    }
}

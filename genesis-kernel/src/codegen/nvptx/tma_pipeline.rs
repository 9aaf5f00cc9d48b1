//! The TMA pipeline between a producer and its consumers: full and empty mbarriers, and each role's pipeline state.
//!
//! As in CUTLASS's `PipelineTmaAsync`, each stage (a slot of the ring) has two mbarriers. *Full* completes when the copies
//! have brought all their bytes, *empty* when every consumer warpgroup has arrived, after the MMAs that read the stage. A
//! wait names the parity of the phase that must be complete, which flips each time round the ring; a new mbarrier lets a
//! wait for parity 1 pass, so the producer begins with 1 and finds every stage empty.
//!
//! ```text
//! producer  wait empty[i] parity p    arm full[i] with bytes    copies into stage i -> full[i]
//! consumer  wait full[i] parity p     MMAs read stage i         arrive at empty[i]
//! both      i += 1; at the end i = 0, p ^= 1
//! ```
//!
//! In a cluster a stage is filled by multicasts from several blocks, each into the stages of all. So a consumer arrives at
//! *empty* of every block, and a producer that finds its own stage empty knows that all are. Each block arms its own
//! *full*; bytes that come before that count in the same phase, since nobody copies them before this block, too, has
//! emptied the stage.
//!
//! The pipeline state `(i, p)` of a role is in stack variables, which mem2reg promotes: it runs on from one loop to the
//! next, so nothing has to be carried through tile IR.

use super::super::llvm::{Emitter, IntPred, Val};
use super::lowering::Lowering;
use super::pipeline_state::{Copies, NONE, Pipeline, wait_parity};
use super::thread;
use crate::Error;
use crate::machine::{BARRIER_BYTES, Inst};

impl<'a> Lowering<'a> {
    /// An instruction on the state of a pipeline.
    pub(super) fn pipeline_inst(&mut self, inst: &'a Inst) -> Result<(), Error> {
        match inst {
            Inst::WaitFull(channel) => self.wait_full(self.pipeline(*channel)?),
            Inst::WaitEmpty(channel) => self.wait_empty(self.pipeline(*channel)?),
            Inst::Arm(channel) => self.arm(self.pipeline(*channel)?),
            Inst::Advance(channel) => self.advance(self.pipeline(*channel)?),
            Inst::ReleaseNext(channel) | Inst::ReleaseResident(channel) => {
                self.release_next(self.pipeline(*channel)?)?;
            }
            Inst::ReleaseHeld(channel) => self.release_held(self.pipeline(*channel)?)?,
            Inst::HoldNext(channel) => self.hold_next(self.pipeline(*channel)?),
            Inst::Release { channel, of } => {
                let stage = self.copies_mut()?.taken.remove(&(*of, *channel));
                let stage = stage.ok_or_else(|| Error::bug("a dot released a stage twice"))?;
                self.release(self.pipeline(*channel)?, stage)?;
            }
            Inst::CountPrefetched { channel, more } => {
                self.count_prefetched(self.pipeline(*channel)?, *more);
            }
            Inst::UnlessPrefetched { channel, body } => {
                let e = self.e;
                let (anew, done) = (e.block("anew"), e.block("prefetched"));
                e.cond_br(self.is_prefetched_stage(self.pipeline(*channel)?), done, anew);
                e.position(anew);
                self.run(body)?;
                e.br(done);
                e.position(done);
            }
            _ => return Err(Error::bug(format!("no code for {inst:?}"))),
        }
        Ok(())
    }

    /// What this role knows of the copy engine.
    pub(super) fn copies(&self) -> Result<&Copies, Error> {
        let missing = || Error::bug("the copy engine is used by a function without its tables");
        self.copies.as_ref().ok_or_else(missing)
    }

    /// The same, to change.
    pub(super) fn copies_mut(&mut self) -> Result<&mut Copies, Error> {
        let missing = || Error::bug("the copy engine is used by a function without its tables");
        self.copies.as_mut().ok_or_else(missing)
    }

    /// A pipeline, by its channel.
    pub(super) fn pipeline(&self, channel: u8) -> Result<Pipeline, Error> {
        let pipeline = self.copies()?.pipelines.get(channel as usize).copied();
        pipeline.ok_or_else(|| Error::bug(format!("there is no channel {channel}")))
    }

    /// The number of the slot that is next, `i32`.
    fn next_slot(&self, pipeline: Pipeline) -> Val {
        self.e.load_aligned(self.e.i32(), pipeline.slot, 4)
    }

    /// Where the next slot starts in shared memory, in bytes, `i32`.
    pub(super) fn slot_offset(&self, pipeline: Pipeline) -> Val {
        let e = self.e;
        let bytes = e.int(e.i32(), i64::from(pipeline.layout.slot_bytes));
        let offset = e.mul(self.next_slot(pipeline), bytes);
        e.add(offset, e.int(e.i32(), i64::from(pipeline.layout.start)))
    }

    /// A slot's barrier among those that start at `first`.
    fn barrier_at(&self, first: u32, slot: Val) -> Val {
        let e = self.e;
        let offset = e.mul(slot, e.int(e.i32(), i64::from(BARRIER_BYTES)));
        self.shared_at(e.add(offset, e.int(e.i32(), i64::from(first))))
    }

    /// The barrier that copies into the next slot count their bytes at.
    pub(super) fn full_barrier(&self, pipeline: Pipeline) -> Val {
        self.barrier_at(pipeline.layout.full, self.next_slot(pipeline))
    }

    /// Waits until the next slot's copies have arrived.
    pub(super) fn wait_full(&self, pipeline: Pipeline) {
        self.wait_phase(pipeline, self.full_barrier(pipeline));
    }

    /// Waits until everybody has read the next slot.
    pub(super) fn wait_empty(&self, pipeline: Pipeline) {
        self.wait_phase(pipeline, self.barrier_at(pipeline.layout.empty, self.next_slot(pipeline)));
    }

    /// Whether the next stage was prefetched by [`super::producer_prologue`].
    pub(super) fn is_prefetched_stage(&self, pipeline: Pipeline) -> Val {
        let e = self.e;
        e.icmp(IntPred::Sgt, e.load_aligned(e.i32(), pipeline.prefetched, 4), e.int(e.i32(), 0))
    }

    /// One more stage that was prefetched, or one less that is next.
    pub(super) fn count_prefetched(&self, pipeline: Pipeline, more: bool) {
        let e = self.e;
        let count = e.load_aligned(e.i32(), pipeline.prefetched, 4);
        let next = match more {
            true => e.add(count, e.int(e.i32(), 1)),
            false => e.sub(count, e.zext(self.is_prefetched_stage(pipeline), e.i32())),
        };
        e.store_aligned(next, pipeline.prefetched, 4);
    }

    /// Arms the next stage's full barrier with the bytes that will come.
    pub(super) fn arm(&self, pipeline: Pipeline) {
        let e = self.e;
        let arm = "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta";
        let bytes = e.int(e.i32(), i64::from(pipeline.layout.copied));
        e.intrinsic(arm, &[], &[self.full_barrier(pipeline), bytes]);
    }

    fn wait_phase(&self, pipeline: Pipeline, barrier: Val) {
        let e = self.e;
        wait_parity(e, barrier, e.load_aligned(e.i32(), pipeline.parity, 4));
    }

    /// Advances the pipeline state to the next stage.
    pub(super) fn advance(&self, pipeline: Pipeline) {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let next = e.add(self.next_slot(pipeline), int(1));
        let wraps = e.icmp(IntPred::Eq, next, int(pipeline.layout.stages));
        let parity = e.load_aligned(e.i32(), pipeline.parity, 4);
        e.store_aligned(e.select(wraps, int(0), next), pipeline.slot, 4);
        e.store_aligned(e.xor(parity, e.zext(wraps, e.i32())), pipeline.parity, 4);
    }

    /// Releases the next stage to the producer and advances; its MMAs are complete.
    pub(super) fn release_next(&mut self, pipeline: Pipeline) -> Result<(), Error> {
        let leads = self.copies()?.leads;
        self.arrive_empty(pipeline, self.next_slot(pipeline), leads);
        self.advance(pipeline);
        Ok(())
    }

    /// Releases the stage that MMAs in flight read, if there is one: they are complete.
    pub(super) fn release_held(&mut self, pipeline: Pipeline) -> Result<(), Error> {
        let e = self.e;
        let held = e.load_aligned(e.i32(), pipeline.held, 4);
        let is_held = e.icmp(IntPred::Sge, held, e.int(e.i32(), 0));
        let speaks = e.and(self.copies()?.leads, is_held);
        self.arrive_empty(pipeline, held, speaks);
        e.store_aligned(e.int(e.i32(), NONE), pipeline.held, 4);
        Ok(())
    }

    /// Notes that MMAs in flight read the next stage, and advances.
    pub(super) fn hold_next(&self, pipeline: Pipeline) {
        self.e.store_aligned(self.next_slot(pipeline), pipeline.held, 4);
        self.advance(pipeline);
    }

    /// The next stage, which MMAs to be issued will read; advances.
    pub(super) fn take_next(&self, pipeline: Pipeline) -> Val {
        let slot = self.next_slot(pipeline);
        self.advance(pipeline);
        slot
    }

    /// Releases a stage to the producer; its MMAs are complete.
    pub(super) fn release(&mut self, pipeline: Pipeline, slot: Val) -> Result<(), Error> {
        let leads = self.copies()?.leads;
        self.arrive_empty(pipeline, slot, leads);
        Ok(())
    }

    fn arrive_empty(&mut self, pipeline: Pipeline, slot: Val, speaks: Val) {
        thread::delay(self.e);
        let barrier = self.barrier_at(pipeline.layout.empty, slot);
        let blocks = self.lir.num_blocks;
        let rank = (blocks > 1).then(|| self.threads.rank(self.e));
        self.only(speaks, |e| {
            let arrive = "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta";
            e.intrinsic(arrive, &[], &[barrier, e.int(e.i32(), 1)]);
            for other in 1..blocks {
                let other = rank.map(|rank| e.xor(rank, e.int(e.i32(), i64::from(other))));
                other.into_iter().for_each(|other| thread::arrive_in_block(e, barrier, other));
            }
        });
    }

    /// Code for the threads where a condition holds.
    pub(super) fn only(&self, condition: Val, write: impl FnOnce(&Emitter)) {
        let e = self.e;
        let (inside, done) = (e.block("only"), e.block("all"));
        e.cond_br(condition, inside, done);
        e.position(inside);
        write(e);
        e.br(done);
        e.position(done);
    }
}

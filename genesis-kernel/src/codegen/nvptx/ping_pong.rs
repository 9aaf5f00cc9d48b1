//! Ping-pong schedule over tiles: two consumer warpgroups alternate; see [`crate::layout::ping_pong`].
//!
//! As in CUTLASS's `KernelTmaWarpSpecializedPingpong`, the main loop of one consumer overlaps the epilogue of the other. A
//! consumer goes through every tile, so that its pipeline state advances through those of the other. An order barrier
//! (mbarrier) says that the other has finished its main loop; so no consumer waits for a stage more than one phase
//! ahead, of which the parity would say nothing.
//!
//! ```text
//! own tile           wait for the order barrier    main loop    arrive at the other's    epilogue
//! the other's tile   advance the pipeline state
//! ```

use super::super::llvm::{IntPred, Val};
use super::lowering::Lowering;
use super::pipeline_state::{PingPongTiles, wait_parity};
use super::registers::Registers;
use super::setup::{FIRST_ORDER_BARRIER, GROUPS};
use super::thread;
use crate::Error;
use crate::machine::{BARRIER_BYTES, Block, For};
use crate::tuning::multiprocessor::WARPGROUP_THREADS;

impl<'a> Lowering<'a> {
    /// The body of a loop, once: alternating in the loop over tiles.
    pub(super) fn iteration(&mut self, inner: &'a For) -> Result<Option<Vec<Registers>>, Error> {
        let Some(other) = &inner.other else { return self.region(&inner.body) };
        let ping_pong = self.ping_pong_tiles()?;
        let e = self.e;
        let next = e.load_aligned(e.i32(), ping_pong.next, 4);
        let is_own = e.icmp(IntPred::Eq, next, ping_pong.set);
        let (own, others, done) = (e.block("tile"), e.block("other.tile"), e.block("tile.end"));
        e.cond_br(is_own, own, others);
        e.position(others);
        self.skip_tile(other)?;
        e.br(done);
        e.position(own);
        if self.region(&inner.body)?.is_some() {
            e.br(done);
        }
        e.position(done);
        e.store_aligned(e.xor(next, e.int(e.i32(), 1)), ping_pong.next, 4);
        Ok(Some(Vec::new()))
    }

    /// Advances the pipeline state through a tile of the other consumer, as the producer goes through it.
    fn skip_tile(&mut self, tile: &'a Block) -> Result<(), Error> {
        let producer = self.lir.producer.as_ref();
        let producer =
            producer.ok_or_else(|| Error::bug("a ping-pong schedule without a producer"))?;
        let func = std::mem::replace(&mut self.func, producer);
        let done = self.region(tile);
        self.func = func;
        match done? {
            Some(_) => Ok(()),
            None => Err(Error::bug("a loop over tiles returns")),
        }
    }

    fn ping_pong_tiles(&self) -> Result<PingPongTiles, Error> {
        let ping_pong = self.copies()?.ping_pong_tiles;
        ping_pong.ok_or_else(|| Error::bug("tiles alternate without a ping-pong schedule"))
    }

    fn order_barrier(&self, ping_pong: PingPongTiles, set: Val) -> Val {
        let e = self.e;
        let offset = e.mul(set, e.int(e.i32(), i64::from(BARRIER_BYTES)));
        self.shared_at(e.add(offset, e.int(e.i32(), i64::from(ping_pong.barriers))))
    }

    /// Waits for the other consumer's main loop to end.
    pub(super) fn await_tile(&mut self) -> Result<(), Error> {
        let (e, ping_pong) = (self.e, self.ping_pong_tiles()?);
        let parity = e.load_aligned(e.i32(), ping_pong.parity, 4);
        wait_parity(e, self.order_barrier(ping_pong, ping_pong.set), parity);
        e.store_aligned(e.xor(parity, e.int(e.i32(), 1)), ping_pong.parity, 4);
        Ok(())
    }

    /// Arrives at the other consumer's order barrier.
    pub(super) fn pass_tile(&mut self) -> Result<(), Error> {
        let (e, ping_pong) = (self.e, self.ping_pong_tiles()?);
        thread::delay(e);
        let other = e.xor(ping_pong.set, e.int(e.i32(), 1));
        let arrive = "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta";
        e.intrinsic(arrive, &[], &[self.order_barrier(ping_pong, other), e.int(e.i32(), 1)]);
        Ok(())
    }

    /// Waits at this warpgroup's order barrier before it issues MMAs.
    pub(super) fn await_turn(&self) -> Result<(), Error> {
        let e = self.e;
        let own = e.add(self.copies()?.group, e.int(e.i32(), FIRST_ORDER_BARRIER));
        thread::named_barrier(e, own, 2 * WARPGROUP_THREADS);
        Ok(())
    }

    /// Arrives at the next warpgroup's order barrier after them.
    pub(super) fn pass_turn(&self) -> Result<(), Error> {
        let e = self.e;
        let group = self.copies()?.group;
        let last = e.icmp(IntPred::Eq, group, e.int(e.i32(), GROUPS - 1));
        let next = e.select(last, e.int(e.i32(), 0), e.add(group, e.int(e.i32(), 1)));
        let next = e.add(next, e.int(e.i32(), FIRST_ORDER_BARRIER));
        thread::arrive_at_named(e, next, 2 * WARPGROUP_THREADS);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! The protocol as a model: a producer and two sets, of which any may run next.

    /// An mbarrier: phases that are over, and arrivals that the current one lacks.
    #[derive(Clone, Debug)]
    struct Barrier {
        over: u32,
        lacks: u32,
        count: u32,
    }

    impl Barrier {
        fn new(count: u32) -> Barrier {
            Barrier { over: 0, lacks: count, count }
        }

        fn arrive(&mut self) {
            self.lacks -= 1;
            if self.lacks == 0 {
                (self.over, self.lacks) = (self.over + 1, self.count);
            }
        }

        /// What a wait for a phase's parity sees: that of the phase before the current one.
        fn passes(&self, parity: u32) -> bool {
            self.over.wrapping_sub(1) & 1 == parity
        }
    }

    struct Model {
        full: Vec<Barrier>,
        empty: Vec<Barrier>,
        ping_pong: [Barrier; 2],
        /// The step whose bytes each slot has.
        slots: Vec<usize>,
        /// The next step of the producer, and of each set.
        at: [usize; 3],
        parity: [u32; 2],
        waits_for_turn: bool,
    }

    const STEPS: usize = 5;
    const TILES: usize = 9;

    impl Model {
        fn new(stages: usize, waits_for_turn: bool) -> Model {
            Model {
                full: vec![Barrier::new(1); stages],
                empty: vec![Barrier::new(1); stages],
                ping_pong: [Barrier::new(1), Barrier::new(1)],
                slots: vec![usize::MAX; stages],
                at: [0; 3],
                parity: [1, 0],
                waits_for_turn,
            }
        }

        /// Lets the producer, 2, or a set go on by one step, if it can. Says whether a set found the
        /// bytes of another step.
        fn step(&mut self, who: usize) -> Result<(), String> {
            let step = self.at[who];
            if step == STEPS * TILES {
                return Ok(());
            }
            let (slot, round) = (step % self.full.len(), (step / self.full.len()) as u32);
            if who == 2 {
                if self.empty[slot].passes(round & 1 ^ 1) {
                    self.slots[slot] = step;
                    self.full[slot].arrive();
                    self.at[who] += 1;
                }
                return Ok(());
            }
            if step / STEPS % 2 != who {
                self.at[who] += 1;
                return Ok(());
            }
            let begins = step.is_multiple_of(STEPS);
            if begins && self.waits_for_turn && !self.ping_pong[who].passes(self.parity[who]) {
                return Ok(());
            }
            if !self.full[slot].passes(round & 1) {
                return Ok(());
            }
            if begins {
                self.parity[who] ^= 1;
            }
            if self.slots[slot] != step {
                return Err(format!("set {who} at step {step} reads {}", self.slots[slot]));
            }
            self.empty[slot].arrive();
            self.at[who] += 1;
            if (step + 1).is_multiple_of(STEPS) {
                self.ping_pong[1 - who].arrive();
            }
            Ok(())
        }

        /// Runs everybody in an order that the seed gives.
        fn run(mut self, mut seed: u64) -> Result<(), String> {
            for _ in 0..40 * STEPS * TILES {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                self.step((seed >> 33) as usize % 3)?;
            }
            match self.at == [STEPS * TILES; 3] {
                true => Ok(()),
                false => Err(format!("all wait at {:?}", self.at)),
            }
        }
    }

    #[test]
    fn sets_find_their_slots_in_any_order() {
        for stages in 1..8 {
            for seed in 0..200 {
                assert_eq!(Model::new(stages, true).run(seed), Ok(()), "{stages} slots");
            }
        }
    }

    #[test]
    fn a_set_that_did_not_wait_for_its_turn_would_read_other_slots() {
        let fails = |seed| Model::new(3, false).run(seed).is_err();
        assert!((0..200).any(fails));
    }
}

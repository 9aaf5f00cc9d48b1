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

use super::super::llvm::{Emitter, IntPred, Val};
use super::lower::{Lowering, Registers};
use super::thread;
use super::tma_pipeline::wait_parity;
use crate::Error;
use crate::ir::{Func, Op, OpKind, Region};
use crate::machine::{BARRIER_BYTES, For};

/// What a consumer of a ping-pong schedule knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PingPongTiles {
    /// The loop over tiles.
    pub(super) shared: Op,
    /// The op of its body that ends the main loop: the consumer reads no more stages.
    last: Op,
    /// Where the order barriers start in shared memory, in bytes.
    barriers: u32,
    /// The number of this consumer.
    set: Val,
    /// Variable: the consumer whose tile comes next.
    next: Val,
    /// Variable: the parity of this consumer's order barrier.
    parity: Val,
    /// Whether this tile is the other's: the pipeline state only advances.
    only_advances: bool,
}

impl PingPongTiles {
    /// Room for the variables; the builder stands in the function's first block.
    pub(super) fn reserve(e: &Emitter, shared: Op, func: &Func, barriers: u32) -> PingPongTiles {
        let [next, parity] = [(); 2].map(|()| e.alloca(e.i32(), 4));
        let body = &func.region(func.op(shared).regions[0]).ops;
        let loads = |&op: &Op| {
            let inside = within(func, op);
            inside.iter().any(|&op| matches!(func.op(op).kind, OpKind::TmaLoad(_)))
        };
        let last = body.iter().copied().rfind(loads).unwrap_or(shared);
        PingPongTiles {
            shared,
            last,
            barriers,
            set: e.int(e.i32(), 0),
            next,
            parity,
            only_advances: false,
        }
    }

    /// Sets the variables of a consumer that begins: the first one need not wait for its first tile.
    pub(super) fn begin(self, e: &Emitter, set: Val) -> PingPongTiles {
        let int = |n| e.int(e.i32(), n);
        e.store_aligned(int(0), self.next, 4);
        e.store_aligned(e.xor(set, int(1)), self.parity, 4);
        PingPongTiles { set, ..self }
    }
}

/// An op and all inside it.
fn within(func: &Func, op: Op) -> Vec<Op> {
    let mut found = vec![op];
    let mut at = 0;
    while at < found.len() {
        let regions = func.op(found[at]).regions.clone();
        found.extend(regions.iter().flat_map(|&region| func.region(region).ops.iter().copied()));
        at += 1;
    }
    found
}

impl<'a> Lowering<'a> {
    /// The body of a loop, once: alternating in the loop over tiles.
    pub(super) fn iteration(
        &mut self,
        inner: &'a For,
        region: Region,
    ) -> Result<Option<Vec<Registers>>, Error> {
        let ping_pong = self.copies.as_ref().and_then(|copies| copies.ping_pong_tiles);
        let Some(ping_pong) =
            ping_pong.filter(|ping_pong| ping_pong.shared == inner.op && !ping_pong.only_advances)
        else {
            return self.region(region, &inner.body);
        };
        let e = self.e;
        let next = e.load_aligned(e.i32(), ping_pong.next, 4);
        let is_own = e.icmp(IntPred::Eq, next, ping_pong.set);
        let (own, other, done) = (e.block("tile"), e.block("other.tile"), e.block("tile.end"));
        e.cond_br(is_own, own, other);
        e.position(other);
        self.advance_through(region)?;
        e.br(done);
        e.position(own);
        self.await_order(ping_pong);
        if self.region(region, &inner.body)?.is_some() {
            e.br(done);
        }
        e.position(done);
        e.store_aligned(e.xor(next, e.int(e.i32(), 1)), ping_pong.next, 4);
        Ok(Some(Vec::new()))
    }

    /// Advances the pipeline state through a tile of the other consumer.
    fn advance_through(&mut self, region: Region) -> Result<(), Error> {
        let lir = self.lir;
        let producer = lir.producer.as_ref();
        let producer =
            producer.ok_or_else(|| Error::bug("a ping-pong schedule without a producer"))?;
        let tile = self.other_tile.ok_or_else(|| Error::bug("a consumer knows no other tile"))?;
        let func = std::mem::replace(&mut self.func, producer);
        self.set_only_advances(true);
        let done = self.region(region, tile);
        self.set_only_advances(false);
        self.func = func;
        match done? {
            Some(_) => Ok(()),
            None => Err(Error::bug("a loop over tiles returns")),
        }
    }

    fn set_only_advances(&mut self, only_advances: bool) {
        if let Some(ping_pong) =
            self.copies.as_mut().and_then(|copies| copies.ping_pong_tiles.as_mut())
        {
            ping_pong.only_advances = only_advances;
        }
    }

    /// Whether loads only advance the pipeline state where the builder stands.
    pub(super) fn only_advances(&self) -> bool {
        let ping_pong = self.copies.as_ref().and_then(|copies| copies.ping_pong_tiles);
        ping_pong.is_some_and(|ping_pong| ping_pong.only_advances)
    }

    fn order_barrier(&self, ping_pong: PingPongTiles, set: Val) -> Val {
        let e = self.e;
        let offset = e.mul(set, e.int(e.i32(), i64::from(BARRIER_BYTES)));
        self.shared_at(e.add(offset, e.int(e.i32(), i64::from(ping_pong.barriers))))
    }

    fn await_order(&self, ping_pong: PingPongTiles) {
        let e = self.e;
        let parity = e.load_aligned(e.i32(), ping_pong.parity, 4);
        wait_parity(e, self.order_barrier(ping_pong, ping_pong.set), parity);
        e.store_aligned(e.xor(parity, e.int(e.i32(), 1)), ping_pong.parity, 4);
    }

    /// Arrives at the other consumer's order barrier after the last op that reads stages.
    pub(super) fn end_mainloop(&self, op: Op) {
        let ping_pong = self.copies.as_ref().and_then(|copies| copies.ping_pong_tiles);
        let Some(ping_pong) =
            ping_pong.filter(|ping_pong| ping_pong.last == op && !ping_pong.only_advances)
        else {
            return;
        };
        let e = self.e;
        thread::delay(e);
        let other = e.xor(ping_pong.set, e.int(e.i32(), 1));
        let arrive = "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta";
        e.intrinsic(arrive, &[], &[self.order_barrier(ping_pong, other), e.int(e.i32(), 1)]);
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

//! Two sets of consumers that take turns at tiles; see [`crate::layout::turns`].
//!
//! A set goes through every tile, so that it knows where each begins in the rings: at those of the
//! other set it only counts slots. It multiplies when the other has finished its products, which an
//! mbarrier of its own says; so no set waits for a slot that is more than one round ahead, of which
//! the parity of a phase would say nothing.
//!
//! ```text
//! tile of this set     wait for the turn    multiply    give the turn to the other    round, store
//! tile of the other    count the slots
//! ```

use super::super::llvm::{Emitter, IntPred, Val};
use super::arena::BARRIER_BYTES;
use super::lower::{Lowering, Registers};
use super::pipeline::wait_parity;
use super::thread;
use crate::Error;
use crate::ir::{Func, Op, OpKind, Region};

/// What a set of consumers knows of its turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    /// The loop over tiles.
    shared: Op,
    /// The op of its body behind which the set needs no more slots.
    last: Op,
    /// Where the sets' barriers start in shared memory, in bytes.
    barriers: u32,
    /// The number of this set.
    set: Val,
    /// Variable: the set whose tile comes next.
    next: Val,
    /// Variable: the parity of the phase that begins this set's next turn.
    parity: Val,
    /// Whether this tile's slots are only counted.
    counts: bool,
}

impl Turns {
    /// Room for the variables; the builder stands in the function's first block.
    pub(super) fn reserve(e: &Emitter, shared: Op, func: &Func, barriers: u32) -> Turns {
        let [next, parity] = [(); 2].map(|()| e.alloca(e.i32(), 4));
        let body = &func.region(func.op(shared).regions[0]).ops;
        let loads = |&op: &Op| {
            let inside = within(func, op);
            inside.iter().any(|&op| matches!(func.op(op).kind, OpKind::TmaLoad(_)))
        };
        let last = body.iter().copied().rfind(loads).unwrap_or(shared);
        Turns { shared, last, barriers, set: e.int(e.i32(), 0), next, parity, counts: false }
    }

    /// Sets the variables of a set that begins: the first one finds its first turn come.
    pub(super) fn begin(self, e: &Emitter, set: Val) -> Turns {
        let int = |n| e.int(e.i32(), n);
        e.store_aligned(int(0), self.next, 4);
        e.store_aligned(e.xor(set, int(1)), self.parity, 4);
        Turns { set, ..self }
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

impl Lowering<'_> {
    /// The body of a loop, once: by turns in the loop over tiles.
    pub(super) fn iteration(
        &mut self,
        op: Op,
        region: Region,
    ) -> Result<Option<Vec<Registers>>, Error> {
        let turns = self.copies.as_ref().and_then(|copies| copies.turns);
        let Some(turns) = turns.filter(|turns| turns.shared == op && !turns.counts) else {
            return self.region(region);
        };
        let e = self.e;
        let next = e.load_aligned(e.i32(), turns.next, 4);
        let is_own = e.icmp(IntPred::Eq, next, turns.set);
        let (own, other, done) = (e.block("turn"), e.block("other.turn"), e.block("turn.end"));
        e.cond_br(is_own, own, other);
        e.position(other);
        self.count_slots(region)?;
        e.br(done);
        e.position(own);
        self.await_turn(turns);
        if self.region(region)?.is_some() {
            e.br(done);
        }
        e.position(done);
        e.store_aligned(e.xor(next, e.int(e.i32(), 1)), turns.next, 4);
        Ok(Some(Vec::new()))
    }

    /// Goes past the slots of a tile of the other set.
    fn count_slots(&mut self, region: Region) -> Result<(), Error> {
        let lir = self.lir;
        let producer = lir.producer.as_ref();
        let producer = producer.ok_or_else(|| Error::bug("turns without a producer"))?;
        let func = std::mem::replace(&mut self.func, producer);
        self.set_counts(true);
        let done = self.region(region);
        self.set_counts(false);
        self.func = func;
        match done? {
            Some(_) => Ok(()),
            None => Err(Error::bug("a loop over tiles returns")),
        }
    }

    fn set_counts(&mut self, counts: bool) {
        if let Some(turns) = self.copies.as_mut().and_then(|copies| copies.turns.as_mut()) {
            turns.counts = counts;
        }
    }

    /// Whether loads are only counted where the builder stands.
    pub(super) fn counts(&self) -> bool {
        let turns = self.copies.as_ref().and_then(|copies| copies.turns);
        turns.is_some_and(|turns| turns.counts)
    }

    fn turn_barrier(&self, turns: Turns, set: Val) -> Val {
        let e = self.e;
        let offset = e.mul(set, e.int(e.i32(), i64::from(BARRIER_BYTES)));
        self.shared_at(e.add(offset, e.int(e.i32(), i64::from(turns.barriers))))
    }

    fn await_turn(&self, turns: Turns) {
        let e = self.e;
        let parity = e.load_aligned(e.i32(), turns.parity, 4);
        wait_parity(e, self.turn_barrier(turns, turns.set), parity);
        e.store_aligned(e.xor(parity, e.int(e.i32(), 1)), turns.parity, 4);
    }

    /// Gives the turn to the other set behind the last op that reads slots.
    pub(super) fn after_op(&self, op: Op) {
        let turns = self.copies.as_ref().and_then(|copies| copies.turns);
        let Some(turns) = turns.filter(|turns| turns.last == op && !turns.counts) else { return };
        let e = self.e;
        thread::delay(e);
        let other = e.xor(turns.set, e.int(e.i32(), 1));
        let arrive = "llvm.nvvm.mbarrier.arrive.scope.cta.space.cta";
        e.intrinsic(arrive, &[], &[self.turn_barrier(turns, other), e.int(e.i32(), 1)]);
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
        turns: [Barrier; 2],
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
                turns: [Barrier::new(1), Barrier::new(1)],
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
            if begins && self.waits_for_turn && !self.turns[who].passes(self.parity[who]) {
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
                self.turns[1 - who].arrive();
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

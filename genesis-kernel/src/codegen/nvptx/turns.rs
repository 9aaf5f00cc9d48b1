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

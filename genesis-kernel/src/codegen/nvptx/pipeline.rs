//! Rings of slots between the producer and the consumers: who waits for what, and where a role stands.
//!
//! Each slot has two barriers in shared memory. *Full* is over when the copies have brought all their
//! bytes, *empty* when every consumer warpgroup has said that its products have read the slot. A wait
//! names the parity of the phase that must be over, which flips each time round the ring; a rematerialize_rows
//! barrier lets a wait for parity 1 pass, so the producer begins with 1 and finds every slot empty.
//!
//! ```text
//! producer  wait empty[i] parity p    arm full[i] with bytes    copies into slot i -> full[i]
//! consumer  wait full[i] parity p     products read slot i      arrive at empty[i]
//! both      i += 1; at the end i = 0, p ^= 1
//! ```
//!
//! In a cluster a slot is filled by copies from several blocks, each into the slots of all. So a consumer
//! arrives at *empty* of every block, and a producer that finds its own slot empty knows that all are. Each
//! block arms its own *full*; bytes that come before that are counted in the same phase, since
//! nobody sends them before this block, too, has emptied the slot.
//!
//! `i` and `p` of a role are variables on the stack, which LLVM makes registers: they run on from one
//! loop to the next, so nothing has to be carried through tile IR.

use std::collections::{BTreeMap, BTreeSet};

use super::super::llvm::{Emitter, IntPred, Val};
use super::arena::{BARRIER_BYTES, RingPlace};
use super::lower::Lowering;
use super::ping_pong_mainloop::PingPongMainloop;
use super::ping_pong_tiles::PingPongTiles;
use super::thread;
use crate::Error;
use crate::ir::{Func, Op, OpKind};

/// Stands for no slot in [`Ring::held`].
const NONE: i64 = -1;

/// What threads do in a kernel that has a producer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Everything but the loads by the copy engine.
    Consumer,
    /// Those loads, in one thread.
    Producer,
}

/// Which tiles a producer copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Constant {
    /// All, in program order.
    All,
    /// The constant ones of the first stages: the prologue prefetch.
    Prefetch,
    /// All but those, after the prefetch.
    Prefetched,
}

/// A ring as a role sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    place: RingPlace,
    /// Variable: the slot that is next.
    slot: Val,
    /// Variable: the parity to wait for.
    parity: Val,
    /// Variable: the slot that the products in flight read, or [`NONE`].
    held: Val,
    /// Variable: stages that the producer has prefetched, from the next one on.
    prefetched: Val,
}

impl Ring {
    /// Room for a ring's variables; the builder stands in the function's first block.
    pub(super) fn reserve(e: &Emitter, place: RingPlace) -> Ring {
        let [slot, parity, held, prefetched] = [(); 4].map(|()| e.alloca(e.i32(), 4));
        e.store_aligned(e.int(e.i32(), 0), prefetched, 4);
        Ring { place, slot, parity, held, prefetched }
    }

    /// Whether both are the ring of one channel.
    pub(super) fn is(&self, other: Ring) -> bool {
        self.place.full == other.place.full
    }

    /// Sets the variables of a role that begins.
    pub(super) fn begin(&self, e: &Emitter, role: Role) {
        let set = |variable, value| e.store_aligned(e.int(e.i32(), value), variable, 4);
        set(self.slot, 0);
        set(self.parity, i64::from(role == Role::Producer));
        set(self.held, NONE);
    }
}

/// What a role knows of the copy engine.
pub(super) struct Copies {
    pub(super) role: Role,
    /// By channel.
    pub(super) rings: Vec<Ring>,
    /// Addresses of tensor maps, by number.
    pub(super) maps: Vec<Val>,
    /// Where panels of stores start in shared memory.
    pub(super) staging: u32,
    /// The number of this thread's warpgroup among those of its tile, which its warp agrees on.
    pub(super) group: Val,
    /// The number of this thread's warpgroup in the block.
    pub(super) unit: Val,
    /// Where two consumers alternate over tiles: this one's state.
    pub(super) ping_pong_tiles: Option<PingPongTiles>,
    /// Where the warpgroups of a tile issue their MMAs in a ping-pong order.
    pub(super) ping_pong_mainloop: PingPongMainloop,
    /// Whether this thread speaks for its warpgroup.
    pub(super) leads: Val,
    /// What the producer brings of constant tiles.
    pub(super) constant: Constant,
    /// Loads that are their channel's first ones in a region.
    pub(super) firsts: BTreeSet<Op>,
    /// Loads that are their channel's last ones in a region.
    pub(super) lasts: BTreeSet<Op>,
}

/// The first and the last load of each channel in each region.
pub(super) fn ends(func: &Func) -> [BTreeSet<Op>; 2] {
    let [mut firsts, mut lasts] = [BTreeSet::new(), BTreeSet::new()];
    let owned = func.walk().into_iter().flat_map(|op| func.op(op).regions.clone());
    for region in [func.body].into_iter().chain(owned) {
        let mut by_channel: BTreeMap<u8, [Op; 2]> = BTreeMap::new();
        for &op in &func.region(region).ops {
            let OpKind::TmaLoad(n) = func.op(op).kind else { continue };
            let Some(load) = func.tma.loads.get(n as usize) else { continue };
            by_channel.entry(load.channel).or_insert([op; 2])[1] = op;
        }
        for [first, last] in by_channel.into_values() {
            firsts.insert(first);
            lasts.insert(last);
        }
    }
    [firsts, lasts]
}

/// Waits until the phase of this parity is over.
pub(super) fn wait_parity(e: &Emitter, barrier: Val, parity: Val) {
    thread::delay(e);
    let (again, done) = (e.block("wait"), e.block("ready"));
    e.br(again);
    e.position(again);
    let test = "llvm.nvvm.mbarrier.try.wait.parity.scope.cta.space.cta";
    let is_over = e.intrinsic(test, &[], &[barrier, parity]);
    e.cond_br(is_over, done, again);
    e.position(done);
}

impl Lowering<'_> {
    /// What this role knows of the copy engine.
    pub(super) fn copies(&self) -> Result<&Copies, Error> {
        let missing = || Error::bug("the copy engine is used by a function without its tables");
        self.copies.as_ref().ok_or_else(missing)
    }

    /// A ring, by its channel.
    pub(super) fn ring(&self, channel: u8) -> Result<Ring, Error> {
        let ring = self.copies()?.rings.get(channel as usize).copied();
        ring.ok_or_else(|| Error::bug(format!("there is no channel {channel}")))
    }

    /// What is next in a ring has not arrived any more: it goes on.
    pub(super) fn forget_full(&mut self, ring: Ring) {
        self.arrived.remove(&(self.region, ring.place.full));
    }

    /// The number of the slot that is next, `i32`.
    fn next_slot(&self, ring: Ring) -> Val {
        self.e.load_aligned(self.e.i32(), ring.slot, 4)
    }

    /// Where the next slot starts in shared memory, in bytes, `i32`.
    pub(super) fn slot_offset(&self, ring: Ring) -> Val {
        let e = self.e;
        let bytes = e.int(e.i32(), i64::from(ring.place.slot_bytes));
        let offset = e.mul(self.next_slot(ring), bytes);
        e.add(offset, e.int(e.i32(), i64::from(ring.place.start)))
    }

    /// A slot's barrier among those that start at `first`.
    fn barrier_at(&self, first: u32, slot: Val) -> Val {
        let e = self.e;
        let offset = e.mul(slot, e.int(e.i32(), i64::from(BARRIER_BYTES)));
        self.shared_at(e.add(offset, e.int(e.i32(), i64::from(first))))
    }

    /// The barrier that copies into the next slot count their bytes at.
    pub(super) fn full_barrier(&self, ring: Ring) -> Val {
        self.barrier_at(ring.place.full, self.next_slot(ring))
    }

    /// Waits until the next slot's copies have arrived.
    pub(super) fn wait_full(&self, ring: Ring) {
        self.wait_phase(ring, self.full_barrier(ring));
    }

    /// The same where the region has not yet waited for this slot.
    pub(super) fn wait_full_once(&mut self, ring: Ring) {
        let known = (self.region, ring.place.full);
        if !self.arrived.contains(&known) {
            self.wait_full(ring);
            self.arrived.insert(known);
        }
    }

    /// Waits until everybody has read the next slot, and says how many bytes will come into it.
    pub(super) fn wait_empty(&self, ring: Ring) {
        self.wait_phase(ring, self.barrier_at(ring.place.empty, self.next_slot(ring)));
        self.arm(ring);
    }

    /// Whether the next stage was prefetched by [`super::producer_prologue`].
    pub(super) fn is_prefetched_stage(&self, ring: Ring) -> Val {
        let e = self.e;
        e.icmp(IntPred::Sgt, e.load_aligned(e.i32(), ring.prefetched, 4), e.int(e.i32(), 0))
    }

    /// One more stage that was prefetched, or one less that is next.
    pub(super) fn count_prefetched(&self, ring: Ring, more: bool) {
        let e = self.e;
        let count = e.load_aligned(e.i32(), ring.prefetched, 4);
        let next = match more {
            true => e.add(count, e.int(e.i32(), 1)),
            false => e.sub(count, e.zext(self.is_prefetched_stage(ring), e.i32())),
        };
        e.store_aligned(next, ring.prefetched, 4);
    }

    /// Says how many bytes will come into the next slot.
    pub(super) fn arm(&self, ring: Ring) {
        let e = self.e;
        let arm = "llvm.nvvm.mbarrier.arrive.expect.tx.scope.cta.space.cta";
        let bytes = e.int(e.i32(), i64::from(ring.place.copied));
        e.intrinsic(arm, &[], &[self.full_barrier(ring), bytes]);
    }

    fn wait_phase(&self, ring: Ring, barrier: Val) {
        let e = self.e;
        wait_parity(e, barrier, e.load_aligned(e.i32(), ring.parity, 4));
    }

    /// To the next slot.
    pub(super) fn advance(&self, ring: Ring) {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let next = e.add(self.next_slot(ring), int(1));
        let wraps = e.icmp(IntPred::Eq, next, int(ring.place.stages));
        let parity = e.load_aligned(e.i32(), ring.parity, 4);
        e.store_aligned(e.select(wraps, int(0), next), ring.slot, 4);
        e.store_aligned(e.xor(parity, e.zext(wraps, e.i32())), ring.parity, 4);
    }

    /// Gives the next slot back to the producer and goes on; its products are done.
    pub(super) fn release_next(&mut self, ring: Ring) -> Result<(), Error> {
        let leads = self.copies()?.leads;
        self.arrive_empty(ring, self.next_slot(ring), leads);
        self.advance(ring);
        Ok(())
    }

    /// Gives back the slot that products in flight read, if there is one: they are done.
    pub(super) fn release_held(&mut self, ring: Ring) -> Result<(), Error> {
        let e = self.e;
        let held = e.load_aligned(e.i32(), ring.held, 4);
        let is_held = e.icmp(IntPred::Sge, held, e.int(e.i32(), 0));
        let speaks = e.and(self.copies()?.leads, is_held);
        self.arrive_empty(ring, held, speaks);
        e.store_aligned(e.int(e.i32(), NONE), ring.held, 4);
        Ok(())
    }

    /// Notes that products in flight read the next slot, and goes on.
    pub(super) fn hold_next(&self, ring: Ring) {
        self.e.store_aligned(self.next_slot(ring), ring.held, 4);
        self.advance(ring);
    }

    /// The next slot, which products that begin will read; goes on.
    pub(super) fn take_next(&self, ring: Ring) -> Val {
        let slot = self.next_slot(ring);
        self.advance(ring);
        slot
    }

    /// Gives a slot back to the producer; its products are done.
    pub(super) fn release(&mut self, ring: Ring, slot: Val) -> Result<(), Error> {
        let leads = self.copies()?.leads;
        self.arrive_empty(ring, slot, leads);
        Ok(())
    }

    fn arrive_empty(&mut self, ring: Ring, slot: Val, speaks: Val) {
        thread::delay(self.e);
        let barrier = self.barrier_at(ring.place.empty, slot);
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

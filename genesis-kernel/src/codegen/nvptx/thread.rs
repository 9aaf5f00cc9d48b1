//! Thread indices: `tid.x` and the block's rank in the cluster, F2-linear maps of them, predicates on them, shuffles
//! between lanes, and barriers.
//!
//! What depends on the thread index alone is emitted once, into the entry block, which dominates all code.
//!
//! ```text
//! lane [4, 8, 16, 32, 64] warp [128, 256]   ->   (tid & 127) << 2
//! ```

use std::collections::BTreeMap;

use super::super::llvm::{Block, Emitter, IntPred, Val};
use crate::layout::LANE_BITS;

/// Named barrier of the first warpgroup; 0 is everybody's, 1 all consumers'.
pub(super) const FIRST_GROUP_BARRIER: i64 = 2;
/// Every lane of a warp takes part.
pub(super) const FULL_WARP: i64 = 0xffff_ffff;

/// Whether something holds in any thread of the warp, all of which come here together.
pub(super) fn any_in_warp(e: &Emitter, holds: Val) -> Val {
    e.intrinsic("llvm.nvvm.vote.any.sync", &[], &[e.int(e.i32(), FULL_WARP), holds])
}

/// `bar.warp.sync`: the lanes of a warp see what each of them has done.
pub(super) fn warp_barrier(e: &Emitter) {
    e.intrinsic("llvm.nvvm.bar.warp.sync", &[], &[e.int(e.i32(), FULL_WARP)]);
}

/// The thread's number and what was derived from it.
pub(super) struct Threads {
    /// The thread in its block, `i32`: lane in the low bits, warp above.
    pub(super) tid: Val,
    entry: Block,
    /// The block's rank in its cluster, `i32`, once it was asked for.
    rank: Option<Val>,
    maps: BTreeMap<Vec<u32>, Val>,
    block_maps: BTreeMap<Vec<u32>, Val>,
    tests: BTreeMap<u32, Val>,
    block_tests: BTreeMap<u32, Val>,
}

impl Threads {
    /// Reads the thread's number; the builder stands in the entry block.
    pub(super) fn new(e: &Emitter) -> Threads {
        let tid = e.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", &[], &[]);
        e.set_name(tid, "tid");
        Threads::of(e, tid)
    }

    /// For code that only some threads run: `tid` is known, and the builder stands in the block that
    /// all of that code comes after.
    pub(super) fn of(e: &Emitter, tid: Val) -> Threads {
        Threads {
            tid,
            entry: e.current_block(),
            rank: None,
            maps: BTreeMap::new(),
            block_maps: BTreeMap::new(),
            tests: BTreeMap::new(),
            block_tests: BTreeMap::new(),
        }
    }

    /// The block's rank in its cluster, `i32`.
    pub(super) fn rank(&mut self, e: &Emitter) -> Val {
        let entry = self.entry;
        *self.rank.get_or_insert_with(|| {
            let name = "llvm.nvvm.read.ptx.sreg.cluster.ctarank";
            in_block(e, entry, || e.intrinsic(name, &[], &[]))
        })
    }

    /// The XOR of the bases whose bit is set in this thread's lane and warp and its block's rank; `i32`.
    pub(super) fn offset(&mut self, e: &Emitter, lane: &[u32], warp: &[u32], block: &[u32]) -> Val {
        let thread = self.map(e, lane, warp);
        if block.iter().all(|&basis| basis == 0) {
            return thread;
        }
        let (rank, entry) = (self.rank(e), self.entry);
        // What depends on the thread stands before it in the same block.
        let block = *self
            .block_maps
            .entry(block.to_vec())
            .or_insert_with_key(|bases| in_block(e, entry, || linear_map(e, rank, bases)));
        in_block(e, entry, || e.xor(thread, block))
    }

    /// The XOR of the bases whose bit is set in this thread's lane and warp; `i32`.
    pub(super) fn map(&mut self, e: &Emitter, lane: &[u32], warp: &[u32]) -> Val {
        let bases: Vec<u32> = lane.iter().chain(warp).copied().collect();
        let tid = self.tid;
        let entry = self.entry;
        *self
            .maps
            .entry(bases)
            .or_insert_with_key(|bases| in_block(e, entry, || linear_map(e, tid, bases)))
    }

    /// Writes code into the entry block.
    pub(super) fn in_entry<T>(&self, e: &Emitter, write: impl FnOnce() -> T) -> T {
        in_block(e, self.entry, write)
    }

    /// Whether these bits of the thread's number and of its block's rank are 0; none where that is
    /// always so.
    pub(super) fn is_first(
        &mut self,
        e: &Emitter,
        lanes: u32,
        warps: u32,
        blocks: u32,
    ) -> Option<Val> {
        let thread = self.all_zero(e, lanes, warps);
        if blocks == 0 {
            return thread;
        }
        let (rank, entry) = (self.rank(e), self.entry);
        let block = *self.block_tests.entry(blocks).or_insert_with(|| {
            in_block(e, entry, || {
                let bits = e.and(rank, e.int(e.i32(), i64::from(blocks)));
                e.icmp(IntPred::Eq, bits, e.int(e.i32(), 0))
            })
        });
        Some(thread.map_or(block, |thread| in_block(e, entry, || e.and(thread, block))))
    }

    /// Whether all of these bits of the thread's number are 0; none where that is always so.
    pub(super) fn all_zero(&mut self, e: &Emitter, lanes: u32, warps: u32) -> Option<Val> {
        let mask = lanes | warps << LANE_BITS;
        let (tid, entry) = (self.tid, self.entry);
        (mask != 0).then(|| {
            *self.tests.entry(mask).or_insert_with(|| {
                in_block(e, entry, || {
                    let bits = e.and(tid, e.int(e.i32(), i64::from(mask)));
                    e.icmp(IntPred::Eq, bits, e.int(e.i32(), 0))
                })
            })
        })
    }
}

/// Writes code at the end of another block and comes back.
fn in_block<T>(e: &Emitter, block: Block, write: impl FnOnce() -> T) -> T {
    let here = e.current_block();
    e.position(block);
    let result = write();
    e.position(here);
    result
}

/// The XOR of the bases whose bit is set in a number.
fn linear_map(e: &Emitter, number: Val, bases: &[u32]) -> Val {
    let terms = terms(bases).into_iter().map(|(mask, shift)| {
        let bits = e.and(number, e.int(e.i32(), i64::from(mask)));
        match shift {
            0 => bits,
            1.. => e.shl(bits, e.int(e.i32(), i64::from(shift))),
            _ => e.lshr(bits, e.int(e.i32(), i64::from(-shift))),
        }
    });
    terms.reduce(|a, b| e.xor(a, b)).unwrap_or_else(|| e.int(e.i32(), 0))
}

/// A linear map of a number's bits as the fewest `(number & mask) << shift` whose XOR it is, negative
/// shifts to the right.
fn terms(bases: &[u32]) -> Vec<(u32, i32)> {
    let mut masks: BTreeMap<i32, u32> = BTreeMap::new();
    for (i, &basis) in bases.iter().enumerate() {
        for j in (0..32).filter(|j| basis >> j & 1 == 1) {
            *masks.entry(j - i as i32).or_insert(0) |= 1 << i;
        }
    }
    masks.into_iter().map(|(shift, mask)| (mask, shift)).collect()
}

/// A shuffle of 32-bit words among the lanes of a warp.
#[derive(Clone, Copy)]
pub(super) enum Shuffle {
    /// From the lane whose number differs in these bits.
    Xor(u32),
    /// From the lane with this number, `i32`.
    Index(Val),
}

/// A value of any register type from another lane. All lanes of the warp must come here.
pub(super) fn shuffle(e: &Emitter, how: Shuffle, value: Val) -> Val {
    let ty = e.type_of(value);
    let is_ptr = ty == e.ptr(1);
    let bits = match () {
        () if is_ptr || ty == e.i64() || ty == e.f64() => 64,
        () if ty == e.f32() => 32,
        () => e.int_bits(ty),
    };
    let raw = match () {
        () if is_ptr => e.ptrtoint(value, e.i64()),
        () if ty == e.f32() || ty == e.f64() => e.bitcast(value, e.int_ty(bits)),
        () => value,
    };
    let moved = shuffle_bits(e, how, raw, bits);
    match () {
        () if is_ptr => e.inttoptr(moved, ty),
        () if ty == e.f32() || ty == e.f64() => e.bitcast(moved, ty),
        () => moved,
    }
}

fn shuffle_bits(e: &Emitter, how: Shuffle, raw: Val, bits: u32) -> Val {
    if bits < 32 {
        return e.trunc(shuffle_word(e, how, e.zext(raw, e.i32())), e.int_ty(bits));
    }
    if bits == 32 {
        return shuffle_word(e, how, raw);
    }
    let pair = e.vec(e.i32(), 2);
    let words = e.bitcast(raw, pair);
    let moved = [0, 1].map(|i| shuffle_word(e, how, e.extract(words, i)));
    e.bitcast(e.build_vec(&moved), e.i64())
}

fn shuffle_word(e: &Emitter, how: Shuffle, word: Val) -> Val {
    let int = |n| e.int(e.i32(), n);
    let (name, lane) = match how {
        Shuffle::Xor(mask) => ("llvm.nvvm.shfl.sync.bfly.i32", int(i64::from(mask))),
        Shuffle::Index(lane) => ("llvm.nvvm.shfl.sync.idx.i32", lane),
    };
    e.intrinsic(name, &[], &[int(FULL_WARP), word, lane, int(31)])
}

/// A barrier of all threads of the block, after which each sees the memory the others wrote.
pub(super) fn barrier(e: &Emitter) {
    delay(e);
    e.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.all", &[], &[e.int(e.i32(), 0)]);
}

/// Says to the other blocks of the cluster that this thread has come here. All threads of all blocks
/// must say so, and then wait, by [`await_cluster`], before they say so again. What they wrote before to
/// global memory and to any block's shared memory is seen after the wait.
pub(super) fn arrive_in_cluster(e: &Emitter) {
    delay(e);
    e.intrinsic("llvm.nvvm.barrier.cluster.arrive.aligned", &[], &[]);
}

/// [`arrive_in_cluster`] for a thread that has written nothing yet.
pub(super) fn arrive_in_cluster_first(e: &Emitter) {
    delay(e);
    e.intrinsic("llvm.nvvm.barrier.cluster.arrive.relaxed.aligned", &[], &[]);
}

/// Waits until all threads of the cluster have arrived.
pub(super) fn await_cluster(e: &Emitter) {
    e.intrinsic("llvm.nvvm.barrier.cluster.wait.aligned", &[], &[]);
}

/// The same for threads of a warp that come by different ways, to the end of the kernel: no block may
/// go while another may still write to its shared memory.
pub(super) fn leave_cluster(e: &Emitter) {
    delay(e);
    e.intrinsic("llvm.nvvm.barrier.cluster.arrive", &[], &[]);
    e.intrinsic("llvm.nvvm.barrier.cluster.wait", &[], &[]);
}

/// Arrives at the barrier that lies at `address` of shared memory in the block of this rank. As in its own
/// block, that says that this thread is done with what it read; it is not made to wait until all that
/// it wrote is seen by the cluster, which costs as much as a barrier.
pub(super) fn arrive_in_block(e: &Emitter, address: Val, rank: Val) {
    let there = in_block_of_rank(e, address, rank);
    let arrive = "mbarrier.arrive.shared::cluster.b64 _, [$0];";
    e.inline_asm(e.void(), arrive, "l,~{memory}", &[there], true);
}

/// The address, as seen by the whole cluster, of what lies at `address` of shared memory in the block
/// of this rank: for instructions on `shared::cluster`.
pub(super) fn in_block_of_rank(e: &Emitter, address: Val, rank: Val) -> Val {
    let text = "mapa.shared::cluster.u64 $0, $1, $2;";
    e.inline_asm(e.i64(), text, "=l,l,r", &[address, rank], false)
}

/// The same of some of the block's warps, which share a barrier by its number below 16.
pub(super) fn named_barrier(e: &Emitter, number: Val, threads: u32) {
    delay(e);
    let threads = e.int(e.i32(), i64::from(threads));
    e.intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", &[], &[number, threads]);
}

/// Arrives at such a barrier, without waiting for the others.
pub(super) fn arrive_at_named(e: &Emitter, number: Val, threads: u32) {
    delay(e);
    let threads = e.int(e.i32(), i64::from(threads));
    e.intrinsic("llvm.nvvm.barrier.cta.arrive.aligned.count", &[], &[number, threads]);
}

/// Where `GENESIS_DELAYS` asks for it, lets the warp sleep for up to a microsecond by the bits of its
/// clock, so that warps meet in another order each time.
pub(super) fn delay(e: &Emitter) {
    if !crate::knobs::get().delays {
        return;
    }
    let int = |n| e.int(e.i32(), n);
    let clock = e.intrinsic("llvm.nvvm.read.ptx.sreg.clock", &[], &[]);
    // A product of the golden ratio's bits: its top ten bits are as good as random.
    let mixed = e.mul(clock, int(0x9e37_79b1));
    e.intrinsic("llvm.nvvm.nanosleep", &[], &[e.lshr(mixed, int(22))]);
}

/// The number of this thread's warp, by an instruction that tells the assembler that it is the same in
/// all of the warp.
pub(super) fn uniform_warp(e: &Emitter, tid: Val) -> Val {
    let warp = e.lshr(tid, e.int(e.i32(), LANE_BITS as i64));
    shuffle_word(e, Shuffle::Index(e.int(e.i32(), 0)), warp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::f2;

    fn check(bases: &[u32], most: usize) {
        let terms = terms(bases);
        assert!(terms.len() <= most, "{terms:?}");
        for number in 0..1_u32 << bases.len() {
            let sum = terms.iter().fold(0, |sum, &(mask, shift)| {
                let bits = number & mask;
                sum ^ if shift < 0 { bits >> -shift } else { bits << shift }
            });
            assert_eq!(sum, f2::combine(bases, number));
        }
    }

    #[test]
    fn maps_are_few_shifts() {
        check(&[4, 8, 16, 32, 64, 128, 256], 1);
        check(&[1, 2, 4, 8, 16], 1);
        check(&[64, 128, 1, 2, 4, 0, 8], 3);
        check(&[0, 0, 0, 0, 0], 0);
        check(&[5, 10, 20, 40, 80], 2);
        check(&[3, 6, 33, 64, 17], 5);
    }
}

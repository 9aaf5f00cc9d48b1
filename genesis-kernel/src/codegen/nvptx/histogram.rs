//! Histograms: ballots find the lanes of a warp whose elements are equal, of which the first counts for all.
//!
//! ```text
//! for each register, in order:
//!   peers = lanes with the same element          a ballot for each bit of a bin's number
//!   rank  = counter[element] + peers before it
//!   counter[element] += peers                    one lane of them
//! ```
//!
//! Then threads share out the bins, and each counter becomes the number of equal elements in earlier warps.
//!
//! Where nobody asks for ranks, each lane adds 1 to its counter by an atomic in shared memory instead: sums of integers do not
//! depend on their order.

use super::super::llvm::{IntPred, Order, Rmw, Val};
use super::collective::Partial;
use super::lowering::Lowering;
use super::thread::{self, FULL_WARP};
use crate::Error;
use crate::ir::Op;
use crate::layout::{HistogramPlan, LANE_BITS, f2};

/// What the instructions of a histogram have in common.
#[derive(Clone, Copy)]
struct Counters {
    plan: HistogramPlan,
    /// Where the first warp's counters are.
    start: u32,
    /// The counters of this warp, `i32`.
    own: Val,
    lane: Val,
}

impl Lowering<'_> {
    pub(super) fn finish_histogram(&mut self, op: Op) -> Result<(), Error> {
        let Some(Partial::Histogram { ranks, counts }) = self.partial.remove(&op) else {
            return Err(Error::bug("a histogram was not counted"));
        };
        let results = &self.func.op(op).results;
        self.set(results[0], ranks);
        self.set(results[1], counts);
        Ok(())
    }

    /// Counts this warp's elements, or gives each counter the number of equal elements in earlier warps.
    pub(super) fn store_histogram(&mut self, op: Op, number: u32) -> Result<(), Error> {
        match number {
            0 => self.count_in_warp(op),
            _ => self.store_earlier(op),
        }
    }

    /// Reads the counters of all warps, or what came of them.
    pub(super) fn load_histogram(&mut self, op: Op, number: u32) -> Result<(), Error> {
        match number {
            0 => self.load_counters(op),
            _ => self.load_ranks(op),
        }
    }

    fn counters(&mut self, op: Op) -> Result<Counters, Error> {
        let e = self.e;
        let plan = self.lir.histogram(op);
        let start = self.scratch(op)?.start;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let tid = self.threads.tid;
        let (warp, lane) =
            (e.lshr(tid, int(LANE_BITS as u32)), e.and(tid, int((1 << LANE_BITS) - 1)));
        let own = e.add(e.mul(warp, int(plan.warp_bytes())), int(start));
        Ok(Counters { plan, start, own, lane })
    }

    /// Sets this warp's counters to zero, and counts its elements.
    fn count_in_warp(&mut self, op: Op) -> Result<(), Error> {
        let e = self.e;
        let counters = self.counters(op)?;
        let (bins, zero) = (counters.plan.bins, e.int(e.i32(), 0));
        for first in (0..bins).step_by(1 << LANE_BITS) {
            let bin = e.add(counters.lane, e.int(e.i32(), i64::from(first)));
            let inside = e.icmp(IntPred::Ult, bin, e.int(e.i32(), i64::from(bins)));
            let at = self.counter_at(counters.own, bin);
            self.only(inside, |e| {
                e.store_aligned(zero, at, 4);
            });
        }
        let x = self.get(self.func.op(op).operands[0])?;
        let ranks = match self.wants_ranks(op) {
            true => x.iter().map(|&x| self.count(&counters, x)).collect(),
            false => {
                thread::warp_barrier(e);
                x.iter().for_each(|&x| self.tally(&counters, x));
                vec![zero; x.len()]
            }
        };
        self.partial.insert(op, Partial::Registers(ranks));
        Ok(())
    }

    /// Counts one register of a warp.
    fn tally(&self, counters: &Counters, x: Val) {
        let e = self.e;
        let Counters { plan, own, lane, .. } = *counters;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let inside = e.icmp(IntPred::Ult, x, int(plan.bins));
        let counts = e.and(inside, e.icmp(IntPred::Ult, lane, int(plan.distinct_lanes)));
        let at = self.counter_at(own, x);
        self.only(counts, |e| {
            e.atomic_rmw(Rmw::Add, at, int(1), Order::Relaxed);
        });
    }

    /// Counts one register of a warp; gives how many equal elements of the warp come before each.
    fn count(&self, counters: &Counters, x: Val) -> Val {
        let e = self.e;
        let Counters { plan, own, lane, .. } = *counters;
        let int = |n: i64| e.int(e.i32(), n);
        let inside = e.icmp(IntPred::Ult, x, int(i64::from(plan.bins)));
        let peers = self.equal_lanes(counters, x, inside);
        let earlier = e.sub(e.shl(int(1), lane), int(1));
        let before = e.intrinsic("llvm.ctpop", &[e.i32()], &[e.and(peers, earlier)]);
        let all = e.intrinsic("llvm.ctpop", &[e.i32()], &[peers]);
        // Without a bin the first counter is read, and nothing written.
        let at = self.counter_at(own, e.select(inside, x, int(0)));
        thread::warp_barrier(e);
        let counted = e.load_aligned(e.i32(), at, 4);
        thread::warp_barrier(e);
        let is_first = e.icmp(IntPred::Eq, before, int(0));
        // Of lanes with copies of the same elements the first ones count.
        let is_distinct = e.icmp(IntPred::Ult, lane, int(i64::from(plan.distinct_lanes)));
        let counts = e.and(e.and(inside, is_first), is_distinct);
        self.only(counts, |e| {
            e.store_aligned(e.add(counted, all), at, 4);
        });
        e.select(inside, e.add(counted, before), int(0))
    }

    /// The lanes of the warp whose elements equal this lane's, which has a bin; of copies those of its own.
    fn equal_lanes(&self, counters: &Counters, x: Val, inside: Val) -> Val {
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let ballot = |holds| {
            e.intrinsic("llvm.nvvm.vote.ballot.sync", &[], &[e.int(e.i32(), FULL_WARP), holds])
        };
        let mut peers = ballot(inside);
        for bit in 0..counters.plan.bins.trailing_zeros() {
            let is_set = e.icmp(IntPred::Ne, e.and(x, int(1 << bit)), int(0));
            let set = ballot(is_set);
            peers = e.and(peers, e.select(is_set, set, e.not(set)));
        }
        let lanes = counters.plan.distinct_lanes;
        if lanes == 1 << LANE_BITS {
            return peers;
        }
        let first = e.and(counters.lane, e.not(int(lanes - 1)));
        e.and(peers, e.shl(int((1 << lanes) - 1), first))
    }

    /// Of each bin of this thread the counters of all warps.
    fn load_counters(&mut self, op: Op) -> Result<(), Error> {
        let Some(Partial::Registers(ranks)) = self.partial.remove(&op) else {
            return Err(Error::bug("a histogram has counted nothing"));
        };
        let e = self.e;
        let Counters { plan, start, .. } = self.counters(op)?;
        let mut counts = Vec::new();
        for first in self.own_bins(&plan) {
            // A thread without a bin reads another's.
            let bin = e.add(self.threads.tid, e.int(e.i32(), i64::from(first)));
            let bin = e.and(bin, e.int(e.i32(), i64::from(plan.bins - 1)));
            for warp in 0..plan.distinct_warps {
                let own = e.int(e.i32(), i64::from(start + warp * plan.warp_bytes()));
                counts.push(e.load_aligned(e.i32(), self.counter_at(own, bin), 4));
            }
        }
        self.partial.insert(op, Partial::Histogram { ranks, counts });
        Ok(())
    }

    /// Of each bin of this thread what warps before each have, and what all have.
    fn store_earlier(&mut self, op: Op) -> Result<(), Error> {
        let Some(Partial::Histogram { ranks, counts }) = self.partial.remove(&op) else {
            return Err(Error::bug("a histogram's counters were not read"));
        };
        let e = self.e;
        let Counters { plan, start, .. } = self.counters(op)?;
        let wants_ranks = self.wants_ranks(op);
        let firsts = self.own_bins(&plan);
        for (first, counts) in firsts.into_iter().zip(counts.chunks(plan.distinct_warps as usize)) {
            let bin = e.add(self.threads.tid, e.int(e.i32(), i64::from(first)));
            let inside = e.icmp(IntPred::Ult, bin, e.int(e.i32(), i64::from(plan.bins)));
            self.only(inside, |e| {
                let mut earlier = e.int(e.i32(), 0);
                for (warp, &count) in (0..).zip(counts) {
                    if wants_ranks {
                        let own = e.int(e.i32(), i64::from(start + warp * plan.warp_bytes()));
                        e.store_aligned(earlier, self.counter_at(own, bin), 4);
                    }
                    earlier = e.add(earlier, count);
                }
                let sums = e.int(e.i32(), i64::from(start + plan.sums()));
                e.store_aligned(earlier, self.counter_at(sums, bin), 4);
            });
        }
        self.partial.insert(op, Partial::Registers(ranks));
        Ok(())
    }

    /// Adds what earlier warps have to the ranks, and reads the counts that this thread holds.
    fn load_ranks(&mut self, op: Op) -> Result<(), Error> {
        let Some(Partial::Registers(ranks)) = self.partial.remove(&op) else {
            return Err(Error::bug("a histogram has no ranks"));
        };
        let e = self.e;
        let Counters { plan, start, own, .. } = self.counters(op)?;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let data = self.func.op(op);
        // Warps with copies read what the warp has that they are copies of.
        let copied = e.sub(own, int(start));
        let own =
            e.add(e.and(copied, int(plan.distinct_warps * plan.warp_bytes() - 1)), int(start));
        let x = self.get(data.operands[0])?;
        let whole = |(&x, rank): (&Val, Val)| {
            let inside = e.icmp(IntPred::Ult, x, int(plan.bins));
            let at = self.counter_at(own, e.select(inside, x, int(0)));
            let earlier = e.load_aligned(e.i32(), at, 4);
            e.select(inside, e.add(rank, earlier), int(0))
        };
        let ranks = match self.wants_ranks(op) {
            true => x.iter().zip(ranks).map(whole).collect(),
            false => ranks,
        };
        let layout = self.layout(data.results[1])?;
        let bytes = |bases: &[u32]| bases.iter().map(|b| b * 4).collect::<Vec<u32>>();
        let thread = self.threads.map(e, &bytes(&layout.lane), &bytes(&layout.warp));
        let sums = start + plan.sums();
        let count = |reg| {
            let offset = e.xor(thread, int(4 * f2::combine(&layout.reg, reg)));
            e.load_aligned(e.i32(), self.shared_at(e.add(offset, int(sums))), 4)
        };
        let counts = (0..layout.num_regs()).map(count).collect();
        self.partial.insert(op, Partial::Histogram { ranks, counts });
        Ok(())
    }

    fn wants_ranks(&self, op: Op) -> bool {
        self.facts.uses[self.func.op(op).results[0].index()] > 0
    }

    /// The first bin of each round in which all threads take one.
    fn own_bins(&self, plan: &HistogramPlan) -> Vec<u32> {
        let threads = self.lir.num_warps << LANE_BITS;
        (0..plan.bins).step_by(threads as usize).collect()
    }

    /// The address of a counter.
    fn counter_at(&self, counters: Val, bin: Val) -> Val {
        let e = self.e;
        self.shared_at(e.add(counters, e.shl(bin, e.int(e.i32(), 2))))
    }
}

//! Warpgroups that begin products in turns, each while the others compute from theirs.
//!
//! A loop whose iteration begins two products and computes from the first while both run would have all
//! groups multiply at one time and compute at another. Here a group waits for its turn before it begins
//! its products, and gives the turn to the next group behind them:
//!
//! ```text
//! group 0    turn  s = q k, o += w v begin  pass    max, exp2 of s ...          turn ...
//! group 1                                   turn    s, o += w v begin   pass    max, exp2 of s
//! ```
//!
//! A turn is a named barrier of the group's own threads, which wait, and those of the group before, which
//! arrive. All groups run every iteration, as a loop's bounds are the block's, so turns go round in order.
//! The last group arrives once more at the end, for a turn that nobody takes.
//!
//! On an H200 attention of heads of 128 in two groups takes 1 to 2 % less time by it; four groups, of heads
//! of 64, take 1 to 2 % more, and have no turns.

use std::collections::BTreeSet;

use super::super::llvm::{Emitter, IntPred, Val};
use super::WARPGROUP;
use super::lower::Lowering;
use super::thread;
use super::wgmma::is_async_within_iteration;
use crate::ir::{Op, OpKind, Region};
use crate::layout::LayoutIr;

/// The number of the first group's barrier; those before are used by others.
const FIRST: i64 = 6;

/// The products before which a group waits for its turn, and those behind which it gives it away.
#[derive(Clone, Default, Debug)]
pub(super) struct PingPong {
    firsts: BTreeSet<Op>,
    lasts: BTreeSet<Op>,
    /// Warpgroups.
    groups: u32,
}

impl PingPong {
    /// The turns of a kernel's loops; none where there is one group, or more than two.
    pub(super) fn of(lir: &LayoutIr) -> PingPong {
        let mut found = PingPong { groups: lir.num_warps / 4, ..PingPong::default() };
        if found.groups != 2 {
            return found;
        }
        for op in lir.func.walk() {
            let OpKind::For(_) = lir.func.op(op).kind else { continue };
            if let Some([first, last]) = pair(lir, lir.func.op(op).regions[0]) {
                found.firsts.insert(first);
                found.lasts.insert(last);
            }
        }
        found
    }

    /// Gives the first turn to the first group; `group` is that of the thread.
    pub(super) fn begin(&self, e: &Emitter, group: Val) {
        if self.firsts.is_empty() {
            return;
        }
        let last = e.int(e.i32(), i64::from(self.groups - 1));
        let (give, begun) = (e.block("first.turn"), e.block("begun"));
        e.cond_br(e.icmp(IntPred::Eq, group, last), give, begun);
        e.position(give);
        thread::arrive_at_named(e, e.int(e.i32(), FIRST), 2 * WARPGROUP);
        e.br(begun);
        e.position(begun);
    }
}

/// The two products of a loop's body, if these are all and nothing between them needs the first.
fn pair(lir: &LayoutIr, body: Region) -> Option<[Op; 2]> {
    let ops = &lir.func.region(body).ops;
    let dots: Vec<Op> = ops.iter().copied().filter(|op| lir.dots.contains_key(op)).collect();
    let &[first, last] = &dots[..] else { return None };
    let are_async =
        [first, last].iter().all(|op| lir.dots.get(op).is_some_and(is_async_within_iteration));
    let sums = lir.func.op(first).results[0];
    let needs = |&op: &Op| {
        let data = lir.func.op(op);
        !data.regions.is_empty() || data.operands.contains(&sums)
    };
    let between = ops.iter().skip_while(|&&op| op != first).take_while(|&&op| op != last);
    (are_async && !between.skip(1).any(needs)).then_some([first, last])
}

impl Lowering<'_> {
    /// Waits for the group's turn before products that begin a pair.
    pub(super) fn await_turn_for(&self, op: Op) {
        let Some(copies) = self.copies.as_ref().filter(|c| c.ping_pong.firsts.contains(&op)) else {
            return;
        };
        let e = self.e;
        let own = e.add(copies.group, e.int(e.i32(), FIRST));
        thread::named_barrier(e, own, 2 * WARPGROUP);
    }

    /// Gives the turn to the next group behind products that end a pair.
    pub(super) fn pass_turn_after(&self, op: Op) {
        let Some(copies) = self.copies.as_ref().filter(|c| c.ping_pong.lasts.contains(&op)) else {
            return;
        };
        let e = self.e;
        let int = |n: u32| e.int(e.i32(), i64::from(n));
        let last = e.icmp(IntPred::Eq, copies.group, int(copies.ping_pong.groups - 1));
        let next = e.select(last, int(0), e.add(copies.group, int(1)));
        let next = e.add(next, e.int(e.i32(), FIRST));
        thread::arrive_at_named(e, next, 2 * WARPGROUP);
    }
}

//! Async MMA: where `wgmma.wait_group` stands.
//!
//! The warps run on behind a `wgmma` and wait where its accumulators are used. `wait_group` waits for all groups but the
//! last few, and groups complete in order; so a wait for one is a wait for those before it. The stages that they read are
//! then released to the producer.
//!
//! ```text
//! mma 5  %s = dot %q, %k, 0                               in flight: 5
//! mma 6  %c = dot %w, %v, %a                              in flight: 5, 6
//! wait.mma 5 pending 1, release      before %m = reduce max %s
//! wait.mma 6 pending 0, release      before %n = mul %c, %f
//! ```
//!
//! What is in flight at the end of a region or before a loop is waited for there: ptxas serializes `wgmma`s whose
//! accumulators are live across other control flow.
//!
//! ptxas sees no dependence between a wait and the code before it, and hoists it to the previous wait: then the warps
//! compute what was to overlap an MMA only after it. It moves no instruction across a branch, so before a wait after a
//! reduction stands a scheduling barrier, a branch on what was computed last from the reduction:
//!
//! ```text
//! wait.mma 5 pending 1
//! %w = exp2 ..                       overlaps the MMA in flight
//! %t = add %old, (reduce add 1 %w)
//! scheduling.barrier %t
//! wait.mma 6 pending 0
//! ```
//!
//! Later instructions can't be hoisted either, so this pays only for long MMAs: on an H200 `attention` with heads of 128
//! takes 4 % less time, and with heads of 64 it would take 3 % more.

use std::collections::BTreeMap;

use super::{Block, Code, Inst, MmaWait};
use crate::ir::{DType, Op, OpKind, Region, Value};
use crate::layout::LayoutIr;
use crate::tuning::registers::LONG_MMA_ACCUMULATORS;

/// Registers of a value that a scheduling barrier tests, at most.
const MOST_TESTED_REGISTERS: u32 = 4;

/// Inserts the waits of a function's MMAs.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    let mut pass = AsyncMma {
        lir,
        region: lir.func.body,
        takes: BTreeMap::new(),
        in_flight: Vec::new(),
        reduced: None,
    };
    pass.region(lir.func.body, &mut code.body);
}

struct AsyncMma<'a> {
    lir: &'a LayoutIr,
    region: Region,
    /// The pipelines whose stages each dot's MMAs took.
    takes: BTreeMap<Op, Vec<u8>>,
    /// Dots whose MMAs are in flight, in the order of their issue.
    in_flight: Vec<Op>,
    /// The last reduction since an MMA was issued or waited for, or what was computed from it; with its region.
    reduced: Option<(Op, Region)>,
}

impl AsyncMma<'_> {
    fn region(&mut self, region: Region, block: &mut Block) {
        let outer = std::mem::replace(&mut self.region, region);
        let first = self.in_flight.len();
        let mut done = Block::new();
        for mut inst in std::mem::take(block) {
            self.before(&inst, first, &mut done);
            for (inner, block) in inst.regions_mut(&self.lir.func) {
                self.region(inner, block);
            }
            if let Inst::Mma(mma) = &inst
                && mma.wait == MmaWait::Iteration
            {
                self.takes.insert(mma.op, mma.takes.clone());
                self.in_flight.push(mma.op);
                self.reduced = None;
            }
            let op = inst.op();
            done.push(inst);
            op.into_iter().for_each(|op| self.note_reduction(op));
        }
        if !matches!(done.last(), Some(Inst::Yield(_) | Inst::Return(_))) {
            self.wait(self.in_flight.len(), &mut done);
        }
        *block = done;
        self.region = outer;
    }

    /// Waits for the MMAs whose accumulators an instruction needs; a terminator waits for those that were issued in its
    /// own region, at `first` or later in the list.
    fn before(&mut self, inst: &Inst, first: usize, done: &mut Block) {
        let needed = match inst {
            _ if self.in_flight.is_empty() => return,
            Inst::Yield(_) | Inst::Return(_) if self.in_flight.len() > first => {
                self.in_flight.len()
            }
            Inst::Yield(_) | Inst::Return(_) => 0,
            Inst::ReleaseResident(_) => self.in_flight.len(),
            _ => inst.op().map_or(0, |op| self.needed_by(op)),
        };
        self.wait(needed, done);
    }

    /// How many of the MMAs in flight must be complete before an op.
    fn needed_by(&self, op: Op) -> usize {
        let func = &self.lir.func;
        let regions = &func.op(op).regions;
        let inside: Vec<Op> = regions.iter().flat_map(|&region| func.walk_in(region)).collect();
        let multiplies = |op: &Op| {
            let kind = &func.op(*op).kind;
            matches!(kind, OpKind::Dot { .. } | OpKind::TmaLoad(_) | OpKind::Return)
        };
        if func.op(op).kind.is_loop() || inside.iter().any(multiplies) {
            return self.in_flight.len();
        }
        let reads = |op: Op, value: Value| func.op(op).operands.contains(&value);
        let used = |&dot: &Op| {
            let sums = func.op(dot).results[0];
            reads(op, sums) || inside.iter().any(|&op| reads(op, sums))
        };
        self.in_flight.iter().rposition(used).map_or(0, |last| last + 1)
    }

    /// Waits for the first `n` MMAs in flight and releases their stages.
    fn wait(&mut self, n: usize, done: &mut Block) {
        if n == 0 {
            return;
        }
        self.scheduling_barrier(n, done);
        let pending = (self.in_flight.len() - n) as u32;
        let complete: Vec<Op> = self.in_flight.drain(..n).collect();
        done.push(Inst::WaitMma { complete: complete.clone(), pending });
        for of in complete {
            let channels = self.takes.remove(&of).unwrap_or_default();
            done.extend(channels.into_iter().map(|channel| Inst::Release { channel, of }));
        }
    }

    /// Notes a reduction that overlaps MMAs in flight, or what was computed from it.
    fn note_reduction(&mut self, op: Op) {
        let data = self.lir.func.op(op);
        let Some(&result) = data.results.first().filter(|_| !self.in_flight.is_empty()) else {
            return;
        };
        let follows = || {
            let size = |value: Value| self.lir.num_regs(value);
            let reads = |(from, _): (Op, Region)| {
                let from = self.lir.func.op(from).results[0];
                data.operands.contains(&from) && size(from) == size(result)
            };
            data.kind.is_elementwise() && self.reduced.is_some_and(reads)
        };
        if matches!(data.kind, OpKind::Reduce { .. }) || follows() {
            self.reduced = Some((op, self.region));
        }
    }

    /// Ends the basic block before a wait for the first `n` MMAs in flight, if a reduction overlaps them.
    fn scheduling_barrier(&mut self, n: usize, done: &mut Block) {
        let Some((op, region)) = self.reduced.take() else { return };
        let value = self.lir.func.op(op).results[0];
        let is_long = |&dot: &Op| {
            self.lir.num_regs(self.lir.func.op(dot).results[0]) >= LONG_MMA_ACCUMULATORS
        };
        let is_small = self.lir.func.tile(value).dtype() == DType::F32
            && self.lir.num_regs(value) <= MOST_TESTED_REGISTERS;
        if region == self.region && is_small && self.in_flight[..n].iter().any(is_long) {
            done.push(Inst::SchedulingBarrier(op));
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{attend, changes, on_hopper};

    #[test]
    fn accumulators_are_waited_for_where_they_are_used() {
        let lir = on_hopper(&attend::KERNEL, &[128, 64, 64], 8);
        expect![[r#"
              ..
                mma 13 takes 1                        // dot
            +   wait.mma 13 pending 0
            +   release 1 of 13
                exec 14                               // reduce
              ..
                  mma 30 takes 2                      // dot
            +     wait.mma 28 pending 1
            +     release 1 of 28
                  exec 31                             // reduce
              ..
                  exec 40                             // broadcast
            +     wait.mma 30 pending 0
            +     release 2 of 30
                  exec 41                             // mul
              ..
                mma 45 takes 2                        // dot
            +   wait.mma 45 pending 0
            +   release 2 of 45
                yield 46                              // yield
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "async_mma"));
    }
}

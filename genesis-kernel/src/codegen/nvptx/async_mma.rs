//! Async MMA: where `wgmma`s are issued, and where `wgmma.wait_group` stands.
//!
//! The warps run on behind a `wgmma` and wait where its accumulators are used. `wait_group` waits for all groups but
//! the last few, and groups complete in order; so a wait for one is a wait for those before it. The stages that they
//! read are then released to the producer.
//!
//! ```text
//! %s = dot %q, %k, 0        issue                          in flight: s
//! %c = dot %w, %v, %a       issue                          in flight: s, c
//! %m = reduce max %s        wait_group 1                   in flight: c
//! %n = mul %c, %f           wait_group 0
//! ```
//!
//! What is in flight at the end of a region or before a loop is waited for there: ptxas serializes `wgmma`s whose
//! accumulators are live across other control flow.

use super::super::llvm::Val;
use super::lower::Lowering;
use super::tma_pipeline::Pipeline;
use super::wgmma;
use crate::Error;
use crate::ir::{Op, OpKind, Value};

/// A `wgmma` group that was issued and not waited for.
pub(super) struct AsyncMma {
    /// Its accumulators, which nothing may touch.
    pub(super) sums: Value,
    /// The stages that it reads.
    slots: Vec<(Pipeline, Val)>,
}

impl AsyncMma {
    pub(super) fn new(sums: Value, slots: Vec<(Pipeline, Val)>) -> AsyncMma {
        AsyncMma { sums, slots }
    }
}

impl Lowering<'_> {
    /// Waits for the MMAs whose accumulators an op needs; a terminator waits for those that were issued in its own
    /// region, at `first` or later in the list.
    pub(super) fn wait_mma_before(&mut self, op: Op, first: usize) -> Result<(), Error> {
        let needed = match self.func.op(op).kind {
            _ if self.in_flight.is_empty() => return Ok(()),
            OpKind::Yield | OpKind::Return if self.in_flight.len() > first => self.in_flight.len(),
            OpKind::Yield | OpKind::Return => 0,
            _ => self.needed_by(op),
        };
        self.wait_mma(needed)
    }

    /// How many of the MMAs in flight must be complete before an op.
    fn needed_by(&self, op: Op) -> usize {
        let inside = self.ops_within(op);
        let loops = self.func.op(op).kind.is_loop();
        let multiplies = |op: &Op| {
            let kind = &self.func.op(*op).kind;
            matches!(kind, OpKind::Dot { .. } | OpKind::TmaLoad(_) | OpKind::Return)
        };
        if loops || inside.iter().any(multiplies) {
            return self.in_flight.len();
        }
        let reads = |op: &Op, value: Value| self.func.op(*op).operands.contains(&value);
        let used =
            |mma: &AsyncMma| reads(&op, mma.sums) || inside.iter().any(|op| reads(op, mma.sums));
        self.in_flight.iter().rposition(used).map_or(0, |last| last + 1)
    }

    /// Notes an MMA that was issued.
    pub(super) fn push_in_flight(&mut self, mma: AsyncMma) {
        self.in_flight.push(mma);
        self.reduced = None;
    }

    /// Waits for the first `n` MMAs in flight and releases their stages.
    pub(super) fn wait_mma(&mut self, n: usize) -> Result<(), Error> {
        if n > 0 {
            self.scheduling_barrier(n)?;
        }
        let pending = (self.in_flight.len() - n) as u32;
        let complete: Vec<AsyncMma> = self.in_flight.drain(..n).collect();
        for mma in &complete {
            let sums = wgmma::wait(self.e, pending, &self.get(mma.sums)?);
            self.set(mma.sums, sums);
        }
        for (pipeline, slot) in complete.into_iter().flat_map(|mma| mma.slots) {
            self.release(pipeline, slot)?;
        }
        Ok(())
    }
}

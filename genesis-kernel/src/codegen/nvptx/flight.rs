//! Products in flight: the warps go on behind a `wgmma`, and wait where its sums are used.
//!
//! A wait is for all products but the last few, and products end in the order in which they began; so
//! one that lands takes those before it along. The slots that it read go back to the producer then.
//!
//! ```text
//! %s = dot %q, %k, 0        begins                         in flight: s
//! %c = dot %w, %v, %a       begins                         in flight: s, c
//! %m = reduce max %s        waits for all but one          in flight: c
//! %n = mul %c, %f           waits for all
//! ```
//!
//! What is in flight at the end of a region or before a loop lands there: ptxas gives up on products that
//! run along with other ways of control.

use super::super::llvm::Val;
use super::lower::Lowering;
use super::pipeline::Ring;
use super::wgmma;
use crate::Error;
use crate::ir::{Op, OpKind, Value};

/// Products that may still run.
pub(super) struct Flight {
    /// Their sums, which nothing may touch.
    pub(super) sums: Value,
    /// The slots that they read.
    slots: Vec<(Ring, Val)>,
}

impl Flight {
    pub(super) fn new(sums: Value, slots: Vec<(Ring, Val)>) -> Flight {
        Flight { sums, slots }
    }
}

impl Lowering<'_> {
    /// Waits for the products that an op needs to be over, of those that began at `first` or later in
    /// the list of what is in flight.
    pub(super) fn land_before(&mut self, op: Op, first: usize) -> Result<(), Error> {
        let needed = match self.func.op(op).kind {
            _ if self.flying.is_empty() => return Ok(()),
            OpKind::Yield | OpKind::Return if self.flying.len() > first => self.flying.len(),
            OpKind::Yield | OpKind::Return => 0,
            _ => self.needed_by(op),
        };
        self.land(needed)
    }

    /// How many of the products in flight must be over before an op.
    fn needed_by(&self, op: Op) -> usize {
        let inside = self.ops_within(op);
        let loops = self.func.op(op).kind.is_loop();
        let multiplies = |op: &Op| {
            let kind = &self.func.op(*op).kind;
            matches!(kind, OpKind::Dot { .. } | OpKind::TmaLoad(_) | OpKind::Return)
        };
        if loops || inside.iter().any(multiplies) {
            return self.flying.len();
        }
        let reads = |op: &Op, value: Value| self.func.op(*op).operands.contains(&value);
        let used = |flight: &Flight| {
            reads(&op, flight.sums) || inside.iter().any(|op| reads(op, flight.sums))
        };
        self.flying.iter().rposition(used).map_or(0, |last| last + 1)
    }

    /// Notes products that began.
    pub(super) fn take_off(&mut self, flight: Flight) {
        self.flying.push(flight);
        self.reduced = None;
    }

    /// Waits for the first `n` products that are in flight.
    pub(super) fn land(&mut self, n: usize) -> Result<(), Error> {
        if n > 0 {
            self.stay_behind(n)?;
        }
        let pending = (self.flying.len() - n) as u32;
        let landed: Vec<Flight> = self.flying.drain(..n).collect();
        for flight in &landed {
            let sums = wgmma::wait(self.e, pending, &self.get(flight.sums)?);
            self.set(flight.sums, sums);
        }
        for (ring, slot) in landed.into_iter().flat_map(|flight| flight.slots) {
            self.release(ring, slot)?;
        }
        Ok(())
    }
}

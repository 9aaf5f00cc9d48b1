//! Operands that are brought before the loop of their products, and stay in their slot until it is over.
//!
//! The warps wait for such a slot where it is loaded, not at each product, and give it back behind the
//! last op of that region which multiplies it. What is loaded once in a program keeps its slot.
//!
//! ```text
//! for %t = .. {                     each tile of the program
//!   %q = tma_load 0, %t             waits for the slot
//!   for %j = .. {
//!     %s = dot %q, %k(j), 0
//!   }                               gives the slot back
//! }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::lower::Lowering;
use crate::Error;
use crate::ir::{Func, Op, OpKind, Region};

/// Operands that several products read.
#[derive(Clone, Debug, Default)]
pub(super) struct Lasting {
    /// Their loads.
    loads: BTreeSet<Op>,
    /// The ops behind which slots go back, with their channels.
    after: BTreeMap<Op, Vec<u8>>,
}

impl Lasting {
    pub(super) fn of(func: &Func) -> Lasting {
        let mut lasting = Lasting::default();
        let inner = func.walk().into_iter().flat_map(|op| func.op(op).regions.clone());
        for region in [func.body].into_iter().chain(inner) {
            for &op in &func.region(region).ops {
                lasting.add(func, region, op);
            }
        }
        lasting
    }

    /// Takes an op of a region up if it is such a load.
    fn add(&mut self, func: &Func, region: Region, load: Op) {
        let OpKind::TmaLoad(number) = func.op(load).kind else { return };
        let Some(entry) = func.tma.loads.get(usize::from(number)) else { return };
        let tile = func.op(load).results[0];
        let multiplies = |op: Op| {
            let data = func.op(op);
            matches!(data.kind, OpKind::Dot { .. }) && data.operands.contains(&tile)
        };
        let has_product = |op: Op| {
            let mut inside = func.op(op).regions.iter().flat_map(|&region| func.walk_in(region));
            inside.any(multiplies)
        };
        let ops = &func.region(region).ops;
        let Some(&last) = ops.iter().rfind(|&&op| has_product(op)) else { return };
        if entry.registers || ops.iter().any(|&op| multiplies(op)) {
            return;
        }
        self.loads.insert(load);
        if region != func.body {
            self.after.entry(last).or_default().push(entry.channel);
        }
    }

    /// Whether a load's tile stays.
    pub(super) fn has(&self, load: Op) -> bool {
        self.loads.contains(&load)
    }
}

impl Lowering<'_> {
    /// Gives the slots back that nothing multiplies behind an op.
    pub(super) fn release_lasting(&mut self, op: Op) -> Result<(), Error> {
        let Some(channels) = self.lasting.after.get(&op).cloned() else { return Ok(()) };
        if self.counts() {
            return Ok(());
        }
        self.land(self.flying.len())?;
        channels.into_iter().try_for_each(|channel| self.release_next(self.ring(channel)?))
    }
}

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
        self.wait_mma(self.in_flight.len())?;
        channels.into_iter().try_for_each(|channel| self.release_next(self.ring(channel)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;

    /// Tiles of a program, in each of which one operand is multiplied by several others.
    const TILES: &str = "
kernel tiles(%n: i64) {
  tma channel stages 2 bytes 16384
  tma channel stages 2 bytes 16384
  tma load map 0 channel 0 offset 0 bytes 16384 contiguous 1
  tma load map 1 channel 1 offset 0 bytes 16384 contiguous 1
  %0 = const 0 : i64
  %1 = const 1 : i64
  %2 = const 0.0 : f32
  %3 = broadcast %2 : f32[64x64]
  for %4 = %0 to %n step %1 {
    %5 = tma_load 0 %4, %0 : bf16[64x64]
    %6 = for %7 = %0 to %n step %1 carry (%8 = %3) {
      %9 = tma_load 1 %7, %0 : bf16[64x64]
      %10 = dot ieee %5, %9, %8 : f32[64x64]
      yield %10
    } : f32[64x64]
    yield
  }
  return
}";

    #[test]
    fn an_operand_of_a_loop_goes_back_behind_it() {
        let func = parse::parse(TILES).unwrap();
        let of_kind = |is: fn(&OpKind) -> bool| -> Vec<Op> {
            func.walk().into_iter().filter(|&op| is(&func.op(op).kind)).collect()
        };
        let loads = of_kind(|kind| matches!(kind, OpKind::TmaLoad(_)));
        let loops = of_kind(|kind| matches!(kind, OpKind::For(_)));
        let lasting = Lasting::of(&func);
        assert_eq!(loads.iter().map(|&load| lasting.has(load)).collect::<Vec<_>>(), [true, false]);
        assert_eq!(lasting.after, BTreeMap::from([(loops[1], vec![0])]));
    }

    #[test]
    fn what_is_loaded_once_keeps_its_slot() {
        let load = "    %5 = tma_load 0 %4, %0 : bf16[64x64]\n";
        let once = load.replace("    %5", "  %5").replace("%4", "%0");
        let text = TILES.replace(load, "").replace("  for %4", &format!("{once}  for %4"));
        let lasting = Lasting::of(&parse::parse(&text).unwrap());
        assert_eq!((lasting.loads.len(), lasting.after.len()), (1, 0));
    }
}

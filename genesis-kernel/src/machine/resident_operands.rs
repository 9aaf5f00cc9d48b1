//! Resident operands: loop-invariant MMA operands keep their shared-memory stage.
//!
//! The warps wait for such a stage where it is loaded, not at each MMA, and release it after the last op of that
//! region which reads it. What is loaded once in a program is never released.
//!
//! ```text
//! for %t = .. {                     each tile of the program
//!   %q = tma_load 0, %t             waits for the full barrier
//!   for %j = .. {
//!     %s = dot %q, %k(j), 0
//!   }                               releases the stage
//! }
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::{Block, Code, Inst};
use crate::ir::{Func, Op, OpKind, Region};
use crate::layout::LayoutIr;

/// The resident operands of a function.
#[derive(Clone, Debug, Default)]
pub(super) struct ResidentOperands {
    /// Their loads.
    loads: BTreeSet<Op>,
    /// The ops after which stages are released, with their channels.
    after: BTreeMap<Op, Vec<u8>>,
}

impl ResidentOperands {
    pub(super) fn of(func: &Func) -> ResidentOperands {
        let mut resident = ResidentOperands::default();
        let inner = func.walk().into_iter().flat_map(|op| func.op(op).regions.clone());
        for region in [func.body].into_iter().chain(inner) {
            for &op in &func.region(region).ops {
                resident.add(func, region, op);
            }
        }
        resident
    }

    /// Adds an op of a region if it loads a resident operand.
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

    /// Whether a load's tile is resident.
    pub(super) fn has(&self, load: Op) -> bool {
        self.loads.contains(&load)
    }
}

/// Releases the stages of resident operands after the op of their region that reads them last.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    release(&ResidentOperands::of(&lir.func), &mut code.body);
}

fn release(resident: &ResidentOperands, block: &mut Block) {
    let mut done = Block::new();
    for mut inst in std::mem::take(block) {
        inst.blocks_mut().into_iter().for_each(|block| release(resident, block));
        let channels = inst.op().and_then(|op| resident.after.get(&op)).cloned();
        done.push(inst);
        done.extend(channels.into_iter().flatten().map(Inst::ReleaseResident));
    }
    *block = done;
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::ir::parse;
    use crate::machine::RunBy;
    use crate::machine::golden::{changes, on_hopper};
    use crate::prelude::*;

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
    fn a_resident_operand_is_released_after_its_loop() {
        let func = parse::parse(TILES).unwrap();
        let of_kind = |is: fn(&OpKind) -> bool| -> Vec<Op> {
            func.walk().into_iter().filter(|&op| is(&func.op(op).kind)).collect()
        };
        let loads = of_kind(|kind| matches!(kind, OpKind::TmaLoad(_)));
        let loops = of_kind(|kind| matches!(kind, OpKind::For(_)));
        let resident = ResidentOperands::of(&func);
        assert_eq!(loads.iter().map(|&load| resident.has(load)).collect::<Vec<_>>(), [true, false]);
        assert_eq!(resident.after, BTreeMap::from([(loops[1], vec![0])]));
    }

    /// Rows that stay for a loop over columns, for programs that go through several.
    #[kernel]
    fn rows<X: Float, const M: usize, const N: usize, const K: usize>(
        a: View<X, 2>,
        b: View<X, 2>,
        y: ViewMut<f32, 1>,
    ) {
        for i in range(program_id(0), y.dim(0), num_programs(0)) {
            let left = a.load::<M, K>([i * M, 0]);
            let mut top = zeros::<f32, M>();
            for j in range(0, b.dim(0), N) {
                let s = dot(left, b.load::<N, K>([j, 0]).trans(), zeros::<f32, M, N>());
                top = maximum(top, max(s, 1));
            }
            y.store([i * M], top);
        }
    }

    #[test]
    fn rows_go_back_behind_the_loop_that_reads_them() {
        let lir = on_hopper(&rows::KERNEL, &[128, 64, 64], 8);
        expect![[r#"
              ..
                }
            +   release.resident 0
                exec 19                               // ptr_add
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "resident_operands"));
    }

    #[test]
    fn an_operand_that_is_loaded_once_is_never_released() {
        let load = "    %5 = tma_load 0 %4, %0 : bf16[64x64]\n";
        let once = load.replace("    %5", "  %5").replace("%4", "%0");
        let text = TILES.replace(load, "").replace("  for %4", &format!("{once}  for %4"));
        let resident = ResidentOperands::of(&parse::parse(&text).unwrap());
        assert_eq!((resident.loads.len(), resident.after.len()), (1, 0));
    }
}

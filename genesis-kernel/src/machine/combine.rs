//! Steps of reductions and scans that stay within a warp, before an exchange between warps and after the last.
//!
//! ```text
//! store.shared 7.0 0..16           combine 7 registers 0      pairs of a thread's registers
//! barrier                          combine 7 lanes 0          lanes that differ in bit 0, by a shuffle
//! load.shared 7.0 0..16      ->    combine 7 lanes 1
//! exec 7                           store.shared 7.0 0..16
//!                                  barrier
//!                                  load.shared 7.0 0..16
//!                                  exec 7
//! ```

use std::collections::BTreeMap;

use super::exchange::{Step, steps_of};
use super::{Across, Block, Inst};
use crate::ir::Op;
use crate::layout::LayoutIr;

/// Adds the steps of a block's ops.
pub(super) fn run(block: &mut Block, lir: &LayoutIr) {
    let mut next: BTreeMap<Op, usize> = BTreeMap::new();
    let mut done = Block::new();
    for mut inst in std::mem::take(block) {
        inst.blocks_mut().into_iter().for_each(|block| run(block, lir));
        if let Inst::For(inner) = &mut inst {
            run(&mut inner.prologue, lir);
        }
        match &inst {
            Inst::StoreShared(part) | Inst::StoreCluster(part) => {
                add_steps(part.op, lir, next.entry(part.op).or_default(), &mut done);
            }
            // The exchange itself is a step.
            Inst::LoadShared(part) => *next.entry(part.op).or_default() += 1,
            Inst::Exec { op, .. } => {
                add_steps(*op, lir, next.entry(*op).or_default(), &mut done);
            }
            _ => {}
        }
        done.push(inst);
    }
    *block = done;
}

/// Adds the steps from number `next` on, up to one that crosses warps.
fn add_steps(op: Op, lir: &LayoutIr, next: &mut usize, block: &mut Block) {
    for step in steps_of(lir, op).into_iter().skip(*next) {
        let across = match step {
            Step::Reg(bit) => Across::Registers(bit),
            Step::Lane(bit) => Across::Lanes(bit),
            Step::Warps(_) => return,
        };
        block.push(Inst::Combine { op, across });
        *next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;
    use crate::layout::{LayoutOptions, assign};
    use crate::machine::{parse as parse_code, print};
    use expect_test::expect;

    /// A row's sum by so many warps.
    const SUM: &str = "
kernel sum(%x: *f32 readonly, %y: *f32 exclusive) {
  %0 = iota : i64[256]
  %1 = broadcast %x : *f32[256]
  %2 = ptr_add %1, %0 : *f32[256]
  %3 = load %2 : f32[256]
  %4 = reduce add 0 %3 : f32
  store %y, %4
  return
}
";

    fn after(before: &str, num_warps: u32) -> String {
        let options = LayoutOptions { num_warps: Some(num_warps), ..LayoutOptions::default() };
        let lir = assign(&parse(SUM).unwrap(), &options).unwrap();
        let mut code = parse_code(before, &lir.func.walk()).unwrap();
        run(&mut code, &lir);
        print(&code, &lir.func)
    }

    #[test]
    fn registers_and_lanes_come_before_warps() {
        expect![[r#"
            combine 4 registers 0                   // reduce
            combine 4 lanes 0                       // reduce
            combine 4 lanes 1                       // reduce
            combine 4 lanes 2                       // reduce
            combine 4 lanes 3                       // reduce
            combine 4 lanes 4                       // reduce
            store.shared 4.0 0..16                  // reduce
            barrier
            load.shared 4.0 0..16                   // reduce
            exec 4                                  // reduce
        "#]]
        .assert_eq(&after("store.shared 4.0 0..16\nbarrier\nload.shared 4.0 0..16\nexec 4", 4));
    }

    #[test]
    fn a_single_warp_exchanges_nothing() {
        expect![[r#"
            combine 4 registers 0                   // reduce
            combine 4 registers 1                   // reduce
            combine 4 registers 2                   // reduce
            combine 4 lanes 0                       // reduce
            combine 4 lanes 1                       // reduce
            combine 4 lanes 2                       // reduce
            combine 4 lanes 3                       // reduce
            combine 4 lanes 4                       // reduce
            exec 4                                  // reduce
        "#]]
        .assert_eq(&after("exec 4", 1));
    }
}

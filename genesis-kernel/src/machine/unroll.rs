//! Loops that are not copied: LLVM and ptxas would unroll them.
//!
//! A body of many registers is as long as it is fast; copies of it only take instruction cache and the time of the
//! compiler. A loop of MMAs is never copied: the accumulators of its asynchronous MMAs would be moved between the copies.
//!
//! ```text
//! for 8 {
//!   pragma.nounroll           as PTX has it, in the body
//!   wait.full 0
//!   mma 11 takes 0
//!   ..
//! }
//! ```

use super::{Block, Code, Inst};
use crate::ir::Op;
use crate::layout::{DotUnit, LayoutIr};
use crate::tuning::registers::MAX_UNROLLED;

/// Marks the loops.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    mark(&mut code.body, lir);
}

fn mark(block: &mut Block, lir: &LayoutIr) {
    for inst in block {
        inst.blocks_mut().into_iter().for_each(|block| mark(block, lir));
        let (op, body) = match inst {
            Inst::For(inner) => (inner.op, &mut inner.body),
            Inst::While { op, body, .. } => (*op, body),
            _ => continue,
        };
        if is_long(lir, op) {
            body.insert(0, Inst::NoUnroll);
        }
    }
}

/// Whether a loop has MMAs that run beside other instructions, or a body of many registers.
fn is_long(lir: &LayoutIr, op: Op) -> bool {
    let regions = lir.func.op(op).regions.iter();
    let inside: Vec<Op> = regions.flat_map(|&region| lir.func.walk_in(region)).collect();
    let is_mma =
        |op: &Op| lir.dots.get(op).is_some_and(|plan| matches!(plan.unit, DotUnit::Wgmma(_)));
    let results = inside.iter().flat_map(|&op| &lir.func.op(op).results);
    let registers: usize = results.map(|&value| lir.num_regs(value) as usize).sum();
    registers > MAX_UNROLLED || inside.iter().any(is_mma)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes, on_hopper, tiles};

    /// The sum of so many rows of `N` elements.
    fn sum(columns: usize) -> String {
        let text = "
kernel rows(%x: *f32 readonly, %n: i64, %y: *f32 exclusive) {
  %0 = iota : i64[N]
  %1 = broadcast %x : *f32[N]
  %2 = const 0.0 : f32
  %3 = broadcast %2 : f32[N]
  %4 = const 0 : i64
  %5 = const N : i64
  %6 = for %7 = %4 to %n step %5 carry (%8 = %3) {
    %9 = broadcast %7 : i64[N]
    %10 = add %9, %0 : i64[N]
    %11 = ptr_add %1, %10 : *f32[N]
    %12 = load %11 : f32[N]
    %13 = add %8, %12 : f32[N]
    yield %13
  } : f32[N]
  %14 = broadcast %y : *f32[N]
  %15 = ptr_add %14, %0 : *f32[N]
  store %15, %6
  return
}
";
        text.replace('N', &columns.to_string())
    }

    #[test]
    fn a_loop_of_mmas_is_not_copied() {
        let lir = on_hopper(&tiles::KERNEL, &[64, 256, 64], 4);
        expect![[r#"
              ..
              for 6 {
            +   pragma.nounroll
                exec 7                                // mul
              ..
                for 8 {
            +     pragma.nounroll
                  exec 9                              // tma_load
              ..
        "#]]
        .assert_eq(&changes(&lir, RunBy::Consumers, "unroll"));
    }

    #[test]
    fn nor_is_one_of_many_registers() {
        expect![[r#"
              ..
              for 6 {
            +   pragma.nounroll
                exec 7                                // broadcast
              ..
        "#]]
        .assert_eq(&changes(&assigned(&sum(8192), 4), RunBy::Block, "unroll"));
    }

    #[test]
    fn a_short_loop_may_be() {
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&assigned(&sum(1024), 4), RunBy::Block, "unroll"));
    }
}

//! How the partial results of a reduction over warps are read: all of them by each thread, or a share by each lane.
//!
//! After the exchange through shared memory every thread needs the sum of all warps' parts. Few parts each thread loads and
//! adds by itself. Of many each lane loads a share, and shuffles join the shares:
//!
//! ```text
//! 4 parts       each thread loads 4                            no shuffle
//! 32 parts      lane l loads part l                            5 shuffles
//! select 4 shared.reads 6                                      step 6 of op 4
//! ```
//!
//! Lanes that hold different elements of the result have parts of their own, and read those.

use super::Code;
use super::exchange::{Exchange, Step, steps_of};
use crate::ir::OpKind;
use crate::layout::LayoutIr;
use crate::tuning::warps::MAX_PARTS_OF_A_THREAD;

/// Selects the steps of reductions at which lanes share the reads.
pub(super) fn run(code: &mut Code, lir: &LayoutIr) {
    for op in lir.func.walk() {
        let is_shared = |(_, step): &(usize, Step)| matches!(step, Step::Warps(e) if is_shared(e));
        let steps = steps_of(lir, op).into_iter().enumerate().filter(is_shared);
        let steps: Vec<usize> = steps.map(|(number, _)| number).collect();
        if !steps.is_empty() && matches!(lir.func.op(op).kind, OpKind::Reduce { .. }) {
            code.selection.shared_reads.insert(op, steps);
        }
    }
}

fn is_shared(exchange: &Exchange) -> bool {
    exchange.parts() > MAX_PARTS_OF_A_THREAD && exchange.lane.iter().all(|&basis| basis == 0)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{assigned, changes, row_sum};

    /// The sum of a row by so many warps.
    fn sum(num_warps: u32) -> String {
        let text = "
kernel sum(%x: *f32 readonly multiple_of 16, %y: *f32 exclusive) {
  %0 = iota : i64[8192]
  %1 = broadcast %x : *f32[8192]
  %2 = ptr_add %1, %0 : *f32[8192]
  %3 = load %2 : f32[8192]
  %4 = reduce add 0 %3 : f32
  store %y, %4
  return
}
";
        changes(&assigned(text, num_warps), RunBy::Block, "partial_results")
    }

    #[test]
    fn lanes_share_the_reads_of_many_parts() {
        expect![[r#"
              ..
              select 3 cache readonly                 // load
            + select 4 shared.reads 9                 // reduce
        "#]]
        .assert_eq(&sum(16));
    }

    #[test]
    fn a_thread_reads_few_by_itself() {
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&row_sum(2048, None), RunBy::Block, "partial_results"));
    }
}

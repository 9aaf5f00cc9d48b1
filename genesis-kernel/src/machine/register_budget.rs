//! Register budgets of warp roles: the producer gives its registers to the consumers (`setmaxnreg`).
//!
//! How many each role has is a choice of [`crate::tuning::registers`]; this puts it where the roles begin:
//!
//! ```text
//! producer                  consumers
//!   give.registers 24         take.registers 240
//!   ..                        ..
//! ```
//!
//! One consumer warpgroup has enough without asking.

use super::{Block, Inst};
use crate::ir::{Func, Op, OpKind};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::computing_warps;
use crate::target::GpuTarget;
use crate::tuning::registers::Budget;

/// What each role does first: gives or takes registers.
pub(super) fn run([producer, consumers]: [&mut Block; 2], lir: &LayoutIr, gpu: &GpuTarget) {
    let Some(feeds) = &lir.producer else { return };
    if !gpu.features.setmaxnreg {
        return;
    }
    let (warps, loads) = (computing_warps(lir), loads_in_loops(feeds));
    let Some(budget) = Budget::of(gpu.features.registers, warps, loads) else { return };
    producer.push(Inst::GiveRegisters(budget.producer));
    consumers.push(Inst::TakeRegisters(budget.consumer));
}

fn loads_in_loops(producer: &Func) -> bool {
    let before = &producer.region(producer.body).ops;
    let is_load = |op: &Op| producer.op(*op).kind == OpKind::Load && !before.contains(op);
    producer.walk().iter().any(is_load)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::machine::golden::{on_hopper, tiles};
    use crate::machine::print;

    #[test]
    fn consumers_take_what_the_producer_gives() {
        let of = |num_warps| {
            let lir = on_hopper(&tiles::KERNEL, &[128, 128, 64], num_warps);
            let [mut producer, mut consumers] = [Block::new(), Block::new()];
            run([&mut producer, &mut consumers], &lir, &GpuTarget::SM_90A);
            print(&producer, &lir.func) + &print(&consumers, &lir.func)
        };
        expect![[r#"
            give.registers 24
            take.registers 240
        "#]]
        .assert_eq(&of(8));
    }
}

//! Register budgets of warp roles: the producer gives its registers to the consumers (`setmaxnreg`).
//!
//! A block begins with the same number of registers for each of its threads. A producer needs few, accumulators take all
//! they can get:
//!
//! ```text
//! warpgroups     1 producer, 2 consumers       1 producer, 4 consumers
//! begin with     168 a thread                  96
//! producer       24                            24
//! consumers      240                           112
//! ```
//!
//! One consumer warpgroup has enough without asking.

use super::{Block, Inst};
use crate::ir::{Func, Op, OpKind};
use crate::layout::LayoutIr;
use crate::layout::ping_pong::computing_warps;
use crate::target::GpuTarget;

/// Registers of a thread, by role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Budget {
    producer: u32,
    consumer: u32,
}

const OF_TWO: Budget = Budget { producer: 24, consumer: 240 };
/// The same where the producer loads in a loop what copies depend on: it has more to keep.
const OF_TWO_LOADING: Budget = Budget { producer: 40, consumer: 232 };
const OF_FOUR: Budget = Budget { producer: 24, consumer: 112 };
const OF_FOUR_LOADING: Budget = Budget { producer: 40, consumer: 104 };
// More than there are would be waited for without end.
const _: () = assert!(OF_TWO.threads(256) <= 384 * 168 && OF_TWO_LOADING.threads(256) <= 384 * 168);
const _: () = assert!(OF_FOUR.threads(512) <= 640 * 96 && OF_FOUR_LOADING.threads(512) <= 640 * 96);

impl Budget {
    /// Registers of a block of so many consumer threads.
    const fn threads(self, consumers: u32) -> u32 {
        128 * self.producer + consumers * self.consumer
    }
}

/// Warps from which on registers change hands.
const MANY_WARPS: u32 = 8;
/// Warps of four consumer warpgroups.
const SIXTEEN_WARPS: u32 = 16;

/// What each role does first: gives or takes registers.
pub(super) fn run([producer, consumers]: [&mut Block; 2], lir: &LayoutIr, gpu: &GpuTarget) {
    let Some(feeds) = &lir.producer else { return };
    let warps = computing_warps(lir);
    if !gpu.features.setmaxnreg || warps < MANY_WARPS {
        return;
    }
    let budget = match (warps, loads_in_loops(feeds)) {
        (SIXTEEN_WARPS, false) => OF_FOUR,
        (SIXTEEN_WARPS, true) => OF_FOUR_LOADING,
        (_, false) => OF_TWO,
        (_, true) => OF_TWO_LOADING,
    };
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

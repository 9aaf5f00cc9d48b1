//! Atomics: which instruction each one is, and the fences around one that orders its program.
//!
//! One whose old value nobody uses is relaxed, and where there is a `red` for it, that. One whose old value is used orders
//! its program: what any thread did before is seen by whoever meets a later such atomic on that address. So a barrier
//! stands before it (see [`super::membar`]), a fence on either side, and a barrier after it.
//!
//! ```text
//! exec 4     %c = atomic_rmw add %p, %x, whose result is used         fence.gpu
//!                                                              ->     atomic.atom 4
//!                                                                     fence.gpu
//! exec 5     atomic_rmw add %q, %y : f32                       ->     atomic.red 5
//! exec 6     atomic_rmw max %q, %y : f32                       ->     atomic.swap.loop 6
//! ```
//!
//! What the hardware lacks, such as the maximum of floats, is a loop of compare-and-swap.

use super::{AtomicBy, Block, Inst};
use crate::ir::{AtomicOp, DType, Op, OpKind};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// Chooses the instructions of a block's atomics.
pub(super) fn run(block: &mut Block, lir: &LayoutIr, gpu: &GpuTarget) {
    let uses = lir.func.count_uses();
    choose(block, &Choice { lir, gpu, uses });
}

struct Choice<'a> {
    lir: &'a LayoutIr,
    gpu: &'a GpuTarget,
    uses: Vec<u32>,
}

fn choose(block: &mut Block, choice: &Choice<'_>) {
    let mut done = Block::new();
    for mut inst in std::mem::take(block) {
        inst.blocks_mut().into_iter().for_each(|block| choose(block, choice));
        match inst {
            Inst::Exec { op, .. } if choice.lir.func.op(op).kind.is_atomic() => {
                let orders = choice.is_used(op);
                let fence = || orders.then_some(Inst::GpuFence);
                done.extend(fence());
                done.push(Inst::Atomic { op, by: choice.of(op) });
                done.extend(fence());
            }
            _ => done.push(inst),
        }
    }
    *block = done;
}

impl Choice<'_> {
    fn is_used(&self, op: Op) -> bool {
        self.uses[self.lir.func.op(op).results[0].index()] > 0
    }

    fn of(&self, op: Op) -> AtomicBy {
        let data = self.lir.func.op(op);
        let dtype = self.lir.func.tile(data.results[0]).dtype();
        let OpKind::AtomicRmw(kind) = data.kind else { return AtomicBy::Instruction };
        match kind {
            AtomicOp::Add if !self.is_used(op) && self.reduces(dtype) => AtomicBy::Reduction,
            AtomicOp::Add if matches!(dtype, DType::F32 | DType::F64) => AtomicBy::Instruction,
            AtomicOp::Exchange => AtomicBy::Instruction,
            _ if dtype.is_float() => AtomicBy::SwapLoop,
            _ => AtomicBy::Instruction,
        }
    }

    /// Whether memory adds to numbers of this dtype by itself.
    fn reduces(&self, dtype: DType) -> bool {
        match dtype {
            DType::F32 | DType::F64 | DType::F16 => true,
            DType::I32 | DType::U32 | DType::I64 | DType::U64 => true,
            DType::BF16 => self.gpu.features.bf16_reductions,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;
    use crate::layout::{LayoutOptions, assign};
    use crate::machine::{parse as parse_code, print};
    use expect_test::expect;

    const COUNTERS: &str = "
kernel counters(%p: *i32 exclusive, %q: *bf16 exclusive, %x: bf16) {
  %0 = const 1 : i32
  %1 = atomic_rmw add %p, %0 : i32
  %2 = atomic_rmw max %p, %1 : i32
  %3 = atomic_rmw add %q, %x : bf16
  %4 = atomic_rmw max %q, %x : bf16
  return
}
";

    fn after(gpu: &GpuTarget) -> String {
        let options = LayoutOptions { num_warps: Some(1), ..LayoutOptions::default() };
        let lir = assign(&parse(COUNTERS).unwrap(), &options).unwrap();
        let mut code = parse_code("exec 1\nexec 2\nexec 3\nexec 4", &lir.func.walk()).unwrap();
        run(&mut code, &lir, gpu);
        print(&code, &lir.func)
    }

    #[test]
    fn each_atomic_is_the_cheapest_instruction_that_does_it() {
        expect![[r#"
            fence.gpu
            atomic.atom 1                           // atomic_rmw
            fence.gpu
            atomic.atom 2                           // atomic_rmw
            atomic.red 3                            // atomic_rmw
            atomic.swap.loop 4                      // atomic_rmw
        "#]]
        .assert_eq(&after(&GpuTarget::SM_90A));
    }

    #[test]
    fn what_a_gpu_lacks_is_a_loop() {
        expect![[r#"
            fence.gpu
            atomic.atom 1                           // atomic_rmw
            fence.gpu
            atomic.atom 2                           // atomic_rmw
            atomic.swap.loop 3                      // atomic_rmw
            atomic.swap.loop 4                      // atomic_rmw
        "#]]
        .assert_eq(&after(&GpuTarget::SM_80));
    }
}

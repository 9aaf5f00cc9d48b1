//! Atomics: which instruction each one is, and the fences around one that orders its program.
//!
//! One that orders nothing is relaxed, and where nobody uses its old value and there is a `red` for it, that. One that
//! releases has a barrier (see [`super::membar`]) and a fence before it: what any thread of the program did before is seen
//! by whoever acquires that address later. One that acquires has a fence after it, and a barrier before the next access.
//! Unless the kernel says otherwise, an atomic whose old value is used does both, for the GPU.
//!
//! ```text
//! exec 4     %c = atomic_rmw add %p, %x, whose result is used         fence.gpu
//!                                                              ->     atomic.atom 4
//!                                                                     fence.gpu
//! exec 5     atomic_rmw add %q, %y : f32                       ->     atomic.red 5
//! exec 8     atomic_rmw add %t, %z : f32[1024]                 ->     atomic.red.v4 8
//! exec 6     atomic_rmw max %q, %y : f32                       ->     atomic.swap.loop 6
//! exec 7     atomic_rmw add release system %p, %x              ->     fence.system
//!                                                                     atomic.red 7
//! ```
//!
//! What the hardware lacks, such as the maximum of floats, is a loop of compare-and-swap. Floats that a thread has side by
//! side in memory are added to as a vector of up to 16 bytes, where there is an instruction for it: one by one, each
//! instruction of a warp would touch as many sectors as that, for a part of the bytes.

use super::{AtomicBy, Block, Inst};
use crate::ir::{AtomicOp, DType, MemoryScope, Op, OpKind};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;

/// Chooses the instructions of a block's atomics.
pub(super) fn run(block: &mut Block, lir: &LayoutIr, gpu: &GpuTarget) {
    let uses = lir.func.count_uses();
    choose(block, &Choice { lir, gpu, uses });
}

/// Among whom an atomic's instruction and its fences work. A program of several blocks is one thread of control all the
/// same, and where there are no clusters a block is its own.
pub(crate) fn scope_of(lir: &LayoutIr, gpu: &GpuTarget, op: Op) -> MemoryScope {
    match lir.func.op(op).kind.ordering().unwrap_or_default().scope {
        MemoryScope::Block if lir.num_blocks > 1 => MemoryScope::Cluster,
        MemoryScope::Cluster if !gpu.features.has_clusters() => MemoryScope::Block,
        scope => scope,
    }
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
                let [before, after] = choice.fences(op);
                done.extend(before);
                done.push(Inst::Atomic { op, by: choice.of(op) });
                done.extend(after);
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

    /// The fences before and after it.
    fn fences(&self, op: Op) -> [Option<Inst>; 2] {
        let ordering = self.lir.func.op(op).kind.ordering().unwrap_or_default();
        let scope = scope_of(self.lir, self.gpu, op);
        let is_used = self.is_used(op);
        [ordering.releases(is_used), ordering.acquires(is_used)]
            .map(|is_needed| is_needed.then_some(Inst::Fence(scope)))
    }

    fn of(&self, op: Op) -> AtomicBy {
        let data = self.lir.func.op(op);
        let dtype = self.lir.func.tile(data.results[0]).dtype();
        let OpKind::AtomicRmw(kind, _) = data.kind else { return AtomicBy::Instruction };
        match kind {
            AtomicOp::Add if !self.is_used(op) && self.reduces(dtype) => {
                AtomicBy::Reduction { vector: self.vector(op, dtype) }
            }
            AtomicOp::Add if matches!(dtype, DType::F32 | DType::F64) => AtomicBy::Instruction,
            AtomicOp::Exchange => AtomicBy::Instruction,
            _ if dtype.is_float() => AtomicBy::SwapLoop,
            _ => AtomicBy::Instruction,
        }
    }

    /// How many neighbouring elements one reduction adds to.
    fn vector(&self, op: Op, dtype: DType) -> u8 {
        let has_vectors = matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
        match self.gpu.features.vector_reductions && has_vectors {
            true => self.lir.access(op).vector() as u8,
            false => 1,
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
        of(COUNTERS, gpu)
    }

    /// The instructions of the four atomics that follow a kernel's first op.
    fn of(kernel: &str, gpu: &GpuTarget) -> String {
        let options = LayoutOptions { num_warps: Some(1), ..LayoutOptions::default() };
        let lir = assign(&parse(kernel).unwrap(), &options).unwrap();
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
    fn neighbouring_floats_are_added_to_as_a_vector() {
        const ROWS: &str = "
kernel rows(%x: *T exclusive multiple_of 16, %y: T) {
  %0 = iota : i64[1024]
  %1 = broadcast %x : *T[1024]
  %2 = ptr_add %1, %0 : *T[1024]
  %3 = broadcast %y : T[1024]
  %4 = atomic_rmw add %2, %3 : T[1024]
  return
}
";
        let by = |dtype: &str, gpu: &GpuTarget| {
            let options = LayoutOptions { num_warps: Some(4), ..LayoutOptions::default() };
            let lir = assign(&parse(&ROWS.replace('T', dtype)).unwrap(), &options).unwrap();
            let mut code = parse_code("exec 4", &lir.func.walk()).unwrap();
            run(&mut code, &lir, gpu);
            print(&code, &lir.func).split_whitespace().next().map(str::to_owned)
        };
        for (dtype, hopper, ampere) in [
            ("f32", "atomic.red.v4", "atomic.red"),
            ("f16", "atomic.red.v8", "atomic.red"),
            ("bf16", "atomic.red.v8", "atomic.swap.loop"),
            ("f64", "atomic.red", "atomic.red"),
            ("i32", "atomic.red", "atomic.red"),
        ] {
            assert_eq!(by(dtype, &GpuTarget::SM_90A).as_deref(), Some(hopper), "{dtype}");
            assert_eq!(by(dtype, &GpuTarget::SM_80).as_deref(), Some(ampere), "{dtype}");
        }
    }

    const ORDERED: &str = "
kernel ordered(%p: *i32 exclusive, %q: *i32 exclusive) {
  %0 = const 1 : i32
  %1 = atomic_rmw add relaxed %p, %0 : i32
  %2 = atomic_rmw max release system %p, %1 : i32
  %3 = atomic_cas acquire cluster %q, %0, %0 : i32
  %4 = atomic_rmw add acq_rel block %q, %0 : i32
  return
}
";

    #[test]
    fn an_atomic_has_the_fences_that_its_order_needs() {
        expect![[r#"
            atomic.atom 1                           // atomic_rmw
            fence.system
            atomic.atom 2                           // atomic_rmw
            atomic.atom 3                           // atomic_cas
            fence.cluster
            fence.block
            atomic.red 4                            // atomic_rmw
            fence.block
        "#]]
        .assert_eq(&of(ORDERED, &GpuTarget::SM_90A));
    }

    #[test]
    fn without_clusters_a_block_is_its_own() {
        let code = of(ORDERED, &GpuTarget::SM_80);
        assert!(
            !code.contains("fence.cluster") && code.matches("fence.block").count() == 3,
            "{code}"
        );
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

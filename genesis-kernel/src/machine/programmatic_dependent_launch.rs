//! Programmatic dependent launch (PDL): a kernel's prologue overlaps the tail of the kernel before it.
//!
//! Where a GPU has it (from sm_90 on) a launch may have the attribute of programmatic stream serialization: its blocks are
//! scheduled as those of the primary kernel exit, and wait there for its end. So every kernel begins with
//!
//! ```text
//! wait.grid              all memory operations of the primary grid are visible from here on
//! launch.dependents      some kernels: the dependent grid may start once all blocks are here
//! ```
//!
//! and both do nothing in a launch without the attribute. As each kernel waits for the primary grid before it touches
//! memory, and so on, the order of a stream stays what it was. What a kernel loads before it waits is in
//! [`super::prologue_prefetch`] and [`super::producer_prologue`].
//!
//! The wait comes first. It is for the primary grid alone, and makes its writes visible. A kernel that starts while the
//! grid before the primary still runs may find stale lines in the L1 cache: with the instructions the other way round,
//! attention to packed sequences, a chain of small kernels, was wrong in 8 runs of 8 on an H100, and right in 8 of 8
//! with loads that bypass L1.
//!
//! What it saves, on an H200, of an `add` of 1024 x 1024 bf16 that takes 3.20 us: 0.29 us with the wait
//! alone, where the dependent grid starts once the blocks have exited, and 0.74 us with both. But the
//! first instruction costs 1.2 ns a block on the whole device (`exp` in blocks of 1024 elements takes
//! 80 us instead of 64), and early blocks of the dependent grid take slots, so that a kernel of one
//! wave of long blocks ends later (a sum of columns 73 us instead of 63). So it is for kernels without
//! loops whose programs move [`PDL_BYTES`]. For all launches of two blocks a multiprocessor or less it saves a
//! decode step 1 to 2 %, and costs small sums and the steps of a small network 3 % (H100).
//!
//! A warp-specialized kernel waits when its mbarriers are set up. A product of 1024 x 1024 bf16 takes 5.20 us in a row of
//! them, and 5.59 without either instruction; one of 4096 gains 0.5 %. It lets the next kernel go where its blocks have a
//! multiprocessor for themselves and store wide tiles: where blocks share one, or only wait for memory, that costs time (a
//! product of 16 rows takes 5 % longer).

use super::{Block, Code, GridWait, Inst, SharedMemory};
use crate::layout::LayoutIr;
use crate::target::GpuTarget;
use crate::tuning::multiprocessor;
use crate::tuning::shared::PDL_BYTES;

/// Adds both instructions to code that all threads of a block run, unless a prologue prefetch has.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, gpu: &GpuTarget) {
    if gpu.features.pdl && code.grid_wait == GridWait::First {
        code.entry.splice(0..0, both(launches_dependents(lir)));
    }
}

/// Adds them behind the setup of a warp-specialized kernel.
pub(super) fn after_setup(
    setup: &mut Block,
    lir: &LayoutIr,
    memory: &SharedMemory,
    gpu: &GpuTarget,
) {
    if !gpu.features.pdl {
        return;
    }
    let is_alone = multiprocessor::is_alone(&gpu.features, memory.bytes);
    let is_wide = !lir.func.tma.stores.is_empty();
    setup.extend(both(is_alone && is_wide || launches_dependents(lir)));
}

fn both(launches: bool) -> impl Iterator<Item = Inst> {
    [Inst::GridWait].into_iter().chain(launches.then_some(Inst::LaunchDependents))
}

fn launches_dependents(lir: &LayoutIr) -> bool {
    lir.program_bytes.is_some_and(|bytes| bytes >= PDL_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::parse;
    use crate::layout::{LayoutOptions, assign};
    use crate::machine::pipeline::lower;
    use crate::machine::{RunBy, print};
    use expect_test::expect;

    const COPY: &str = "
kernel copy(%x: *f32 readonly, %y: *f32 exclusive) {
  %0 = load %x : f32
  store %y, %0
  return
}
";

    fn entry(program_bytes: Option<u64>, gpu: &GpuTarget) -> String {
        let options =
            LayoutOptions { num_warps: Some(1), program_bytes, ..LayoutOptions::default() };
        let lir = assign(&parse(COPY).unwrap(), &options).unwrap();
        let memory = SharedMemory::of(&lir, gpu).unwrap();
        print(&lower(&lir, &memory, gpu, RunBy::Block).entry, &lir.func)
    }

    #[test]
    fn a_kernel_waits_before_all_else() {
        expect!["wait.grid\n"].assert_eq(&entry(None, &GpuTarget::SM_90A));
        expect![""].assert_eq(&entry(None, &GpuTarget::SM_80));
    }

    #[test]
    fn one_that_moves_much_launches_dependents() {
        expect!["wait.grid\nlaunch.dependents\n"]
            .assert_eq(&entry(Some(PDL_BYTES), &GpuTarget::SM_90A));
        expect!["wait.grid\n"].assert_eq(&entry(Some(PDL_BYTES - 1), &GpuTarget::SM_90A));
    }
}

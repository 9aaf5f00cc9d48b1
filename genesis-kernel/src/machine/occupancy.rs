//! The occupancy to compile for, in blocks a multiprocessor: the assembler leaves registers for so many.
//!
//! Blocks that keep packed rows across barriers wait for each other's threads and for memory; another block on the same
//! multiprocessor loads its row meanwhile. Where no thread keeps a row, one block may have all registers:
//!
//! ```text
//! 256 threads, 16 packed words of 8192 bf16      max(16 + 32, 64) registers a thread
//! min.blocks 4                                   of 65536 registers
//! ```

use super::Code;
use crate::layout::LayoutIr;
use crate::layout::ping_pong::computing_warps;
use crate::target::GpuTarget;
use crate::tuning::multiprocessor::{WARP_THREADS, WARPGROUP_WARPS};
use crate::tuning::registers;

/// Chooses the blocks of a multiprocessor.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, gpu: &GpuTarget) {
    let producer = if lir.producer.is_some() { WARPGROUP_WARPS } else { 0 };
    let threads = WARP_THREADS * (computing_warps(lir) + producer);
    let words = code.selection.packed_words;
    code.selection.min_blocks = registers::min_blocks(gpu.features.registers, threads, words);
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use crate::machine::RunBy;
    use crate::machine::golden::{changes, on_hopper, row_sum};
    use crate::prelude::*;

    /// A row less its greatest element.
    #[kernel]
    fn lowered<X: Float, const N: usize>(x: View<X, 1>, y: ViewMut<X, 1>) {
        let row = x.load::<N>([program_id(0) * N]).to::<f32>();
        y.store([program_id(0) * N], (row - max(row, 0)).to::<X>());
    }

    #[test]
    fn rows_that_stay_leave_registers_for_other_blocks() {
        let lir = on_hopper(&lowered::KERNEL, &[8192], 8);
        expect![[r#"
              ..
              packed.words 16
            + min.blocks 4
        "#]]
        .assert_eq(&changes(&lir, RunBy::Block, "occupancy"));
    }

    #[test]
    fn a_block_without_rows_has_all_registers() {
        expect![[r#"
            unchanged
        "#]]
        .assert_eq(&changes(&row_sum(2048, None), RunBy::Block, "occupancy"));
    }
}

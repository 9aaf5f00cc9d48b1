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

/// Registers of a thread besides its packed words, and of all of them at least: what
/// softmax and norms do with. Many words come with more addresses.
const WORKING_REGISTERS: u32 = 32;
const MANY_WORDS: u32 = 32;
const ADDRESS_REGISTERS: u32 = 20;
const LEAST_REGISTERS: u32 = 64;
/// Threads of the producer's warpgroup.
const PRODUCER_THREADS: u32 = 128;

/// Chooses the blocks of a multiprocessor.
pub(super) fn run(code: &mut Code, lir: &LayoutIr, gpu: &GpuTarget) {
    let producer = if lir.producer.is_some() { PRODUCER_THREADS } else { 0 };
    let threads = 32 * computing_warps(lir) + producer;
    let blocks = blocks_at_once(gpu.features.registers, threads, code.selection.packed_words);
    code.selection.min_blocks = blocks;
}

/// How many blocks have the registers they need, of threads that keep so many packed words.
fn blocks_at_once(registers: u32, threads: u32, packed_words: u32) -> Option<u32> {
    match packed_words {
        0 => None,
        // They come in groups of eight a thread.
        words => {
            let addresses = if words > MANY_WORDS { ADDRESS_REGISTERS } else { 0 };
            let each = words + WORKING_REGISTERS + addresses;
            let each = each.next_multiple_of(8).max(LEAST_REGISTERS);
            Some((registers / (threads * each)).max(1))
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
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

    #[test]
    fn many_words_leave_room_for_addresses() {
        assert_eq!(blocks_at_once(65536, 256, 16), Some(4));
        assert_eq!(blocks_at_once(65536, 256, 64), Some(2));
        assert_eq!(blocks_at_once(65536, 1024, 64), Some(1));
    }
}

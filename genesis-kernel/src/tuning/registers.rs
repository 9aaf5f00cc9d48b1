//! Registers: the budgets of warp roles, and the occupancy that a kernel is compiled for.
//!
//! A warp-specialized block begins with the same number of registers for each of its threads. The producer needs few and
//! gives the others back, accumulators take all they can get (`setmaxnreg`). Registers are counted in eights:
//!
//! ```text
//! warpgroups                     1 producer, 2 consumers       1 producer, 4 consumers
//! begin with   65536 / threads   168                           96
//! producer keeps                 24                            24
//! consumers    what is left      240                           112
//! ```

use super::multiprocessor::{WARPGROUP_THREADS, WARPGROUP_WARPS};

/// What registers are counted in: those of a thread come in so many.
const GRANULE: u32 = 8;
/// Registers that a producer keeps: addresses, phases and the loop.
const PRODUCER: u32 = 24;
/// The same where it loads in a loop what copies depend on.
const LOADING_PRODUCER: u32 = 40;

/// Accumulators of a thread that leave registers for operands and addresses, where a thread may have 255.
pub const MAX_ACCUMULATORS: u32 = 128;
/// The same where a tile was measured with them: three quarters.
pub const MOST_ACCUMULATORS: usize = 192;
/// 32-bit registers that the loop-invariant operands of a loop may hold.
pub const MAX_RESIDENT_WORDS: u32 = 32;
/// Registers written by a loop's body beyond which copies of it only fill the instruction cache.
pub const MAX_UNROLLED: usize = 256;
/// Elements of one tile that a thread may hold: far more than its registers, so that only what would take minutes to
/// compile is refused.
pub const MAX_TILE_ELEMENTS: u32 = 1024;
/// Accumulators of a thread from which on an MMA runs longer than what is issued next to it.
pub const LONG_MMA_ACCUMULATORS: u32 = 64;

/// Registers of a thread, by role.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Of the producer's warpgroup.
    pub producer: u32,
    /// Of each consumer.
    pub consumer: u32,
}

impl Budget {
    /// The budget of a block with this many consumer warps, of a multiprocessor's registers. None where one consumer
    /// warpgroup has enough without asking.
    pub fn of(registers: u32, consumer_warps: u32, producer_loads: bool) -> Option<Budget> {
        if consumer_warps < 2 * WARPGROUP_WARPS {
            return None;
        }
        let groups = consumer_warps / WARPGROUP_WARPS;
        let each = registers / ((1 + groups) * WARPGROUP_THREADS) / GRANULE * GRANULE;
        let producer = if producer_loads { LOADING_PRODUCER } else { PRODUCER };
        // More than there are would be waited for without end.
        let consumer = ((1 + groups) * each).saturating_sub(producer) / groups / GRANULE * GRANULE;
        Some(Budget { producer, consumer })
    }
}

/// Registers of a thread besides its packed words, and of all of them at least: what softmax and norms do with. Many words
/// come with more addresses.
const WORKING_REGISTERS: u32 = 32;
const MANY_WORDS: u32 = 32;
const ADDRESS_REGISTERS: u32 = 20;
const LEAST_REGISTERS: u32 = 64;

/// Blocks a multiprocessor to compile for: those that have the registers they need, of threads that keep so many packed
/// words of rows across barriers. None where no thread keeps any: one block may have all registers then.
pub fn min_blocks(registers: u32, threads: u32, packed_words: u32) -> Option<u32> {
    if packed_words == 0 {
        return None;
    }
    let addresses = if packed_words > MANY_WORDS { ADDRESS_REGISTERS } else { 0 };
    let each = packed_words + WORKING_REGISTERS + addresses;
    let each = each.next_multiple_of(GRANULE).max(LEAST_REGISTERS);
    Some((registers / (threads * each)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::GpuTarget;

    const REGISTERS: u32 = GpuTarget::SM_90A.features.registers;

    #[test]
    fn consumers_take_what_the_producer_gives() {
        let of = |warps, loads| {
            Budget::of(REGISTERS, warps, loads).map(|budget| (budget.producer, budget.consumer))
        };
        assert_eq!((of(8, false), of(8, true)), (Some((24, 240)), Some((40, 232))));
        assert_eq!((of(16, false), of(16, true)), (Some((24, 112)), Some((40, 104))));
        assert_eq!(of(4, false), None);
    }

    #[test]
    fn many_words_leave_room_for_addresses() {
        assert_eq!(min_blocks(REGISTERS, 256, 16), Some(4));
        assert_eq!(min_blocks(REGISTERS, 256, 64), Some(2));
        assert_eq!(min_blocks(REGISTERS, 1024, 64), Some(1));
        assert_eq!(min_blocks(REGISTERS, 256, 0), None);
    }
}

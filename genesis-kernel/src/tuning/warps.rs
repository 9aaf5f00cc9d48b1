//! Warps: how many a block has where the caller leaves it open, and whether two warpgroups alternate over tiles.
//!
//! ```text
//! 1024 elements at most          4 warps of 8 elements a thread
//! 65536 elements                 32 warps of 64
//! a product of 128 x 128         8 warps: 64 accumulators a thread
//! ```

use super::multiprocessor::{MAX_BLOCK_WARPS, WARP_THREADS, WARPGROUP_WARPS};

/// Elements of a thread up to the first eight warps, and beyond them.
const ELEMENTS_OF_FEW: u32 = 8;
const ELEMENTS_OF_MANY: u32 = 32;
const FEW_WARPS: u32 = 8;
/// Accumulators of a thread of a block whose product `mma.sync` or multiply-adds compute, and the most warps of one.
const ACCUMULATORS: u32 = 64;
const MOST_OF_PRODUCT: u32 = 16;
/// Accumulators of a block from which on a product takes four warps.
const SMALL_PRODUCT: u32 = 4096;
/// Accumulators of a thread from which on the epilogue is long enough to be hidden behind another warpgroup's main loop.
const PING_PONG_ACCUMULATORS: usize = 128;

/// Partial results of a reduction that each thread reads all of. Of more than these each lane reads a share, and shuffles
/// join them: of 32 parts a softmax of 8192 columns takes 95 us instead of 183 us, of 16 parts 66 us instead of 73 us.
pub const MAX_PARTS_OF_A_THREAD: u32 = 4;

/// Warps of a block whose largest tile has this many elements.
pub fn of_elements(largest: u32) -> u32 {
    let mut warps = (largest / (WARP_THREADS * ELEMENTS_OF_FEW)).clamp(1, FEW_WARPS);
    while largest / (WARP_THREADS * warps) > ELEMENTS_OF_MANY && warps < MAX_BLOCK_WARPS {
        warps *= 2;
    }
    warps
}

/// Warps of a block with a product of this many accumulators; 1 where the product does not decide.
pub fn of_product(accumulators: u32) -> u32 {
    let least = if accumulators >= SMALL_PRODUCT { 4 } else { 1 };
    (accumulators / (WARP_THREADS * ACCUMULATORS)).max(least).min(MOST_OF_PRODUCT)
}

/// Whether two consumer warpgroups alternate over tiles of so many accumulators a block, which as many warps compute each
/// (see [`crate::layout::ping_pong`]).
pub fn is_ping_pong(accumulators: usize, num_warps: u32) -> bool {
    num_warps == WARPGROUP_WARPS
        && accumulators / (WARP_THREADS * num_warps) as usize >= PING_PONG_ACCUMULATORS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_grow_with_tiles_and_accumulators() {
        assert_eq!([64, 1024, 4096, 16_384, 65_536].map(of_elements), [1, 4, 8, 16, 32]);
        assert_eq!([256, 4096, 128 * 128, 128 * 256, 256 * 256].map(of_product), [1, 4, 8, 16, 16]);
        assert!(
            is_ping_pong(128 * 128, 4) && !is_ping_pong(64 * 128, 4) && !is_ping_pong(1 << 15, 8)
        );
    }
}

//! What a multiprocessor holds, and how many blocks fit on it at once.
//!
//! A block is resident with all of its warps, registers and shared memory. How many are follows from whichever runs out
//! first:
//!
//! ```text
//! sm_90a            2048 threads   65536 registers   227 KB of shared memory   32 blocks
//! 256 threads of 64 registers and 48 KB:   8              4                        4      ->  4 blocks
//! ```
//!
//! What differs between architectures is in [`GpuFeatures`]. What does not is here, once.

use crate::target::{GpuFeatures, GpuTarget};

/// Threads of a warp.
pub const WARP_THREADS: u32 = 32;
/// Warps of a warpgroup, which issues a `wgmma` and takes or gives registers together.
pub const WARPGROUP_WARPS: u32 = 4;
/// Threads of a warpgroup.
pub const WARPGROUP_THREADS: u32 = WARPGROUP_WARPS * WARP_THREADS;
/// The most warps of a block.
pub const MAX_BLOCK_WARPS: u32 = 32;
/// Bytes of the widest access of a thread to memory.
pub const VECTOR_BYTES: usize = 16;
/// The most programs along the second and third axis of a grid.
pub const MAX_GRID_YZ: usize = 65_535;
/// Blocks of a cluster that every GPU with clusters runs without being asked for more.
pub const BLOCKS_OF_ANY_CLUSTER: usize = 8;
/// The most blocks of a cluster that any GPU runs.
pub const MAX_CLUSTER: u32 = greatest_cluster();
/// Shared memory of a block on the GPUs that have least, in bytes.
pub const LEAST_SHARED_BYTES: u32 = least_shared_bytes();

const fn greatest_cluster() -> u32 {
    let (mut most, mut i) = (1, 0);
    while i < GpuTarget::ALL.len() {
        let cluster = GpuTarget::ALL[i].features.max_cluster;
        most = if cluster > most { cluster } else { most };
        i += 1;
    }
    most
}

const fn least_shared_bytes() -> u32 {
    let (mut least, mut i) = (u32::MAX, 0);
    while i < GpuTarget::ALL.len() {
        let bytes = GpuTarget::ALL[i].features.max_shared_bytes;
        least = if bytes < least { bytes } else { least };
        i += 1;
    }
    least
}

/// Blocks that a multiprocessor holds at once, as far as threads and shared memory say; `shared_bytes` are those of a
/// block, where they are known to matter.
pub fn resident_blocks(features: &GpuFeatures, num_warps: u32, shared_bytes: Option<u32>) -> u32 {
    let by_threads = features.max_threads / (WARP_THREADS * num_warps.max(1));
    let by_shared = match shared_bytes {
        None | Some(0) => features.max_blocks,
        Some(bytes) => features.max_shared_bytes / bytes,
    };
    by_threads.min(by_shared).clamp(1, features.max_blocks)
}

/// Whether a block with so much shared memory has a multiprocessor for itself.
pub fn is_alone(features: &GpuFeatures, shared_bytes: u32) -> bool {
    2 * shared_bytes > features.max_shared_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_out_first_decides() {
        let of = |warps, bytes| resident_blocks(&GpuTarget::SM_90A.features, warps, bytes);
        assert_eq!((of(8, None), of(1, None)), (8, 32));
        assert_eq!(
            (of(8, Some(48 << 10)), of(8, Some(200 << 10)), of(8, Some(1 << 20))),
            (4, 1, 1)
        );
    }

    #[test]
    fn least_and_most_are_of_the_table_of_targets() {
        assert_eq!((LEAST_SHARED_BYTES, MAX_CLUSTER), (99 << 10, 16));
    }
}

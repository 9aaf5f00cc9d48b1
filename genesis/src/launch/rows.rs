//! How rows that are read once and kept in registers are shared out on a GPU: warps, blocks of a
//! cluster, and how many columns a program has.
//!
//! Figures of softmax on an H200, which spends nearly all of its time on memory:
//!
//! | row | 4 bytes | 2 bytes |
//! |---|---|---|
//! | 1024 | 2 warps: 1.02 of 4 rows in 4 warps | 4 rows in 4 warps |
//! | 4096 | 16 warps: 1.02 of 8 | 4 warps |
//! | 8192 | 16 warps: 1.01 of 8 | 4 warps: 1.01 of 8 |
//! | 32768 | 16 warps: 264 us; cluster of 2: 280 us | 16 warps: 133 us; cluster of 2: 144 us; read twice: 169 us |
//! | 65536 | cluster of 4, 8 warps: 261 us; read twice: 372 us | cluster of 2, 8 warps: 259 us; of 4, 4 warps: 276 us |
//! | 151936 | cluster of 8, 8 warps: 302 us; read twice: 459 us | cluster of 4, 8 warps: 303 us; of 8, 4 warps: 305 us; read twice: 488 us |
//!
//! A multiprocessor should hold 128 KB or more of rows in the registers of several blocks: one loads
//! while another waits for its sum. A cluster costs, so a row that fits one block stays in it.

use genesis_kernel::kernel::LaunchOptions;
use genesis_kernel::runtime::Device;

use super::config::{MAX_ROW, RowBlock, has_clusters, kept_rows};

/// Rows that a program keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeptRows {
    /// Rows of one program.
    pub(crate) rows: usize,
    /// Columns, no less than the tensor's.
    pub(crate) cols: usize,
    /// Warps and blocks of one program.
    pub(crate) options: LaunchOptions,
}

/// Elements of 2 bytes of a thread, where a block has a whole row.
const KEPT: usize = 64;
/// The most of them where it has a part, and of elements of 4 bytes, and its warps.
const MOST_KEPT: usize = 152;
const MOST_WIDE: usize = 76;
const WARPS_OF_PART: usize = 8;
/// The most warps of a block.
const MOST_WARPS: usize = 16;
/// The largest cluster that every GPU which has any runs.
const MOST_BLOCKS: usize = 8;

/// The program for `m` rows of `n` elements of this many bytes, each read once; none where a row is too
/// long for that.
pub(crate) fn kept(device: Device, m: usize, n: usize, bytes: usize) -> Option<KeptRows> {
    match bytes {
        2 if device.is_cuda() && n > 4096 && n.is_multiple_of(VECTOR_BYTES / bytes) => {
            packed(n, has_clusters(device)).or_else(|| usual(device, m, n))
        }
        4 if device.is_cuda() => wide(n, has_clusters(device)).or_else(|| usual(device, m, n)),
        _ => usual(device, m, n),
    }
}

/// Bytes of the widest access of a thread.
const VECTOR_BYTES: usize = 16;

fn usual(device: Device, m: usize, n: usize) -> Option<KeptRows> {
    let RowBlock { rows, cols, warps } = kept_rows(device, m, n);
    let options = LaunchOptions { num_warps: warps, ..LaunchOptions::default() };
    (n <= MAX_ROW).then_some(KeptRows { rows, cols, options })
}

/// A row of 2 bytes an element: in one block, else in as few as hold it.
fn packed(n: usize, has_clusters: bool) -> Option<KeptRows> {
    let vector = VECTOR_BYTES / 2;
    let warps = n.div_ceil(32 * KEPT).next_power_of_two();
    if warps <= MOST_WARPS {
        return Some(one_row(n, vector, warps, 1));
    }
    in_cluster(n, vector, MOST_KEPT).filter(|_| has_clusters)
}

/// A row in as many blocks as hold it.
fn in_cluster(n: usize, vector: usize, most: usize) -> Option<KeptRows> {
    let blocks = n.div_ceil(32 * WARPS_OF_PART * most).next_power_of_two().max(2);
    (blocks <= MOST_BLOCKS).then(|| one_row(n, vector, WARPS_OF_PART, blocks))
}

/// A row of 4 bytes an element that has figures of its own.
fn wide(n: usize, has_clusters: bool) -> Option<KeptRows> {
    let vector = VECTOR_BYTES / 4;
    if !n.is_multiple_of(vector) {
        return None;
    }
    let warps = match n {
        513..=1024 => 2,
        2049..=8192 | 16_385..=32_768 => 16,
        32_769.. if has_clusters => return in_cluster(n, vector, MOST_WIDE),
        _ => return None,
    };
    Some(one_row(n, vector, warps, 1))
}

/// A row in a program: as many columns as whole accesses of all threads.
fn one_row(n: usize, vector: usize, warps: usize, blocks: usize) -> KeptRows {
    let cols = n.next_multiple_of(vector * 32 * warps * blocks);
    let options = LaunchOptions {
        num_warps: Some(warps as u32),
        cluster: (blocks > 1).then_some(blocks as u32),
        ..LaunchOptions::default()
    };
    KeptRows { rows: 1, cols, options }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(kept: Option<KeptRows>) -> (usize, usize, u32, u32) {
        let KeptRows { rows, cols, options } = kept.unwrap();
        (rows, cols, options.num_warps.unwrap(), options.cluster.unwrap_or(1))
    }

    #[test]
    fn long_rows_of_16_bits_take_more_warps_then_more_blocks() {
        assert_eq!(shape(packed(8192, true)), (1, 8192, 4, 1));
        assert_eq!(shape(packed(12_000, true)), (1, 12_288, 8, 1));
        assert_eq!(shape(packed(32_768, false)), (1, 32_768, 16, 1));
        assert_eq!(shape(packed(40_000, true)), (1, 40_960, 8, 2));
        assert_eq!(shape(packed(151_936, true)), (1, 155_648, 8, 4));
        assert_eq!(shape(packed(200_000, true)), (1, 212_992, 8, 8));
        assert_eq!(packed(151_936, false), None);
        assert_eq!(packed(1 << 20, true), None);
    }

    #[test]
    fn long_rows_of_32_bits_take_more_blocks() {
        assert_eq!(shape(wide(32_768, true)), (1, 32_768, 16, 1));
        assert_eq!(shape(wide(65_536, true)), (1, 65_536, 8, 4));
        assert_eq!(shape(wide(151_936, true)), (1, 155_648, 8, 8));
        assert_eq!((wide(65_536, false), wide(65_537, true)), (None, None));
        assert_eq!(wide(1 << 18, true), None);
    }

    #[test]
    fn rows_that_fit_a_few_warps_stay_as_they_are() {
        let gpu = Device::Cuda(0);
        assert_eq!(shape(kept(gpu, 16384, 896, 2)), (4, 1024, 4, 1));
        assert_eq!(shape(kept(gpu, 4096, 1024, 4)), (1, 1024, 2, 1));
        assert_eq!(kept(gpu, 64, 20_000, 8), None);
        assert_eq!(kept(Device::Cpu, 64, 20_000, 2), None);
    }
}

//! How much of a tensor one program takes: the block sizes, warps and grids of the kernels that work
//! on rows and columns.
//!
//! On a GPU a memory-bound kernel needs about 32 KB of loads in flight on every multiprocessor, and
//! registers to put them in: 16 to 32 elements a thread. On the CPU a block only has to be long.

use std::sync::OnceLock;

use genesis_kernel::runtime::Device;
use genesis_kernel::target::GpuFeatures;

/// The longest row that a kernel holds in one block.
pub(crate) const MAX_ROW: usize = 16384;

/// The block that covers a row of `n` elements, or [`MAX_ROW`].
pub(crate) fn row_block(n: usize) -> usize {
    n.next_power_of_two().clamp(16, MAX_ROW)
}

/// Programs that a device runs at the same time if each takes a multiprocessor: a fixed number on the
/// CPU, so that results do not depend on how many cores there are.
pub(crate) fn multiprocessors(device: Device) -> usize {
    static GPUS: [OnceLock<usize>; 16] = [const { OnceLock::new() }; 16];
    let ask = || device.gpu_info().map_or(132, |info| info.multiprocessors as usize);
    match device {
        Device::Cpu => 16,
        Device::Cuda(number) => match GPUS.get(number as usize) {
            Some(known) => *known.get_or_init(ask),
            None => ask(),
        },
    }
}

/// Whether code for a device may use clusters of blocks.
pub(crate) fn has_clusters(device: Device) -> bool {
    features(device).is_some_and(|features| features.has_clusters())
}

/// What code for a device may use; none on the CPU, and where the GPU cannot be used.
pub(crate) fn features(device: Device) -> Option<GpuFeatures> {
    static GPUS: [OnceLock<Option<GpuFeatures>>; 16] = [const { OnceLock::new() }; 16];
    let ask = || device.target().map(|target| target.features);
    match device {
        Device::Cpu => None,
        Device::Cuda(number) => match GPUS.get(number as usize) {
            Some(known) => *known.get_or_init(ask),
            None => ask(),
        },
    }
}

/// A block of whole rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RowBlock {
    /// Rows of one program.
    pub(crate) rows: usize,
    /// Columns, no less than the tensor's.
    pub(crate) cols: usize,
    /// Warps of one program; the compiler chooses where absent.
    pub(crate) warps: Option<u32>,
}

/// The block for `m` rows of `n` elements, each read once and kept: up to 32 elements a thread, and a
/// row inside one warp where it fits, so that its sums need no barrier.
pub(crate) fn kept_rows(device: Device, m: usize, n: usize) -> RowBlock {
    let cols = row_block(n);
    if device == Device::Cpu {
        return RowBlock { rows: 1, cols, warps: None };
    }
    let mut rows = (4096 / cols).clamp(1, 16).min(m.next_power_of_two());
    while rows > 1 && m < 2 * rows * multiprocessors(device) {
        rows /= 2;
    }
    let warps = (rows * cols / 1024).clamp(1, 32);
    RowBlock { rows, cols, warps: Some(warps as u32) }
}

/// As [`kept_rows`], for kernels with one sum a row: two warps for rows of a thousand elements. Half as
/// many registers let twice the programs run, and the last of them ends sooner (16384 rows of 896 bf16:
/// 1 %).
pub(crate) fn kept_rows_of_one_sum(device: Device, m: usize, n: usize) -> RowBlock {
    let block = kept_rows(device, m, n);
    match block {
        RowBlock { rows: 2.., cols: 1024, warps: Some(_) } => {
            RowBlock { rows: block.rows / 2, ..block }
        }
        _ => block,
    }
}

/// As [`kept_rows`], for kernels that also keep sums by column: half as many elements a thread where a
/// row takes several warps. None where a row has too many.
pub(crate) fn summed_rows(device: Device, m: usize, n: usize, bytes: usize) -> Option<RowBlock> {
    let block = kept_rows(device, m, n);
    if n > block.cols || (device != Device::Cpu && block.cols * bytes > 8192 * 4) {
        return None;
    }
    let warps = block.warps.map(|warps| if block.cols > 1024 { 2 * warps } else { warps });
    Some(RowBlock { warps, ..block })
}

/// A row of any length, piece by piece, by a kernel that keeps one value for `width` neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pieces {
    /// Columns of one piece.
    pub(crate) cols: usize,
    /// Neighbours that one thread reads at once.
    pub(crate) width: usize,
    /// Warps of one program; the compiler chooses where absent.
    pub(crate) warps: Option<u32>,
}

impl Pieces {
    /// Pieces of rows of `n` elements of this many bytes.
    ///
    /// A row that is read `twice` should still be in the cache the second time: of the longest, only
    /// one a multiprocessor fits, so that one program gets all threads.
    pub(crate) fn of_row(device: Device, n: usize, bytes: usize, twice: bool) -> Pieces {
        if device == Device::Cpu {
            return Pieces { cols: 4096.min(row_block(n)).max(64), width: 64, warps: None };
        }
        // Two accesses of 16 bytes a thread and step, and fewer threads for shorter rows.
        let width = (16 / bytes).max(1);
        let most = if twice && n * bytes > 1 << 17 { 32 } else { 16 };
        let warps = (n.next_power_of_two() / (32 * 2 * width)).clamp(1, most);
        Pieces { cols: 32 * warps * 2 * width, width, warps: Some(warps as u32) }
    }

    /// Columns, places and width, as the kernels take them.
    pub(crate) fn consts(self) -> [i64; 3] {
        [self.cols, self.cols / self.width, self.width].map(|n| n as i64)
    }
}

/// Columns of rows that are gathered and added up: one vector of 16 bytes a thread, so that each thread
/// adds its own columns.
pub(crate) fn gathered_columns(device: Device, n: usize, bytes: usize) -> RowBlock {
    if device == Device::Cpu {
        return RowBlock { rows: 1, cols: row_block(n).min(1024), warps: None };
    }
    let width = (16 / bytes).max(1);
    let cols = row_block(n).clamp(32 * width, 128 * width);
    RowBlock { rows: 1, cols, warps: Some((cols / (32 * width)) as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Device = Device::Cuda(0);

    #[test]
    fn rows_that_fit_a_warp_stay_in_one() {
        let block = RowBlock { rows: 4, cols: 1024, warps: Some(4) };
        assert_eq!(kept_rows(GPU, 16384, 896), block);
        assert_eq!(kept_rows(GPU, 8192, 8192), RowBlock { rows: 1, cols: 8192, warps: Some(8) });
        assert_eq!(kept_rows(GPU, 3, 7), RowBlock { rows: 1, cols: 16, warps: Some(1) });
        let block = RowBlock { rows: 2, ..block };
        assert_eq!(kept_rows_of_one_sum(GPU, 16384, 896), block);
        assert_eq!(kept_rows_of_one_sum(GPU, 8192, 8192), kept_rows(GPU, 8192, 8192));
    }

    #[test]
    fn sums_by_column_take_twice_the_threads() {
        let block = RowBlock { rows: 1, cols: 8192, warps: Some(16) };
        assert_eq!(summed_rows(GPU, 8192, 8192, 4), Some(block));
        assert_eq!(summed_rows(GPU, 8192, 8193, 4), None);
        assert_eq!(summed_rows(GPU, 8192, 8192, 8), None);
        assert_eq!(summed_rows(Device::Cpu, 2, 20000, 4), None);
    }

    #[test]
    fn gathered_rows_have_a_vector_a_thread() {
        let columns = |n, bytes| {
            let RowBlock { cols, warps, .. } = gathered_columns(GPU, n, bytes);
            (cols, warps)
        };
        assert_eq!(columns(896, 2), (1024, Some(4)));
        assert_eq!(columns(896, 4), (512, Some(4)));
        assert_eq!(columns(20, 2), (256, Some(1)));
    }

    #[test]
    fn a_piece_is_two_vectors_a_thread() {
        let pieces = Pieces { cols: 8192, width: 8, warps: Some(16) };
        assert_eq!(Pieces::of_row(GPU, 151_936, 2, false), pieces);
        assert_eq!(Pieces::of_row(GPU, 32_768, 2, true), pieces);
        assert_eq!(pieces.consts(), [8192, 1024, 8]);
        assert_eq!(Pieces::of_row(GPU, 151_936, 2, true).warps, Some(32));
    }
}

//! Sorted keys of an index, compaction, scans and sampling: elements of a program, and the parts that a row is cut into.
//!
//! Keys of an index are sorted by counting: each is compared with each of its piece, so that a thread knows where it belongs
//! without an exchange. Then sorted pieces are merged:
//!
//! ```text
//! 1000 tokens         one piece of 1024, a program for each 16
//! index of 30000      30 pieces of 1024, merged at once
//! ```

use super::Chip;

/// Elements that are sorted with each other, each against each, on a GPU.
pub const PIECE: usize = 1024;
/// Elements of one program of such a sort, and of a merge.
pub const OF_PROGRAM: usize = 16;
/// Sorted pieces that are merged at once, at most.
pub const MERGED: usize = 32;

/// Elements of one step of a program that compacts.
pub const COMPACTED: usize = 2048;
/// Chunks of a compaction, at most: one program adds up what they have.
const COMPACTED_CHUNKS: usize = 4096;
/// Warps of a program that compacts or scans.
const SCAN_WARPS: usize = 8;
/// Columns of a step of an exclusive scan of a row, and elements of a thread of it.
const SCANNED: usize = 2048;
const SCANNED_BY_WARP: usize = 128;

/// Rows of an embedding table of which one program looks for the first token.
pub const STARTS: usize = 128;
/// Rows of an embedding table whose gradient one program adds up, and tokens of a row that it reads at once.
pub const SUMMED_ROWS: usize = 4;
/// See [`SUMMED_ROWS`].
pub const SUMMED_TOKENS: usize = 4;
/// Tables of this many rows look for their tokens row by row: few enough that the sort would take longer.
pub const SMALL_TABLE: usize = 64;
/// Elements of one program that searches, and of one that reads, writes or adds at flat indices.
pub const SEARCHED: usize = 256;
/// See [`SEARCHED`].
pub const INDEXED: usize = 1024;
/// The most bytes of rows that are added to those of a table by atomics where any order will do: of more, sorting the indices
/// first takes less time (64 MiB of rows of 16 KiB on an H200: 48 us in place of 66).
pub const MOST_UNORDERED_BYTES: usize = 32 << 20;
/// Rows of a tile that is added to the rows of a table by atomics.
pub const UNORDERED_ROWS: usize = 4;
/// Columns of such a tile.
pub const UNORDERED_COLUMNS: usize = 256;

/// Elements of a chunk of a compaction of `n`.
pub fn compacted_chunk(n: usize) -> usize {
    n.div_ceil(COMPACTED_CHUNKS).next_multiple_of(COMPACTED)
}

/// Warps of a program that compacts; the compiler's choice on a processor.
pub fn compacting_warps(chip: &Chip) -> Option<u32> {
    (!chip.is_cpu()).then_some(SCAN_WARPS as u32)
}

/// Columns of a step of an exclusive scan of rows of `n`, and its warps.
pub fn exclusive_scan(chip: &Chip, n: usize) -> (usize, Option<u32>) {
    let cols = n.next_power_of_two().clamp(16, SCANNED);
    let warps = (cols / SCANNED_BY_WARP).clamp(1, SCAN_WARPS);
    (cols, (!chip.is_cpu()).then_some(warps as u32))
}

/// How a row of logits is cut for the choice of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sampled {
    /// Logits of a group, whose sum is a unit of the search: those of a warp, 128 bits of 16-bit logits a thread.
    pub group: usize,
    /// Logits of a chunk, which a program has.
    pub cols: usize,
    /// Warps of a program.
    pub warps: Option<u32>,
    /// Bins of the histogram by which the top of a row is found.
    pub bins: usize,
}

impl Sampled {
    /// For rows of `n` logits. A chunk is as long whatever the other rows are: the order of sums is a row's own.
    pub fn of(chip: &Chip, n: usize) -> Sampled {
        const GROUP: usize = 256;
        const MOST: usize = 2048;
        let most = if chip.is_cpu() { 1024 } else { MOST };
        let cols = n.next_power_of_two().clamp(GROUP, most);
        let warps = (!chip.is_cpu()).then_some((cols / GROUP) as u32);
        Sampled { group: GROUP, cols, warps, bins: n.next_power_of_two().clamp(64, MOST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn chunks_are_whole_steps() {
        assert_eq!(compacted_chunk(1), 2048);
        assert_eq!(compacted_chunk(100_000_000), 24_576);
    }

    #[test]
    fn scans_have_a_warp_for_128_columns() {
        let gpu = &Chip::of_target(&Target::sm_90a());
        assert_eq!(exclusive_scan(gpu, 100), (128, Some(1)));
        assert_eq!(exclusive_scan(gpu, 5000), (2048, Some(8)));
        assert_eq!(exclusive_scan(&Chip::Cpu, 5000), (2048, None));
    }

    #[test]
    fn a_warp_has_a_group_of_logits() {
        let gpu = &Chip::of_target(&Target::sm_90a());
        let sampled = Sampled { group: 256, cols: 2048, warps: Some(8), bins: 2048 };
        assert_eq!(Sampled::of(gpu, 151_936), sampled);
        assert_eq!(
            Sampled::of(&Chip::Cpu, 300),
            Sampled { group: 256, cols: 512, warps: None, bins: 512 }
        );
    }
}

//! Rows that are read once and kept in registers, or read piece by piece: warps, blocks of a cluster, and how many columns
//! a program has.
//!
//! A kernel that memory bounds needs about 32 KB of loads in flight on every multiprocessor, and registers to put them in:
//! 16 to 32 elements a thread. Figures of softmax on an H200, which spends nearly all of its time on memory:
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

use super::Chip;
use super::multiprocessor::{MAX_BLOCK_WARPS, WARP_THREADS};
use super::shared::vector_elements;

/// The longest row that a kernel holds in one block.
pub const MAX_ROW: usize = 16384;

/// The most bytes of a row of which a program keeps two.
const MOST_BYTES_OF_TWO: usize = 8192 * 4;
/// Elements of a program of short rows, and of a thread that keeps a row.
const SHORT_ROWS: usize = 4096;
const KEPT_ELEMENTS: usize = 32;

/// The block that covers a row of `n` elements, or [`MAX_ROW`].
pub fn row_block(n: usize) -> usize {
    n.next_power_of_two().clamp(16, MAX_ROW)
}

/// Columns of rows that a program walks in steps of no more than this.
pub fn step_of_row(n: usize) -> usize {
    row_block(n).min(SHORT_ROWS)
}

/// Warps of a program with steps of so many columns: sixteen columns a thread.
pub fn warps_of_step(chip: &Chip, cols: usize) -> Option<u32> {
    const COLUMNS: usize = 512;
    const MOST: usize = 8;
    (!chip.is_cpu()).then_some((cols / COLUMNS).clamp(1, MOST) as u32)
}

/// Columns of one program that gates rows of `n` elements of so many bytes.
pub fn gated_columns(chip: &Chip, n: usize, bytes: usize) -> usize {
    row_block(n).min(if chip.is_cpu() { 1024 } else { 2048 / bytes })
}

/// A block of whole rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowBlock {
    /// Rows of one program.
    pub rows: usize,
    /// Columns, no less than the tensor's.
    pub cols: usize,
    /// Warps of one program; the compiler chooses where absent.
    pub warps: Option<u32>,
}

impl RowBlock {
    /// The block for `m` rows of `n` elements, each read once and kept: up to 32 elements a thread, and a
    /// row inside one warp where it fits, so that its sums need no barrier.
    pub fn kept(chip: &Chip, m: usize, n: usize) -> RowBlock {
        let cols = row_block(n);
        if chip.is_cpu() {
            return RowBlock { rows: 1, cols, warps: None };
        }
        let mut rows = (SHORT_ROWS / cols).clamp(1, 16).min(m.next_power_of_two());
        while rows > 1 && m < 2 * rows * chip.multiprocessors() {
            rows /= 2;
        }
        let of_warp = WARP_THREADS as usize * KEPT_ELEMENTS;
        let warps = (rows * cols / of_warp).clamp(1, MAX_BLOCK_WARPS as usize);
        RowBlock { rows, cols, warps: Some(warps as u32) }
    }

    /// As [`RowBlock::kept`], for kernels with one sum a row: two warps for rows of a thousand elements. Half as
    /// many registers let twice the programs run, and the last of them ends sooner (16384 rows of 896 bf16:
    /// 1 %).
    pub fn of_one_sum(chip: &Chip, m: usize, n: usize) -> RowBlock {
        let block = RowBlock::kept(chip, m, n);
        match block {
            RowBlock { rows: 2.., cols: 1024, warps: Some(_) } => {
                RowBlock { rows: block.rows / 2, ..block }
            }
            _ => block,
        }
    }

    /// As [`RowBlock::kept`], for kernels that keep rows of two tensors: half as many elements a thread where a row takes
    /// several warps. None where a row has too many.
    pub fn of_two(chip: &Chip, m: usize, n: usize, bytes: usize) -> Option<RowBlock> {
        let block = RowBlock::kept(chip, m, n);
        if n > block.cols || (!chip.is_cpu() && block.cols * bytes > MOST_BYTES_OF_TWO) {
            return None;
        }
        let warps = block.warps.map(|warps| if block.cols > 1024 { 2 * warps } else { warps });
        Some(RowBlock { warps, ..block })
    }
}

/// How rows are shared by programs each of which keeps sums by column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColumnSums {
    /// Of each program, one after the other.
    pub block: RowBlock,
    /// Each leaves a row of partial sums.
    pub programs: usize,
    /// Whether a program loads its next rows while it sums those it has.
    pub loads_ahead: bool,
}

impl ColumnSums {
    /// For `m` rows of `n` elements, two tensors of which are read and summed in elements of `wide` bytes. None where a row
    /// has too many.
    ///
    /// Where registers have room for the next rows, which is so up to `most_ahead` columns, programs load them ahead, in
    /// blocks of two warps, four on a multiprocessor: on an H200 rows of 896 bf16 take 0.93 of the time that blocks of four
    /// warps take without, rows of 2048 0.8. Rows of 8192 are a block each, as ever, and take 0.9.
    pub fn of(
        chip: &Chip,
        m: usize,
        n: usize,
        wide: usize,
        most_ahead: usize,
    ) -> Option<ColumnSums> {
        let block = RowBlock::of_two(chip, m, n, wide)?;
        let busy = chip.multiprocessors();
        let RowBlock { rows, cols, warps } = block;
        let loads_ahead = warps.is_some() && cols <= most_ahead;
        if !loads_ahead || cols > SHORT_ROWS {
            let programs = m.div_ceil(rows).min(if cols <= 4096 { 2 * busy } else { busy });
            return Some(ColumnSums { block, programs, loads_ahead });
        }
        let rows = if rows * cols > SHORT_ROWS / 2 { (rows / 2).max(1) } else { rows };
        let warps = (rows * cols).div_ceil(WARP_THREADS as usize * KEPT_ELEMENTS);
        // Where each program would have one block only, two on a multiprocessor leave half the partial sums.
        let blocks = m.div_ceil(rows);
        let at_once = (WARPS_AHEAD / warps).clamp(1, 4) * busy;
        let programs = blocks.min(at_once).min((blocks / 2).max(2 * busy));
        let block = RowBlock { rows, cols, warps: Some(warps as u32) };
        Some(ColumnSums { block, programs, loads_ahead })
    }
}

/// The warps that a multiprocessor holds which load ahead.
const WARPS_AHEAD: usize = 8;

/// Programs that share `m` rows too long for [`ColumnSums`].
pub fn programs_of_long_rows(m: usize) -> usize {
    m.div_ceil(32).min(16)
}

/// Rows that a program keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeptRows {
    /// Rows of one program.
    pub rows: usize,
    /// Columns, no less than the tensor's.
    pub cols: usize,
    /// Warps of one block; the compiler chooses where absent.
    pub warps: Option<u32>,
    /// Blocks of the cluster that a program is, where it is one.
    pub cluster: Option<u32>,
}

/// Elements of 2 bytes of a thread, where a block has a whole row.
const KEPT: usize = 64;
/// The most of them where it has a part, and of elements of 4 bytes, and its warps.
const MOST_KEPT: usize = 152;
const MOST_WIDE: usize = 76;
const WARPS_OF_PART: usize = 8;
/// The most warps of a block.
const MOST_WARPS: usize = 16;

impl KeptRows {
    /// The program for `m` rows of `n` elements of this many bytes, each read once; none where a row is too
    /// long for that.
    pub fn of(chip: &Chip, m: usize, n: usize, bytes: usize) -> Option<KeptRows> {
        let usual = || KeptRows::usual(chip, m, n);
        match bytes {
            _ if chip.is_cpu() => usual(),
            2 if n > 4096 && n.is_multiple_of(vector_elements(bytes)) => {
                KeptRows::packed(chip, n).or_else(usual)
            }
            4 => KeptRows::wide(chip, n).or_else(usual),
            _ => usual(),
        }
    }

    fn usual(chip: &Chip, m: usize, n: usize) -> Option<KeptRows> {
        let RowBlock { rows, cols, warps } = RowBlock::kept(chip, m, n);
        (n <= MAX_ROW).then_some(KeptRows { rows, cols, warps, cluster: None })
    }

    /// A row of 2 bytes an element: in one block, else in as few as hold it.
    fn packed(chip: &Chip, n: usize) -> Option<KeptRows> {
        let vector = vector_elements(2);
        let warps = n.div_ceil(WARP_THREADS as usize * KEPT).next_power_of_two();
        if warps <= MOST_WARPS {
            return Some(KeptRows::one_row(n, vector, warps, 1));
        }
        KeptRows::in_cluster(chip, n, vector, MOST_KEPT)
    }

    /// A row of 4 bytes an element that has figures of its own.
    fn wide(chip: &Chip, n: usize) -> Option<KeptRows> {
        let vector = vector_elements(4);
        if !n.is_multiple_of(vector) {
            return None;
        }
        let warps = match n {
            513..=1024 => 2,
            2049..=8192 | 16_385..=32_768 => 16,
            32_769.. => return KeptRows::in_cluster(chip, n, vector, MOST_WIDE),
            _ => return None,
        };
        Some(KeptRows::one_row(n, vector, warps, 1))
    }

    /// A row in as many blocks as hold it.
    fn in_cluster(chip: &Chip, n: usize, vector: usize, most: usize) -> Option<KeptRows> {
        let of_block = WARP_THREADS as usize * WARPS_OF_PART * most;
        let blocks = n.div_ceil(of_block).next_power_of_two().max(2);
        (blocks <= chip.max_cluster()).then(|| KeptRows::one_row(n, vector, WARPS_OF_PART, blocks))
    }

    /// A row in a program: as many columns as whole accesses of all threads.
    fn one_row(n: usize, vector: usize, warps: usize, blocks: usize) -> KeptRows {
        let cols = n.next_multiple_of(vector * WARP_THREADS as usize * warps * blocks);
        let cluster = (blocks > 1).then_some(blocks as u32);
        KeptRows { rows: 1, cols, warps: Some(warps as u32), cluster }
    }
}

/// A row of any length, piece by piece, by a kernel that keeps one value for `width` neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// Columns of one piece.
    pub cols: usize,
    /// Neighbours that one thread reads at once.
    pub width: usize,
    /// Warps of one program; the compiler chooses where absent.
    pub warps: Option<u32>,
}

impl Pieces {
    /// Pieces of rows of `n` elements of this many bytes.
    ///
    /// A row that is read `twice` should still be in the cache the second time: of the longest, only
    /// one a multiprocessor fits, so that one program gets all threads.
    pub fn of_row(chip: &Chip, n: usize, bytes: usize, twice: bool) -> Pieces {
        if chip.is_cpu() {
            return Pieces { cols: 4096.min(row_block(n)).max(64), width: 64, warps: None };
        }
        // Two accesses of 16 bytes a thread and step, and fewer threads for shorter rows.
        let width = vector_elements(bytes);
        let of_warp = WARP_THREADS as usize * 2 * width;
        let most = if twice && n * bytes > 1 << 17 { MAX_BLOCK_WARPS as usize } else { MOST_WARPS };
        let warps = (n.next_power_of_two() / of_warp).clamp(1, most);
        Pieces { cols: warps * of_warp, width, warps: Some(warps as u32) }
    }

    /// Columns, groups of neighbours and width, as the kernels take them.
    pub fn consts(self) -> [i64; 3] {
        [self.cols, self.cols / self.width, self.width].map(|n| n as i64)
    }
}

/// A tile of the halves of heads, which rotary positions turn: short rows beside one another, of several heads of several
/// tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TurnedHeads {
    /// Tokens of one program.
    pub tokens: usize,
    /// Heads of one program.
    pub heads: usize,
    /// Columns of one program.
    pub cols: usize,
    /// Warps of one program; the compiler chooses where absent.
    pub warps: Option<u32>,
}

impl TurnedHeads {
    /// The tile for so many tokens with heads of which `half` columns are turned with as many others: 16 elements of a half a
    /// thread, so that the loads of both halves are under way at once.
    pub fn of(chip: &Chip, tokens: usize, heads: usize, half: usize) -> TurnedHeads {
        const WARPS: usize = 4;
        let elements = if chip.is_cpu() { 1024 } else { WARPS * WARP_THREADS as usize * 16 };
        let cols = half.next_power_of_two().clamp(16, 256);
        let heads = heads.next_power_of_two().min(elements / cols);
        let tokens = (elements / cols / heads).clamp(1, tokens.next_power_of_two());
        let warps = (!chip.is_cpu()).then_some(WARPS as u32);
        TurnedHeads { tokens, heads, cols, warps }
    }
}

/// Columns of rows that are gathered and added up: one vector of 16 bytes a thread, so that each thread
/// adds its own columns.
pub fn gathered_columns(chip: &Chip, n: usize, bytes: usize) -> RowBlock {
    if chip.is_cpu() {
        return RowBlock { rows: 1, cols: row_block(n).min(1024), warps: None };
    }
    let of_warp = WARP_THREADS as usize * vector_elements(bytes);
    let cols = row_block(n).clamp(of_warp, 4 * of_warp);
    RowBlock { rows: 1, cols, warps: Some((cols / of_warp) as u32) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn turned_heads_fill_a_program() {
        let chip = Chip::of_target(&Target::sm_90a());
        let tile = |tokens, heads, half| {
            let TurnedHeads { tokens, heads, cols, .. } =
                TurnedHeads::of(&chip, tokens, heads, half);
            [tokens, heads, cols]
        };
        assert_eq!(tile(8192, 14, 32), [4, 16, 32]);
        assert_eq!(tile(8192, 2, 32), [32, 2, 32]);
        assert_eq!(tile(1, 32, 64), [1, 32, 64]);
        assert_eq!(tile(1024, 128, 64), [1, 32, 64]);
        assert_eq!(tile(7, 1, 3000), [8, 1, 256]);
    }

    fn h200() -> Chip {
        Chip::of_target(&Target::sm_90a())
    }

    #[test]
    fn rows_that_fit_a_warp_stay_in_one() {
        let gpu = &h200();
        let block = RowBlock { rows: 4, cols: 1024, warps: Some(4) };
        assert_eq!(RowBlock::kept(gpu, 16384, 896), block);
        let long = RowBlock { rows: 1, cols: 8192, warps: Some(8) };
        assert_eq!(RowBlock::kept(gpu, 8192, 8192), long);
        assert_eq!(RowBlock::kept(gpu, 3, 7), RowBlock { rows: 1, cols: 16, warps: Some(1) });
        let block = RowBlock { rows: 2, ..block };
        assert_eq!(RowBlock::of_one_sum(gpu, 16384, 896), block);
        assert_eq!(RowBlock::of_one_sum(gpu, 8192, 8192), long);
    }

    #[test]
    fn sums_by_column_take_twice_the_threads() {
        let (gpu, of) = (&h200(), ColumnSums::of);
        let block = RowBlock { rows: 1, cols: 8192, warps: Some(16) };
        let of_long = ColumnSums { block, programs: 132, loads_ahead: false };
        assert_eq!(of(gpu, 8192, 8192, 4, 0), Some(of_long));
        assert_eq!(of(gpu, 8192, 8192, 4, 4096), Some(of_long));
        let ahead = ColumnSums { loads_ahead: true, ..of_long };
        assert_eq!(of(gpu, 8192, 8192, 4, 8192), Some(ahead));
        assert_eq!(of(gpu, 8192, 8193, 4, 8192), None);
        assert_eq!(of(gpu, 8192, 8192, 8, 0), None);
        assert_eq!(of(&Chip::Cpu, 2, 20000, 4, 8192), None);
        assert!(!of(&Chip::Cpu, 2, 2000, 4, 8192).unwrap().loads_ahead);
    }

    #[test]
    fn rows_are_loaded_ahead_by_small_blocks() {
        let of = |m, n| {
            let sums = ColumnSums::of(&h200(), m, n, 4, 8192).unwrap();
            assert!(sums.loads_ahead);
            let RowBlock { rows, cols, warps } = sums.block;
            [rows, cols, warps.unwrap() as usize, sums.programs]
        };
        assert_eq!(of(16384, 256), [8, 256, 2, 528]);
        assert_eq!(of(16384, 896), [2, 1024, 2, 528]);
        assert_eq!(of(16384, 2048), [1, 2048, 2, 528]);
        assert_eq!(of(16384, 4096), [1, 4096, 4, 264]);
        assert_eq!(of(600, 896), [2, 1024, 2, 264]);
        assert_eq!(of(3, 896), [1, 1024, 1, 3]);
    }

    #[test]
    fn gathered_rows_have_a_vector_a_thread() {
        let columns = |n, bytes| {
            let RowBlock { cols, warps, .. } = gathered_columns(&h200(), n, bytes);
            (cols, warps)
        };
        assert_eq!(columns(896, 2), (1024, Some(4)));
        assert_eq!(columns(896, 4), (512, Some(4)));
        assert_eq!(columns(20, 2), (256, Some(1)));
    }

    #[test]
    fn a_piece_is_two_vectors_a_thread() {
        let pieces = Pieces { cols: 8192, width: 8, warps: Some(16) };
        assert_eq!(Pieces::of_row(&h200(), 151_936, 2, false), pieces);
        assert_eq!(Pieces::of_row(&h200(), 32_768, 2, true), pieces);
        assert_eq!(pieces.consts(), [8192, 1024, 8]);
        assert_eq!(Pieces::of_row(&h200(), 151_936, 2, true).warps, Some(32));
    }

    fn shape(
        target: &Target,
        m: usize,
        n: usize,
        bytes: usize,
    ) -> Option<(usize, usize, u32, u32)> {
        let KeptRows { rows, cols, warps, cluster } =
            KeptRows::of(&Chip::of_target(target), m, n, bytes)?;
        Some((rows, cols, warps?, cluster.unwrap_or(1)))
    }

    #[test]
    fn long_rows_of_16_bits_take_more_warps_then_more_blocks() {
        let of = |n| shape(&Target::sm_90a(), 64, n, 2);
        assert_eq!(of(8192), Some((1, 8192, 4, 1)));
        assert_eq!(of(12_000), Some((1, 12_288, 8, 1)));
        assert_eq!(of(40_000), Some((1, 40_960, 8, 2)));
        assert_eq!(of(151_936), Some((1, 155_648, 8, 4)));
        assert_eq!(of(200_000), Some((1, 212_992, 8, 8)));
        assert_eq!(of(1 << 20), None);
        assert_eq!(shape(&Target::sm_80(), 64, 32_768, 2), Some((1, 32_768, 16, 1)));
        assert_eq!(shape(&Target::sm_80(), 64, 151_936, 2), None);
    }

    #[test]
    fn long_rows_of_32_bits_take_more_blocks() {
        let of = |n| shape(&Target::sm_90a(), 64, n, 4);
        assert_eq!(of(32_768), Some((1, 32_768, 16, 1)));
        assert_eq!(of(65_536), Some((1, 65_536, 8, 4)));
        assert_eq!(of(151_936), Some((1, 155_648, 8, 8)));
        assert_eq!((of(65_537), of(1 << 18)), (None, None));
        assert_eq!(shape(&Target::sm_80(), 64, 65_536, 4), None);
    }

    #[test]
    fn rows_that_fit_a_few_warps_stay_as_they_are() {
        assert_eq!(shape(&Target::sm_90a(), 16384, 896, 2), Some((4, 1024, 4, 1)));
        assert_eq!(shape(&Target::sm_90a(), 4096, 1024, 4), Some((1, 1024, 2, 1)));
        assert_eq!(shape(&Target::sm_90a(), 64, 20_000, 8), None);
        assert_eq!(KeptRows::of(&Chip::Cpu, 64, 20_000, 2), None);
    }
}

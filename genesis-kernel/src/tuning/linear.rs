//! Products whose rows keep their bits: tiles, and parts of K.
//!
//! The bits of a row depend on the order in which its products are added, which follows from K, the outputs and the device.
//! How many rows and outputs a tile has, and whether parts of K are programs of their own, follows from the number of rows:
//!
//! | | by K, the outputs and the device | by the number of rows |
//! |---|---|---|
//! | processor | groups along K | rows and outputs of a program |
//! | GPU | parts of K | the tile's rows and outputs, the step along K, whether parts are programs |

use super::Chip;
use super::reductions::MAX_SHARED;

/// Rows up to which a product is bound by reading the weight.
pub const FEW_ROWS: usize = 16;
/// What the length of a part of K is a multiple of: the longest step.
const STEP: usize = 128;
/// Elements of K from which on it is cut into parts, and how many.
const CUT_K: usize = 2048;
const PARTS: usize = 4;
/// Rows of the smallest tile.
pub const LEAST_ROWS: usize = 8;
/// Outputs of a tile of MMAs: the rows of a `wgmma`.
pub const OUTPUTS: usize = 64;
/// Gates that lie side by side in a tile of pairs: half of the rows that a warp's MMA has, of which a thread has two.
pub const PAIRED: usize = 8;
/// Stages of 128 elements of K that shared memory has room for, of 64 outputs and few rows.
const MOST_STAGES: usize = 11;
/// Rows and outputs of the largest tile.
const WIDE: usize = 128;

/// How a product of rows is computed on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinearTile {
    /// Parts of K.
    pub parts: usize,
    /// Elements of K of all parts but the last.
    pub each: usize,
    /// Outputs of a tile; of all blocks, where a program is a cluster.
    pub outputs: usize,
    /// Rows of a tile.
    pub rows: usize,
    /// Elements of K of a step.
    pub step: usize,
    /// Warps of a block.
    pub warps: u32,
    /// Stages of its pipeline.
    pub stages: u32,
    /// Blocks of the cluster that a program is; 1 where it is a block.
    pub blocks: u32,
    /// Whether a tile's outputs are gates and what they let through, half of them each.
    pub is_paired: bool,
}

impl LinearTile {
    /// For `n` rows, `m` outputs and this K, of operands of so many bytes; `is_gated` where half of the outputs are gates.
    pub fn of(chip: &Chip, [n, m, k]: [usize; 3], bytes: usize, is_gated: bool) -> LinearTile {
        let parts = if k < CUT_K { 1 } else { PARTS };
        let each = k.div_ceil(parts).next_multiple_of(STEP);
        let is_few = n <= FEW_ROWS;
        // Tiles of 128 rows and outputs for half of the multiprocessors or less: a quarter of each is a program. A step
        // of a small model with prompts of 128 tokens takes 1.3 ms in place of 1.9.
        let wide = m.div_ceil(WIDE) * n.div_ceil(WIDE);
        let rows = match tile_rows(n) {
            WIDE if 2 * wide <= chip.multiprocessors() => 64,
            rows => rows,
        };
        // Tiles of 64 outputs for half of the multiprocessors or less: small ones read `x` more often, and each less
        // of the weight. A decode step of 64 rows of a small model takes 7 % less.
        let tiles = m.div_ceil(OUTPUTS) * n.div_ceil(rows);
        let is_small = rows <= 64 && 2 * parts * tiles <= chip.multiprocessors();
        let shares_rows = is_gated && parts == 1 && chip.tma_feeds_mma() && chip.max_cluster() > 1;
        // Of few rows all that a program reads of a weight should be under way at once. Multiply-adds of f32 take
        // smaller steps. Two accumulators of gates in several parts are as many registers as a thread has.
        let (outputs, step, warps, stages) = match (bytes, rows) {
            (2, LEAST_ROWS) if is_gated && parts == 1 => (64, 128, 4, 6),
            (2, _) if is_few && is_gated => (64, 64, 4, 6),
            // More tiles than multiprocessors: several programs of one, of which one reads while another ends. The head of a
            // small model, 151936 outputs of 896, takes 68 us in place of 74.
            (2, _) if is_few && parts == 1 && tiles > chip.multiprocessors() => (64, 128, 4, 3),
            // Asynchronous products take 64 outputs: with 16 the sums of one wait for each other 33 clocks a step. A program
            // that has a multiprocessor for itself asks for all that it reads.
            (2, _) if is_few && parts * tiles <= chip.multiprocessors() => {
                (64, 128, 4, (each / 128).clamp(2, MOST_STAGES) as u32)
            }
            (2, _) if is_few => (64, 128, 4, 6),
            (2, _) if is_small && !is_gated => (16, 128, 4, 4),
            // What shared memory holds beside the panels of a store: 8192 tokens of a small model take 20.1 ms in place
            // of 20.5 with 4 stages of the products that are cut along K.
            (2, WIDE) if !is_gated && chip.tma_feeds_mma() => (128, 64, 8, 6),
            (2, WIDE) if !is_gated => (128, 64, 8, 4),
            // The blocks of a cluster share the rows of `x`: 20.2 ms in place of 20.5.
            (2, WIDE) if shares_rows => (2 * WIDE, 64, 8, 4),
            (2, WIDE) if parts == 1 => (128, 64, 8, 3),
            (2, _) if is_gated && rows < WIDE => (64, 64, 4, 6),
            (2, _) => (64, 64, 4, 4),
            _ => (64, 16, 4, 3),
        };
        let parts = k.div_ceil(each).max(1);
        let blocks = if outputs > WIDE { 2 } else { 1 };
        // Gates of few rows for less than all multiprocessors: pairs are twice as many programs, of half of the products.
        let is_paired = is_gated && is_few && bytes == 2 && m.is_multiple_of(PAIRED);
        let is_paired = is_paired && tiles < chip.multiprocessors();
        LinearTile { parts, each, outputs, rows, step, warps, stages, blocks, is_paired }
    }

    /// Whether each part of `tiles` tiles is a program of its own: of few rows in one part, and where there are tiles for
    /// less than half of the multiprocessors.
    pub fn is_split(&self, chip: &Chip, tiles: usize) -> bool {
        match self.parts {
            1 => self.outputs < OUTPUTS || self.rows <= FEW_ROWS,
            _ => 2 * tiles < chip.multiprocessors() && tiles <= MAX_SHARED,
        }
    }
}

/// Rows of a tile.
pub fn tile_rows(n: usize) -> usize {
    [LEAST_ROWS, 16, 32, 64].into_iter().find(|&rows| n <= rows).unwrap_or(128)
}

/// Programs of a quantized product for each multiprocessor: what their registers leave room for.
const PROGRAMS: usize = 2;
/// Shared memory of each of them, stages up to which it grows, and a stage's bytes at most.
const SHARED_BYTES: usize = 104 << 10;
const STAGES: usize = 8;
/// Steps of a program up to which all are under way at once.
const ALL_STEPS: usize = 10;
const STAGE_BYTES: usize = 48 << 10;

/// How a product of rows by a quantized weight is computed on a GPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuantizedTile {
    /// Parts of K.
    pub parts: usize,
    /// Steps of all parts but the last.
    pub each: usize,
    /// Rows of a tile.
    pub rows: usize,
    /// Tiles of all results and rows.
    pub tiles: usize,
    /// Stages of a program's pipeline.
    pub stages: usize,
    /// Whether a part is a program of its own.
    pub is_split: bool,
    /// Whether tiles of gates and what they let through may be one product: see [`LinearTile::is_paired`].
    pub is_paired: bool,
}

/// The extents of a product by a quantized weight.
#[derive(Clone, Copy, Debug)]
pub struct QuantizedExtents {
    /// Rows.
    pub n: usize,
    /// Outputs of the weight.
    pub m: usize,
    /// Elements of K of each half.
    pub k: usize,
    /// Halves of K whose codes share bytes: 2 of codes of 4 bits.
    pub halves: usize,
    /// Whether half of the outputs are gates.
    pub is_gated: bool,
}

impl QuantizedTile {
    /// Parts so that tiles of few rows are as many programs as a device holds, up to a few: each costs the last program of
    /// a tile more than it spares the others (a decode step of a small model took 10 % longer with 7 to 13). `step`
    /// elements of a half of K are one step.
    pub fn of(chip: &Chip, extents: QuantizedExtents, step: usize) -> QuantizedTile {
        let QuantizedExtents { n, m, k, halves, is_gated } = extents;
        let wanted = PROGRAMS * chip.multiprocessors();
        let (across, steps) = (m.div_ceil(OUTPUTS).max(1), k.div_ceil(step).max(1));
        let most = if halves * k < CUT_K { 1 } else { PARTS.min(steps) };
        let each = steps.div_ceil((wanted / across).clamp(1, most));
        let parts = steps.div_ceil(each);
        let stage = |rows: usize| OUTPUTS * step + 2 * halves * rows * step;
        // A tile of gates stays in registers beside the sums of what it lets through, and those beside the parts'.
        let widest = if is_gated && parts > 1 { 64 / halves } else { 128 };
        let fits = |rows: &usize| *rows <= widest && stage(*rows) <= STAGE_BYTES;
        let most = [128, 64, 32, 16].into_iter().find(fits).unwrap_or(LEAST_ROWS);
        let rows = match tile_rows(n) {
            128 => most,
            rows => rows.min(most),
        };
        let down = n.div_ceil(rows);
        let most = if each <= ALL_STEPS { ALL_STEPS } else { STAGES };
        let stages = (SHARED_BYTES / stage(rows)).clamp(2, most);
        let tiles = down * if is_gated { (m / 2).div_ceil(OUTPUTS) } else { across };
        // One part of few rows is a program that asks for what follows the product ahead of it. Gates in one part are
        // its too: the last program of a tile would wait longer for memory than this one computes (a decode step of a
        // small model takes 5 % less). Else gates and what they let through are programs of their own.
        let is_few = n <= FEW_ROWS;
        let is_split = match parts {
            1 if !is_gated || is_few => is_few && !is_gated,
            _ => across * down < wanted && tiles <= MAX_SHARED,
        };
        let is_paired = is_gated && is_few && !is_split && (m / 2).is_multiple_of(PAIRED);
        let is_paired = is_paired && tiles < chip.multiprocessors();
        QuantizedTile { parts, each, rows, tiles, stages, is_split, is_paired }
    }
}

/// Elements of K of a step of the kernel that any form of quantized weights has, where groups are no longer.
pub const ANY_QUANTIZED_STEP: usize = 64;

/// How codes go along K to tensor cores: what follows from the weight alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuantizedSteps {
    /// Elements of a half of K in a step.
    pub step: usize,
    /// Scales in a step.
    pub groups: usize,
    /// Elements of a half of K that have one scale; 0 for a row.
    pub span: usize,
}

impl QuantizedSteps {
    /// For groups of `lanes` elements with one scale each, or rows that have one; none where steps are not made of groups.
    pub fn of(lanes: usize, is_by_row: bool, bits: i64, has_mins: bool) -> Option<QuantizedSteps> {
        const LONG: usize = 128;
        const SHORT: usize = 64;
        if !lanes.is_power_of_two() {
            return None;
        }
        if is_by_row && !has_mins {
            return Some(QuantizedSteps { step: LONG, groups: 1, span: 0 });
        }
        if lanes >= SHORT && !has_mins {
            return Some(QuantizedSteps { step: lanes.min(LONG), groups: 1, span: lanes });
        }
        // Scales and minimums of a step stay in registers.
        let step = if bits == 4 || has_mins { SHORT } else { LONG };
        Some(QuantizedSteps { step, groups: (step / lanes).max(1), span: lanes })
    }
}

/// Elements of K that a program of a processor takes at once. With the most rows and their outputs that is the largest tile
/// that a kernel has.
const AT_ONCE: usize = 4096;
/// Lanes of a group on a processor, at most: two vectors of AVX-512.
const CPU_LANES: usize = 32;
/// Outputs of a program of a processor with one row of a quantized product: of weights that no cache holds, 8 bits at
/// K = 576, 16 outputs take 36 GMAC/s on 2 cores of Zen 5, 8 take 19.
pub const CPU_OUTPUTS_OF_A_QUANTIZED_ROW: usize = 16;

/// Lanes of a group of K on a processor.
pub fn cpu_lanes(k: usize) -> usize {
    [CPU_LANES, 16, 8, 4, 2].into_iter().find(|&lanes| k.is_multiple_of(lanes)).unwrap_or(1)
}

/// Rows of a program of a processor: those that there are, up to what shares a weight in the cache.
pub fn cpu_rows(n: usize) -> usize {
    [1, 2, 4, 16].into_iter().find(|&rows| n <= rows).unwrap_or(64)
}

/// Outputs of a program of a processor with so many rows.
pub fn cpu_outputs(rows: usize) -> usize {
    if rows > 16 { 4 } else { 8 }
}

/// Groups of `lanes` that a processor takes at once: all, or even shares of them.
pub fn cpu_groups(groups: usize, lanes: usize) -> usize {
    let steps = (groups * lanes).div_ceil(AT_ONCE).max(1);
    groups.div_ceil(steps).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    fn h200() -> Chip {
        Chip::of_target(&Target::sm_90a())
    }

    #[test]
    fn parts_follow_from_k_alone() {
        let chip = h200();
        for k in [1, 100, 896, 2047, 2048, 2049, 4864, 14336] {
            let few = LinearTile::of(&chip, [1, 896, k], 2, false);
            for (n, m, bytes, is_gated) in [
                (2, 4864, 2, true),
                (17, 64, 2, false),
                (17, 9000, 2, false),
                (8192, 896, 2, true),
                (64, 896, 4, false),
            ] {
                let tile = LinearTile::of(&chip, [n, m, k], bytes, is_gated);
                assert_eq!((tile.parts, tile.each), (few.parts, few.each));
                assert!(tile.each.is_multiple_of(tile.step));
                assert!((tile.parts - 1) * tile.each < k && k <= tile.parts * tile.each);
            }
        }
    }

    fn quantized(extents: QuantizedExtents) -> QuantizedTile {
        QuantizedTile::of(&h200(), extents, 128)
    }

    #[test]
    fn parts_do_not_depend_on_rows_and_gates() {
        for (m, k, halves) in [(1152, 896, 1), (896, 4864, 1), (4096, 7168, 2), (151_936, 896, 1)] {
            let few = quantized(QuantizedExtents { n: 1, m, k, halves, is_gated: false });
            assert!((few.parts - 1) * few.each * 128 < k && k <= few.parts * few.each * 128);
            for n in [2, 8, 9, 64, 100, 8192] {
                for is_gated in [false, true] {
                    let tile = quantized(QuantizedExtents { n, m, k, halves, is_gated });
                    assert_eq!((tile.parts, tile.each), (few.parts, few.each));
                }
            }
        }
    }

    #[test]
    fn a_row_occupies_multiprocessors_where_the_weight_is_large() {
        let programs = |m, k, halves, is_gated| {
            let tile = quantized(QuantizedExtents { n: 1, m, k, halves, is_gated });
            let shares = tile.parts * if is_gated { 2 } else { 1 };
            (tile.tiles * if tile.is_split { shares } else { 1 }, tile.each)
        };
        assert_eq!(programs(4096, 7168, 2, false), (256, 14));
        assert_eq!(programs(896, 4864, 1, false), (56, 10));
        assert_eq!(programs(896, 896, 1, false), (14, 7));
        assert_eq!(programs(9728, 896, 1, true), (76, 7));
        // Enough tiles of gates: the outputs that one lets through are the same program's.
        assert_eq!(programs(28_672, 4096, 1, true), (224, 32));
        // 8192 rows are computed part after part.
        let many = QuantizedExtents { n: 8192, m: 896, k: 4864, halves: 1, is_gated: false };
        assert!(!quantized(many).is_split);
    }
}

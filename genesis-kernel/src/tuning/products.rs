//! Matrix products: tiles, warps and stages, where nothing was measured, and how K is split.
//!
//! Each program computes one tile, so that a tile decides how many programs there are, how often an
//! operand is loaded, and what shared memory holds. On an H200 with bf16 (TFLOP/s):
//!
//! ```text
//!     n   64x128  64x256  128x128  128x256      what decides
//!  1024      386     284      284      169      tiles for all 132 multiprocessors
//!  2048      632     720      724      717
//!  4096      641     691      750      792      loads: a tile of 128x256 needs 3/8 of those of 64x64
//!  8192      655     694      755      804
//! ```
//!
//! [`Work`] reproduces that order, and so picks for any shape. What is added for MMAs that read shared memory is the
//! epilogue of a tile, in which its warps multiply nothing, unless another warpgroup alternates with them (ping-pong).
//! Against cuBLAS in turns, each for tens of milliseconds:
//!
//! ```text
//! m, n, k             128x256   128x128 ping-pong
//! 2048 2048  2048        1.02               1.03
//! 8192 4864   896        1.03               1.13
//! 8192  896  4864        1.01               1.00      a wave more is not whole
//! 4096 4096  4096        1.01               1.03
//! 8192 8192  8192        1.02               1.04
//! 16384 16384 16384      1.01               0.96      rows of tiles leave the cache before their next use
//! ```
//!
//! In a program that multiplies for seconds the GPU is at its power limit, and tiles that load less are ahead from a K of
//! 2048 on: see `LOADS`.

use super::multiprocessor::{WARP_THREADS, WARPGROUP_WARPS};
use super::registers::MOST_ACCUMULATORS;
use super::warps::is_ping_pong;
use super::{Chip, Machine, Unit, Work};
use crate::ir::{DType, DotPrecision};

/// A tile and how its programs run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Rows.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// Elements of K of a step.
    pub k: usize,
    /// Warps that multiply.
    pub warps: u32,
    /// Stages of the pipeline that brings the operands.
    pub stages: u32,
}

const fn tile(m: usize, n: usize, k: usize, warps: u32, stages: u32) -> Tile {
    Tile { m, n, k, warps, stages }
}

/// A product that a tile is chosen for.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// Where it runs.
    pub machine: &'a Machine,
    /// The dtype of the operands.
    pub dtype: DType,
    /// What f32 is multiplied as.
    pub precision: DotPrecision,
    /// Batch, M, N, K.
    pub sizes: [i64; 4],
    /// Whether TMA brings both operands to where the MMAs read them.
    pub is_fed_by_tma: bool,
    /// Of each operand, whether its rows begin off cache lines, so that each row of a tile is in one line more.
    pub is_off_lines: [bool; 2],
}

/// The tile on a processor.
pub const CPU_TILE: [usize; 3] = [32, 32, 16];
/// The same of integers of 8 bits, which are multiplied so fast that packing them for a smaller tile takes as long.
const CPU_TILE_OF_BYTES: [usize; 3] = [64, 64, 64];

/// Elements of K of a step of operands that TMA brings: the widest swizzle.
const TMA_ROW_BYTES: usize = 128;

/// Tiles for MMAs that read what TMA brings, with K in units of 128 bytes and as many stages as shared memory holds. Of two
/// that are equally good the first is taken.
const FED_BY_TMA: [Tile; 8] = [
    tile(128, 128, 1, 4, 6),
    tile(128, 256, 1, 8, 4),
    tile(128, 128, 1, 8, 6),
    tile(64, 256, 1, 4, 4),
    tile(64, 128, 1, 4, 7),
    tile(64, 64, 1, 4, 7),
    tile(64, 32, 1, 4, 7),
    tile(64, 16, 1, 4, 7),
];

/// Tiles whose operands `cp.async` brings, some steps ahead: for `mma.sync` with elements of 16 bits (K is twice as much
/// with those of 8), with tf32, and for multiply-adds. A thread has 64 or 128 accumulators. Steps of 32 along K, against
/// 16, spare multiply-adds a twentieth of other instructions and barriers: 0.89 of cuBLAS at 4096 on an H200 instead of
/// 0.85.
const HALF: [Tile; 3] = [tile(128, 128, 32, 4, 4), tile(64, 128, 32, 4, 4), tile(64, 64, 32, 4, 4)];
const TF32: [Tile; 2] = [tile(128, 128, 32, 8, 3), tile(64, 64, 16, 4, 4)];
const SINGLE: [Tile; 3] =
    [tile(128, 128, 32, 8, 3), tile(64, 64, 16, 4, 3), tile(32, 32, 16, 4, 2)];
/// The same for f64. A warp has a tile of 32 by 32, whose accumulators are 64 registers of a thread.
const DOUBLE: [Tile; 3] = [tile(128, 64, 16, 8, 4), tile(64, 64, 16, 4, 4), tile(32, 32, 16, 4, 4)];

/// Tiles of 8-bit floats for MMAs that read what TMA brings, where each step's sums are added up apart from the accumulators,
/// in as many registers again.
const F8_PROMOTED: [Tile; 3] =
    [tile(128, 128, 128, 8, 6), tile(64, 128, 128, 4, 6), tile(64, 64, 128, 4, 7)];
/// The same where they are not.
const F8_FAST: [Tile; 5] = [
    tile(128, 256, 128, 8, 4),
    tile(128, 128, 128, 8, 6),
    tile(64, 128, 128, 4, 7),
    tile(64, 64, 128, 4, 7),
    tile(64, 16, 128, 4, 7),
];
/// Tiles of 8-bit floats that become f16 in registers on their way to `mma.sync`.
const F8_WIDENED: [Tile; 2] = [tile(128, 128, 32, 8, 3), tile(64, 64, 32, 4, 3)];

/// Clocks of the epilogue for each accumulator of a thread: rounding, storing, and what the first loads of the next tile do
/// not hide.
const EPILOGUE_CLOCKS: f64 = 24.0;

/// How much of the time of its loads a tile is slower by, though they run beside its MMAs: under load a GPU is at its power
/// limit, and what moves more bytes runs at a lower clock. A step of Llama-3.2-1B, with K from 2048 on, takes 131.7 ms on an
/// H200 in tiles of 128 by 256 and 137.2 in those of a ping-pong schedule, which load a third more; one of Qwen2.5-0.5B, with
/// K of 896, where the epilogue counts, 63.5 and 62.1.
const LOADS: f64 = 0.4;

/// Rows of tiles that are computed at the same time: what the tile scheduler of the kernels has.
pub const GROUP_ROWS: usize = 16;

/// Warps of the producer.
const PRODUCER_WARPS: u32 = WARPGROUP_WARPS;

/// Shared memory that a program needs beside its stages, in bytes: barriers and alignment.
const SPARE_BYTES: usize = 2048;

/// How promotion decides tiles of 8-bit floats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum F8Sums {
    /// Sums of a step are added to accumulators of f32 apart, for tensor cores keep fewer bits.
    Promoted,
    /// Tensor cores add up all of K.
    Fast,
}

impl F8Sums {
    fn tiles(self) -> &'static [Tile] {
        match self {
            F8Sums::Promoted => &F8_PROMOTED,
            F8Sums::Fast => &F8_FAST,
        }
    }

    fn most_accumulators(self) -> usize {
        match self {
            F8Sums::Promoted => 64,
            F8Sums::Fast => 128,
        }
    }
}

impl Product<'_> {
    fn unit(&self) -> Unit {
        Unit::of(self.dtype, self.precision)
    }

    /// An extent of a matrix, at least 1.
    pub(super) fn extent(&self, index: usize) -> usize {
        self.sizes[index].max(1) as usize
    }

    /// The tile that the product is expected to be fastest in; none on a processor, which takes any.
    pub fn tile(&self) -> Option<Tile> {
        self.machine.gpu()?;
        let (bytes, unit) = (self.dtype.bytes(), self.unit());
        if self.is_fed_by_tma {
            return self.tile_fed_by_tma();
        }
        let of_bytes = HALF.map(|tile| Tile { k: 2 * tile.k, ..tile });
        let tiles: &[Tile] = match unit {
            Unit::Half if bytes == 1 => &of_bytes,
            Unit::Half => &HALF,
            Unit::Tf32 => &TF32,
            Unit::Single => &SINGLE,
            Unit::Double => &DOUBLE,
        };
        self.fastest(tiles, |tile| self.work(tile, SPARE_BYTES))
    }

    /// The tile on a processor.
    pub fn cpu_tile(&self) -> [usize; 3] {
        let is_large = (1..4).all(|axis| self.extent(axis) >= CPU_TILE_OF_BYTES[axis - 1]);
        let is_int8 = matches!(self.dtype, DType::I8 | DType::U8);
        if is_int8 && is_large { CPU_TILE_OF_BYTES } else { CPU_TILE }
    }

    fn tile_fed_by_tma(&self) -> Option<Tile> {
        self.fastest(&self.tiles_fed_by_tma(), |tile| self.work_fed_by_tma(tile))
    }

    /// The tiles for MMAs that read what TMA brings.
    pub(super) fn tiles_fed_by_tma(&self) -> Vec<Tile> {
        let bytes = self.dtype.bytes();
        // Tiles of a ping-pong schedule are smaller, and so load more.
        // With tf32 they are slower: 0.83 of cuBLAS at 4096, where the others reach 0.94.
        let suits = |tile: &Tile| {
            let rows = GROUP_ROWS * tile.m * self.extent(3) * bytes;
            self.unit() == Unit::Half && rows <= self.machine.cache_bytes()
        };
        let tiles = FED_BY_TMA.iter().filter(|tile| suits(tile) || !tile.is_ping_pong());
        let in_elements = |tile: &Tile| Tile { k: tile.k * TMA_ROW_BYTES / bytes, ..*tile };
        tiles.map(in_elements).collect()
    }

    /// What the product in tiles that TMA brings does, epilogues in which nothing is multiplied included.
    pub(super) fn work_fed_by_tma(&self, tile: &Tile) -> Work {
        let work = self.work(tile, SPARE_BYTES);
        let num_warps = tile.warps + PRODUCER_WARPS;
        let loads = LOADS * work.bytes / self.machine.cache_bytes_per_clock;
        let slowed = loads * self.machine.flops_per_clock(self.unit());
        Work { num_warps, flops: work.flops + self.idle_flops(tile) + slowed, ..work }
    }

    /// The same of 8-bit floats.
    pub fn tile_f8(&self, sums: F8Sums) -> Option<Tile> {
        self.machine.gpu()?;
        let (tiles, loaders) = match self.is_fed_by_tma {
            true => (sums.tiles(), PRODUCER_WARPS),
            false => (&F8_WIDENED[..], 0),
        };
        self.fastest(tiles, |tile| {
            let work = self.work(tile, 0);
            Work { num_warps: work.num_warps + loaders, ..work }
        })
    }

    /// The first of the tiles that the model expects to be fastest.
    fn fastest(&self, tiles: &[Tile], work: impl Fn(&Tile) -> Work) -> Option<Tile> {
        let us = |tile: &Tile| work(tile).estimate_us(self.machine);
        tiles.iter().min_by(|a, b| us(a).total_cmp(&us(b))).copied()
    }

    /// What tensor cores could do during the epilogue of a tile.
    pub(super) fn idle_flops(&self, tile: &Tile) -> f64 {
        if tile.is_ping_pong() {
            return 0.0;
        }
        let accumulators = (tile.m * tile.n) as f64 / f64::from(WARP_THREADS * tile.warps);
        accumulators * EPILOGUE_CLOCKS * self.machine.flops_per_clock(self.unit())
    }

    /// What the product in these tiles does.
    fn work(&self, tile: &Tile, spare_bytes: usize) -> Work {
        let [batch, m, n, k] = self.sizes.map(|size| size as f64);
        let (tm, tn, tk) = (tile.m as f64, tile.n as f64, tile.k as f64);
        let padded = (k / tk).ceil() * tk;
        let bytes_of = |elements: f64| self.dtype.bytes() as f64 * elements;
        // TMA's rows are as long as a line: one that begins off a line takes two. Measured on an H200 for rows of 2000
        // bytes: 3000 x 5000 x 1000 takes 83 us in tiles of 128 by 128, 67 in those of 128 by 256.
        let lines = |is_off: bool| if is_off && self.is_fed_by_tma { 2.0 } else { 1.0 };
        let [lines_a, lines_b] = self.is_off_lines.map(lines);
        let shared_bytes = tile.stage_bytes(self.dtype.bytes()) * tile.stages as usize;
        Work {
            programs: batch * (m / tm).ceil() * (n / tn).ceil(),
            flops: 2.0 * tm * tn * padded,
            bytes: bytes_of((tm * lines_a + tn * lines_b) * padded),
            argument_bytes: bytes_of(batch * (m * k + k * n + m * n)),
            unit: self.unit(),
            shared_bytes: u32::try_from(shared_bytes + spare_bytes).ok(),
            num_warps: tile.warps,
        }
    }

    /// Whether the product can be computed in such tiles, and may be fast; `blocks` of a cluster share a tile's rows.
    pub fn suits(&self, tile: &Tile, blocks: usize) -> bool {
        let Some(gpu) = self.machine.gpu() else {
            // Warps and stages mean nothing to the processor: one of each tile is enough.
            return tile.k == 16
                && tile.m <= 64
                && tile.n <= 64
                && (tile.warps, tile.stages) == (4, 2);
        };
        // What a block has of the rows.
        let own = Tile { m: tile.m / blocks, ..*tile };
        let (bytes, unit) = (self.dtype.bytes(), self.unit());
        let Tile { m, n, k, warps, stages } = own;
        let row_bytes = k * bytes;
        let fits_registers = own.accumulators() * bytes.max(4) / 4 <= MOST_ACCUMULATORS;
        let fits = |stages| own.fits(stages, bytes, gpu.features.max_shared_bytes);
        // More rows or columns than the problem has, beyond the smallest tile, are work for nothing.
        let is_useful =
            (tile.m <= 64 || tile.m < 2 * self.extent(1)) && (n <= 64 || n < 2 * self.extent(2));
        let suits = match unit {
            _ if self.is_fed_by_tma => {
                let is_shared_out =
                    m % 64 == 0 && (m / 16 == warps as usize || m == 128 && own.is_ping_pong());
                row_bytes >= TMA_ROW_BYTES && is_shared_out && is_full(stages, fits)
            }
            _ if blocks > 1 => false,
            Unit::Half | Unit::Tf32 => {
                let is_step = (32..=128).contains(&row_bytes) && k >= 16;
                m >= 64 && n >= 64 && is_step && stages <= 4
            }
            Unit::Single => k <= 32 && stages <= 3 && own.accumulators() <= 128,
            Unit::Double => k <= 32 && stages <= 4 && own.accumulators() <= 64,
        };
        fits_registers && fits(stages) && is_useful && suits
    }

    /// The same of 8-bit floats.
    pub fn suits_f8(&self, tile: &Tile, sums: F8Sums) -> bool {
        let Some(gpu) = self.machine.gpu() else {
            return *tile == Tile { m: 64, n: 64, k: 32, warps: 4, stages: 2 };
        };
        let fits = |stages| tile.fits(stages, 1, gpu.features.max_shared_bytes);
        let Tile { m, k, warps, stages, .. } = *tile;
        match self.is_fed_by_tma {
            true => {
                k == TMA_ROW_BYTES
                    && m / 16 == warps as usize
                    && tile.accumulators() <= sums.most_accumulators()
                    && fits(stages)
                    && is_full(stages, fits)
            }
            // Operands are widened in registers and lie in shared memory as f16.
            false => k <= 64 && stages <= 4 && tile.accumulators() <= 64 && fits(2 * stages),
        }
    }
}

/// Whether as many stages are used as there is room for: fewer than could be are worth a try only where they are one fewer.
fn is_full(stages: u32, fits: impl Fn(u32) -> bool) -> bool {
    stages >= 5 || !fits(stages + 2)
}

impl Tile {
    /// Accumulators of a thread.
    pub(super) fn accumulators(&self) -> usize {
        self.m * self.n / (WARP_THREADS * self.warps) as usize
    }

    /// Bytes of a stage.
    fn stage_bytes(&self, bytes: usize) -> usize {
        (self.m + self.n) * self.k * bytes
    }

    /// Whether so many stages fit shared memory.
    fn fits(&self, stages: u32, bytes: usize, max_shared_bytes: u32) -> bool {
        stages as usize * self.stage_bytes(bytes) + SPARE_BYTES <= max_shared_bytes as usize
    }

    /// Whether two warpgroups alternate over tiles.
    fn is_ping_pong(&self) -> bool {
        is_ping_pong(self.m * self.n, self.warps)
    }
}

/// Rows of the smallest tile: a product of fewer, and of more columns, runs with its operands swapped.
const LEAST_ROWS: usize = 64;
/// Elements of K of one step of a tile for tensor cores of 16 bits.
const SPLIT_STEP: usize = 64;
/// Elements of K of the shortest part, and of f32 and f64, whose multiply-adds take longer.
const LEAST_K: usize = 1024;
const LEAST_WIDE_K: usize = 512;
/// The most parts, and bytes of their sums.
const MOST_PARTS: usize = 16;
const MOST_SUMS: usize = 24 << 20;
/// Rows and columns of a tile when parts are counted.
const SPLIT_TILE: usize = 128;

/// Whether a product of `m` rows and `n` columns runs with its operands swapped, so that the long axis is that of the rows.
pub fn is_swapped(m: usize, n: usize) -> bool {
    m < LEAST_ROWS && n > m
}

/// Split K: how many parts the sums of a product of `m, n, k` are made in, so that there is a tile for most multiprocessors.
/// A power of two, 1 where the tiles are enough, or a part would be too short to be worth a store of its sums. The error of a
/// long sum of f32, which grows with its length, is less of parts too. [`part_of_k`] says how long each is.
pub fn split_k(chip: &Chip, [m, n, k]: [usize; 3], bytes: usize) -> usize {
    let least = if bytes == 2 { LEAST_K } else { LEAST_WIDE_K };
    let tiles = match is_swapped(m, n) {
        true => n.div_ceil(LEAST_ROWS),
        false => m.div_ceil(SPLIT_TILE) * n.div_ceil(SPLIT_TILE),
    };
    let wanted = chip.multiprocessors() / tiles.max(1);
    let fits = |&parts: &usize| part_of_k(k, parts, bytes) >= least;
    [16, 8, 4].into_iter().filter(|&parts| parts <= wanted).find(fits).unwrap_or(1)
}

/// How long each of the parts of `k` is, in whole steps of a tile. What `k` has beyond them is one more part.
pub fn part_of_k(k: usize, parts: usize, bytes: usize) -> usize {
    let step = if bytes == 2 { SPLIT_STEP } else { 16 / bytes };
    k / parts / step * step
}

/// Split K of a product whose `k` is far longer than `m` and `n`, and is what it is: how many parts its sums are made in, and
/// how long each is, in whole steps. What `k` has beyond the parts is one more, shorter than they are.
///
/// The fewest parts whose tiles keep 95 % of the multiprocessors busy to the end, else those that keep the most.
pub fn split_long_k(chip: &Chip, [m, n, k]: [usize; 3], bytes: usize) -> (usize, usize) {
    let least = if bytes == 2 { LEAST_K } else { LEAST_WIDE_K };
    let tiles = match is_swapped(m, n) {
        true => n.div_ceil(LEAST_ROWS),
        false => m.div_ceil(SPLIT_TILE) * n.div_ceil(SPLIT_TILE),
    };
    let busy = |parts: usize| {
        let (programs, at_once) = (tiles * parts, chip.multiprocessors().max(1));
        programs as f64 / programs.next_multiple_of(at_once).max(1) as f64
    };
    let held = (MOST_SUMS / m.saturating_mul(n).saturating_mul(4).max(1)).saturating_sub(1);
    let most = (k / least).min(held).clamp(1, MOST_PARTS);
    let parts = (1..=most).find(|&parts| busy(parts) >= 0.95);
    let best = || (1..=most).rev().max_by(|&a, &b| busy(a).total_cmp(&busy(b))).unwrap_or(1);
    match parts.unwrap_or_else(best) {
        1 => (1, k),
        parts => (parts, k / parts / SPLIT_STEP * SPLIT_STEP),
    }
}

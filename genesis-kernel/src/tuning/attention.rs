//! Attention: tiles of queries and keys, of tensors and over a paged cache.
//!
//! Scores are the accumulators of one product and the operand of the next, so a tile is as large as registers hold both,
//! and the sum of weighted values beside them. What else a kernel does takes registers too: a bias, a cap, dropped weights,
//! packed sequences ([`Features`]). All of it was measured without spills, which tests look at.
//!
//! ```text
//! bf16, heads of 128      forward     gradient of keys     of queries
//! sm_90a                  128 x 128   64 x 128             128 x 64
//! sm_100a, sm_120a        128 x 128   64 x 64              128 x 32        operands are in registers too
//!
//! bf16, heads of 256
//! sm_90a                  128 x 64    32 x 128, 64 x 128   128 x 32        a kernel of keys, one of values
//! sm_100a, sm_120a        64 x 64     32 x 32              64 x 32
//! ```

use super::Chip;
use super::multiprocessor::MAX_GRID_YZ;

/// The kernels of attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The result.
    Forward,
    /// The gradients of keys and values.
    Keys,
    /// That of keys alone.
    OnlyKeys,
    /// That of values alone.
    OnlyValues,
    /// The gradient of queries.
    Queries,
}

impl Part {
    /// The kernels that make the gradients of keys and values: one of both, or one of each where registers do not hold
    /// the sums of both as accumulators of MMAs that read shared memory. Then scores are made twice: eight products in
    /// place of seven. A bias or draws leave no registers for one of them either.
    pub fn of_keys(chip: &Chip, heads: Heads, features: Features) -> &'static [Part] {
        let is_rich = features.bias || features.drop;
        match chip.tma_feeds_mma() && heads.bytes == 2 && heads.width > 128 && !is_rich {
            true => &[Part::OnlyKeys, Part::OnlyValues],
            false => &[Part::Keys],
        }
    }

    /// What the kernel of keys and values takes to make both, the gradient of keys alone or that of values alone.
    pub fn only(self) -> Option<i64> {
        match self {
            Part::Forward | Part::Queries => None,
            Part::Keys => Some(0),
            Part::OnlyKeys => Some(1),
            Part::OnlyValues => Some(2),
        }
    }

    /// Whether a program has a block of keys and walks queries.
    pub fn has_keys(self) -> bool {
        matches!(self, Part::Keys | Part::OnlyKeys | Part::OnlyValues)
    }
}

/// What a kernel does beside attention.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// Adds a bias to scores.
    pub bias: bool,
    /// Bounds scores by a soft cap.
    pub cap: bool,
    /// Drops weights.
    pub drop: bool,
    /// Sequences are packed one behind the other.
    pub packed: bool,
}

impl Features {
    /// As kernels take them: a bias, a cap, dropped weights, packed sequences.
    pub fn consts(self) -> [i64; 4] {
        [self.bias, self.cap, self.drop, self.packed].map(i64::from)
    }
}

/// What a tile is chosen for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heads {
    /// Queries of a head.
    pub queries: usize,
    /// Elements of a query and of a key.
    pub width: usize,
    /// Bytes of an element.
    pub bytes: usize,
}

/// Queries and keys of a tile, and the warps that share it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tile {
    /// Queries.
    pub queries: i64,
    /// Keys.
    pub keys: i64,
    /// Warps of a block.
    pub warps: u32,
}

impl Tile {
    /// The tile of a kernel: as large as shared memory and registers allow without spills.
    pub fn of(chip: &Chip, part: Part, heads: Heads, features: Features) -> Tile {
        let Heads { queries: m, width, bytes } = heads;
        let (queries, keys, warps) = match bytes {
            _ if chip.is_cpu() => (32, 32, 4),
            2 if chip.tma_feeds_mma() => half_in_shared(part, m, width, features),
            2 => half_in_registers(part, width, features),
            8 => (16, 32, 8),
            _ if width <= 64 => (64, 64, 8),
            _ if width <= 128 => (32, 64, 8),
            _ => (32, 32, 8),
        };
        Tile { queries, keys, warps }
    }

    /// The tile where a block holds all keys of such heads: the sum of weighted products takes registers and shared memory.
    pub fn of_all_keys(self, chip: &Chip, part: Part, width: usize) -> Tile {
        let most = if chip.is_cpu() || chip.tma_feeds_mma() { 64 } else { 32 };
        match part {
            Part::OnlyKeys => Tile { queries: self.queries.min(16), ..self },
            _ if part.has_keys() && width > most => Tile { queries: self.queries.min(32), ..self },
            _ => self,
        }
    }

    /// Rows of queries or keys of which a program has a block.
    pub fn rows(self, part: Part) -> i64 {
        if part.has_keys() { self.keys } else { self.queries }
    }
}

/// Tiles of floats of 16 bits for MMAs that read them in registers, which operands share with accumulators:
/// where those that read shared memory take 128 by 128, 32 to 64 keys are left. None spills on sm_100a and sm_120a,
/// which a test looks at.
fn half_in_registers(part: Part, head: usize, features: Features) -> (i64, i64, u32) {
    let Features { bias, cap, drop, packed } = features;
    let is_rich = bias || drop;
    let is_plain = !is_rich && !cap && !packed;
    match (part, head) {
        (Part::Forward, ..=32) => (64, 64, 4),
        (Part::Forward, ..=64) if drop => (128, 32, 8),
        (Part::Forward, ..=128) if drop => (64, 64, 8),
        (Part::Forward, ..=64) if bias => (128, 64, 8),
        (Part::Forward, 65..=128) if !is_plain => (128, 64, 8),
        (Part::Forward, ..=128) => (128, 128, 8),
        (Part::Forward, _) if is_rich => (64, 32, 8),
        (Part::Forward, _) => (64, 64, 8),
        (Part::Keys, ..=64) if bias && drop => (64, 64, 8),
        (Part::Keys, ..=64) if is_rich => (32, 128, 8),
        (Part::Keys, 33..=64) if cap || packed => (32, 128, 8),
        (Part::Keys, ..=64) => (64, 128, 8),
        (Part::Keys, ..=128) if !is_plain => (32, 64, 8),
        (Part::Keys, ..=128) => (64, 64, 8),
        (Part::Keys | Part::OnlyKeys | Part::OnlyValues, _) => (32, 32, 8),
        (Part::Queries, ..=32) if is_plain => (128, 128, 8),
        (Part::Queries, ..=32) if drop => (64, 64, 8),
        (Part::Queries, ..=64) if drop => (128, 32, 8),
        (Part::Queries, ..=64) => (128, 64, 8),
        (Part::Queries, ..=128) if bias && drop => (64, 64, 8),
        (Part::Queries, ..=128) => (128, 32, 8),
        (Part::Queries, _) => (64, 32, 8),
    }
}

/// The same for MMAs that read shared memory. A bias takes shared memory and registers, and draws take registers.
fn half_in_shared(part: Part, m: usize, head: usize, features: Features) -> (i64, i64, u32) {
    let Features { bias, cap, drop, packed } = features;
    let is_rich = bias || drop;
    let is_plain = !is_rich && !cap && !packed;
    match (part, head) {
        (Part::Forward, ..=32) => (64, 64, 4),
        (Part::Forward, ..=64) if drop && !bias => (128, 32, 8),
        (Part::Forward, ..=64) if is_rich => (128, 64, 8),
        // Four warpgroups read each block of keys once: 10 % faster than two, where there are as many rows.
        (Part::Forward, ..=64) if is_plain && m >= 256 => (256, 64, 16),
        (Part::Forward, ..=128) if drop => (128, 32, 8),
        (Part::Forward, ..=128) if bias => (128, 64, 8),
        (Part::Forward, ..=128) => (128, 128, 8),
        (Part::Forward, _) if drop => (128, 16, 8),
        (Part::Forward, _) if bias => (128, 32, 8),
        (Part::Forward, _) => (128, 64, 8),
        (Part::Keys, ..=64) if bias && drop => (64, 64, 8),
        (Part::Keys, ..=64) if is_rich => (32, 128, 8),
        (Part::Keys, ..=64) => (64, 128, 8),
        (Part::Keys, ..=128) if is_rich => (32, 64, 8),
        (Part::Keys, ..=128) if cap => (32, 128, 8),
        (Part::Keys, ..=128) => (64, 128, 8),
        (Part::Keys, _) => (32, 32, 8),
        (Part::OnlyKeys, _) if packed => (32, 64, 4),
        (Part::OnlyKeys, _) => (32, 128, 8),
        (Part::OnlyValues, _) => (64, 128, 8),
        (Part::Queries, ..=64) if is_rich => (128, 64, 8),
        (Part::Queries, ..=64) => (128, 128, 8),
        (Part::Queries, ..=128) if is_rich => (128, 32, 8),
        (Part::Queries, ..=128) => (128, 64, 8),
        // Draws leave no registers for the operands of two warpgroups: by `mma.sync`.
        (Part::Queries, _) if drop => (64, 32, 8),
        (Part::Queries, _) if bias => (64, 32, 4),
        (Part::Queries, _) => (128, 32, 8),
    }
}

/// Blocks of keys up to which one program walks them all: joining what several leave takes longer.
const WALKED: usize = 5;
/// The most bytes for what is kept of blocks, and for keys and values in a row.
const MAX_KEPT: usize = 1 << 28;
/// Rows of a sequence from which on its pages are gathered first.
pub const FEW_ROWS: usize = 64;
/// Heads of a program that joins blocks, and keys of one that gathers them.
pub const JOINED_HEADS: usize = 2;
/// See [`JOINED_HEADS`].
pub const GATHERED_KEYS: usize = 32;
/// Rows of a tile of many tokens, and of one where there are too few for every multiprocessor, with their warps.
const LARGE: (usize, u32) = (128, 8);
const SMALL: (usize, u32) = (64, 4);

/// Rows of a tile over pages, keys of a block, and warps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagedTile {
    /// Rows of a tile: heads of tokens.
    pub rows: usize,
    /// Keys of a block.
    pub keys: usize,
    /// Warps of a program.
    pub warps: u32,
}

impl PagedTile {
    /// For heads of this width and so many bytes an element, of a sequence with so many rows.
    ///
    /// Keys must not depend on anything but the head and the dtype: they are what the bits depend on. So are the layouts of
    /// products: tiles of 16 rows and of a multiple of 64 add up a row in the same order where keys are 64 or more.
    pub fn of(chip: &Chip, bytes: usize, width: usize, rows: usize) -> PagedTile {
        let of = |(rows, keys, warps)| PagedTile { rows, keys, warps };
        if chip.is_cpu() {
            return of((rows.next_power_of_two().min(32), 32, 4));
        }
        let few = if rows <= 16 { 16 } else { FEW_ROWS };
        of(match (bytes, width) {
            (2, ..=64) => (few, 128, 4),
            (2, ..=128) => (few, 64, 4),
            (2, _) => (64, 32, 8),
            (4, ..=64) => (32, 32, 4),
            (4, ..=128) => (16, 32, 4),
            (4, _) => (16, 32, 8),
            _ => (16, 16, 4),
        })
    }
}

/// Rows of a tile of many tokens whose pages are gathered, and its warps; `tiles` says how many tiles of so many rows there
/// are, of all heads.
pub fn prefill_tile(chip: &Chip, tiles: impl Fn(usize) -> usize) -> (usize, u32) {
    if tiles(LARGE.0) >= chip.multiprocessors() { LARGE } else { SMALL }
}

/// Whether so many extents multiply to no more bytes than are kept.
pub fn may_be_kept(extents: &[usize]) -> bool {
    let bytes = extents.iter().try_fold(1usize, |all, &n| all.checked_mul(n));
    bytes.is_some_and(|bytes| bytes <= MAX_KEPT)
}

/// Blocks of keys that a program walks: all of `blocks`, or a share where few of `tiles` tiles are `busy` and what is
/// `kept` of shares fits memory. Two programs of each multiprocessor: one loads while the other computes.
pub fn blocks_of_program(
    chip: &Chip,
    blocks: usize,
    tiles: usize,
    busy: usize,
    kept: &[usize],
) -> usize {
    let processors = chip.multiprocessors();
    let is_split =
        blocks > WALKED && tiles <= MAX_GRID_YZ && busy * 4 < processors * 3 && may_be_kept(kept);
    if is_split { (blocks * busy).div_ceil(2 * processors).max(1) } else { blocks }
}

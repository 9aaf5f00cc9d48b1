//! The loops of convolutions, written for any vectors.
//!
//! The two products hold a block of sums in registers while they walk along what is summed. rustc compiles
//! all of them once for each width of vectors; which one runs is found when the program runs, so that one
//! binary serves every x86 processor.

use std::ops::Range;
use std::sync::OnceLock;

use super::lanes::{Lanes, Plain};

/// The most vectors of one tile, next to each other.
pub(super) const WIDE: usize = 3;
/// Vectors of channels in one tile of the gradient of weights, at most.
pub(super) const CHANNEL_VECTORS: usize = 2;
/// Bytes of the widest vector.
const VECTOR_BYTES: usize = 64;
/// The most channels of one tile of the result.
const CHANNELS: usize = 8;

/// Positions that lie next to each other in the result; those of a tile are in one vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The first, in the tile.
    pub at: usize,
    /// How many.
    pub n: usize,
    /// Where the first goes, in a channel of the result.
    pub to: usize,
}

/// A tile of the result: `M` channels of up to `WIDE` vectors of positions.
pub(super) struct Tile<'t, T> {
    /// What the first position sees at offset 0.
    pub seen: *const T,
    /// Where each of what is summed lies beyond that.
    pub offsets: &'t [usize],
    /// For each of those the weights of the `M` channels.
    pub weights: *const T,
    /// What sums start from: one number a channel, or null for zeros.
    pub bias: *const T,
    /// The first of the result's channels, and how far apart they are.
    pub to: *mut T,
    pub channel: usize,
    /// Which positions are wanted, and how far apart neighbours are in the result.
    pub runs: &'t [Run],
    pub step: usize,
}

/// A tile of the gradient of weights: so many places of windows by a few vectors of channels.
pub(super) struct Weights<'t, T> {
    /// The gradient of the result, the channels of a position next to each other.
    pub dy: *const T,
    /// What position 0 of the grid sees at offset 0.
    pub seen: *const T,
    /// Where places lie beyond that.
    pub offsets: &'t [usize],
    /// Lines of positions: the first in the grid, and how many.
    pub lines: &'t [(usize, usize)],
    /// The sums: for each place its channels.
    pub sums: *mut T,
}

/// Rows of an image, and where they go: among zeros.
pub(super) struct Rows<T> {
    /// The first of the elements of the first row, which are neighbours; how far apart rows are, and how
    /// many there are.
    pub from: *const T,
    pub row: isize,
    pub rows: usize,
    /// The first of the first row's cells, and how many each row has; the next row follows.
    pub to: *mut T,
    pub width: usize,
    /// Which of the cells of a row are elements.
    pub inside: Range<usize>,
}

/// Positions of channels, and where they go: the channels of a position next to each other.
pub(super) struct Turn<T> {
    /// The first position of the first channel, how far apart channels are, and how many.
    pub from: *const T,
    pub channel: isize,
    pub channels: usize,
    /// How many positions there are, next to each other.
    pub positions: usize,
    /// For each of these so many numbers: the channels, then zeros.
    pub to: *mut T,
    pub width: usize,
}

/// A loop over one tile of the result.
type TileLoop<T> = unsafe fn(&Tile<'_, T>);
/// A loop over one tile of the gradient of weights.
type WeightLoop<T> = unsafe fn(&Weights<'_, T>);
/// A loop over rows of an image.
type RowLoop<T> = unsafe fn(&Rows<T>);
/// A loop over positions of channels.
type TurnLoop<T> = unsafe fn(&Turn<T>);

/// The loops for this processor.
pub(super) struct Loops<T> {
    /// Numbers of a vector.
    pub lanes: usize,
    /// The most channels of a tile: 8 with 32 registers, 4 with 16.
    pub channels: usize,
    /// Places of a tile of weights.
    pub places: usize,
    /// By the logarithm of channels, and vectors less one.
    tiles: [[TileLoop<T>; WIDE]; 4],
    /// By vectors of channels, less one.
    weights: [WeightLoop<T>; CHANNEL_VECTORS],
    /// Copies rows.
    pub rows: RowLoop<T>,
    /// Puts the channels of each position next to each other.
    pub turn: TurnLoop<T>,
}

impl<T> Loops<T> {
    /// The loop over a tile of 1, 2, 4 or 8 channels of so many vectors.
    pub(super) fn tile(&self, channels: usize, vectors: usize) -> TileLoop<T> {
        assert!(channels <= self.channels, "a tile of {channels} channels does not fit");
        self.tiles[channels.ilog2() as usize][vectors - 1]
    }

    /// The loop over a tile of weights.
    pub(super) fn weights(&self, vectors: usize) -> WeightLoop<T> {
        self.weights[vectors - 1]
    }
}

/// A number that convolutions are computed in.
pub(super) trait Number: Copy + Send + Sync + std::ops::AddAssign + 'static {
    const ZERO: Self;
    /// The loops that the processor that runs this has, the fastest first.
    fn widths() -> &'static [Loops<Self>];
}

/// The loops of one width of vectors, with the processor's features that they need.
macro_rules! loops {
    ($lanes:ty, $most:expr, $places:literal, $(#[$feature:meta])?) => {{
        $(#[$feature])?
        unsafe fn tile_of<L: Lanes, const M: usize, const V: usize>(job: &Tile<'_, L::Of>) {
            // SAFETY: the caller's promise is the same.
            unsafe { tile::<L, M, V>(job) }
        }
        $(#[$feature])?
        unsafe fn weights_of<L: Lanes, const R: usize, const V: usize>(job: &Weights<'_, L::Of>) {
            // SAFETY: the caller's promise is the same.
            unsafe { weights::<L, R, V>(job) }
        }
        $(#[$feature])?
        unsafe fn rows_of<L: Lanes>(job: &Rows<L::Of>) {
            // SAFETY: the caller's promise is the same.
            unsafe { rows::<L>(job) }
        }
        $(#[$feature])?
        unsafe fn turn_of<L: Lanes>(job: &Turn<L::Of>) {
            // SAFETY: the caller's promise is the same.
            unsafe { turn::<L>(job) }
        }
        type L = $lanes;
        Loops {
            lanes: L::N,
            channels: $most,
            places: $places,
            tiles: [
                [tile_of::<L, 1, 1>, tile_of::<L, 1, 2>, tile_of::<L, 1, 3>],
                [tile_of::<L, 2, 1>, tile_of::<L, 2, 2>, tile_of::<L, 2, 3>],
                [tile_of::<L, 4, 1>, tile_of::<L, 4, 2>, tile_of::<L, 4, 3>],
                [tile_of::<L, { $most }, 1>, tile_of::<L, { $most }, 2>, tile_of::<L, { $most }, 3>],
            ],
            weights: [weights_of::<L, $places, 1>, weights_of::<L, $places, 2>],
            rows: rows_of::<L>,
            turn: turn_of::<L>,
        }
    }};
}

macro_rules! number {
    ($of:ty, $widest:ident, $wide:ident) => {
        impl Number for $of {
            const ZERO: $of = 0.0;

            fn widths() -> &'static [Loops<$of>] {
                static WIDTHS: OnceLock<Vec<Loops<$of>>> = OnceLock::new();
                WIDTHS.get_or_init(|| {
                    let mut widths = Vec::new();
                    #[cfg(target_arch = "x86_64")]
                    {
                        use std::arch::x86_64::{$wide, $widest};
                        if is_x86_feature_detected!("avx512f") {
                            widths.push(
                                loops!($widest, CHANNELS, 12, #[target_feature(enable = "avx512f")]),
                            );
                        }
                        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                            widths.push(
                                loops!($wide, 4, 6, #[target_feature(enable = "avx2,fma")]),
                            );
                        }
                    }
                    widths.push(loops!(Plain<$of>, 4, 6,));
                    widths
                })
            }
        }
    };
}

number!(f32, __m512, __m256);
number!(f64, __m512d, __m256d);

/// Memory on the stack for the sums of a tile.
#[repr(align(64))]
struct Sums(std::mem::MaybeUninit<[u8; CHANNELS * WIDE * VECTOR_BYTES]>);

/// # Safety
/// The processor runs `L`. All addresses of the job are of live memory: what is seen for `V` vectors from
/// each offset on, the weights, the bias, and what the runs name of `M` channels of the result, which
/// nothing else uses.
#[inline(always)]
unsafe fn tile<L: Lanes, const M: usize, const V: usize>(job: &Tile<'_, L::Of>) {
    let Tile { weights, bias, to, channel, runs, step, .. } = *job;
    // SAFETY: each access below is one that the caller allows.
    unsafe {
        let zero = L::splat(std::mem::zeroed());
        let mut sums = [[zero; V]; M];
        if !bias.is_null() {
            for (m, sums) in sums.iter_mut().enumerate() {
                *sums = [L::splat(*bias.add(m)); V];
            }
        }
        let mut weight = weights;
        for &offset in job.offsets {
            let from = job.seen.add(offset);
            let mut seen = [zero; V];
            for (v, seen) in seen.iter_mut().enumerate() {
                *seen = L::load(from.add(v * L::N));
            }
            for (m, sums) in sums.iter_mut().enumerate() {
                let by = L::splat(*weight.add(m));
                for (sum, &seen) in sums.iter_mut().zip(&seen) {
                    *sum = sum.add_product(by, seen);
                }
            }
            weight = weight.add(M);
        }
        // Through memory, since which vector a run is in is not known when this is compiled.
        let mut memory = Sums(std::mem::MaybeUninit::uninit());
        let all: *mut L::Of = memory.0.as_mut_ptr().cast();
        let at = |m: usize, v: usize| all.add((m * V + v) * L::N);
        for (m, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                sum.store(at(m, v));
            }
        }
        for run in runs {
            let (v, first) = (run.at / L::N, run.at % L::N);
            if step == 1 {
                let (mask, to) = (L::mask(first, run.n), to.add(run.to).wrapping_sub(first));
                for m in 0..M {
                    L::load(at(m, v)).store_some(to.wrapping_add(m * channel), mask);
                }
                continue;
            }
            for m in 0..M {
                for i in 0..run.n {
                    *to.add(m * channel + run.to + i * step) = *at(m, v).add(first + i);
                }
            }
        }
    }
}

/// # Safety
/// The processor runs `L`. The elements of the rows are live memory, and so are the cells, which nothing
/// else uses.
#[inline(always)]
unsafe fn rows<L: Lanes>(job: &Rows<L::Of>) {
    let Rows { from, row, rows, to, width, .. } = *job;
    for first in (0..width).step_by(L::N) {
        let n = (width - first).min(L::N);
        let inside = [job.inside.start, job.inside.end].map(|at| at.max(first).min(first + n));
        let from = from.wrapping_add(first).wrapping_sub(job.inside.start);
        // SAFETY: the masks name elements and cells of a row only.
        unsafe {
            let elements = L::mask(inside[0] - first, inside[1] - inside[0]);
            let cells = L::mask(0, n);
            for r in 0..rows {
                let own = L::load_some(from.wrapping_offset(r as isize * row), elements);
                own.store_some(to.add(r * width + first), cells);
            }
        }
    }
}

/// # Safety
/// The processor runs `L`. The positions are live memory, and so is where they go, which nothing else uses.
#[inline(always)]
unsafe fn turn<L: Lanes>(job: &Turn<L::Of>) {
    let Turn { from, channel, channels, positions, to, width } = *job;
    let [whole, block] = [channels, positions].map(|n| n / L::N * L::N);
    // SAFETY: each access below is one that the caller allows.
    unsafe {
        let one = |p: usize, o: usize| {
            *to.add(p * width + o) = *from.offset(o as isize * channel).add(p);
        };
        for p in (0..block).step_by(L::N) {
            for o in (0..whole).step_by(L::N) {
                let from = from.offset(o as isize * channel).add(p);
                L::turn(from, channel, to.add(p * width + o), width);
            }
        }
        for p in 0..positions {
            let rest = if p < block { whole } else { 0 };
            (rest..channels).for_each(|o| one(p, o));
            for o in channels..width {
                *to.add(p * width + o) = std::mem::zeroed();
            }
        }
    }
}

/// # Safety
/// The processor runs `L`. All addresses of the job are of live memory: `V` vectors of channels for each
/// position of the lines, what each place sees at them, and `R` by `V` vectors of sums, which nothing else
/// uses. There are `R` offsets.
#[inline(always)]
unsafe fn weights<L: Lanes, const R: usize, const V: usize>(job: &Weights<'_, L::Of>) {
    assert_eq!(job.offsets.len(), R, "a tile of weights has {R} places");
    // SAFETY: each access below is one that the caller allows.
    unsafe {
        let zero = L::splat(std::mem::zeroed());
        let mut sums = [[zero; V]; R];
        for (r, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                *sum = L::load(job.sums.add((r * V + v) * L::N));
            }
        }
        let mut dy = job.dy;
        let mut seen = [job.seen; R];
        for (seen, &offset) in seen.iter_mut().zip(job.offsets) {
            *seen = seen.add(offset);
        }
        for &(first, n) in job.lines {
            for at in first..first + n {
                let mut by = [zero; V];
                for (v, by) in by.iter_mut().enumerate() {
                    *by = L::load(dy.add(v * L::N));
                }
                for (sums, seen) in sums.iter_mut().zip(&seen) {
                    let seen = L::splat(*seen.add(at));
                    for (sum, &by) in sums.iter_mut().zip(&by) {
                        *sum = sum.add_product(seen, by);
                    }
                }
                dy = dy.add(V * L::N);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                sum.store(job.sums.add((r * V + v) * L::N));
            }
        }
    }
}

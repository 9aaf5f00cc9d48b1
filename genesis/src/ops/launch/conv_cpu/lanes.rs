//! Vectors of the processor, and the two loops of convolutions written for any of them.
//!
//! Both hold a block of sums in registers while they walk along what is summed. rustc compiles them once
//! for each width of vectors; which one runs is found when the program runs, so that one binary serves
//! every x86 processor.

use std::sync::OnceLock;

/// A vector of numbers.
///
/// # Safety
/// The processor has the instructions that its functions are made of, wherever they are called, and the
/// addresses are of [`Lanes::N`] numbers.
pub(super) unsafe trait Lanes: Copy {
    /// One number.
    type Of: Copy;
    /// How many there are.
    const N: usize;
    unsafe fn splat(value: Self::Of) -> Self;
    unsafe fn load(from: *const Self::Of) -> Self;
    unsafe fn store(self, to: *mut Self::Of);
    /// `self + a * b`
    unsafe fn add_product(self, a: Self, b: Self) -> Self;
}

/// Four numbers, for processors without wider vectors that we know.
#[derive(Clone, Copy)]
struct Plain<T>([T; 4]);

// SAFETY: plain Rust, which every processor runs.
unsafe impl<T: Copy + std::ops::Mul<Output = T> + std::ops::Add<Output = T>> Lanes for Plain<T> {
    type Of = T;
    const N: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Plain([value; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: there are four numbers at the address, says the caller; of any alignment.
        Plain(unsafe { from.cast::<[T; 4]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[T; 4]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, a: Self, b: Self) -> Self {
        Plain([0, 1, 2, 3].map(|i| self.0[i] + a.0[i] * b.0[i]))
    }
}

/// One vector type of x86: its width and its four instructions.
#[cfg(target_arch = "x86_64")]
macro_rules! lanes {
    ($vector:ident, $of:ty, $n:literal, $splat:ident, $load:ident, $store:ident, $fma:ident) => {
        // SAFETY: these instructions are of the feature that `Loops` is chosen by.
        unsafe impl Lanes for std::arch::x86_64::$vector {
            type Of = $of;
            const N: usize = $n;

            #[inline(always)]
            unsafe fn splat(value: $of) -> Self {
                // SAFETY: the caller checked the processor.
                unsafe { std::arch::x86_64::$splat(value) }
            }

            #[inline(always)]
            unsafe fn load(from: *const $of) -> Self {
                // SAFETY: so many numbers are at the address, says the caller, who checked the processor.
                unsafe { std::arch::x86_64::$load(from) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $of) {
                // SAFETY: as in `load`.
                unsafe { std::arch::x86_64::$store(to, self) }
            }

            #[inline(always)]
            unsafe fn add_product(self, a: Self, b: Self) -> Self {
                // SAFETY: the caller checked the processor.
                unsafe { std::arch::x86_64::$fma(a, b, self) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;

    lanes!(__m512, f32, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps);
    lanes!(__m512d, f64, 8, _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd);
    lanes!(__m256, f32, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps);
    lanes!(__m256d, f64, 4, _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_fmadd_pd);
}

/// The most vectors of one tile, next to each other.
pub(super) const WIDE: usize = 3;
/// Vectors of channels in one tile of the gradient of weights, at most.
pub(super) const CHANNEL_VECTORS: usize = 2;
/// Bytes of the widest vector.
const VECTOR_BYTES: usize = 64;

/// Positions of a tile that lie next to each other in the result.
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

/// A loop over one tile of the result.
type TileLoop<T> = unsafe fn(&Tile<'_, T>);
/// A loop over one tile of the gradient of weights.
type WeightLoop<T> = unsafe fn(&Weights<'_, T>);

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
    ($lanes:ty, $most:literal, $places:literal, $(#[$feature:meta])?) => {{
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
        type L = $lanes;
        Loops {
            lanes: L::N,
            channels: $most,
            places: $places,
            tiles: [
                [tile_of::<L, 1, 1>, tile_of::<L, 1, 2>, tile_of::<L, 1, 3>],
                [tile_of::<L, 2, 1>, tile_of::<L, 2, 2>, tile_of::<L, 2, 3>],
                [tile_of::<L, 4, 1>, tile_of::<L, 4, 2>, tile_of::<L, 4, 3>],
                [tile_of::<L, $most, 1>, tile_of::<L, $most, 2>, tile_of::<L, $most, 3>],
            ],
            weights: [weights_of::<L, $places, 1>, weights_of::<L, $places, 2>],
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
                                loops!($widest, 8, 12, #[target_feature(enable = "avx512f")]),
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

/// Numbers of a tile at most, for memory on the stack.
const TILE: usize = WIDE * VECTOR_BYTES / 4;

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
        let mut line = std::mem::MaybeUninit::<[L::Of; TILE]>::uninit();
        let line: *mut L::Of = line.as_mut_ptr().cast();
        for (m, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                sum.store(line.add(v * L::N));
            }
            let to = to.add(m * channel);
            for run in runs {
                put::<L>(line.add(run.at), to.add(run.to), run.n, step);
            }
        }
    }
}

/// Copies `n` numbers to places so far apart.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn put<L: Lanes>(from: *const L::Of, to: *mut L::Of, n: usize, step: usize) {
    // SAFETY: the caller allows these accesses; a vector is only used where all of it is in range.
    unsafe {
        if step != 1 {
            for i in 0..n {
                *to.add(i * step) = *from.add(i);
            }
        } else if n >= L::N {
            let mut i = 0;
            while i + L::N <= n {
                L::load(from.add(i)).store(to.add(i));
                i += L::N;
            }
            // The last vector overlaps the one before.
            L::load(from.add(n - L::N)).store(to.add(n - L::N));
        } else {
            std::ptr::copy_nonoverlapping(from, to, n);
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

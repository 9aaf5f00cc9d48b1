//! The loops of convolutions, written for any vectors.
//!
//! The two products hold a block of sums in registers while they walk along what is summed. rustc compiles
//! all of them once for each width of vectors; which one runs is found when the program runs, so that one
//! binary serves every x86 processor.
//!
//! Slices are checked once for each vector that is loaded, or each position, beside a dozen multiplications.

use std::ops::Range;
use std::sync::OnceLock;

use pulp::NullaryFnOnce;

use super::lanes::{Element, Lanes, Lines, Plain, copy, load, store};

/// The most vectors of one tile, next to each other.
pub(super) const WIDE: usize = 3;
/// Vectors of channels in one tile of the gradient of weights, at most.
pub(super) const CHANNEL_VECTORS: usize = 2;
/// The most channels of one tile of the result: with 32 registers, and with 16.
const CHANNELS: [usize; 2] = [8, 4];
/// Places of a tile of the gradient of weights, in the same way.
const PLACES: [usize; 2] = [12, 6];

/// Positions that lie next to each other in the result; those of a tile are in one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first, in the tile.
    pub at: usize,
    /// How many.
    pub n: usize,
    /// Where the first goes, in a channel of the result.
    pub to: usize,
}

/// A tile of the result: 1, 2, 4 or 8 channels of up to `WIDE` vectors of positions.
pub(super) struct Tile<'t, 'y, T> {
    /// What the first position sees at offset 0, and what follows.
    pub seen: &'t [T],
    /// Where each of what is summed lies beyond that.
    pub offsets: &'t [usize],
    /// For each of those the weights of the channels.
    pub weights: &'t [T],
    /// What sums start from: one number a channel, or zeros.
    pub bias: Option<&'t [T]>,
    /// The channels of the result, of which each has its runs.
    pub to: &'t mut [&'y mut [T]],
    /// Which positions are wanted, and how far apart neighbours are in the result.
    pub runs: &'t [Run],
    pub step: usize,
    /// Whether what follows a run in the result is made after it, so that it may be written meanwhile.
    pub is_in_order: bool,
}

/// A tile of the gradient of weights: so many places of windows by a few vectors of channels.
pub(super) struct Weights<'t, T> {
    /// The gradient of the result, as vectors lie: the channels of a position next to each other.
    pub dy: &'t [T],
    /// What position 0 of the grid sees at offset 0, and what follows.
    pub seen: &'t [T],
    /// Where places lie beyond that.
    pub offsets: &'t [usize],
    /// Lines of positions: the first in the grid, and how many.
    pub lines: &'t [(usize, usize)],
    /// The sums, as vectors lie: for each place its channels.
    pub sums: &'t mut [T],
}

/// A tile of the gradient of weights of one channel of the result: so many places of windows.
pub(super) struct Dots<'t, T> {
    /// The gradient of the result on the grid, zero where no window is: a number of vectors.
    pub dy: &'t [T],
    /// What position 0 of the grid sees at offset 0, and what follows.
    pub seen: &'t [T],
    /// Where places lie beyond that.
    pub offsets: &'t [usize],
    /// For each place a vector, the sum of which is the place's.
    pub sums: &'t mut [T],
}

/// Rows of an image, and where they go: among zeros.
pub(super) struct Rows<'t, T> {
    /// The rows, from the first element that is looked at.
    pub from: Lines<'t, T>,
    pub rows: usize,
    /// The cells, so many for each row.
    pub to: &'t mut [T],
    pub width: usize,
    /// Which of the cells of a row are elements.
    pub inside: Range<usize>,
}

/// Positions of channels, and where they go: the channels of a position next to each other.
pub(super) struct Turn<'t, T> {
    /// The positions of each channel.
    pub from: Lines<'t, T>,
    pub channels: usize,
    /// How many positions there are, next to each other.
    pub positions: usize,
    /// For each of these so many numbers: the channels, then zeros.
    pub to: &'t mut [T],
    pub width: usize,
}

/// The loops for one kind of processor.
pub(super) trait Loops<T>: Send + Sync {
    /// Numbers of a vector.
    fn lanes(&self) -> usize;
    /// The most channels of a tile.
    fn channels(&self) -> usize;
    /// Places of a tile of weights.
    fn places(&self) -> usize;
    /// Sums a tile of the result, of so many vectors.
    fn tile(&self, vectors: usize, job: Tile<'_, '_, T>);
    /// Adds to a tile of the gradient of weights, of so many vectors of channels.
    fn weights(&self, vectors: usize, job: Weights<'_, T>);
    /// Adds to a tile of the gradient of weights of one channel.
    fn dots(&self, job: Dots<'_, T>);
    /// Copies rows.
    fn rows(&self, job: Rows<'_, T>);
    /// Puts the channels of each position next to each other.
    fn turn(&self, job: Turn<'_, T>);
}

impl<T: Number, L: Lanes<T>> Loops<T> for L {
    fn lanes(&self) -> usize {
        L::N
    }

    fn channels(&self) -> usize {
        CHANNELS[usize::from(L::REGISTERS < 32)]
    }

    fn places(&self) -> usize {
        PLACES[usize::from(L::REGISTERS < 32)]
    }

    fn tile(&self, vectors: usize, job: Tile<'_, '_, T>) {
        let lanes = *self;
        match (job.to.len(), vectors) {
            (1, 1) => lanes.run(TileLoop::<T, L, 1, 1> { lanes, job }),
            (1, 2) => lanes.run(TileLoop::<T, L, 1, 2> { lanes, job }),
            (1, 3) => lanes.run(TileLoop::<T, L, 1, 3> { lanes, job }),
            (2, 1) => lanes.run(TileLoop::<T, L, 2, 1> { lanes, job }),
            (2, 2) => lanes.run(TileLoop::<T, L, 2, 2> { lanes, job }),
            (2, 3) => lanes.run(TileLoop::<T, L, 2, 3> { lanes, job }),
            (4, 1) => lanes.run(TileLoop::<T, L, 4, 1> { lanes, job }),
            (4, 2) => lanes.run(TileLoop::<T, L, 4, 2> { lanes, job }),
            (4, 3) => lanes.run(TileLoop::<T, L, 4, 3> { lanes, job }),
            (8, 1) => lanes.run(TileLoop::<T, L, 8, 1> { lanes, job }),
            (8, 2) => lanes.run(TileLoop::<T, L, 8, 2> { lanes, job }),
            (8, 3) => lanes.run(TileLoop::<T, L, 8, 3> { lanes, job }),
            (channels, _) => panic!("no tile has {channels} channels of {vectors} vectors"),
        }
    }

    fn weights(&self, vectors: usize, job: Weights<'_, T>) {
        let lanes = *self;
        match (L::REGISTERS < 32, vectors) {
            (false, 1) => lanes.run(WeightLoop::<T, L, { PLACES[0] }, 1> { lanes, job }),
            (false, 2) => lanes.run(WeightLoop::<T, L, { PLACES[0] }, 2> { lanes, job }),
            (true, 1) => lanes.run(WeightLoop::<T, L, { PLACES[1] }, 1> { lanes, job }),
            (true, 2) => lanes.run(WeightLoop::<T, L, { PLACES[1] }, 2> { lanes, job }),
            _ => panic!("no tile of weights has {vectors} vectors"),
        }
    }

    fn dots(&self, job: Dots<'_, T>) {
        let lanes = *self;
        match L::REGISTERS < 32 {
            false => lanes.run(DotLoop::<T, L, { PLACES[0] }> { lanes, job }),
            true => lanes.run(DotLoop::<T, L, { PLACES[1] }> { lanes, job }),
        }
    }

    fn rows(&self, job: Rows<'_, T>) {
        self.run(RowLoop(job));
    }

    fn turn(&self, job: Turn<'_, T>) {
        self.run(TurnLoop { lanes: *self, job });
    }
}

/// A number that convolutions are computed in.
pub(super) trait Number: Element {
    /// The loops that the processor that runs this has, the fastest first.
    fn widths() -> &'static [Box<dyn Loops<Self>>];
}

macro_rules! number {
    ($of:ty) => {
        impl Number for $of {
            fn widths() -> &'static [Box<dyn Loops<$of>>] {
                static WIDTHS: OnceLock<Vec<Box<dyn Loops<$of>>>> = OnceLock::new();
                WIDTHS.get_or_init(|| {
                    let mut widths: Vec<Box<dyn Loops<$of>>> = Vec::new();
                    #[cfg(target_arch = "x86_64")]
                    {
                        use pulp::x86::{V3, V4};
                        if let Some(v4) = V4::try_new() {
                            widths.push(Box::new(v4));
                        }
                        if let Some(v3) = V3::try_new() {
                            widths.push(Box::new(v3));
                        }
                    }
                    widths.push(Box::new(Plain));
                    widths
                })
            }
        }
    };
}

number!(f32);
number!(f64);

/// [`Loops::tile`] of `M` channels and `V` vectors.
struct TileLoop<'t, 'y, T, L, const M: usize, const V: usize> {
    lanes: L,
    job: Tile<'t, 'y, T>,
}

impl<T: Number, L: Lanes<T>, const M: usize, const V: usize> NullaryFnOnce
    for TileLoop<'_, '_, T, L, M, V>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let TileLoop { lanes, job } = self;
        let mut sums = [[lanes.splat(T::ZERO); V]; M];
        if let Some(bias) = job.bias {
            for (sums, &bias) in sums.iter_mut().zip(bias) {
                *sums = [lanes.splat(bias); V];
            }
        }
        for (&offset, weights) in job.offsets.iter().zip(job.weights.as_chunks::<M>().0) {
            let from = &job.seen[offset..][..V * L::N];
            let mut seen = [lanes.splat(T::ZERO); V];
            for (v, seen) in seen.iter_mut().enumerate() {
                *seen = load(&from[v * L::N..][..L::N]);
            }
            for (sums, &by) in sums.iter_mut().zip(weights) {
                let by = lanes.splat(by);
                for (sum, &seen) in sums.iter_mut().zip(&seen) {
                    *sum = lanes.add_product(*sum, by, seen);
                }
            }
        }
        // A copy, since which vector a run is in is not known when this is compiled.
        let memory = sums;
        for (to, sums) in job.to.iter_mut().zip(&memory) {
            let (to, numbers) = (&mut **to, bytemuck::cast_slice::<L::Vector, T>(sums));
            if job.is_in_order && L::SKIPS {
                for run in job.runs {
                    let (v, first) = (run.at / L::N, run.at % L::N);
                    match to.get_mut(run.to..run.to + L::N) {
                        Some(to) => store(to, lanes.skip(sums[v], first)),
                        None => put(run, numbers, to),
                    }
                }
                continue;
            }
            for run in job.runs {
                let (own, to) = (&numbers[run.at..][..run.n], &mut to[run.to..]);
                match job.step {
                    1 => copy(own, &mut to[..run.n]),
                    step => to.iter_mut().step_by(step).zip(own).for_each(|(to, &sum)| *to = sum),
                }
            }
        }
    }
}

/// Writes the positions of one run, which few are: those at the end of a channel.
#[inline(never)]
fn put<T: Copy>(run: &Run, sums: &[T], to: &mut [T]) {
    to[run.to..][..run.n].copy_from_slice(&sums[run.at..][..run.n]);
}

/// [`Loops::rows`].
struct RowLoop<'t, T>(Rows<'t, T>);

impl<T: Number> NullaryFnOnce for RowLoop<'_, T> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Rows { from, rows, to, width, inside } = self.0;
        if inside.len() == width && from.apart == width as isize {
            return to.copy_from_slice(from.row(0, rows * width));
        }
        if inside.len() < width {
            to.fill(T::ZERO);
        }
        if !inside.is_empty() {
            for (r, to) in to.chunks_exact_mut(width).enumerate() {
                copy(from.row(r, inside.len()), &mut to[inside.clone()]);
            }
        }
    }
}

/// [`Loops::turn`].
struct TurnLoop<'t, T, L> {
    lanes: L,
    job: Turn<'t, T>,
}

impl<T: Number, L: Lanes<T>> NullaryFnOnce for TurnLoop<'_, T, L> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let TurnLoop { lanes, job: Turn { from, channels, positions, to, width } } = self;
        for p in (0..positions).step_by(L::N) {
            let n = (positions - p).min(L::N);
            let block = &mut to[p * width..][..n * width];
            if channels < width {
                block.fill(T::ZERO);
            }
            let whole = if n == L::N { channels / L::N * L::N } else { 0 };
            for o in (0..whole).step_by(L::N) {
                lanes.turn(from.from(o, p), &mut block[o..], width);
            }
            for o in whole..channels {
                let row = from.from(o, p).row(0, n);
                for (to, &number) in block[o..].iter_mut().step_by(width).zip(row) {
                    *to = number;
                }
            }
        }
    }
}

/// [`Loops::weights`] of `R` places and `V` vectors of channels.
struct WeightLoop<'t, T, L, const R: usize, const V: usize> {
    lanes: L,
    job: Weights<'t, T>,
}

impl<T: Number, L: Lanes<T>, const R: usize, const V: usize> NullaryFnOnce
    for WeightLoop<'_, T, L, R, V>
{
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let WeightLoop { lanes, job } = self;
        let offsets: &[usize; R] = job.offsets.try_into().expect("a tile of weights has R places");
        let kept = bytemuck::cast_slice_mut::<T, L::Vector>(job.sums).as_chunks_mut::<V>().0;
        let kept: &mut [[L::Vector; V]; R] = kept.try_into().expect("it has as many sums");
        // A copy stays in registers, whatever the loops around it are.
        let mut sums = *kept;
        // All of one length, so that one check of a position is that of all places.
        let end = job.lines.last().map_or(0, |(first, n)| first + n);
        let mut seen = [&job.seen[..end]; R];
        for (seen, &offset) in seen.iter_mut().zip(offsets) {
            *seen = &job.seen[offset..][..end];
        }
        let mut dy = bytemuck::cast_slice::<T, L::Vector>(job.dy).as_chunks::<V>().0;
        for &(first, n) in job.lines {
            let (by, rest) = dy.split_at(n);
            for (at, by) in (first..first + n).zip(by) {
                for (sums, seen) in sums.iter_mut().zip(&seen) {
                    let seen = lanes.splat(seen[at]);
                    for (sum, &by) in sums.iter_mut().zip(by) {
                        *sum = lanes.add_product(*sum, seen, by);
                    }
                }
            }
            dy = rest;
        }
        *kept = sums;
    }
}

/// [`Loops::dots`] of `R` places.
struct DotLoop<'t, T, L, const R: usize> {
    lanes: L,
    job: Dots<'t, T>,
}

impl<T: Number, L: Lanes<T>, const R: usize> NullaryFnOnce for DotLoop<'_, T, L, R> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let DotLoop { lanes, job } = self;
        let offsets: &[usize; R] = job.offsets.try_into().expect("a tile of weights has R places");
        let kept = bytemuck::cast_slice_mut::<T, L::Vector>(job.sums);
        let kept: &mut [L::Vector; R] = kept.try_into().expect("it has as many sums");
        let mut sums = *kept;
        // All of one length, so that one check of a position is that of all places.
        let n = job.dy.len();
        let mut seen = [&job.seen[..n]; R];
        for (seen, &offset) in seen.iter_mut().zip(offsets) {
            *seen = &job.seen[offset..][..n];
        }
        for at in (0..n).step_by(L::N) {
            let by = load(&job.dy[at..][..L::N]);
            for (sum, seen) in sums.iter_mut().zip(&seen) {
                *sum = lanes.add_product(*sum, load(&seen[at..][..L::N]), by);
            }
        }
        *kept = sums;
    }
}

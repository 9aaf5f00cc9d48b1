//! Launches of convolutions whose tiles are boxes of the input, brought by the copy engine.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::tuning::Chip;
use kernels::conv as device;

use super::super::convolution::Convolution;
use super::super::{accumulate_dtype, config, launch_as, own_view};
use super::job::{Job, Walk, bias, integers, looks, share, taps};
use crate::error::Result;
use crate::tensor::Tensor;

/// Channels of each side from which on tiles of tensor cores are not mostly empty.
const LEAST: usize = 48;
/// Elements that are summed in a step: 128 bytes of 16-bit floats.
const STEP: usize = 64;

/// A tile of the result: channels, and a box of images, rows and columns of positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    pub channels: usize,
    pub images: usize,
    pub rows: usize,
    pub columns: usize,
    pub warps: u32,
    pub stages: u32,
}

/// Channels and positions of a tile, warps, stages that fill shared memory, and how fast it is beside one of 128 by 128.
/// What bounds it is what the second-level cache brings: a byte of an operand of a larger tile is multiplied more often. Two
/// sets of four warps take turns at tiles of 128 by 128 or as many sums, so that one multiplies while the other stores.
///
/// On an H200 with bf16, 64 images of 512 channels of 28 by 28 by windows of 3 by 3, copies included, in us: 256 by 128 455,
/// 128 by 256 475, 128 by 128 550.
const TILES: [(usize, usize, u32, u32, f64); 5] = [
    (256, 128, 8, 4, 1.2),
    (128, 256, 8, 4, 1.15),
    (128, 128, 4, 6, 1.0),
    (64, 256, 4, 5, 0.85),
    (64, 128, 4, 7, 0.75),
];

/// Whether boxes of `x` can be brought, and fill tiles.
pub(super) fn suits(job: &Job, x: &Tensor) -> bool {
    let is_half = matches!(x.dtype(), DType::F16 | DType::BF16);
    let fits = job.groups == 1 && job.summed >= LEAST && job.summed.is_multiple_of(8);
    let brings = || match config::chip(x.device()) {
        Chip::Gpu { features, .. } => features.tma_feeds_mma(),
        Chip::Cpu => false,
    };
    is_half && fits && job.made >= LEAST && job.moves_by_one() && brings()
}

/// Images of a box, at most.
const MOST_IMAGES: usize = 8;
/// Columns of a box of the result, at least, which a store takes at once.
const STORED: usize = 8;

/// The box of so many positions, `least` columns or more, that leaves the fewest of a tile unused, and how many tiles there are.
///
/// On an H200 with bf16, 64 images of 64 channels of 56 by 56, in us: 32 rows of 8 columns 43, 4 of
/// 64 44, 16 of 16, which leave a quarter unused, 49.
fn boxed(
    positions: usize,
    least: usize,
    batch: usize,
    [height, width]: [usize; 2],
) -> ([usize; 3], usize) {
    let powers = |most: usize| (0..=most.ilog2()).map(|n| 1 << n);
    let columns = powers(positions).filter(|&n| n >= least && n < 2 * width.max(least));
    let all = columns.flat_map(|columns| {
        let left = positions / columns;
        let all = powers(left).map(move |rows| [left / rows, rows, columns]);
        all.filter(|[images, ..]| *images <= MOST_IMAGES)
    });
    let tiles = |&[images, rows, columns]: &[usize; 3]| {
        batch.div_ceil(images) * height.div_ceil(rows) * width.div_ceil(columns)
    };
    // Of equal ones that of the fewest images and columns.
    let best = all.min_by_key(|tile| (tiles(tile), tile[0], tile[2]));
    let best = best.unwrap_or([1, positions / least, least]);
    (best, tiles(&best))
}

/// The tile that a convolution is expected to be fastest in, on so many multiprocessors.
fn tile(job: &Job, [depth, down, across]: &[Walk; 3], multiprocessors: usize) -> Tile {
    let plan = |(channels, positions, warps, stages, speed): (usize, usize, u32, u32, f64)| {
        let ([images, rows, columns], tiles) =
            boxed(positions, STORED, job.batch, [down.count, across.count]);
        let tiles = tiles * depth.count * job.made.div_ceil(channels);
        let waves = tiles.div_ceil(multiprocessors);
        let us = (waves * channels * positions) as f64 / speed;
        (us, Tile { channels, images, rows, columns, warps, stages })
    };
    let all = TILES.map(plan);
    all.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or(plan(TILES[2]).1, |best| best.1)
}

/// A tensor of rank 5 as `[N, D, H, W, C]`, dense.
fn channels_last(x: &Tensor) -> Result<Tensor> {
    x.permute(&[0, 2, 3, 4, 1])?.contiguous()
}

/// The result, or the gradient of the input.
pub(super) fn run(job: &Job, inputs: &[&Tensor], y: &Tensor) -> Result<()> {
    let multiprocessors = config::multiprocessors(y.device());
    in_tiles(job, |walks| tile(job, walks, multiprocessors), inputs, y)
}

/// [`run`] in tiles of one's choice.
pub(super) fn in_tiles(
    job: &Job,
    tile: impl Fn(&[Walk; 3]) -> Tile,
    inputs: &[&Tensor],
    y: &Tensor,
) -> Result<()> {
    let weight = job.weight(inputs[1])?; // [1, made, summed, kernel]
    let weight = weight.squeeze(0)?.permute(&[2, 0, 1])?.contiguous()?;
    let x = channels_last(inputs[0])?;
    for walks in &job.launches {
        let Tile { channels, images, rows, columns, warps, stages } = tile(walks);
        let mut args = vec![own_view(&weight, false), own_view(&x, false), bias(inputs)];
        args.push(job.own(y, walks)?);
        args.extend(integers(taps(walks).chain(looks(walks)).chain(job.numbers(walks))));
        let [depth, down, across] = walks.map(|walk| walk.count);
        let boxes = job.batch.div_ceil(images) * down.div_ceil(rows) * across.div_ceil(columns);
        let grid = Grid::x(boxes * depth * job.made.div_ceil(channels));
        let sizes = [channels, images * rows * columns, STEP, images, rows, columns];
        let options = LaunchOptions {
            num_warps: Some(warps),
            num_stages: Some(stages),
            ..LaunchOptions::default()
        };
        let (consts, dtypes) = (sizes.map(|n| n as i64), [y.dtype(), accumulate_dtype(y.dtype())]);
        launch_as(&device::conv_by_one::KERNEL, y, grid, &dtypes, &consts, options, &args)?;
    }
    Ok(())
}

/// The gradient of weights in parts `[parts, kernel, O, C]`.
pub(super) fn weights(shape: &Convolution, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let Convolution { batch, inputs, outputs, ref axes, .. } = *shape;
    let walks = axes.each_ref().map(Walk::of_result);
    let (x, dy) = (channels_last(x)?, channels_last(dy)?);
    let places = shape.places();
    let (rows, columns, warps, stages) = match inputs > 64 {
        true if outputs > 128 => (256, 128, 8, 4),
        true if outputs > 64 => (128, 128, 8, 6),
        _ => (64, 64, 4, 4),
    };
    let (boxed, steps) = boxed(STEP, 1, batch, [walks[1].count, walks[2].count]);
    let steps = steps * walks[0].count;
    let tiles = outputs.div_ceil(rows) * inputs.div_ceil(columns);
    let share = share(&x, 2, places * outputs * inputs, places * tiles, [steps, 1]);
    let parts = steps.div_ceil(share);
    let wide = accumulate_dtype(x.dtype());
    let sums = Tensor::uninitialized(&[parts * places, outputs, inputs], (wide, x.device()))?;
    let mut args = vec![own_view(&dy, false), own_view(&x, false), own_view(&sums, true)];
    let numbers = [share as i64].into_iter().chain(taps(&walks)).chain(looks(&walks));
    args.extend(integers(numbers));
    let options = LaunchOptions {
        num_warps: Some(warps),
        num_stages: Some(stages),
        ..LaunchOptions::default()
    };
    let [images, down, across] = boxed;
    let consts = [rows, columns, STEP, images, down, across].map(|n| n as i64);
    let grid = Grid::x(parts * places * tiles);
    let dtypes = [x.dtype(), wide];
    let kernel = &device::conv_by_one_weight::KERNEL;
    launch_as(kernel, &sums, grid, &dtypes, &consts, options, &args)?;
    sums.reshape(&[parts, places, outputs, inputs])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_fill_tiles() {
        let used = |positions, batch, [height, width]: [usize; 2]| {
            let ([images, rows, columns], tiles) = boxed(positions, STORED, batch, [height, width]);
            assert_eq!(images * rows * columns, positions);
            (batch * height * width) as f64 / (tiles * positions) as f64
        };
        for extent in [14, 28, 56, 112] {
            assert!(used(256, 64, [extent; 2]) > 0.87, "{extent}");
        }
        assert!(used(256, 16, [1, 4096]) > 0.99);
        assert_eq!(boxed(256, STORED, 64, [56, 56]).0, [4, 8, 8]);
        assert_eq!(boxed(256, STORED, 1, [56, 56]).0, [1, 32, 8]);
    }
}

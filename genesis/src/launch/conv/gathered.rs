//! Launches of convolutions whose operands are gathered, the channels last.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use kernels::conv_gathered as device;

use super::super::convolution::Convolution;
use super::super::{accumulate_dtype, cast, config, launch_as, own_view};
use super::job::{Job, Walk, bias, integers, looks, moves, share, taps};
use crate::error::Result;
use crate::tensor::Tensor;

/// Bytes that one load takes, at most.
const LOAD: usize = 16;

/// How the channels of a group lie, and how a side of a product is made of them and of taps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Lines {
    /// Channels with the zeros after them, and how many of them one load takes.
    channels: usize,
    load: usize,
    /// Taps of a step, and channels of a tap in it.
    taps: usize,
    each: usize,
}

impl Lines {
    /// Channels of `bytes` bytes and as many taps, for a side of a product of `side` elements; with taps as a
    /// whole if a step has several.
    fn of(channels: usize, bytes: usize, taps: usize, side: usize, whole: bool) -> Lines {
        let most = LOAD / bytes;
        let load = channels.next_power_of_two().min(most);
        let channels = channels.next_multiple_of(load);
        let powers = (load.ilog2()..=side.ilog2()).map(|n| 1_usize << n);
        let padded = |each: &usize| {
            let several = side / each;
            channels.next_multiple_of(*each) * taps.max(1).next_multiple_of(several)
        };
        let fits = |each: &usize| !whole || *each == side || *each >= channels;
        // Of equal ones that of the fewest taps.
        let each = powers.rev().filter(fits).min_by_key(padded).unwrap_or(side);
        Lines { channels, load, taps: side / each, each }
    }

    /// Steps over all taps and channels.
    fn steps(&self, taps: usize) -> usize {
        taps.div_ceil(self.taps) * self.channels.div_ceil(self.each)
    }
}

/// A tile: positions, channels, what is summed in a step, warps and stages.
#[derive(Clone, Copy)]
struct Tile {
    positions: usize,
    channels: usize,
    step: usize,
    warps: u32,
    stages: u32,
}

/// The tile for so many channels and positions of each of the groups.
fn tile(dtype: DType, channels: usize, positions: usize, groups: usize, processors: usize) -> Tile {
    let (least, most, step) = match dtype.bytes() {
        2 => (8, 128, 32),
        4 => (16, 128, 16),
        _ => (16, 32, 16),
    };
    let fit = |n: usize, least: usize, most: usize| n.next_power_of_two().clamp(least, most);
    let channels_of = fit(channels, least, most);
    let tiles = |positions_of: usize| {
        groups * channels.div_ceil(channels_of) * positions.div_ceil(positions_of)
    };
    let mut positions_of = if dtype == DType::F64 { 64 } else { 128 };
    while positions_of > 32 && tiles(positions_of) < processors {
        positions_of /= 2;
    }
    // A thread has 64 sums at most: what it gathers by takes registers too.
    let warps = if positions_of * channels_of >= 128 * 128 { 8 } else { 4 };
    let stages = if dtype.bytes() == 2 { 4 } else { 3 };
    Tile { positions: positions_of, channels: channels_of, step, warps, stages }
}

fn options(tile: &Tile) -> LaunchOptions {
    LaunchOptions {
        num_warps: Some(tile.warps),
        num_stages: Some(tile.stages),
        ..LaunchOptions::default()
    }
}

/// Dense, with zeros after the last axis up to `extent`.
fn padded(t: &Tensor, extent: usize) -> Result<Tensor> {
    let last = t.rank() - 1;
    let own = t.shape()[last];
    if own == extent {
        return t.contiguous();
    }
    let shape = [&t.shape()[..last], &[extent]].concat();
    let all = Tensor::zeros(&shape, (t.dtype(), t.device()))?;
    cast(t, &all.narrow(last as i64, 0, own)?)?;
    Ok(all)
}

/// A tensor `[N, groups * channels, D, H, W]` as `[N, D, H, W, groups * extent]`, dense.
fn channels_last(x: &Tensor, groups: usize, extent: usize) -> Result<Tensor> {
    let [n, all, depth, down, across] = [0, 1, 2, 3, 4].map(|axis| x.shape()[axis]);
    let shape = [n, depth, down, across, groups * extent];
    if all == groups * extent {
        return x.permute(&[0, 2, 3, 4, 1])?.contiguous();
    }
    let x = x.contiguous()?.reshape(&[n, groups, all / groups, depth * down * across])?;
    padded(&x.permute(&[0, 3, 1, 2])?, extent)?.reshape(&shape)
}

/// The result, or the gradient of the input.
pub(super) fn run(job: &Job, inputs: &[&Tensor], y: &Tensor) -> Result<()> {
    let (bytes, processors) = (y.dtype().bytes(), config::multiprocessors(y.device()));
    let of = |taps: usize, step: usize| Lines::of(job.summed, bytes, taps, step, false);
    let lines = of(job.places(), 32); // How channels lie depends on no step.
    let x = channels_last(inputs[0], job.groups, lines.channels)?;
    let weight = job.weight(inputs[1])?.permute(&[0, 1, 3, 2])?; // [groups, made, kernel, summed]
    let weight = padded(&weight, lines.channels)?;
    let weight = weight.reshape(&[job.groups, job.made, job.places() * lines.channels])?;
    for walks in &job.launches {
        let positions = job.batch * crate::shape::product(walks.iter().map(|walk| walk.count));
        let tile = tile(y.dtype(), job.made, positions, job.groups, processors);
        let lines = of(crate::shape::product(walks.iter().map(|walk| walk.taps)), tile.step);
        let mut args = vec![own_view(&weight, false), own_view(&x, false), bias(inputs)];
        args.push(job.own(y, walks)?);
        let numbers = [job.groups as i64, lines.channels as i64].into_iter().chain(taps(walks));
        let numbers = numbers.chain(moves(walks)).chain(looks(walks)).chain(job.numbers(walks));
        args.extend(integers(numbers));
        let sizes = [tile.positions, tile.channels, tile.step, lines.taps, lines.each, lines.load];
        let grid = positions.div_ceil(tile.positions) * job.made.div_ceil(tile.channels);
        let (grid, consts) = (Grid::x(grid * job.groups), sizes.map(|n| n as i64));
        let dtypes = [y.dtype(), accumulate_dtype(y.dtype())];
        launch_as(&device::conv::KERNEL, y, grid, &dtypes, &consts, options(&tile), &args)?;
    }
    Ok(())
}

/// The gradient of weights in parts `[parts, groups, O, kernel, C]`.
pub(super) fn weights(shape: &Convolution, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let Convolution { batch, groups, inputs, outputs, ref axes } = *shape;
    let (bytes, places) = (x.dtype().bytes(), shape.places());
    let (least, most) = if bytes == 8 { (16, 32) } else { (16, 64) };
    let fit = |n: usize| n.next_power_of_two().clamp(least, most);
    let columns = if places * inputs < most { fit(places * inputs) } else { most };
    let rows = fit(outputs);
    let lines = Lines::of(inputs, bytes, places, columns, true);
    let outs = Lines::of(outputs, bytes, 1, rows, true);
    let x = channels_last(x, groups, lines.channels)?;
    let dy = channels_last(dy, groups, outs.channels)?;
    let walks = axes.each_ref().map(Walk::of_result);
    let (wide, steps) = (accumulate_dtype(x.dtype()), lines.steps(places));
    let positions = batch * crate::shape::product(walks.iter().map(|walk| walk.count));
    let step = if bytes == 2 { 32 } else { 16 };
    let tiles = groups * outputs.div_ceil(rows) * steps;
    let size = groups * outputs * steps * columns;
    // A part sums some steps at least, or its store would be most of it.
    let share = step * share(&x, 4, size, tiles, [positions.div_ceil(step), 1]).max(8);
    let parts = positions.div_ceil(share);
    let sums =
        Tensor::uninitialized(&[parts * groups, outputs, steps * columns], (wide, x.device()))?;
    let mut args = vec![own_view(&dy, false), own_view(&x, false), own_view(&sums, true)];
    let numbers = [groups, outs.channels, lines.channels, share].map(|n| n as i64);
    let numbers = numbers.into_iter().chain(taps(&walks)).chain(moves(&walks));
    args.extend(integers(numbers.chain(looks(&walks))));
    let sizes = [rows, columns, step, lines.taps, lines.each, lines.load, outs.load];
    let (grid, consts) = (Grid::x(parts * tiles), sizes.map(|n| n as i64));
    let options =
        LaunchOptions { num_warps: Some(4), num_stages: Some(3), ..LaunchOptions::default() };
    let (dtypes, kernel) = ([x.dtype(), wide], &device::conv_weight::KERNEL);
    launch_as(kernel, &sums, grid, &dtypes, &consts, options, &args)?;
    // Columns are taps, with all channels of each.
    let all = places.next_multiple_of(lines.taps);
    let sums = sums.reshape(&[parts, groups, outputs, all, steps * columns / all])?;
    sums.narrow(3, 0, places)?.narrow(4, 0, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_few_zeros() {
        let of = |channels, taps| {
            let Lines { channels, load, taps, each } = Lines::of(channels, 2, taps, 32, false);
            [channels, load, taps, each]
        };
        assert_eq!(of(3, 49), [4, 4, 8, 4]);
        assert_eq!(of(8, 9), [8, 8, 4, 8]);
        assert_eq!(of(24, 9), [24, 8, 1, 32]);
        assert_eq!(of(24, 12), [24, 8, 4, 8]);
        assert_eq!(of(64, 9), [64, 8, 1, 32]);
        assert_eq!(of(17, 1), [24, 8, 1, 32]);
    }
}

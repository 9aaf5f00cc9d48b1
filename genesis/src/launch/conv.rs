//! Launches of convolutions: which kernel, in which tiles, on which views.

use genesis_kernel::ir::DType;
use genesis_kernel::kernel::{Grid, LaunchOptions};
use genesis_kernel::runtime::{Arg, Device};
use kernels::conv as device;

use super::axis::{Axis, Table, try_map};
use super::convolution::{Convolution, Part};
use super::window::places as sent;
use super::{accumulate_dtype, cast, config, launch_as, number, own_view, view};
use crate::dispatch::trace;
use crate::error::Result;
use crate::tensor::Tensor;

/// Writes one product of a convolution to `out`, which is fresh and not empty. Inputs have rank 5.
pub(crate) fn run(shape: &Convolution, part: Part, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
    trace::check_real("conv", &[out])?;
    match out.device() {
        Device::Cpu if !is_few(shape) => super::conv_cpu::run(shape, part, inputs, out),
        _ => by_kernels(shape, part, inputs, out),
    }
}

/// Channels of a group, of both sides together, below which tiles of a product would be empty.
const FEW: usize = 4;

fn is_few(shape: &Convolution) -> bool {
    shape.inputs + shape.outputs <= FEW && shape.groups > 1
}

/// [`run`] by kernels of the language.
pub(crate) fn by_kernels(
    shape: &Convolution,
    part: Part,
    inputs: &[&Tensor],
    out: &Tensor,
) -> Result<()> {
    let (a, b) = (inputs[0], inputs[1]);
    if part == Part::Weight {
        return weights(shape, b, a, out);
    }
    let job = Job::of(shape, part);
    let weight = by_place(shape, part, b)?; // [groups * places, O, C]
    let bias = match inputs.get(2) {
        Some(bias) => own_view(bias, false),
        None => view(&weight, &[0], &[1], false),
    };
    if let Some(tile) = job.tile_by_one(a) {
        return by_one(&job, tile, &weight, a, bias, out);
    }
    gathered(&job, &weight, a, bias, out)
}

/// The weights as `[groups * places, O, C]`, or with the channels swapped for the gradient of the input.
fn by_place(shape: &Convolution, part: Part, weight: &Tensor) -> Result<Tensor> {
    let (groups, places) = (shape.groups, shape.places());
    let split = weight.reshape(&[groups, shape.outputs, shape.inputs, places])?;
    let (order, last) = match part {
        Part::Input => ([0, 3, 2, 1], [shape.inputs, shape.outputs]),
        _ => ([0, 3, 1, 2], [shape.outputs, shape.inputs]),
    };
    split.permute(&order)?.contiguous()?.reshape(&[groups * places, last[0], last[1]])
}

/// A product that is summed over places and channels: the result, or the gradient of the input, which is
/// a convolution of the result's by the same weights seen from the other side.
struct Job {
    batch: usize,
    groups: usize,
    /// Channels of a group that are summed, and that are made.
    summed: usize,
    made: usize,
    /// The axes as the convolution has them.
    axes: [Axis; 3],
    is_turned: bool,
}

/// A tile of [`device::conv_by_one`]: channels, rows and columns of positions.
#[derive(Clone, Copy)]
struct Tile {
    channels: usize,
    rows: usize,
    columns: usize,
}

impl Job {
    fn of(shape: &Convolution, part: Part) -> Job {
        let Convolution { batch, groups, inputs, outputs, axes } = *shape;
        let is_turned = part == Part::Input;
        let (summed, made) = if is_turned { (outputs, inputs) } else { (inputs, outputs) };
        Job { batch, groups, summed, made, axes, is_turned }
    }

    /// Extents of what is read along the axes.
    fn from(&self) -> [usize; 3] {
        self.axes.map(|axis| if self.is_turned { axis.output } else { axis.input })
    }

    /// Extents of what is made along the axes.
    fn to(&self) -> [usize; 3] {
        self.axes.map(|axis| if self.is_turned { axis.input } else { axis.output })
    }

    fn tables(&self) -> Result<[Table; 3]> {
        try_map(&self.axes, |axis| if self.is_turned { axis.seen_by() } else { axis.table() })
    }

    /// The tile where windows move by one and the copy engine can bring boxes of the input.
    fn tile_by_one(&self, x: &Tensor) -> Option<Tile> {
        let [depth, down, across] = self.axes;
        let by_one = depth == Axis::UNIT && down.stride == 1 && across.stride == 1;
        let is_half = matches!(x.dtype(), DType::F16 | DType::BF16);
        let fits = self.groups == 1 && self.summed >= 16 && self.summed.is_multiple_of(8);
        if !(by_one && is_half && fits && x.device().is_cuda()) {
            return None;
        }
        // On an H200 with bf16, 64 images of 64 channels of 56 by 56, in us: 32 rows of 8 columns 43, 4 of
        // 64 44, 16 of 16 49, and 16 of 8, two programs a multiprocessor, 50.
        let [_, height, width] = self.to();
        let rows = height.next_power_of_two().clamp(8, 32);
        let columns = if rows == 16 && width > 8 { 16 } else { 8 };
        Some(Tile { channels: 64, rows, columns })
    }
}

/// A tensor of rank 5 and depth 1 as `[N, H, W, C]`, dense.
fn channels_last(x: &Tensor) -> Result<Tensor> {
    x.squeeze(2)?.permute(&[0, 2, 3, 1])?.contiguous()
}

fn integers(values: impl IntoIterator<Item = i64>) -> Vec<Arg> {
    values.into_iter().map(|value| number(DType::I64, value as f64)).collect()
}

/// Where the first place of a window looks, and how far apart places look: padding and dilation, or with
/// the opposite sign where the weights are seen from the other side.
fn shifts(job: &Job) -> [i64; 4] {
    let sign = if job.is_turned { -1 } else { 1 };
    let [_, down, across] = job.axes;
    [down.before, across.before, down.dilation, across.dilation].map(|n| sign * n as i64)
}

fn by_one(job: &Job, tile: Tile, weight: &Tensor, x: &Tensor, bias: Arg, y: &Tensor) -> Result<()> {
    let [_, height, width] = job.to();
    let x = channels_last(x)?;
    let out_shape = [job.batch, job.made, height, width];
    let out = view(y, &out_shape, &dense(&out_shape), true);
    let mut args = vec![own_view(weight, false), own_view(&x, false), bias, out];
    args.extend(integers([job.axes[2].kernel as i64].into_iter().chain(shifts(job))));
    let Tile { channels, rows, columns } = tile;
    let tiles =
        job.batch * job.made.div_ceil(channels) * height.div_ceil(rows) * width.div_ceil(columns);
    let consts = [channels, rows * columns, 64, rows, columns].map(|n| n as i64);
    let stages = if rows * columns == 256 { 5 } else { 4 };
    let options =
        LaunchOptions { num_warps: Some(4), num_stages: Some(stages), ..Default::default() };
    let dtypes = [y.dtype(), accumulate_dtype(y.dtype())];
    launch_as(&device::conv_by_one::KERNEL, y, Grid::x(tiles), &dtypes, &consts, options, &args)
}

/// Strides of a dense tensor.
fn dense(shape: &[usize]) -> Vec<i64> {
    crate::shape::contiguous_strides(shape)
}

/// Tiles of products by gathered elements: rows, columns, and what is summed at once.
fn product_tile(dtype: DType, rows: usize, columns: usize) -> [i64; 3] {
    let most = if dtype == DType::F64 { 32 } else { 64 };
    let fit = |n: usize| n.next_power_of_two().clamp(16, most) as i64;
    [fit(rows), fit(columns), if dtype.bytes() == 2 { 32 } else { 16 }]
}

/// The positions of the last three axes as one.
fn lines(t: &Tensor, lead: [usize; 2]) -> Result<Tensor> {
    t.reshape(&[lead[0], lead[1], crate::shape::product(t.shape()[2..].iter())])?.contiguous()
}

fn gathered(job: &Job, weight: &Tensor, x: &Tensor, bias: Arg, y: &Tensor) -> Result<()> {
    let images = job.batch * job.groups;
    let x = lines(x, [images, job.summed])?;
    let out = lines(y, [images, job.made])?;
    let positions = out.shape()[2];
    let tables = sent(&job.tables()?, y.device())?;
    let [_, height, width] = job.from();
    let mut args = vec![own_view(weight, false), own_view(&x, false), bias, own_view(&out, true)];
    args.extend(tables.iter().map(|table| own_view(table, false)));
    args.extend(integers([job.groups, height, width].map(|n| n as i64)));
    let dtypes = [y.dtype(), accumulate_dtype(y.dtype())];
    let options = LaunchOptions { num_warps: Some(4), ..Default::default() };
    if job.made + job.summed <= FEW {
        const BLOCK: usize = 256;
        let grid = Grid::x(images * job.made * positions.div_ceil(BLOCK));
        let kernel = &device::conv_few::KERNEL;
        return launch_as(kernel, y, grid, &dtypes, &[BLOCK as i64], options, &args);
    }
    let consts = product_tile(y.dtype(), job.made, positions);
    let [rows, columns, _] = consts.map(|n| n as usize);
    let grid = Grid::x(images * job.made.div_ceil(rows) * positions.div_ceil(columns));
    launch_as(&device::conv::KERNEL, y, grid, &dtypes, &consts, options, &args)
}

/// Bytes of the parts that a gradient of weights is made in, at most.
const PARTS_BYTES: usize = 64 << 20;

/// Into how many images the batch is cut, so that `tiles` tiles keep a device busy.
fn share(shape: &Convolution, tiles: usize, device: Device) -> usize {
    let elements: usize = crate::shape::product(shape.weight_shape().iter());
    let wanted = (2 * config::multiprocessors(device)).div_ceil(tiles.max(1));
    let most = (PARTS_BYTES / (4 * elements.max(1))).max(1);
    shape.batch.div_ceil(wanted.min(most).clamp(1, shape.batch))
}

fn weights(shape: &Convolution, dy: &Tensor, x: &Tensor, out: &Tensor) -> Result<()> {
    let Convolution { batch, groups, inputs, outputs, axes } = *shape;
    let dtypes = [out.dtype(), accumulate_dtype(out.dtype())];
    let options = LaunchOptions { num_warps: Some(4), ..Default::default() };
    let places = shape.places();
    let on = (dtypes[1], out.device());
    let [_, height, width] = axes.map(|axis| axis.input as i64);
    let is_large = outputs >= 32 && outputs.is_multiple_of(8);
    if is_large && Job::of(shape, Part::Result).tile_by_one(x).is_some() {
        return finish(shape, &weights_by_one(shape, dy, x)?, out);
    }
    let dy = lines(dy, [batch, groups * outputs])?;
    let x = lines(x, [batch, groups * inputs])?;
    let tables = sent(&try_map(&axes, Axis::table)?, out.device())?;
    let mut args = vec![own_view(&dy, false), own_view(&x, false)];
    let more = tables.iter().map(|table| own_view(table, false));
    if is_few(shape) {
        let sums = Tensor::uninitialized(&[groups * places, outputs, inputs], (out.dtype(), on.1))?;
        args.push(own_view(&sums, true));
        args.extend(more.chain(integers([height, width])));
        let grid = Grid::x(sums.numel());
        launch_as(&device::conv_few_weight::KERNEL, out, grid, &dtypes, &[256], options, &args)?;
        return finish(shape, &sums, out);
    }
    let consts = product_tile(out.dtype(), outputs, inputs);
    let [rows, columns, _] = consts.map(|n| n as usize);
    let tiles = groups * places * outputs.div_ceil(rows) * inputs.div_ceil(columns);
    let share = share(shape, tiles, out.device());
    let parts = batch.div_ceil(share);
    let sums = Tensor::uninitialized(&[parts * groups * places, outputs, inputs], on)?;
    args.push(own_view(&sums, true));
    args.extend(more.chain(integers([groups as i64, height, width, share as i64])));
    let grid = Grid::x(parts * tiles);
    launch_as(&device::conv_weight::KERNEL, out, grid, &dtypes, &consts, options, &args)?;
    finish(shape, &sums, out)
}

/// Parts of the gradient of weights where windows move by one and the copy engine can bring boxes.
fn weights_by_one(shape: &Convolution, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (x, dy) = (channels_last(x)?, channels_last(dy)?);
    let (places, tiles) = (shape.places(), shape.outputs.div_ceil(64) * shape.inputs.div_ceil(64));
    let share = share(shape, places * tiles, x.device());
    let parts = shape.batch.div_ceil(share);
    let wide = accumulate_dtype(x.dtype());
    let sums =
        Tensor::uninitialized(&[parts * places, shape.outputs, shape.inputs], (wide, x.device()))?;
    let mut args = vec![own_view(&dy, false), own_view(&x, false), own_view(&sums, true)];
    let numbers = [places, share, shape.axes[2].kernel].map(|n| n as i64);
    let shifts = shifts(&Job::of(shape, Part::Result));
    args.extend(integers(numbers.into_iter().chain(shifts)));
    let options = LaunchOptions { num_warps: Some(4), num_stages: Some(4), ..Default::default() };
    let kernel = &device::conv_by_one_weight::KERNEL;
    let (grid, consts) = (Grid::x(parts * places * tiles), [64, 64, 64, 8, 8]);
    launch_as(kernel, &sums, grid, &[x.dtype(), wide], &consts, options, &args)?;
    Ok(sums)
}

/// Adds up parts `[parts * groups * places, O, C]` and puts them in the order of weights.
fn finish(shape: &Convolution, sums: &Tensor, out: &Tensor) -> Result<()> {
    let Convolution { groups, inputs, outputs, .. } = *shape;
    let places = shape.places();
    let parts = sums.shape()[0] / (groups * places);
    let sums = sums.reshape(&[parts, groups, places, outputs, inputs])?;
    let sum = if parts == 1 { sums.squeeze(0)? } else { sums.sum_dims(&[0], false)? };
    let turned = sum.permute(&[0, 2, 3, 1])?; // [groups, O, C, places]
    cast(&turned, &out.reshape(&[groups, outputs, inputs, places])?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DTYPE: DType = DType::F32;

    /// Small whole numbers, so that every sum is exact.
    fn whole(shape: &[usize], step: usize, dtype: DType) -> Result<Tensor> {
        let n: usize = crate::shape::product(shape.iter());
        let values: Vec<f64> = (0..n).map(|i| (i * step % 7) as f64 - 3.0).collect();
        Tensor::from_f64(&values, shape, (dtype, Device::Cpu))
    }

    fn axis(input: usize, kernel: usize, stride: usize, before: usize, dilation: usize) -> Axis {
        let output = (input + 2 * before - dilation * (kernel - 1) - 1) / stride + 1;
        Axis { input, output, kernel, stride, before, dilation }
    }

    fn shapes() -> Vec<Convolution> {
        let of =
            |groups, inputs, outputs, axes| Convolution { batch: 2, groups, inputs, outputs, axes };
        let (one, line) = (Axis::UNIT, axis(9, 3, 2, 1, 1));
        vec![
            of(1, 3, 5, [one, one, line]),
            of(1, 8, 4, [one, axis(5, 3, 1, 1, 1), axis(6, 2, 1, 0, 2)]),
            of(2, 3, 2, [one, axis(5, 2, 2, 0, 1), line]),
            of(3, 1, 2, [one, axis(5, 3, 1, 1, 1), line]),
            of(1, 2, 3, [axis(4, 2, 1, 1, 1), axis(3, 2, 1, 0, 1), axis(4, 3, 3, 1, 1)]),
        ]
    }

    /// What a product takes and the shape of what it makes.
    fn operands(
        shape: &Convolution,
        part: Part,
        dtype: DType,
    ) -> Result<([Tensor; 2], Vec<usize>)> {
        let x = whole(&shape.input_shape(), 5, dtype)?;
        let w = whole(&shape.weight_shape(), 3, dtype)?;
        let y = whole(&shape.result_shape(), 4, dtype)?;
        Ok(match part {
            Part::Result => ([x, w], shape.result_shape()),
            Part::Input => ([y, w], shape.input_shape()),
            Part::Weight => ([x, y], shape.weight_shape()),
        })
    }

    const PARTS: [Part; 3] = [Part::Result, Part::Input, Part::Weight];

    #[test]
    fn kernels_agree_with_products_of_patches() -> Result<()> {
        for (shape, part) in shapes().iter().flat_map(|shape| PARTS.map(|part| (shape, part))) {
            let ([a, b], out) = operands(shape, part, DTYPE)?;
            let [got, want] = [0, 1].map(|_| Tensor::uninitialized(&out, (DTYPE, Device::Cpu)));
            let (got, want) = (got?, want?);
            by_kernels(shape, part, &[&a, &b], &got)?;
            super::super::conv_cpu::run(shape, part, &[&a, &b], &want)?;
            assert_eq!(got.to_f64_vec()?, want.to_f64_vec()?, "{part:?} of {shape:?}");
        }
        Ok(())
    }

    #[test]
    fn windows_that_move_by_one_agree() -> Result<()> {
        let axes = [Axis::UNIT, axis(5, 3, 1, 1, 1), axis(6, 2, 1, 0, 2)];
        let shape = Convolution { batch: 3, groups: 1, inputs: 24, outputs: 8, axes };
        let tile = Tile { channels: 64, rows: 4, columns: 16 };
        for part in PARTS {
            let ([a, b], out) = operands(&shape, part, DTYPE)?;
            let [got, want] = [0, 1].map(|_| Tensor::uninitialized(&out, (DTYPE, Device::Cpu)));
            let (got, want) = (got?, want?);
            super::super::conv_cpu::run(&shape, part, &[&a, &b], &want)?;
            match part {
                Part::Weight => finish(&shape, &weights_by_one(&shape, &b, &a)?, &got)?,
                _ => {
                    let weight = by_place(&shape, part, &b)?;
                    let none = view(&weight, &[0], &[1], false);
                    by_one(&Job::of(&shape, part), tile, &weight, &a, none, &got)?;
                }
            }
            assert_eq!(got.to_f64_vec()?, want.to_f64_vec()?, "{part:?}");
        }
        Ok(())
    }
}

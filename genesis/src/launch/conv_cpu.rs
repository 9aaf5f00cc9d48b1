//! Convolutions on the CPU: sums in registers, straight from a padded copy of one image.
//!
//! No matrix of patches is ever made: the copy of an image stays in a core's cache, and every place of a
//! window is a fixed distance in it ([`plan`]). A tile of 8 channels by 3 vectors of positions is summed
//! over all places and channels in registers ([`loops`]). Images, groups and bands of lines are shared
//! among the threads; the gradient of the weights is summed over images in a number of parts that depends
//! on the shape alone, added in order. So results do not depend on how many threads there are.

mod lanes;
mod loops;
mod plan;
mod scratch;

use std::ops::Range;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{share_items, threads_here};
use genesis_kernel::trace;

use self::lanes::Lines;
use self::loops::{CHANNEL_VECTORS, Dots, Loops, Number, Run, Tile, Turn, WIDE, Weights};
use self::plan::{Image, Pass, Plan, Positions, tiles};
use super::cast;
use super::convolution::{Convolution, Part};
use crate::error::Result;
use crate::tensor::Tensor;

/// Tasks that the gradient of weights is cut into, about, whatever the number of threads.
const PARTS: usize = 32;
/// Products of a task below which another thread would cost more than it gives.
const TASK_PRODUCTS: usize = 1 << 18;

/// One product, as [`super::conv::run`]; 16-bit floats are computed in f32.
pub(super) fn run(shape: &Convolution, part: Part, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
    match out.dtype() {
        DType::F32 => typed(&*f32::widths()[0], shape, part, inputs, out),
        DType::F64 => typed(&*f64::widths()[0], shape, part, inputs, out),
        _ => {
            let wide: Vec<Tensor> =
                inputs.iter().map(|t| t.to_dtype(DType::F32)).collect::<Result<_>>()?;
            let sums = Tensor::uninitialized(out.shape(), (DType::F32, out.device()))?;
            run(shape, part, &wide.iter().collect::<Vec<_>>(), &sums)?;
            cast(&sums, out)
        }
    }
}

fn typed<T: Number>(
    loops: &dyn Loops<T>,
    shape: &Convolution,
    part: Part,
    inputs: &[&Tensor],
    out: &Tensor,
) -> Result<()> {
    let _kernel = trace::host_kernel("convolution", || work::<T>(shape));
    let (first, bias) = (inputs[0].spread::<T>(), inputs.get(2));
    let images = Images::of(inputs[0], (&first.0, first.1));
    let job = Job { loops, shape, part };
    if part == Part::Weight {
        let dy = inputs[1].spread::<T>();
        let dy = Images::of(inputs[1], (&dy.0, dy.1));
        job.weights(images, dy, &mut out.elements_mut());
        return Ok(());
    }
    let weight = inputs[1].contiguous()?;
    let bias = bias.map(|bias| bias.contiguous()).transpose()?;
    let bias = bias.as_ref().map(Tensor::elements);
    job.products(images, &weight.elements(), bias.as_deref(), &mut out.elements_mut());
    Ok(())
}

/// What a convolution, or a gradient of one, moves and computes.
fn work<T>(shape: &Convolution) -> trace::Kernel {
    let numel = |shape: Vec<usize>| crate::shape::product(shape.iter()) as u64;
    let (weight, result) = (numel(shape.weight_shape()), numel(shape.result_shape()));
    let inner = crate::shape::product(shape.axes.iter().map(|axis| axis.kernel)) as u64;
    let flops = 2 * result * shape.inputs as u64 * inner;
    let bytes = (weight + result + numel(shape.input_shape())) * size_of::<T>() as u64;
    trace::Kernel { bytes, flops, product_flops: flops, ..trace::Kernel::default() }
}

/// A tensor of rank 5 in memory, as it lies.
#[derive(Clone, Copy)]
struct Images<'t, T> {
    elements: &'t [T],
    /// Where its first element is.
    first: usize,
    /// Of images, channels and the three axes.
    strides: [isize; 5],
}

impl<'t, T> Images<'t, T> {
    fn of(t: &Tensor, (elements, first): (&'t [T], usize)) -> Images<'t, T> {
        let strides = [0, 1, 2, 3, 4].map(|axis| t.strides()[axis] as isize);
        Images { elements, first, strides }
    }

    /// An image's channels from `channel` on.
    fn image(&self, image: usize, channel: usize) -> Image<'t, T> {
        let [images, channels, depth, down, across] = self.strides;
        let skipped = image as isize * images + channel as isize * channels;
        let strides = [channels, depth, down, across];
        Image { elements: self.elements, first: self.first as isize + skipped, strides }
    }
}

/// One of the three products.
struct Job<'j, T> {
    loops: &'j dyn Loops<T>,
    shape: &'j Convolution,
    part: Part,
}

/// A pass over a band: its positions in tiles.
struct Band {
    tiles: Vec<Positions>,
    runs: Vec<Run>,
}

impl<T: Number> Job<'_, T> {
    /// Multiplications of the whole product.
    fn work(&self) -> usize {
        let Convolution { batch, groups, inputs, outputs, ref axes } = *self.shape;
        let windows: usize = crate::shape::product(axes.iter().map(|axis| axis.output));
        batch * groups * inputs * outputs * windows * self.shape.places()
    }

    /// Blocks of channels that tiles are of: the first, and how many.
    fn blocks(&self, channels: usize) -> Vec<(usize, usize)> {
        let (mut blocks, mut first) = (Vec::new(), 0);
        while first < channels {
            let left = (channels - first).min(self.loops.channels());
            let most = 1 << left.ilog2();
            blocks.push((first, most));
            first += most;
        }
        blocks
    }

    /// The result, or the gradient of the input.
    fn products(&self, x: Images<'_, T>, weight: &[T], bias: Option<&[T]>, y: &mut [T]) {
        let Convolution { batch, groups, inputs, outputs, ref axes } = *self.shape;
        let (made, positions): (usize, usize) = match self.part {
            Part::Input => (inputs, crate::shape::product(axes.iter().map(|axis| axis.input))),
            _ => (outputs, crate::shape::product(axes.iter().map(|axis| axis.output))),
        };
        let images = batch * groups;
        let wanted = (2 * threads_here()).min(self.work() / TASK_PRODUCTS);
        let plan = Plan::of(self.shape, self.part, size_of::<T>(), wanted.div_ceil(images).max(1));
        let (passes, blocks, lanes) = (plan.passes(), self.blocks(made), self.loops.lanes());
        let packed: Vec<Vec<T>> = passes.iter().map(|pass| self.pack(weight, pass, made)).collect();
        let cut = |band, pass: &Pass| {
            let begin = plan.made(band).start;
            let own = |line: Run| Run { to: line.to - begin, ..line };
            let lines: Vec<Run> = plan.lines(pass, band).into_iter().map(own).collect();
            let (tiles, runs) = tiles(&lines, pass.step(), lanes, WIDE);
            Band { tiles, runs }
        };
        let all = |band| passes.iter().map(|pass| cut(band, pass)).collect();
        let bands: Vec<Vec<Band>> = plan.bands.iter().map(all).collect();
        let task = |(number, pieces): (usize, Vec<&mut [T]>)| {
            let (which, band) = (number / bands.len(), number % bands.len());
            let (image, group) = (which / groups, which % groups);
            let bias = bias.map(|bias| &bias[group * made..][..made]);
            let each = plan.made(&plan.bands[band]).len();
            let mut to: Vec<&mut [T]> =
                pieces.into_iter().flat_map(|piece| piece.chunks_exact_mut(each)).collect();
            scratch::with([plan.copied(WIDE * lanes), 0], |copy, _| {
                let from = x.image(image, group * plan.channels);
                plan.copy(&plan.bands[band], &from, copy, self.loops);
                for ((pass, packed), own) in passes.iter().zip(&packed).zip(&bands[band]) {
                    let sums = made * pass.offsets.len();
                    let packed = &packed[group * sums..][..sums];
                    for &(first, channels) in &blocks {
                        let weights = &packed[first * pass.offsets.len()..];
                        for tile in &own.tiles {
                            let job = Tile {
                                seen: &copy[tile.first..],
                                offsets: &pass.offsets,
                                weights,
                                bias: bias.map(|bias| &bias[first..][..channels]),
                                to: &mut to[first..][..channels],
                                runs: &own.runs[tile.runs.clone()],
                                step: pass.step(),
                                is_in_order: passes.len() == 1,
                            };
                            self.loops.tile(tile.vectors, job);
                        }
                    }
                }
            });
        };
        let pieces =
            pieces(y, made * positions, positions, plan.bands.iter().map(|b| plan.made(b)));
        self.share_out(pieces, task);
    }

    /// Runs tasks of equal size, one for each of the items, on as many threads as they are worth.
    fn share_out<I: Send>(&self, items: Vec<I>, task: impl Fn((usize, I)) + Send + Sync) {
        let each = self.work() / items.len().max(1);
        let least = TASK_PRODUCTS.div_ceil(each.max(1));
        share_items(items.into_iter().enumerate().collect(), least, task);
    }

    /// The weights of a pass in the order in which tiles read them: for each group and block of channels,
    /// for each place of each summed channel, those of the block.
    fn pack(&self, weight: &[T], pass: &Pass, made: usize) -> Vec<T> {
        let Convolution { groups, inputs, outputs, .. } = *self.shape;
        let (sums, places) = (pass.offsets.len(), self.shape.places());
        let blocks = self.blocks(made);
        let mut packed = vec![T::ZERO; groups * made * sums];
        let fill = |(group, packed): (usize, &mut [T])| {
            let weight = &weight[group * outputs * inputs * places..];
            for &(first, channels) in &blocks {
                let block = &mut packed[first * sums..][..channels * sums];
                let rows = block.chunks_exact_mut(channels * pass.places.len().max(1));
                for (summed, row) in rows.enumerate() {
                    for (&place, to) in pass.places.iter().zip(row.chunks_exact_mut(channels)) {
                        for (to, own) in to.iter_mut().zip(first..) {
                            let (o, c) = match self.part {
                                Part::Input => (summed, own),
                                _ => (own, summed),
                            };
                            *to = weight[(o * inputs + c) * places + place];
                        }
                    }
                }
            }
        };
        packed.chunks_mut((made * sums).max(1)).enumerate().for_each(fill);
        packed
    }

    /// The gradient of the weights.
    fn weights(&self, x: Images<'_, T>, dy: Images<'_, T>, dw: &mut [T]) {
        let Convolution { batch, groups, inputs, outputs, .. } = *self.shape;
        let plan = Plan::of(self.shape, Part::Result, size_of::<T>(), 1);
        let passes = plan.passes();
        let wanted = passes[0].offsets.len();
        let wide = CHANNEL_VECTORS * self.loops.lanes();
        let slices = outputs.div_ceil(wide);
        let share = batch.div_ceil((PARTS / (groups * slices)).clamp(1, batch));
        let parts = batch.div_ceil(share);
        let size = groups * outputs * inputs * self.shape.places();
        let mut sums = vec![T::ZERO; if parts > 1 { (parts - 1) * size } else { 0 }];
        let all = std::iter::once(&mut *dw).chain(sums.chunks_mut(size));
        let rows = all
            .flat_map(|part| part.chunks_exact_mut(outputs * wanted))
            .flat_map(|group| group.chunks_mut(wide * wanted));
        let task = |(number, to): (usize, &mut [T])| {
            let (part, rest) = (number / (groups * slices), number % (groups * slices));
            let (group, first) = (rest / slices, rest % slices * wide);
            let slice = Slice { group, first, channels: wide.min(outputs - first) };
            let images = part * share..((part + 1) * share).min(batch);
            // Vectors of a few channels would be mostly empty.
            if 2 * slice.channels <= self.loops.lanes()
                && self.by_positions(&plan, &passes[0], (&x, &dy), images.clone(), &slice, to)
            {
                return;
            }
            self.slice(&plan, &passes[0], (&x, &dy), images, &slice, to);
        };
        self.share_out(rows.collect(), task);
        for part in sums.chunks(size) {
            dw.iter_mut().zip(part).for_each(|(sum, &more)| *sum += more);
        }
    }

    /// The gradient of the weights of some channels, summed over some images.
    fn slice(
        &self,
        plan: &Plan,
        pass: &Pass,
        (x, dy): (&Images<'_, T>, &Images<'_, T>),
        images: Range<usize>,
        slice: &Slice,
        to: &mut [T],
    ) {
        let (lanes, places) = (self.loops.lanes(), self.loops.places());
        let vectors = slice.channels.div_ceil(lanes);
        let width = vectors * lanes;
        let mut offsets = pass.offsets.clone();
        let wanted = offsets.len();
        // A tile of the last places has some of them again.
        offsets.resize(wanted.next_multiple_of(places), offsets[0]);
        let bands: Vec<Vec<Run>> = plan.bands.iter().map(|band| plan.lines(pass, band)).collect();
        let most = bands.iter().map(|lines| lines.iter().map(|line| line.n).sum()).max();
        let most = most.unwrap_or(0usize) * width;
        let lengths = [plan.copied(0), most + offsets.len() * width];
        scratch::with(lengths, |copy, rest: &mut [T]| {
            let (turned, sums) = rest.split_at_mut(most);
            sums.fill(T::ZERO);
            for image in images {
                for (band, lines) in plan.bands.iter().zip(&bands) {
                    let from = x.image(image, slice.group * plan.channels);
                    plan.copy(band, &from, copy, self.loops);
                    let channel = slice.group * self.shape.outputs + slice.first;
                    let positions = self.turn(&dy.image(image, channel), lines, slice, turned);
                    let lines: Vec<_> = lines.iter().map(|line| (line.at, line.n)).collect();
                    let tiles = offsets.chunks_exact(places);
                    for (offsets, sums) in tiles.zip(sums.chunks_exact_mut(places * width)) {
                        let dy = &turned[..positions * width];
                        let job = Weights { dy, seen: copy, offsets, lines: &lines, sums };
                        self.loops.weights(vectors, job);
                    }
                }
            }
            for (place, sums) in sums.chunks_exact(width).take(wanted).enumerate() {
                for (to, &sum) in to[place..].iter_mut().step_by(wanted).zip(sums) {
                    *to = sum;
                }
            }
        });
    }

    /// [`Job::slice`] by vectors of positions, channel by channel; false where sums are not finite: what is not a
    /// window's is multiplied by 0 here.
    fn by_positions(
        &self,
        plan: &Plan,
        pass: &Pass,
        (x, dy): (&Images<'_, T>, &Images<'_, T>),
        images: Range<usize>,
        slice: &Slice,
        to: &mut [T],
    ) -> bool {
        let (lanes, places) = (self.loops.lanes(), self.loops.places());
        let mut offsets = pass.offsets.clone();
        let wanted = offsets.len();
        // A tile of the last places has some of them again.
        offsets.resize(wanted.next_multiple_of(places), offsets[0]);
        let bands: Vec<Vec<Run>> = plan.bands.iter().map(|band| plan.lines(pass, band)).collect();
        let end = |lines: &Vec<Run>| lines.last().map_or(0, |line| line.at + line.n);
        let most = bands.iter().map(end).max().unwrap_or(0).next_multiple_of(lanes);
        let each = offsets.len() * lanes;
        let copied = plan.copied(lanes);
        scratch::with([copied, most + slice.channels * each], |copy, rest: &mut [T]| {
            let (spread, sums) = rest.split_at_mut(most);
            sums.fill(T::ZERO);
            copy[copied - lanes..].fill(T::ZERO);
            for image in images {
                for (band, lines) in plan.bands.iter().zip(&bands) {
                    let from = x.image(image, slice.group * plan.channels);
                    plan.copy(band, &from, copy, self.loops);
                    let first = slice.group * self.shape.outputs + slice.first;
                    for (channel, sums) in sums.chunks_exact_mut(each).enumerate() {
                        let spread = &mut spread[..end(lines).next_multiple_of(lanes)];
                        self.spread(&dy.image(image, first + channel), lines, spread);
                        let tiles = offsets.chunks_exact(places);
                        for (offsets, sums) in tiles.zip(sums.chunks_exact_mut(places * lanes)) {
                            self.loops.dots(Dots { dy: spread, seen: copy, offsets, sums });
                        }
                    }
                }
            }
            let mut is_finite = true;
            for (to, sums) in to.chunks_exact_mut(wanted).zip(sums.chunks_exact(each)) {
                for (to, vector) in to.iter_mut().zip(sums.chunks_exact(lanes)) {
                    *to = T::ZERO;
                    vector.iter().for_each(|&more| *to += more);
                    is_finite &= to.is_finite();
                }
            }
            is_finite
        })
    }

    /// Puts the positions of these lines where they are on the grid, among zeros.
    fn spread(&self, dy: &Image<'_, T>, lines: &[Run], to: &mut [T]) {
        to.fill(T::ZERO);
        let [_, down, across] = self.shape.axes.map(|axis| axis.output);
        let [_, depth, high, wide] = dy.strides;
        for line in lines {
            let (row, j) = (line.to / across, line.to % across);
            let (d, i) = (row / down, row % down);
            let skipped = d as isize * depth + i as isize * high + j as isize * wide;
            let to = &mut to[line.at..][..line.n];
            if wide == 1 {
                let from = Lines { elements: dy.elements, first: dy.first + skipped, apart: 0 };
                to.copy_from_slice(from.row(0, line.n));
                continue;
            }
            for (p, to) in to.iter_mut().enumerate() {
                *to = dy.elements[(dy.first + skipped + p as isize * wide) as usize];
            }
        }
    }

    /// Puts the channels of a slice next to each other for each position of these lines; gives how many
    /// positions there are.
    fn turn(&self, dy: &Image<'_, T>, lines: &[Run], slice: &Slice, turned: &mut [T]) -> usize {
        let lanes = self.loops.lanes();
        let width = slice.channels.div_ceil(lanes) * lanes;
        let [channel, .., across] = dy.strides;
        let mut at = 0;
        for (skipped, n) in self.stretches(lines, dy) {
            // Positions that are no neighbours are turned one by one.
            let each = if across == 1 { n } else { 1 };
            let to = turned[at * width..][..n * width].chunks_exact_mut(each * width);
            for (p, to) in to.enumerate() {
                let first = dy.first + skipped + p as isize * across;
                let from = Lines { elements: dy.elements, first, apart: channel };
                let channels = slice.channels;
                self.loops.turn(Turn { from, channels, positions: each, to, width });
            }
            at += n;
        }
        at
    }

    /// Lines of positions as they lie in the gradient of the result: where each begins beyond the first
    /// position of a channel, and how many. Lines that follow each other are one.
    fn stretches(&self, lines: &[Run], dy: &Image<'_, T>) -> Vec<(isize, usize)> {
        let [_, down, across] = self.shape.axes.map(|axis| axis.output);
        let [_, depth, high, wide] = dy.strides;
        let mut all: Vec<(isize, usize)> = Vec::new();
        for line in lines {
            let (row, j) = (line.to / across, line.to % across);
            let (d, i) = (row / down, row % down);
            let skipped = d as isize * depth + i as isize * high + j as isize * wide;
            match all.last_mut() {
                Some((first, n)) if wide == 1 && *first + *n as isize == skipped => *n += line.n,
                _ => all.push((skipped, line.n)),
            }
        }
        all
    }
}

/// Cuts a result into what its tasks make: each `image` elements, of which each `channel` are a channel, for
/// each band its range of every channel.
fn pieces<T>(
    y: &mut [T],
    image: usize,
    channel: usize,
    bands: impl ExactSizeIterator<Item = Range<usize>> + Clone,
) -> Vec<Vec<&mut [T]>> {
    let images = y.chunks_exact_mut(image);
    if bands.len() == 1 {
        return images.map(|image| vec![image]).collect();
    }
    let mut all: Vec<Vec<&mut [T]>> = Vec::with_capacity(images.len() * bands.len());
    for image in images {
        let first = all.len();
        all.resize_with(first + bands.len(), || Vec::with_capacity(image.len() / channel));
        for mut rest in image.chunks_exact_mut(channel) {
            for (pieces, band) in all[first..].iter_mut().zip(bands.clone()) {
                let (own, others) = rest.split_at_mut(band.len());
                pieces.push(own);
                rest = others;
            }
        }
    }
    all
}

/// Channels of the result whose weights a task sums.
struct Slice {
    group: usize,
    first: usize,
    channels: usize,
}

#[cfg(test)]
mod tests {
    use genesis_kernel::runtime::Device;

    use super::super::axis::Axis;
    use super::*;

    fn axis(input: usize, kernel: usize, stride: usize, before: usize, dilation: usize) -> Axis {
        let output = (input + 2 * before - dilation * (kernel - 1) - 1) / stride + 1;
        Axis { input, output, kernel, stride, before, dilation }
    }

    fn shapes() -> Vec<Convolution> {
        let of = |batch, groups, [inputs, outputs]: [usize; 2], axes| Convolution {
            batch,
            groups,
            inputs,
            outputs,
            axes,
        };
        let one = Axis::UNIT;
        vec![
            // One image in bands, of lines that are no multiple of any vector.
            of(1, 1, [16, 13], [one, axis(40, 3, 1, 1, 1), axis(37, 3, 1, 1, 1)]),
            of(1, 2, [8, 17], [one, axis(41, 5, 2, 2, 1), axis(33, 3, 2, 1, 2)]),
            // Lines are phases along one axis and neighbours along the other.
            of(1, 1, [16, 16], [one, axis(40, 3, 2, 1, 1), axis(40, 3, 1, 1, 1)]),
            // One step along the first axis makes two planes of the gradient of the input.
            of(2, 1, [9, 34], [axis(2, 2, 2, 0, 1), axis(20, 3, 1, 1, 1), axis(19, 2, 3, 0, 1)]),
            of(3, 1, [5, 7], [one, one, axis(100, 9, 1, 4, 3)]),
            of(2, 1, [3, 3], [one, axis(7, 1, 1, 0, 1), axis(3, 1, 1, 0, 1)]),
        ]
    }

    /// Small whole numbers, so that every sum is exact.
    fn whole(shape: &[usize], step: usize) -> Vec<f64> {
        let n: usize = crate::shape::product(shape.iter());
        (0..n).map(|i| (i * step % 7) as f64 - 3.0).collect()
    }

    /// Adds up every product of an element of `x`, of `w` and of `y`, as their numbers.
    fn visit(shape: &Convolution, mut visit: impl FnMut(usize, usize, usize)) {
        let Convolution { batch, groups, inputs, outputs, ref axes } = *shape;
        let of = |of: fn(&Axis) -> usize| axes.each_ref().map(of);
        let (kernel, input, output) = (of(|a| a.kernel), of(|a| a.input), of(|a| a.output));
        let all = |n: [usize; 3]| {
            let at = move |i: usize| [i / n[2] / n[1], i / n[2] % n[1], i % n[2]];
            (0..n[0] * n[1] * n[2]).map(move |i| (i, at(i)))
        };
        let count = |n: [usize; 3]| n[0] * n[1] * n[2];
        for (n, (g, (o, c))) in (0..batch).flat_map(|n| {
            let pairs = (0..outputs).flat_map(move |o| (0..inputs).map(move |c| (o, c)));
            (0..groups).flat_map(move |g| pairs.clone().map(move |pair| (n, (g, pair))))
        }) {
            for (k, places) in all(kernel) {
                for (to, window) in all(output) {
                    let seen = [0, 1, 2].map(|i| {
                        let at = window[i] * axes[i].stride + places[i] * axes[i].dilation;
                        at.checked_sub(axes[i].before).filter(|&at| at < axes[i].input)
                    });
                    let [Some(z), Some(i), Some(j)] = seen else { continue };
                    let at = (z * input[1] + i) * input[2] + j;
                    let x = ((n * groups + g) * inputs + c) * count(input) + at;
                    let w = ((g * outputs + o) * inputs + c) * count(kernel) + k;
                    visit(x, w, ((n * groups + g) * outputs + o) * count(output) + to);
                }
            }
        }
    }

    #[test]
    fn every_width_of_vectors_sums_the_same() -> Result<()> {
        for shape in shapes() {
            let x = (whole(&shape.input_shape(), 5), shape.input_shape());
            let w = (whole(&shape.weight_shape(), 3), shape.weight_shape());
            let y = (whole(&shape.result_shape(), 4), shape.result_shape());
            for part in [Part::Result, Part::Input, Part::Weight] {
                let (a, b, out) = match part {
                    Part::Result => (&x, &w, &y.1),
                    Part::Input => (&y, &w, &x.1),
                    Part::Weight => (&x, &y, &w.1),
                };
                let mut expected = vec![0.0; crate::shape::product(out.iter())];
                visit(&shape, |i, k, o| match part {
                    Part::Result => expected[o] += x.0[i] * w.0[k],
                    Part::Input => expected[i] += y.0[o] * w.0[k],
                    Part::Weight => expected[k] += x.0[i] * y.0[o],
                });
                let tensor = |(values, shape): &(Vec<f64>, Vec<usize>), dtype| {
                    Tensor::from_f64(values, shape, (dtype, Device::Cpu))
                };
                let check = |got: &Tensor| -> Result<()> {
                    assert_eq!(got.to_f64_vec()?, expected, "{part:?} of {shape:?}");
                    Ok(())
                };
                for loops in f32::widths() {
                    let (a, b) = (tensor(a, DType::F32)?, tensor(b, DType::F32)?);
                    let got = Tensor::full(out, 9.0, (DType::F32, Device::Cpu))?;
                    typed(&**loops, &shape, part, &[&a, &b], &got)?;
                    check(&got)?;
                }
                for loops in f64::widths() {
                    let (a, b) = (tensor(a, DType::F64)?, tensor(b, DType::F64)?);
                    let got = Tensor::full(out, 9.0, (DType::F64, Device::Cpu))?;
                    typed(&**loops, &shape, part, &[&a, &b], &got)?;
                    check(&got)?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn images_may_lie_in_any_way() -> Result<()> {
        let axes = [Axis::UNIT, axis(9, 3, 1, 1, 1), axis(20, 3, 2, 0, 1)];
        let shape = Convolution { batch: 2, groups: 1, inputs: 3, outputs: 18, axes };
        let dense = |shape: Vec<usize>, step| {
            Tensor::from_f64(&whole(&shape, step), &shape, (DType::F32, Device::Cpu))
        };
        let (x, y) = (dense(shape.input_shape(), 5)?, dense(shape.result_shape(), 4)?);
        let w = dense(shape.weight_shape(), 3)?;
        // Channels last, turned around, and one image for all.
        let last = |t: &Tensor| t.transpose(1, 4)?.contiguous()?.transpose(1, 4);
        let one = |t: &Tensor| t.slice(0, 0..1)?.broadcast_to(t.shape());
        for (x, y) in [(last(&x)?, last(&y)?), (one(&x)?, one(&y)?)] {
            for part in [Part::Result, Part::Input, Part::Weight] {
                let (inputs, out) = match part {
                    Part::Result => ([&x, &w], shape.result_shape()),
                    Part::Input => ([&y, &w], shape.input_shape()),
                    Part::Weight => ([&x, &y], shape.weight_shape()),
                };
                let product = |inputs: [&Tensor; 2]| {
                    let out = Tensor::uninitialized(&out, (DType::F32, Device::Cpu))?;
                    run(&shape, part, &inputs, &out)?;
                    out.to_f64_vec()
                };
                let dense = [inputs[0].contiguous()?, inputs[1].contiguous()?];
                assert_eq!(product(inputs)?, product(dense.each_ref())?, "{part:?}");
            }
        }
        Ok(())
    }
}

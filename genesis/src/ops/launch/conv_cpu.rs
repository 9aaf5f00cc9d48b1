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

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::{share, threads_here};
use genesis_kernel::trace;

use self::loops::{CHANNEL_VECTORS, Loops, Number, Run, Tile, Turn, WIDE, Weights};
use self::plan::{Pass, Plan, Positions, tiles};
use super::super::conv::{Convolution, Part};
use super::cast;
use super::slices::elements;
use crate::error::Result;
use crate::tensor::Tensor;

/// Tasks that the gradient of weights is cut into, about, whatever the number of threads.
const PARTS: usize = 32;
/// Products of a task below which another thread would cost more than it gives.
const TASK_PRODUCTS: usize = 1 << 18;

/// One product, as [`super::conv::run`]; 16-bit floats are computed in f32.
pub(super) fn run(shape: &Convolution, part: Part, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
    match out.dtype() {
        DType::F32 => typed(&f32::widths()[0], shape, part, inputs, out),
        DType::F64 => typed(&f64::widths()[0], shape, part, inputs, out),
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
    loops: &Loops<T>,
    shape: &Convolution,
    part: Part,
    inputs: &[&Tensor],
    out: &Tensor,
) -> Result<()> {
    let _kernel = trace::host_kernel("convolution", || work::<T>(shape));
    let out = Shared(out.address() as *mut T);
    let job = Job { loops, shape, part };
    if part == Part::Weight {
        job.weights(Images::of(inputs[0]), Images::of(inputs[1]), out);
        return Ok(());
    }
    let weight = inputs[1].contiguous()?;
    let bias = inputs.get(2).map(|bias| bias.contiguous()).transpose()?;
    let images = Images::of(inputs[0]);
    job.products(images, elements(&weight), bias.as_ref().map(elements), out);
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
struct Images<'t, T> {
    at: *const T,
    /// Of images, channels and the three axes.
    strides: [isize; 5],
    _tensor: std::marker::PhantomData<&'t T>,
}

// SAFETY: it only reads, and the tensor outlives it.
unsafe impl<T: Sync> Sync for Images<'_, T> {}

impl<'t, T> Images<'t, T> {
    fn of(t: &'t Tensor) -> Images<'t, T> {
        let strides = [0, 1, 2, 3, 4].map(|axis| t.strides()[axis] as isize);
        Images { at: t.address() as *const T, strides, _tensor: std::marker::PhantomData }
    }

    /// The first of an image's channels from `channel` on.
    fn image(&self, image: usize, channel: usize) -> *const T {
        let [images, channels, ..] = self.strides;
        self.at.wrapping_offset(image as isize * images + channel as isize * channels)
    }

    /// Of channels and the three axes.
    fn inner(&self) -> [isize; 4] {
        let [_, channel, depth, down, across] = self.strides;
        [channel, depth, down, across]
    }
}

/// Memory that tasks write at places of their own.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: every task writes elements that no other task names.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T> Shared<T> {
    fn at(&self, element: usize) -> *mut T {
        self.0.wrapping_add(element)
    }
}

/// One of the three products.
struct Job<'j, T: 'static> {
    loops: &'j Loops<T>,
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
            let left = (channels - first).min(self.loops.channels);
            let most = 1 << left.ilog2();
            blocks.push((first, most));
            first += most;
        }
        blocks
    }

    /// The result, or the gradient of the input.
    fn products(&self, x: Images<'_, T>, weight: &[T], bias: Option<&[T]>, y: Shared<T>) {
        let Convolution { batch, groups, inputs, outputs, ref axes } = *self.shape;
        let (made, positions): (usize, usize) = match self.part {
            Part::Input => (inputs, crate::shape::product(axes.iter().map(|axis| axis.input))),
            _ => (outputs, crate::shape::product(axes.iter().map(|axis| axis.output))),
        };
        let images = batch * groups;
        let wanted = (2 * threads_here()).min(self.work() / TASK_PRODUCTS);
        let plan = Plan::of(self.shape, self.part, size_of::<T>(), wanted.div_ceil(images).max(1));
        let (passes, blocks, lanes) = (plan.passes(), self.blocks(made), self.loops.lanes);
        let packed: Vec<Vec<T>> = passes.iter().map(|pass| self.pack(weight, pass, made)).collect();
        let cut = |band, pass: &Pass| {
            let (tiles, runs) = tiles(&plan.lines(pass, band), pass.step(), lanes, WIDE);
            Band { tiles, runs }
        };
        let all = |band| passes.iter().map(|pass| cut(band, pass)).collect();
        let bands: Vec<Vec<Band>> = plan.bands.iter().map(all).collect();
        let task = |number: usize| {
            let (which, band) = (number / bands.len(), number % bands.len());
            let (image, group) = (which / groups, which % groups);
            let bias = bias.map(|bias| &bias[group * made..][..made]);
            let to = Shared(y.at(which * made * positions));
            scratch::with([plan.copied(WIDE * lanes), 0], |copy, _| {
                let from = x.image(image, group * plan.channels);
                // SAFETY: the image has the channels and extents of the plan's source.
                unsafe { plan.copy(&plan.bands[band], from, x.inner(), copy, self.loops) };
                for ((pass, packed), own) in passes.iter().zip(&packed).zip(&bands[band]) {
                    let sums = made * pass.offsets.len();
                    let packed = &packed[group * sums..][..sums];
                    for &(first, channels) in &blocks {
                        let weights = &packed[first * pass.offsets.len()..];
                        let bias = bias.map_or(std::ptr::null(), |bias| bias[first..].as_ptr());
                        for tile in &own.tiles {
                            let job = Tile {
                                seen: copy[tile.first..].as_ptr(),
                                offsets: &pass.offsets,
                                weights: weights.as_ptr(),
                                bias,
                                to: to.at(first * positions),
                                channel: positions,
                                runs: &own.runs[tile.runs.clone()],
                                step: pass.step(),
                            };
                            // SAFETY: the loops are this processor's. Positions of a tile begin at one
                            // that sees the copy at every offset, and a tile's width lies beyond its
                            // end; weights are packed for these channels; runs lie in a channel of the
                            // result, which no other task writes.
                            unsafe { self.loops.tile(channels, tile.vectors)(&job) };
                        }
                    }
                }
            });
        };
        self.share_out(images * bands.len(), task);
    }

    /// Runs tasks of equal size on as many threads as they are worth.
    fn share_out(&self, tasks: usize, task: impl Fn(usize) + Send + Sync) {
        let each = self.work() / tasks.max(1);
        let least = TASK_PRODUCTS.div_ceil(each.max(1));
        share(tasks.div_ceil(least), |number| {
            (number * least..((number + 1) * least).min(tasks)).for_each(&task);
        });
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
    fn weights(&self, x: Images<'_, T>, dy: Images<'_, T>, dw: Shared<T>) {
        let Convolution { batch, groups, inputs, outputs, .. } = *self.shape;
        let plan = Plan::of(self.shape, Part::Result, size_of::<T>(), 1);
        let passes = plan.passes();
        let offsets = &passes[0].offsets;
        let wide = CHANNEL_VECTORS * self.loops.lanes;
        let slices = outputs.div_ceil(wide);
        let share = batch.div_ceil((PARTS / (groups * slices)).clamp(1, batch));
        let parts = batch.div_ceil(share);
        let size = groups * outputs * inputs * self.shape.places();
        let mut sums = vec![T::ZERO; if parts > 1 { (parts - 1) * size } else { 0 }];
        let more = Shared(sums.as_mut_ptr());
        let task = |number: usize| {
            let (part, rest) = (number / (groups * slices), number % (groups * slices));
            let (group, first) = (rest / slices, rest % slices * wide);
            let slice = Slice { group, first, channels: wide.min(outputs - first) };
            let images = part * share..((part + 1) * share).min(batch);
            let to = if part == 0 { dw } else { Shared(more.at((part - 1) * size)) };
            let to = Shared(to.at((group * outputs + first) * offsets.len()));
            self.slice(&plan, &passes[0], (&x, &dy), images, &slice, to);
        };
        self.share_out(parts * groups * slices, task);
        // SAFETY: the gradient has so many elements, which the tasks wrote and nothing else uses.
        let dw = unsafe { std::slice::from_raw_parts_mut(dw.0, size) };
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
        images: std::ops::Range<usize>,
        slice: &Slice,
        to: Shared<T>,
    ) {
        let Loops { lanes, places, .. } = *self.loops;
        let vectors = slice.channels.div_ceil(lanes);
        let width = vectors * lanes;
        let mut offsets = pass.offsets.clone();
        let wanted = offsets.len();
        // A tile of the last places has some of them again.
        offsets.resize(wanted.next_multiple_of(places), offsets[0]);
        let mut sums = vec![T::ZERO; offsets.len() * width];
        let bands: Vec<Vec<Run>> = plan.bands.iter().map(|band| plan.lines(pass, band)).collect();
        let most = bands.iter().map(|lines| lines.iter().map(|line| line.n).sum()).max();
        let lengths = [plan.copied(0), most.unwrap_or(0usize) * width];
        scratch::with(lengths, |copy, turned: &mut [T]| {
            for image in images {
                for (band, lines) in plan.bands.iter().zip(&bands) {
                    let from = x.image(image, slice.group * plan.channels);
                    // SAFETY: the image has the channels and extents of the plan's source.
                    unsafe { plan.copy(band, from, x.inner(), copy, self.loops) };
                    let channel = slice.group * self.shape.outputs + slice.first;
                    let mut at = 0;
                    for (skipped, n) in self.stretches(lines, dy) {
                        let to = &mut turned[at * width..][..n * width];
                        let job = Turn {
                            from: dy.image(image, channel).wrapping_offset(skipped),
                            channel: dy.strides[1],
                            channels: slice.channels,
                            positions: n,
                            to: to.as_mut_ptr(),
                            width,
                        };
                        // SAFETY: positions of the gradient of the result, for all channels of the slice;
                        // the loops are this processor's.
                        unsafe { self.turn(&job, dy.strides[4]) };
                        at += n;
                    }
                    let lines: Vec<_> = lines.iter().map(|line| (line.at, line.n)).collect();
                    let tiles = offsets.chunks_exact(places);
                    for (offsets, sums) in tiles.zip(sums.chunks_exact_mut(places * width)) {
                        let job = Weights {
                            dy: turned.as_ptr(),
                            seen: copy.as_ptr(),
                            offsets,
                            lines: &lines,
                            sums: sums.as_mut_ptr(),
                        };
                        // SAFETY: the loops are this processor's; positions see the copy at every
                        // offset, and there are as many lines of channels as positions.
                        unsafe { self.loops.weights(vectors)(&job) };
                    }
                }
            }
        });
        for (place, sums) in sums.chunks_exact(width).take(wanted).enumerate() {
            for (o, &sum) in sums.iter().take(slice.channels).enumerate() {
                // SAFETY: an element of the slice's rows of the gradient, which only this task writes.
                unsafe { *to.at(o * wanted + place) = sum };
            }
        }
    }

    /// Lines of positions as they lie in the gradient of the result: where each begins beyond the first
    /// position of a channel, and how many. Lines that follow each other are one.
    fn stretches(&self, lines: &[Run], dy: &Images<'_, T>) -> Vec<(isize, usize)> {
        let [_, down, across] = self.shape.axes.map(|axis| axis.output);
        let [_, depth, high, wide] = dy.inner();
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

    /// Puts the channels of positions that are so far apart next to each other.
    ///
    /// # Safety
    /// They are live memory, and where they go too, which nothing else uses; the loops are the processor's.
    unsafe fn turn(&self, job: &Turn<T>, apart: isize) {
        let one = |p: usize| Turn {
            from: job.from.wrapping_offset(p as isize * apart),
            positions: 1,
            to: job.to.wrapping_add(p * job.width),
            ..*job
        };
        match apart {
            // SAFETY: the caller's promise is the same.
            1 => unsafe { (self.loops.turn)(job) },
            // SAFETY: as above, for each position alone.
            _ => (0..job.positions).for_each(|p| unsafe { (self.loops.turn)(&one(p)) }),
        }
    }
}

/// Channels of the result whose weights a task sums.
struct Slice {
    group: usize,
    first: usize,
    channels: usize,
}

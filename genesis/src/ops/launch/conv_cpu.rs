//! Convolutions on the CPU: patches of a block of positions, then a product, image by image.
//!
//! A block of patches stays in a core's cache, so that no matrix of all patches is ever in memory. Images
//! are shared among the threads; sums over images are made in a fixed number of parts, which are added in
//! order, so that results do not depend on how many threads there are.

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::install;
use genesis_kernel::trace;
use rayon::prelude::*;

use super::super::conv::{Convolution, Part};
use super::super::window::Axis;
use super::{GemmElement, cast};
use crate::error::Result;
use crate::tensor::Tensor;

/// Bytes of a block of patches: what a core's second cache holds beside the other operands.
const BLOCK_BYTES: usize = 512 << 10;
/// Parts of a sum over images.
const PARTS: usize = 8;

/// One product, as [`super::conv::run`]; 16-bit floats are computed in f32.
pub(super) fn run(shape: &Convolution, part: Part, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
    match out.dtype() {
        DType::F32 => typed::<f32>(shape, part, inputs, out),
        DType::F64 => typed::<f64>(shape, part, inputs, out),
        _ => {
            let wide: Vec<Tensor> =
                inputs.iter().map(|t| t.to_dtype(DType::F32)).collect::<Result<_>>()?;
            let sums = Tensor::uninitialized(out.shape(), (DType::F32, out.device()))?;
            typed::<f32>(shape, part, &wide.iter().collect::<Vec<_>>(), &sums)?;
            cast(&sums, out)
        }
    }
}

fn typed<T: GemmElement + std::ops::AddAssign>(
    shape: &Convolution,
    part: Part,
    inputs: &[&Tensor],
    out: &Tensor,
) -> Result<()> {
    let kept: Vec<Tensor> = inputs.iter().map(|t| t.contiguous()).collect::<Result<_>>()?;
    let (a, b) = (elements::<T>(&kept[0]), elements::<T>(&kept[1]));
    let out = elements_mut::<T>(out);
    let bias = kept.get(2).map(|bias| elements::<T>(bias));
    let plan = Plan::of::<T>(shape);
    let _kernel = trace::host_kernel("gemm (convolution)", || work::<T>(shape));
    install(|| match part {
        Part::Result => plan.result(a, b, bias, out),
        Part::Input => plan.input(a, b, out),
        Part::Weight => plan.weight(b, a, out),
    });
    Ok(())
}

/// What a convolution, or a gradient of one, moves and computes.
fn work<T>(shape: &Convolution) -> trace::Kernel {
    let numel = |shape: Vec<usize>| shape.iter().product::<usize>() as u64;
    let (weight, result) = (numel(shape.weight_shape()), numel(shape.result_shape()));
    let inner = shape.axes.iter().map(|axis| axis.kernel as u64).product::<u64>();
    let flops = 2 * result * shape.inputs as u64 * inner;
    let bytes = (weight + result + numel(shape.input_shape())) * size_of::<T>() as u64;
    trace::Kernel { bytes, flops, product_flops: flops, ..trace::Kernel::default() }
}

/// The elements of a dense tensor on the CPU.
fn elements<T>(t: &Tensor) -> &[T] {
    // SAFETY: a dense CPU tensor of this dtype has so many elements from its address on, and the borrow
    // keeps its storage alive.
    unsafe { std::slice::from_raw_parts(t.address() as *const T, t.numel()) }
}

/// The elements of a dense tensor on the CPU that was just made.
#[allow(clippy::mut_from_ref, reason = "a tensor is a handle: what it points to is shared anyway")]
fn elements_mut<T>(t: &Tensor) -> &mut [T] {
    // SAFETY: as above, and the tensor is fresh: nothing else reads or writes it.
    unsafe { std::slice::from_raw_parts_mut(t.address() as *mut T, t.numel()) }
}

/// A matrix in memory: its first element, and the distances of rows and of columns.
#[derive(Clone, Copy)]
struct Matrix<T> {
    at: *const T,
    row: usize,
    column: usize,
}

fn matrix<T>(of: &[T], row: usize, column: usize) -> Matrix<T> {
    Matrix { at: of.as_ptr(), row, column }
}

/// `c = a b`, or `c += a b`, with `c` of rows this far apart.
fn multiply<T: GemmElement>(
    [m, n, k]: [usize; 3],
    (a, b): (Matrix<T>, Matrix<T>),
    (c, row): (&mut [T], usize),
    adds: bool,
) {
    assert!((m - 1) * row + n <= c.len(), "a product lies inside its result");
    // SAFETY: callers give matrices of m by k and k by n inside of slices that live; the result was
    // checked.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            row as isize,
            adds,
            a.at,
            a.column as isize,
            a.row as isize,
            b.at,
            b.column as isize,
            b.row as isize,
            T::ONE,
            T::ONE,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Extents of one image of one group.
struct Plan {
    shape: Convolution,
    /// Positions of the input and of the result.
    seen: usize,
    made: usize,
    /// Rows of a matrix of patches.
    inner: usize,
    /// Lines of positions in a block; a line is along the last axis.
    lines: usize,
    /// Whether patches are the image itself.
    is_plain: bool,
}

impl Plan {
    fn of<T>(shape: &Convolution) -> Plan {
        let inner = shape.inputs * shape.places();
        let width = shape.axes[2].output;
        let all = shape.axes[0].output * shape.axes[1].output;
        let line = inner * width * size_of::<T>();
        let lines = (BLOCK_BYTES / line.max(1)).clamp(1, all);
        let is_same = |axis: &Axis| {
            axis.kernel == 1 && axis.stride == 1 && axis.before == 0 && axis.input == axis.output
        };
        Plan {
            seen: shape.axes.iter().map(|axis| axis.input).product(),
            made: all * width,
            inner,
            lines,
            is_plain: shape.axes.iter().all(is_same),
            shape: shape.clone(),
        }
    }

    /// Blocks of lines: the first, how many, and the first position of the block.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (lines, width) = (self.lines, self.shape.axes[2].output);
        let all = self.made / width;
        (0..all).step_by(lines).map(move |first| (first, lines.min(all - first), first * width))
    }

    /// The most positions of a block.
    fn most(&self) -> usize {
        self.lines * self.shape.axes[2].output
    }

    /// Input and group of an image.
    fn image<'t, T>(&self, x: &'t [T], which: usize) -> &'t [T] {
        let size = self.shape.inputs * self.seen;
        &x[which * size..][..size]
    }

    /// The weights of an image's group: `[O, C * places]`.
    fn weights<'t, T>(&self, weight: &'t [T], which: usize) -> &'t [T] {
        let size = self.shape.outputs * self.inner;
        &weight[which % self.shape.groups * size..][..size]
    }

    fn result<T: GemmElement>(&self, x: &[T], weight: &[T], bias: Option<&[T]>, y: &mut [T]) {
        let size = self.shape.outputs * self.made;
        let buffer = || vec![T::ZERO; if self.is_plain { 0 } else { self.inner * self.most() }];
        y.par_chunks_mut(size).enumerate().for_each_init(buffer, |patches, (which, y)| {
            let (x, weight) = (self.image(x, which), self.weights(weight, which));
            if let Some(bias) = bias {
                let first = which % self.shape.groups * self.shape.outputs;
                for (o, line) in y.chunks_mut(self.made).enumerate() {
                    line.fill(bias[first + o]);
                }
            }
            for (first, lines, start) in self.blocks() {
                let n = lines * self.shape.axes[2].output;
                let seen = self.patches(x, patches, first, n);
                let extents = [self.shape.outputs, n, self.inner];
                let operands = (matrix(weight, self.inner, 1), seen);
                multiply(extents, operands, (&mut y[start..], self.made), bias.is_some());
            }
        });
    }

    fn input<T: GemmElement + std::ops::AddAssign>(&self, dy: &[T], weight: &[T], dx: &mut [T]) {
        let size = self.shape.inputs * self.seen;
        let buffer = || vec![T::ZERO; if self.is_plain { 0 } else { self.inner * self.most() }];
        dx.par_chunks_mut(size).enumerate().for_each_init(buffer, |patches, (which, dx)| {
            let from = self.shape.outputs * self.made;
            let (dy, weight) = (&dy[which * from..][..from], self.weights(weight, which));
            if !self.is_plain {
                dx.fill(T::ZERO);
            }
            for (first, lines, start) in self.blocks() {
                let n = lines * self.shape.axes[2].output;
                let extents = [self.inner, n, self.shape.outputs];
                let operands = (matrix(weight, 1, self.inner), matrix(&dy[start..], self.made, 1));
                if self.is_plain {
                    multiply(extents, operands, (&mut dx[start..], self.made), false);
                } else {
                    multiply(extents, operands, (patches, n), false);
                    self.add_patches(patches, dx, first, n);
                }
            }
        });
    }

    fn weight<T: GemmElement + std::ops::AddAssign>(&self, dy: &[T], x: &[T], dw: &mut [T]) {
        let (groups, size) = (self.shape.groups, self.shape.outputs * self.inner);
        let share = self.shape.batch.div_ceil(PARTS);
        let parts = self.shape.batch.div_ceil(share);
        let mut sums = vec![T::ZERO; parts * groups * size];
        let buffer = || vec![T::ZERO; if self.is_plain { 0 } else { self.inner * self.most() }];
        sums.par_chunks_mut(size).enumerate().for_each_init(buffer, |patches, (which, sum)| {
            let (part, group) = (which / groups, which % groups);
            for image in part * share..((part + 1) * share).min(self.shape.batch) {
                let which = image * groups + group;
                let from = self.shape.outputs * self.made;
                let (dy, x) = (&dy[which * from..][..from], self.image(x, which));
                for (first, lines, start) in self.blocks() {
                    let n = lines * self.shape.axes[2].output;
                    let seen = self.patches(x, patches, first, n);
                    let turned = Matrix { row: seen.column, column: seen.row, ..seen };
                    let operands = (matrix(&dy[start..], self.made, 1), turned);
                    let extents = [self.shape.outputs, self.inner, n];
                    multiply(extents, operands, (sum, self.inner), true);
                }
            }
        });
        dw.copy_from_slice(&sums[..groups * size]);
        for part in sums.chunks(groups * size).skip(1) {
            dw.iter_mut().zip(part).for_each(|(sum, &more)| *sum += more);
        }
    }

    /// What `n` positions from line `first` on see: a matrix of `inner` rows.
    fn patches<T: GemmElement>(
        &self,
        x: &[T],
        patches: &mut [T],
        first: usize,
        n: usize,
    ) -> Matrix<T> {
        let width = self.shape.axes[2].output;
        if self.is_plain {
            return matrix(&x[first * width..], self.seen, 1);
        }
        self.each_line(first, n, |channel, row, at, line, start, columns| {
            let line = &mut patches[row * n + line * width..][..width];
            let Some(at) = at else { return line.fill(T::ZERO) };
            let from = &x[channel * self.seen + at..];
            line[..columns.start].fill(T::ZERO);
            line[columns.end..].fill(T::ZERO);
            let line = &mut line[columns];
            match self.shape.axes[2].stride {
                1 => line.copy_from_slice(&from[start..][..line.len()]),
                step => {
                    let seen = from[start..].iter().step_by(step);
                    line.iter_mut().zip(seen).for_each(|(to, &from)| *to = from);
                }
            }
        });
        matrix(patches, n, 1)
    }

    /// Adds what [`Self::patches`] would read to where it reads.
    fn add_patches<T: GemmElement + std::ops::AddAssign>(
        &self,
        patches: &[T],
        x: &mut [T],
        first: usize,
        n: usize,
    ) {
        let width = self.shape.axes[2].output;
        self.each_line(first, n, |channel, row, at, line, start, columns| {
            let Some(at) = at else { return };
            let line = &patches[row * n + line * width..][..width][columns];
            let to = &mut x[channel * self.seen + at..][start.min(self.seen)..];
            let step = self.shape.axes[2].stride;
            to.iter_mut().step_by(step).zip(line).for_each(|(to, &from)| *to += from);
        });
    }

    /// Walks the lines of a block, by channel and place: the channel, the row of the matrix of patches,
    /// where the input's line begins, the line of the block, where in the input's line its first column
    /// looks, and the columns that look inside.
    fn each_line(
        &self,
        first: usize,
        n: usize,
        mut visit: impl FnMut(usize, usize, Option<usize>, usize, usize, std::ops::Range<usize>),
    ) {
        let [depth, down, across] = self.shape.axes;
        let lines = n / across.output;
        let places = self.shape.places();
        for row in 0..self.inner {
            let (channel, place) = (row / places, row % places);
            let (line_place, l) = (place / across.kernel, place % across.kernel);
            let (d, k) = (line_place / down.kernel, line_place % down.kernel);
            let columns = inside(&across, l);
            let start = columns.start * across.stride + l * across.dilation;
            let start = start.saturating_sub(across.before);
            for line in 0..lines {
                let (plane, i) = ((first + line) / down.output, (first + line) % down.output);
                let at = depth.look(plane, d).zip(down.look(i, k));
                let at = at.map(|(plane, i)| (plane * down.input + i) * across.input);
                let at = at.filter(|_| !columns.is_empty());
                visit(channel, row, at, line, start, columns.clone());
            }
        }
    }
}

/// The windows whose place `k` looks inside.
fn inside(axis: &Axis, k: usize) -> std::ops::Range<usize> {
    let skipped = k * axis.dilation;
    let first = axis.before.saturating_sub(skipped).div_ceil(axis.stride).min(axis.output);
    let end = (axis.input + axis.before).saturating_sub(skipped).div_ceil(axis.stride);
    first..end.clamp(first, axis.output)
}

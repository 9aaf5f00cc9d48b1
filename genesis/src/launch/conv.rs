//! Launches of convolutions: which kernel, in which tiles, on which views.

mod boxes;
mod few;
mod gathered;
mod job;
mod point;

use genesis_kernel::runtime::Device;

use self::job::Job;
use super::cast;
use super::convolution::{Convolution, Part};
use crate::dispatch::trace;
use crate::error::Result;
use crate::tensor::Tensor;

/// Writes one product of a convolution to `out`, which is fresh and not empty. Inputs have rank 5.
pub(crate) fn run(shape: &Convolution, part: Part, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
    trace::check_real("conv", &[out])?;
    match out.device() {
        Device::Cpu => super::conv_cpu::run(shape, part, inputs, out),
        Device::Cuda(_) => by_kernels(shape, part, inputs, out),
    }
}

/// [`run`] by kernels of the language.
fn by_kernels(shape: &Convolution, part: Part, inputs: &[&Tensor], out: &Tensor) -> Result<()> {
    if part == Part::Weight {
        return weights(shape, inputs[1], inputs[0], out);
    }
    let job = Job::of(shape, part);
    if point::suits(shape) && point::is_aligned(shape, out.dtype().bytes()) {
        point::run(shape, part, inputs, out)
    } else if few::suits(&job, out.dtype()) {
        few::run(&job, inputs, out)
    } else if boxes::suits(&job, inputs[0]) {
        boxes::run(&job, inputs, out)
    } else {
        gathered::run(&job, inputs, out)
    }
}

fn weights(shape: &Convolution, dy: &Tensor, x: &Tensor, out: &Tensor) -> Result<()> {
    let Convolution { groups, inputs, outputs, .. } = *shape;
    if few::are_few(groups, inputs) {
        let sums = few::weights(shape, dy, x)?;
        return cast(&total(sums)?, &out.reshape(&[groups * outputs, inputs, shape.places()])?);
    }
    if point::suits(shape) && point::is_aligned(shape, x.dtype().bytes()) {
        by_place(point::weights(shape, dy, x)?, out)
    } else if boxes::suits(&Job::of(shape, Part::Result), x) {
        by_place(boxes::weights(shape, dy, x)?, out)
    } else {
        by_channel(gathered::weights(shape, dy, x)?, out)
    }
}

/// Adds up parts `[parts, kernel, O, C]`.
fn by_place(parts: Tensor, out: &Tensor) -> Result<()> {
    let sum = total(parts)?.permute(&[1, 2, 0])?;
    cast(&sum, &out.reshape(sum.shape())?)
}

/// Adds up parts `[parts, groups, O, kernel, C]`.
fn by_channel(parts: Tensor, out: &Tensor) -> Result<()> {
    let sum = total(parts)?.transpose(2, 3)?;
    cast(&sum, &out.reshape(sum.shape())?)
}

/// The sum of parts, in the order of their own axes: a sum along the first of dense ones copies nothing.
fn total(sums: Tensor) -> Result<Tensor> {
    if sums.shape()[0] == 1 { sums.squeeze(0) } else { sums.sum_dims(&[0], false) }
}

#[cfg(test)]
mod tests {
    use super::super::axis::Axis;
    use super::*;
    use genesis_kernel::ir::DType;

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
            of(3, 1, 6, [one, axis(5, 3, 1, 1, 1), line]),
            of(3, 1, 1, [axis(4, 2, 2, 1, 1), axis(5, 3, 1, 2, 2), line]),
            of(4, 8, 8, [one, axis(5, 3, 1, 1, 1), line]),
            of(1, 3, 20, [one, axis(9, 7, 2, 3, 1), axis(11, 7, 2, 3, 1)]),
            of(1, 40, 70, [one, one, axis(11, 4, 3, 2, 2)]),
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
    fn boxes_agree() -> Result<()> {
        let axes = [axis(3, 2, 1, 1, 1), axis(5, 3, 1, 1, 1), axis(6, 2, 1, 0, 2)];
        let by_one = Convolution { batch: 3, groups: 1, inputs: 24, outputs: 8, axes };
        // A gradient of the input has phases.
        let axes = [Axis::UNIT, axis(7, 3, 2, 1, 1), axis(9, 4, 3, 2, 2)];
        let by_steps = Convolution { axes, ..by_one.clone() };
        let tile =
            boxes::Tile { channels: 64, images: 2, rows: 4, columns: 8, warps: 4, stages: 2 };
        let cases = PARTS.map(|part| (&by_one, part)).into_iter().chain([(&by_steps, Part::Input)]);
        for (shape, part) in cases {
            let ([a, b], out) = operands(shape, part, DTYPE)?;
            let [got, want] = [0, 1].map(|_| Tensor::uninitialized(&out, (DTYPE, Device::Cpu)));
            let (got, want) = (got?, want?);
            super::super::conv_cpu::run(shape, part, &[&a, &b], &want)?;
            match part {
                Part::Weight => by_place(boxes::weights(shape, &b, &a)?, &got)?,
                _ => boxes::in_tiles(&Job::of(shape, part), |_| tile, &[&a, &b], &got)?,
            }
            assert_eq!(got.to_f64_vec()?, want.to_f64_vec()?, "{part:?} of {shape:?}");
        }
        Ok(())
    }

    #[test]
    fn windows_of_one_element_agree_by_every_kernel() -> Result<()> {
        let axes = [Axis::UNIT, axis(5, 1, 1, 0, 1), axis(6, 1, 1, 0, 1)];
        let shape = Convolution { batch: 3, groups: 1, inputs: 10, outputs: 7, axes };
        for part in PARTS {
            let ([a, b], out) = operands(&shape, part, DTYPE)?;
            let got = || Tensor::uninitialized(&out, (DTYPE, Device::Cpu));
            let [by_point, gathered, want] = [got()?, got()?, got()?];
            super::super::conv_cpu::run(&shape, part, &[&a, &b], &want)?;
            match part {
                Part::Weight => {
                    by_place(point::weights(&shape, &b, &a)?, &by_point)?;
                    by_channel(gathered::weights(&shape, &b, &a)?, &gathered)?;
                }
                _ => {
                    point::run(&shape, part, &[&a, &b], &by_point)?;
                    gathered::run(&Job::of(&shape, part), &[&a, &b], &gathered)?;
                }
            }
            assert_eq!(by_point.to_f64_vec()?, want.to_f64_vec()?, "{part:?}");
            assert_eq!(gathered.to_f64_vec()?, want.to_f64_vec()?, "{part:?}");
        }
        Ok(())
    }
}

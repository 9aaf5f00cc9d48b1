//! Convolutions by windows of one element: products of matrices, of tensors as they lie.

use genesis_kernel::kernel::{Grid, LaunchOptions};
use kernels::{conv as device, matmul};

use super::super::axis::Axis;
use super::super::convolution::{Convolution, Part};
use super::super::{accumulate_dtype, launch_as, own_view};
use super::job::{integers, share};
use crate::error::Result;
use crate::tensor::Tensor;

/// Whether windows are one element of every one of the input, and lines of channels and positions lie so
/// that loads take several elements.
pub(super) fn suits(shape: &Convolution) -> bool {
    let is_same = |axis: &Axis| {
        (axis.kernel, axis.stride, axis.before) == (1, 1, 0) && axis.input == axis.output
    };
    shape.groups == 1 && shape.axes.iter().all(is_same)
}

/// Whether that is so of 16-byte lines too, which tensor cores want.
pub(super) fn is_aligned(shape: &Convolution, bytes: usize) -> bool {
    let positions = crate::shape::product(shape.axes.iter().map(|axis| axis.input));
    bytes > 2 || [positions, shape.inputs].iter().all(|n| n.is_multiple_of(8))
}

/// The positions of an image as one axis: `[N, C, P]`.
fn lines(t: &Tensor) -> Result<Tensor> {
    t.reshape(&[t.shape()[0], t.shape()[1], crate::shape::product(t.shape()[2..].iter())])
}

/// The result, or the gradient of the input.
pub(super) fn run(shape: &Convolution, part: Part, inputs: &[&Tensor], y: &Tensor) -> Result<()> {
    let weight = inputs[1].reshape(&[1, shape.outputs, shape.inputs])?;
    let weight = if part == Part::Input { weight.transpose(1, 2)? } else { weight };
    let [_, made, summed] = [0, 1, 2].map(|axis| weight.shape()[axis]);
    let weight = weight.broadcast_to(&[shape.batch, made, summed])?;
    let (x, y) = (lines(inputs[0])?, lines(y)?);
    match inputs.get(2) {
        Some(bias) => {
            let kernels = [&matmul::matmul_bias_down::KERNEL, &matmul::matmul_bias::KERNEL];
            super::super::matmul_bias([&weight, &x, bias], &y, kernels)
        }
        None => super::super::matmul(&weight, &x, &y, false),
    }
}

/// The gradient of weights in parts `[parts, 1, O, C]`.
pub(super) fn weights(shape: &Convolution, dy: &Tensor, x: &Tensor) -> Result<Tensor> {
    let Convolution { batch, inputs, outputs, .. } = *shape;
    let (dy, x) = (lines(dy)?, lines(x)?);
    let wide = accumulate_dtype(x.dtype());
    let is_wide = outputs > 64 && inputs > 64;
    let (side, step, warps, stages) = match x.dtype().bytes() {
        2 if is_wide => (128, 64, 8, 4),
        2 => (64, 64, 4, 4),
        8 => (32, 16, 4, 2),
        _ if is_wide => (128, 32, 8, 3),
        _ => (64, 16, 4, 3),
    };
    let tiles = outputs.div_ceil(side) * inputs.div_ceil(side);
    let share = share(&x, 2, outputs * inputs, tiles, [batch, x.shape()[2].div_ceil(step)]);
    let parts = batch.div_ceil(share);
    let sums = Tensor::uninitialized(&[parts, outputs, inputs], (wide, x.device()))?;
    let mut args = vec![own_view(&dy, false), own_view(&x, false), own_view(&sums, true)];
    args.extend(integers([share as i64]));
    let options = LaunchOptions {
        num_warps: Some(warps),
        num_stages: Some(stages),
        ..LaunchOptions::default()
    };
    let consts = [side, side, step].map(|n: usize| n as i64);
    let kernel = &device::conv_point_weight::KERNEL;
    let (grid, dtypes) = (Grid::x(parts * tiles), [x.dtype(), wide]);
    launch_as(kernel, &sums, grid, &dtypes, &consts, options, &args)?;
    sums.reshape(&[parts, 1, outputs, inputs])
}

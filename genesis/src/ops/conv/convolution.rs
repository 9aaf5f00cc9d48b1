//! Convolutions, their transposes, and the gradients of both.
//!
//! A convolution is linear in its input and in its weights, so that three products are all there is:
//! the result `y`, the gradient of the input and that of the weights. Each is the gradient of the other
//! two, which gives every order of derivative; the transposed convolution is the second of them:
//!
//! ```text
//! part      of        gradient of the first   of the second
//! Result    x, w      Input(dy, w)            Weight(x, dy)
//! Input     dy, w     Result(g, w)            Weight(g, dy)
//! Weight    x, dy     Input(dy, g)            Result(x, g)
//! ```

#[cfg(feature = "op-info")]
pub(super) mod info;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch::axis::{Axis, three};
use crate::launch::conv as device;
use crate::launch::convolution::{Convolution, Part};
use crate::ops::{Op, Saves, apply, check_pair, wrong_dtype};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[
    ("conv", Precision::Half),
    ("conv1d", Precision::Half),
    ("conv2d", Precision::Half),
    ("conv3d", Precision::Half),
    ("conv_transpose", Precision::Half),
    ("conv_transpose1d", Precision::Half),
    ("conv_transpose2d", Precision::Half),
    ("conv_transpose3d", Precision::Half),
];

/// How a convolution moves, one number an axis.
#[derive(Clone, Debug)]
pub struct Conv {
    /// Steps between windows.
    pub stride: Vec<usize>,
    /// Zeros before and after each axis.
    pub padding: Vec<[usize; 2]>,
    /// Steps between the elements of one window.
    pub dilation: Vec<usize>,
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl Conv {
    /// Every window, without padding.
    pub fn new(axes: usize) -> Conv {
        Conv {
            stride: vec![1; axes],
            padding: vec![[0; 2]; axes],
            dilation: vec![1; axes],
            groups: 1,
        }
    }

    /// Refuses what fits no tensor of any extents; `channels` are those of `weight` that must be those
    /// of `x`.
    fn check(
        &self,
        op: &'static str,
        x: &Tensor,
        weight: &Tensor,
        channels: Option<usize>,
    ) -> Result<()> {
        check_pair(op, x, weight)?;
        if !x.dtype().is_arithmetic_float() {
            return Err(wrong_dtype(op, "a float", x.dtype()));
        }
        let axes = self.stride.len();
        let fits = (1..=3).contains(&axes)
            && [x.rank(), weight.rank()] == [axes + 2; 2]
            && [self.padding.len(), self.dilation.len()] == [axes; 2]
            && self.groups > 0
            && Some(x.shape()[1]) == channels
            && weight.shape()[0].is_multiple_of(self.groups);
        if !fits {
            let (weight, groups) = (weight.shape(), self.groups);
            let message = format!(
                "a weight of {weight:?} in {groups} groups does not fit shape {:?}",
                x.shape()
            );
            return Err(Error::op(op, message));
        }
        if self.stride.iter().chain(&self.dilation).any(|&n| n == 0) {
            return Err(Error::op(op, "stride and dilation must be positive"));
        }
        Ok(())
    }

    fn axis(&self, at: usize, input: usize, kernel: usize) -> Axis {
        let (stride, dilation) = (self.stride[at], self.dilation[at]);
        Axis { input, output: 0, kernel, stride, before: self.padding[at][0], dilation }
    }
}

impl Tensor {
    /// The convolution (without flipping) over the last one, two or three axes, as many as `conv` has.
    ///
    /// `y[n, o, i] = bias[o] + sum over c, k of x[n, c, i * stride + k * dilation - padding] * weight[o, c, k]`
    ///
    /// # Shapes
    /// `[N, C, ..]` or `[C, ..]` with `weight: [O, C / groups, ..]` and `bias: [O]` gives `[N, O, ..]`.
    /// # Numerics
    /// Sums are in f32 for f16 and bf16, and rounded once, after the bias. Zeros of the padding are
    /// multiplied too, as in PyTorch: where a weight is infinite they give NaN.
    /// # Errors
    /// If shapes, groups or dtypes do not fit, or a window is larger than the padded input.
    /// # Cost
    /// `2 * N * O * prod(windows) * prod(weight[0])` operations; on GPUs no patches are stored.
    /// # Source
    /// `torch.nn.functional.conv1d`, `conv2d` and `conv3d`.
    #[track_caller]
    pub fn conv(&self, weight: &Tensor, bias: Option<&Tensor>, conv: &Conv) -> Result<Tensor> {
        const NAME: &str = "conv";
        let axes = conv.stride.len();
        if self.rank() == axes + 1 {
            return self.unsqueeze(0)?.conv(weight, bias, conv)?.squeeze(0);
        }
        let channels = weight.shape().get(1).and_then(|c| c.checked_mul(conv.groups));
        conv.check(NAME, self, weight, channels)?;
        check_bias(NAME, self, bias, weight.shape()[0])?;
        let mut moves = Vec::new();
        for at in 0..axes {
            let mut axis = conv.axis(at, self.shape()[at + 2], weight.shape()[at + 2]);
            axis.output = axis.room(NAME, conv.padding[at][1])? / axis.stride + 1;
            moves.push(axis);
        }
        let shape = Convolution {
            batch: self.shape()[0],
            groups: conv.groups,
            inputs: weight.shape()[1],
            outputs: weight.shape()[0] / conv.groups,
            axes: three(&moves, Axis::UNIT),
        };
        let (x, w) = (wide(self)?, wide(weight)?);
        let op = Convolve { shape, part: Part::Result };
        let y = match bias {
            Some(bias) => apply(op, &[&x, &w, bias]),
            None => apply(op, &[&x, &w]),
        };
        narrow(&y?, axes)
    }

    /// The transpose of a convolution over the last one, two or three axes: what [`conv`](Tensor::conv)
    /// of the same settings gives as the gradient of its input.
    ///
    /// # Shapes
    /// `[N, C, ..]` or `[C, ..]` with `weight: [C, O / groups, ..]` and `bias: [O]` gives `[N, O, ..]`, along
    /// each axis `(n - 1) * stride + dilation * (kernel - 1) + 1 + output_padding` less both paddings.
    /// # Numerics
    /// As [`conv`](Tensor::conv).
    /// # Errors
    /// If shapes, groups or dtypes do not fit, padding leaves nothing, or `output_padding` is not smaller
    /// than stride or dilation.
    /// # Source
    /// `torch.nn.functional.conv_transpose1d`, `conv_transpose2d` and `conv_transpose3d`.
    #[track_caller]
    pub fn conv_transpose(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        conv: &Conv,
        output_padding: &[usize],
    ) -> Result<Tensor> {
        const NAME: &str = "conv_transpose";
        let axes = conv.stride.len();
        if self.rank() == axes + 1 {
            let x = self.unsqueeze(0)?;
            return x.conv_transpose(weight, bias, conv, output_padding)?.squeeze(0);
        }
        let channels = weight.shape().first().copied();
        conv.check(NAME, self, weight, channels)?;
        let made = weight.shape()[1].checked_mul(conv.groups);
        let made = made.ok_or_else(|| Error::op(NAME, "there are too many channels"))?;
        check_bias(NAME, self, bias, made)?;
        check_output_padding(conv, output_padding)?;
        let mut moves = Vec::new();
        for (at, &more) in output_padding.iter().enumerate() {
            let mut axis = conv.axis(at, 0, weight.shape()[at + 2]);
            axis.output = self.shape()[at + 2];
            axis.input = input_of(&axis, conv.padding[at][1], more)?;
            if axis.input == 0 && self.shape()[0] > 0 {
                return Err(Error::op(NAME, format!("nothing is left of axis {at}")));
            }
            moves.push(axis);
        }
        let shape = Convolution {
            batch: self.shape()[0],
            groups: conv.groups,
            inputs: weight.shape()[1],
            outputs: weight.shape()[0] / conv.groups,
            axes: three(&moves, Axis::UNIT),
        };
        let (x, w) = (wide(self)?, wide(weight)?);
        let op = Convolve { shape, part: Part::Input };
        let y = match bias {
            Some(bias) => apply(op, &[&x, &w, bias]),
            None => apply(op, &[&x, &w]),
        };
        narrow(&y?, axes)
    }
}

fn check_bias(op: &'static str, x: &Tensor, bias: Option<&Tensor>, outputs: usize) -> Result<()> {
    let Some(bias) = bias else { return Ok(()) };
    check_pair(op, x, bias)?;
    if bias.shape() != [outputs] {
        let message =
            format!("the bias is {:?}, {outputs} channels need [{outputs}]", bias.shape());
        return Err(Error::op(op, message));
    }
    Ok(())
}

fn check_output_padding(conv: &Conv, padding: &[usize]) -> Result<()> {
    let fits = |(at, &n): (usize, &usize)| n < conv.stride[at].max(conv.dilation[at]);
    if padding.len() == conv.stride.len() && padding.iter().enumerate().all(fits) {
        return Ok(());
    }
    let message = format!(
        "output padding {padding:?} must be smaller than stride {:?} or dilation {:?}",
        conv.stride, conv.dilation
    );
    Err(Error::op("conv_transpose", message))
}

/// The extent of which a convolution makes `axis.output` windows.
fn input_of(axis: &Axis, after: usize, more: usize) -> Result<usize> {
    let steps = axis.output.checked_sub(1).and_then(|steps| steps.checked_mul(axis.stride));
    let span = axis.kernel.checked_sub(1).and_then(|steps| steps.checked_mul(axis.dilation));
    let all = steps.zip(span).and_then(|(a, b)| a.checked_add(b)?.checked_add(1 + more));
    let left = all.and_then(|all| all.checked_sub(axis.before)?.checked_sub(after));
    left.filter(|&n| i32::try_from(n).is_ok()).ok_or_else(|| {
        let message = format!("nothing is left of {} elements, or too much", axis.output);
        Error::op("conv_transpose", message)
    })
}

/// A tensor with three axes after the first two, ones in front.
fn wide(t: &Tensor) -> Result<Tensor> {
    let shape = [&t.shape()[..2], &three(&t.shape()[2..], 1)].concat();
    t.reshape(&shape)
}

/// A tensor without the axes that [`wide`] put in.
fn narrow(t: &Tensor, axes: usize) -> Result<Tensor> {
    t.reshape(&[&t.shape()[..2], &t.shape()[5 - axes..]].concat())
}

/// One product, on tensors of rank 5; a result may have a bias as its third input.
struct Convolve {
    shape: Convolution,
    part: Part,
}

impl Convolve {
    fn part(&self, part: Part, a: &Tensor, b: &Tensor) -> Result<Option<Tensor>> {
        apply(Convolve { shape: self.shape.clone(), part }, &[a, b]).map(Some)
    }
}

impl Op for Convolve {
    fn name(&self) -> &'static str {
        match self.part {
            Part::Result => "conv",
            Part::Input => "conv_transpose",
            Part::Weight => "conv_weight",
        }
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let shape = &self.shape;
        let (wanted, summed) = match self.part {
            Part::Result => (shape.result_shape(), shape.inputs * shape.places()),
            Part::Input => (shape.input_shape(), shape.outputs * shape.places()),
            Part::Weight => {
                let windows: usize =
                    crate::shape::product(shape.axes.iter().map(|axis| axis.output));
                (shape.weight_shape(), shape.batch * windows)
            }
        };
        let on = (inputs[0].dtype(), inputs[0].device());
        let elements: usize = crate::shape::product(wanted.iter());
        if elements == 0 || summed == 0 {
            let zeros = Tensor::zeros(&wanted, on)?;
            return match inputs.get(2) {
                Some(bias) => zeros.add(&bias.reshape(&[bias.numel(), 1, 1, 1])?),
                None => Ok(zeros),
            };
        }
        let out = Tensor::uninitialized(&wanted, on)?;
        device::run(shape, self.part, inputs, &out)?;
        Ok(out)
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let wanted = |i: usize| saved.wanted.get(i).copied().unwrap_or(false);
        let (of_first, of_second) = match self.part {
            Part::Result => (Part::Input, Part::Weight),
            Part::Input => (Part::Result, Part::Weight),
            Part::Weight => (Part::Input, Part::Result),
        };
        let da = match (wanted(0), self.part) {
            (false, _) => None,
            (true, Part::Weight) => self.part(of_first, saved.input(1), dy)?,
            (true, _) => self.part(of_first, dy, saved.input(1))?,
        };
        let db = match (wanted(1), self.part) {
            (false, _) => None,
            (true, Part::Input) => self.part(of_second, dy, saved.input(0))?,
            (true, _) => self.part(of_second, saved.input(0), dy)?,
        };
        let mut gradients = vec![da, db];
        if saved.wanted.len() == 3 {
            let dims = [0, 2, 3, 4];
            gradients.push(if wanted(2) { Some(dy.sum_dims(&dims, false)?) } else { None });
        }
        Ok(gradients)
    }
}

//! Convolutions over one, two or three axes.

use super::{Layer, Module, Parameter, count_flops, flops, init, watch};
use crate::error::{Error, Result};
use crate::ops::{Conv, PadMode};
use crate::tensor::{Creation, Tensor};

/// One number for each of `N` axes; a single number stands for all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes<const N: usize>(pub [usize; N]);

impl<const N: usize> From<usize> for Sizes<N> {
    fn from(size: usize) -> Sizes<N> {
        Sizes([size; N])
    }
}

impl<const N: usize> From<[usize; N]> for Sizes<N> {
    fn from(sizes: [usize; N]) -> Sizes<N> {
        Sizes(sizes)
    }
}

/// How much a convolution adds at the ends of its axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConvPadding<const N: usize> {
    /// So many elements at both ends of each axis.
    Both([usize; N]),
    /// As many as keep the extents, at a stride of 1; an odd one stands at the end.
    Same,
}

/// What stands in a convolution's padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ConvPaddingMode {
    /// Zeros.
    #[default]
    Zeros,
    /// The elements mirrored at the first and the last, which are not repeated.
    Reflect,
    /// The first and the last element.
    Replicate,
    /// The elements from the other end.
    Circular,
}

/// What a [`ConvNd`] is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvOptions<const N: usize> {
    /// Steps between windows.
    pub stride: [usize; N],
    /// How much is added at the ends.
    pub padding: ConvPadding<N>,
    /// Steps between the elements of one window.
    pub dilation: [usize; N],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// What stands in the padding.
    pub padding_mode: ConvPaddingMode,
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> ConvOptions<N> {
        ConvOptions {
            stride: [1; N],
            padding: ConvPadding::Both([0; N]),
            dilation: [1; N],
            groups: 1,
            bias: true,
            padding_mode: ConvPaddingMode::Zeros,
        }
    }
}

/// A parameter uniform in `±1 / sqrt(fan)`, as PyTorch starts convolutions.
pub(super) fn started(shape: &[usize], fan: usize, at: Creation) -> Result<Parameter> {
    let bound = 1.0 / (fan.max(1) as f64).sqrt();
    init::uniform(shape, -bound, bound, at)
}

pub(super) fn check_groups(op: &str, channels: [usize; 2], groups: usize) -> Result<()> {
    if groups > 0 && channels.iter().all(|c| c.is_multiple_of(groups)) {
        return Ok(());
    }
    let [inputs, outputs] = channels;
    let message = format!("{groups} groups do not divide {inputs} and {outputs} channels");
    Err(Error::op(op, message))
}

/// The convolution over `N` axes (without flipping).
///
/// # Shapes
/// `[B, C, ..]` or `[C, ..]` -> `[B, O, ..]` or `[O, ..]`, with `weight: [O, C / groups, ..]` and
/// `bias: [O]`.
///
/// # Examples
/// ```
/// use genesis::nn::{Conv2d, ConvOptions, ConvPadding};
/// use genesis::{Device, Tensor};
///
/// let options = ConvOptions { stride: [2, 2], padding: ConvPadding::Both([1, 1]), ..Default::default() };
/// let conv = Conv2d::with([3, 8], 3, options, Device::Cpu)?;
/// assert_eq!(conv.forward(&Tensor::ones(&[1, 3, 8, 6], Device::Cpu)?)?.shape(), [1, 8, 4, 3]);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug, Module)]
pub struct ConvNd<const N: usize> {
    /// `[O, C / groups, ..]`
    pub weight: Parameter,
    /// `[O]`
    pub bias: Option<Parameter>,
    /// What it was made with.
    #[module(skip)]
    pub options: ConvOptions<N>,
}

/// [`ConvNd`] over lines.
pub type Conv1d = ConvNd<1>;
/// [`ConvNd`] over images.
pub type Conv2d = ConvNd<2>;
/// [`ConvNd`] over volumes.
pub type Conv3d = ConvNd<3>;

impl<const N: usize> ConvNd<N> {
    /// A convolution from so many channels to so many, over windows of a size.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        channels: [usize; 2],
        kernel: impl Into<Sizes<N>>,
        at: impl Into<Creation>,
    ) -> Result<ConvNd<N>> {
        ConvNd::with(channels, kernel, ConvOptions::default(), at)
    }

    /// A convolution with other options.
    ///
    /// # Errors
    /// If the groups do not divide the channels, extents are kept at a stride over 1, or memory runs
    /// out.
    pub fn with(
        [inputs, outputs]: [usize; 2],
        kernel: impl Into<Sizes<N>>,
        options: ConvOptions<N>,
        at: impl Into<Creation>,
    ) -> Result<ConvNd<N>> {
        check_groups("conv", [inputs, outputs], options.groups)?;
        if options.padding == ConvPadding::Same && options.stride != [1; N] {
            return Err(Error::op("conv", "padding that keeps extents needs a stride of 1"));
        }
        let (Sizes(kernel), at) = (kernel.into(), at.into());
        let shape = [&[outputs, inputs / options.groups][..], &kernel].concat();
        let fan = init::extent("conv", &shape[1..])?;
        let weight = started(&shape, fan, at)?;
        let bias = if options.bias { Some(started(&[outputs], fan, at)?) } else { None };
        Ok(ConvNd { weight, bias, options })
    }

    /// The convolution of the input.
    ///
    /// # Errors
    /// If the channels or the rank do not fit, or windows are larger than the input.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let ConvOptions { stride, dilation, groups, padding_mode, .. } = self.options;
            let kernel = &self.weight.shape()[2..];
            let padding: Vec<[usize; 2]> = (0..N).map(|axis| self.padding(axis, kernel)).collect();
            let conv = |padding| Conv {
                stride: stride.to_vec(),
                padding,
                dilation: dilation.to_vec(),
                groups,
            };
            let mode = match padding_mode {
                ConvPaddingMode::Zeros => None,
                ConvPaddingMode::Reflect => Some(PadMode::Reflect),
                ConvPaddingMode::Replicate => Some(PadMode::Replicate),
                ConvPaddingMode::Circular => Some(PadMode::Circular),
            };
            let bias = self.bias.as_deref();
            let y = match mode {
                None => x.conv(&self.weight, bias, &conv(padding))?,
                Some(mode) => {
                    let pads: Vec<i64> = padding
                        .iter()
                        .rev()
                        .flatten()
                        .map(|&n| i64::try_from(n).unwrap_or(i64::MAX))
                        .collect();
                    x.pad(&pads, mode)?.conv(&self.weight, bias, &conv(vec![[0; 2]; N]))?
                }
            };
            let taps = flops(&self.weight.shape()[1..]);
            count_flops(|| flops(&[2, y.numel()]).saturating_mul(taps));
            Ok(y)
        })
    }

    /// What is added before and after an axis.
    fn padding(&self, axis: usize, kernel: &[usize]) -> [usize; 2] {
        match self.options.padding {
            ConvPadding::Both(counts) => [counts[axis]; 2],
            ConvPadding::Same => {
                let total =
                    self.options.dilation[axis].saturating_mul(kernel[axis].saturating_sub(1));
                [total / 2, total - total / 2]
            }
        }
    }
}

impl<const N: usize> Layer for ConvNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ConvNd::forward(self, x)
    }
}

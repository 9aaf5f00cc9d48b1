//! Transposed convolutions over one, two or three axes.

use super::conv::{check_groups, started};
use super::init::extent;
use super::{Layer, Module, Parameter, Sizes, count_flops, flops, watch};
use crate::error::Result;
use crate::ops::Conv;
use crate::tensor::{Creation, Tensor};

/// What a [`ConvTransposeNd`] is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConvTransposeOptions<const N: usize> {
    /// Steps between windows of the output.
    pub stride: [usize; N],
    /// Elements taken away at both ends.
    pub padding: [usize; N],
    /// Elements added at the end.
    pub output_padding: [usize; N],
    /// Groups of channels that do not see each other.
    pub groups: usize,
    /// Whether there is a bias.
    pub bias: bool,
    /// Steps between the elements of one window.
    pub dilation: [usize; N],
}

impl<const N: usize> Default for ConvTransposeOptions<N> {
    fn default() -> ConvTransposeOptions<N> {
        ConvTransposeOptions {
            stride: [1; N],
            padding: [0; N],
            output_padding: [0; N],
            groups: 1,
            bias: true,
            dilation: [1; N],
        }
    }
}

/// The transpose of a convolution over `N` axes.
///
/// # Shapes
/// `[B, C, ..]` or `[C, ..]` -> `[B, O, ..]` or `[O, ..]`, with `weight: [C, O / groups, ..]` and
/// `bias: [O]`.
#[derive(Debug, Module)]
pub struct ConvTransposeNd<const N: usize> {
    /// `[C, O / groups, ..]`
    pub weight: Parameter,
    /// `[O]`
    pub bias: Option<Parameter>,
    /// What it was made with.
    #[module(skip)]
    pub options: ConvTransposeOptions<N>,
}

/// [`ConvTransposeNd`] over lines.
pub type ConvTranspose1d = ConvTransposeNd<1>;
/// [`ConvTransposeNd`] over images.
pub type ConvTranspose2d = ConvTransposeNd<2>;
/// [`ConvTransposeNd`] over volumes.
pub type ConvTranspose3d = ConvTransposeNd<3>;

impl<const N: usize> ConvTransposeNd<N> {
    /// A transposed convolution from so many channels to so many, over windows of a size.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(
        channels: [usize; 2],
        kernel: impl Into<Sizes<N>>,
        at: impl Into<Creation>,
    ) -> Result<ConvTransposeNd<N>> {
        ConvTransposeNd::with(channels, kernel, ConvTransposeOptions::default(), at)
    }

    /// A transposed convolution with other options.
    ///
    /// # Errors
    /// If the groups do not divide the channels, or memory runs out.
    pub fn with(
        [inputs, outputs]: [usize; 2],
        kernel: impl Into<Sizes<N>>,
        options: ConvTransposeOptions<N>,
        at: impl Into<Creation>,
    ) -> Result<ConvTransposeNd<N>> {
        check_groups("conv_transpose", [inputs, outputs], options.groups)?;
        let (Sizes(kernel), at) = (kernel.into(), at.into());
        let shape = [&[inputs, outputs / options.groups][..], &kernel].concat();
        let fan = extent("conv_transpose", &shape[1..])?;
        let weight = started(&shape, fan, at)?;
        let bias = if options.bias { Some(started(&[outputs], fan, at)?) } else { None };
        Ok(ConvTransposeNd { weight, bias, options })
    }

    /// The transposed convolution of the input.
    ///
    /// # Errors
    /// If the channels or the rank do not fit, or padding leaves nothing.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let ConvTransposeOptions { stride, padding, dilation, groups, .. } = self.options;
            let conv = Conv {
                stride: stride.to_vec(),
                padding: padding.iter().map(|&count| [count; 2]).collect(),
                dilation: dilation.to_vec(),
                groups,
            };
            let taps = flops(&self.weight.shape()[1..]);
            count_flops(|| flops(&[2, x.numel()]).saturating_mul(taps));
            let more = self.options.output_padding;
            x.conv_transpose(&self.weight, self.bias.as_deref(), &conv, &more)
        })
    }
}

impl<const N: usize> Layer for ConvTransposeNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        ConvTransposeNd::forward(self, x)
    }
}

//! Layers that only move elements: flattening, padding, shuffling.

use super::layer::layers;
use super::{Layer, Module, watch};
use crate::error::{Error, Result};
use crate::ops::PadMode;
use crate::tensor::Tensor;

/// Axes `start_dim` to `end_dim` joined to one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Module)]
pub struct Flatten {
    /// The first axis.
    pub start_dim: i64,
    /// The last axis.
    pub end_dim: i64,
}

impl Default for Flatten {
    fn default() -> Flatten {
        Flatten { start_dim: 1, end_dim: -1 }
    }
}

impl Flatten {
    /// All axes but the first joined.
    pub fn new() -> Flatten {
        Flatten::default()
    }

    /// The same elements with fewer axes.
    ///
    /// # Errors
    /// If there are no such axes.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.flatten(self.start_dim, self.end_dim))
    }
}

/// One axis split into several.
#[derive(Clone, PartialEq, Eq, Debug, Module)]
pub struct Unflatten {
    /// The axis.
    pub dim: i64,
    /// The extents it becomes; one may be -1.
    pub unflattened_size: Vec<i64>,
}

impl Unflatten {
    /// The axis `dim` as these extents; one may be -1.
    pub fn new(dim: i64, sizes: &[i64]) -> Unflatten {
        Unflatten { dim, unflattened_size: sizes.to_vec() }
    }

    /// The same elements with more axes.
    ///
    /// # Errors
    /// If there is no such axis or the extents do not fill it.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let axis = crate::shape::axis("unflatten", self.dim, x.shape())?;
            let own = [x.shape()[axis]];
            let sizes = crate::shape::infer_shape("unflatten", &self.unflattened_size, &own)?;
            x.reshape(&[&x.shape()[..axis], &sizes, &x.shape()[axis + 1..]].concat())
        })
    }
}

/// Channels to finer pixels: `[.., C r^2, H, W]` -> `[.., C, H r, W r]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Module)]
pub struct PixelShuffle {
    /// How many times finer.
    pub upscale_factor: usize,
}

impl PixelShuffle {
    /// Pixels `factor` times finer along both axes.
    pub fn new(factor: usize) -> PixelShuffle {
        PixelShuffle { upscale_factor: factor }
    }

    /// The finer image.
    ///
    /// # Errors
    /// If the channels are no multiple of the square of the factor.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.pixel_shuffle(self.upscale_factor))
    }
}

/// Finer pixels to channels: the inverse of [`PixelShuffle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Module)]
pub struct PixelUnshuffle {
    /// How many times coarser.
    pub downscale_factor: usize,
}

impl PixelUnshuffle {
    /// Pixels `factor` times coarser along both axes.
    pub fn new(factor: usize) -> PixelUnshuffle {
        PixelUnshuffle { downscale_factor: factor }
    }

    /// The coarser image of more channels.
    ///
    /// # Errors
    /// If height or width is no multiple of the factor.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.pixel_unshuffle(self.downscale_factor))
    }
}

/// Channels of groups one after another in turn: `[.., g k, H, W]` seen as `[.., g, k, ..]`, turned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Module)]
pub struct ChannelShuffle {
    /// How many groups.
    pub groups: usize,
}

impl ChannelShuffle {
    /// Channels of so many groups mixed.
    pub fn new(groups: usize) -> ChannelShuffle {
        ChannelShuffle { groups }
    }

    /// The channels (axis 1) in another order.
    ///
    /// # Errors
    /// If the groups do not divide the channels.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.channel_shuffle(self.groups))
    }
}

layers!(Flatten, Unflatten, PixelShuffle, PixelUnshuffle, ChannelShuffle);

/// Elements added before and after the last `N` axes, the last axis first as in PyTorch:
/// `[left, right]`, `[left, right, top, bottom]`. One number stands for all.
///
/// PyTorch has a type for each kind; here they are constructors: `Pad2d::zeros(1)`, `Pad2d::reflection(1)`.
#[derive(Clone, PartialEq, Debug, Module)]
pub struct PadNd<const N: usize> {
    /// Pairs of counts, the last axis first. A negative count takes elements away.
    pub padding: Vec<i64>,
    /// What stands there.
    pub mode: PadMode,
}

/// [`PadNd`] of lines.
pub type Pad1d = PadNd<1>;
/// [`PadNd`] of images.
pub type Pad2d = PadNd<2>;
/// [`PadNd`] of volumes.
pub type Pad3d = PadNd<3>;

/// The counts of a [`PadNd`]: one number for all, or a pair for each axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pads(Vec<i64>);

impl From<i64> for Pads {
    fn from(count: i64) -> Pads {
        Pads(vec![count])
    }
}

impl<const M: usize> From<[i64; M]> for Pads {
    fn from(counts: [i64; M]) -> Pads {
        Pads(counts.to_vec())
    }
}

impl<const N: usize> PadNd<N> {
    /// Padding of a kind.
    pub fn new(padding: impl Into<Pads>, mode: PadMode) -> PadNd<N> {
        let Pads(padding) = padding.into();
        let padding = if padding.len() == 1 { vec![padding[0]; 2 * N] } else { padding };
        PadNd { padding, mode }
    }

    /// PyTorch's `ZeroPad1d`, `ZeroPad2d` and `ZeroPad3d`.
    pub fn zeros(padding: impl Into<Pads>) -> PadNd<N> {
        PadNd::new(padding, PadMode::Constant(0.0))
    }

    /// PyTorch's `ConstantPad1d`, `ConstantPad2d` and `ConstantPad3d`.
    pub fn constant(padding: impl Into<Pads>, value: f64) -> PadNd<N> {
        PadNd::new(padding, PadMode::Constant(value))
    }

    /// PyTorch's `ReflectionPad1d`, `ReflectionPad2d` and `ReflectionPad3d`.
    pub fn reflection(padding: impl Into<Pads>) -> PadNd<N> {
        PadNd::new(padding, PadMode::Reflect)
    }

    /// PyTorch's `ReplicationPad1d`, `ReplicationPad2d` and `ReplicationPad3d`.
    pub fn replication(padding: impl Into<Pads>) -> PadNd<N> {
        PadNd::new(padding, PadMode::Replicate)
    }

    /// PyTorch's `CircularPad1d`, `CircularPad2d` and `CircularPad3d`.
    pub fn circular(padding: impl Into<Pads>) -> PadNd<N> {
        PadNd::new(padding, PadMode::Circular)
    }

    /// The input with elements added.
    ///
    /// # Errors
    /// If there are not two counts an axis, or the padding does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            if self.padding.len() != 2 * N {
                let message = format!("{:?} are no {N} pairs", self.padding);
                return Err(Error::op("pad", message));
            }
            x.pad(&self.padding, self.mode)
        })
    }
}

impl<const N: usize> Layer for PadNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        PadNd::forward(self, x)
    }
}

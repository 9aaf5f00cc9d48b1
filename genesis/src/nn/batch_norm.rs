//! Normalization with running statistics: over batches, and over single samples.

use genesis_kernel::ir::DType;

use super::batch_norm_across::{Across, across_ranks};
use super::{Buffer, Layer, Module, Parameter, Training, init, watch};
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::ops::{BatchStats, move_towards};
use crate::tensor::{Creation, Tensor};

/// What a [`BatchNormNd`] or an [`InstanceNormNd`] is made with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BatchNormOptions {
    /// Added to the variance.
    pub eps: f64,
    /// The share of a batch in the running statistics; where absent they are the mean of all batches,
    /// for which each forward waits for the device.
    pub momentum: Option<f64>,
    /// Whether it scales and shifts by channel.
    pub affine: bool,
    /// Whether it keeps running statistics, which it then uses outside of training.
    pub track_running_stats: bool,
}

impl BatchNormOptions {
    /// PyTorch's defaults for batch norm.
    pub const BATCH: BatchNormOptions = BatchNormOptions {
        eps: 1e-5,
        momentum: Some(0.1),
        affine: true,
        track_running_stats: true,
    };
    /// PyTorch's defaults for instance norm.
    pub const INSTANCE: BatchNormOptions =
        BatchNormOptions { affine: false, track_running_stats: false, ..BatchNormOptions::BATCH };
}

impl Default for BatchNormOptions {
    fn default() -> BatchNormOptions {
        BatchNormOptions::BATCH
    }
}

/// Scale, shift and running statistics of channels.
#[derive(Debug)]
struct Channels {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    running_mean: Option<Buffer>,
    running_var: Option<Buffer>,
    num_batches_tracked: Option<Buffer>,
}

impl Channels {
    fn new(channels: usize, options: BatchNormOptions, at: Creation) -> Result<Channels> {
        let parameter =
            |value| options.affine.then(|| init::constant(&[channels], value, at)).transpose();
        let tracked = |shape: &[usize], value, at: Creation| {
            let make = || -> Result<Buffer> { Ok(Buffer::new(Tensor::full(shape, value, at)?)) };
            options.track_running_stats.then(make).transpose()
        };
        Ok(Channels {
            weight: parameter(1.0)?,
            bias: parameter(0.0)?,
            running_mean: tracked(&[channels], 0.0, at)?,
            running_var: tracked(&[channels], 1.0, at)?,
            num_batches_tracked: tracked(&[], 0.0, Creation { dtype: DType::I64, ..at })?,
        })
    }
}

/// Counts a batch; gives its share in the running statistics.
fn count(batches: &Buffer, momentum: Option<f64>) -> Result<f64> {
    no_grad(|| {
        batches.add_(&batches.ones_like()?)?;
        match momentum {
            Some(momentum) => Ok(momentum),
            None => Ok(1.0 / batches.item()?),
        }
    })
}

/// The sizes of `x` seen as `[N, C, ..]`, if it has so many axes.
fn check(op: &str, x: &Tensor, ranks: &[usize], channels: Option<usize>) -> Result<()> {
    let axis = usize::from(x.rank() > 1);
    let fits = ranks.contains(&x.rank());
    if !fits || channels.is_some_and(|c| x.shape()[axis] != c) {
        let wanted: Vec<String> = ranks.iter().map(ToString::to_string).collect();
        let of = channels.map_or(String::new(), |c| format!(" with {c} channels"));
        let message =
            format!("needs {} dimension(s){of}, got shape {:?}", wanted.join(" or "), x.shape());
        return Err(Error::op(op, message));
    }
    Ok(())
}

/// Every channel (axis 1) normalized over the batch and all other axes, then scaled and shifted.
///
/// In training the batch's own statistics are used and the running ones moved towards them; else the
/// running ones are used, where there are any.
///
/// # Shapes
/// `[N, C]` or `[N, C, L]` for [`BatchNorm1d`], `[N, C, H, W]` for [`BatchNorm2d`],
/// `[N, C, D, H, W]` for [`BatchNorm3d`] -> the same.
#[derive(Debug, Module)]
pub struct BatchNormNd<const N: usize> {
    /// `[C]`
    pub weight: Option<Parameter>,
    /// `[C]`
    pub bias: Option<Parameter>,
    /// `[C]`
    pub running_mean: Option<Buffer>,
    /// `[C]`, of unbiased estimates.
    pub running_var: Option<Buffer>,
    /// `[]`, i64
    pub num_batches_tracked: Option<Buffer>,
    /// Added to the variance.
    pub eps: f64,
    /// The share of a batch in the running statistics; see [`BatchNormOptions::momentum`].
    pub momentum: Option<f64>,
    /// Whether it is training.
    pub training: Training,
    /// Sums over the ranks of a group, where statistics are those of all ranks.
    #[module(skip)]
    pub(crate) across: Across,
}

/// [`BatchNormNd`] of rows or lines.
pub type BatchNorm1d = BatchNormNd<1>;
/// [`BatchNormNd`] of images.
pub type BatchNorm2d = BatchNormNd<2>;
/// [`BatchNormNd`] of volumes.
pub type BatchNorm3d = BatchNormNd<3>;

impl<const N: usize> BatchNormNd<N> {
    /// A layer that starts with scale 1, shift 0, mean 0 and variance 1.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(channels: usize, at: impl Into<Creation>) -> Result<BatchNormNd<N>> {
        BatchNormNd::with(channels, BatchNormOptions::BATCH, at)
    }

    /// A layer with other options.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn with(
        channels: usize,
        options: BatchNormOptions,
        at: impl Into<Creation>,
    ) -> Result<BatchNormNd<N>> {
        let parts = Channels::new(channels, options, at.into())?;
        let Channels { weight, bias, running_mean, running_var, num_batches_tracked } = parts;
        let BatchNormOptions { eps, momentum, .. } = options;
        let training = Training::default();
        Ok(BatchNormNd {
            weight,
            bias,
            running_mean,
            running_var,
            num_batches_tracked,
            eps,
            momentum,
            training,
            across: Across::default(),
        })
    }

    /// The channels normalized.
    ///
    /// # Errors
    /// If the rank or the channels do not fit, or in training a channel has one value only.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        const NAME: &str = "batch_norm";
        let ranks: &[usize] = if N == 1 { &[2, 3] } else { &[N + 2] };
        let channels = self.running_mean.as_deref().or(self.weight.as_deref()).map(Tensor::numel);
        check(NAME, x, ranks, channels)?;
        let is_training = self.training.is_on();
        watch(self, || {
            let running = self.running_mean.as_deref().zip(self.running_var.as_deref());
            let momentum = match &self.num_batches_tracked {
                Some(batches) if is_training => count(batches, self.momentum)?,
                _ => self.momentum.unwrap_or(0.0),
            };
            let training = is_training || running.is_none();
            let stats = BatchStats { running, training, momentum, eps: self.eps };
            let [weight, bias] = [&self.weight, &self.bias].map(Option::as_deref);
            match self.across.get().filter(|_| training) {
                Some(sum) => across_ranks(x, weight, bias, &stats, sum),
                None => x.batch_norm(weight, bias, &stats),
            }
        })
    }
}

impl<const N: usize> Layer for BatchNormNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        BatchNormNd::forward(self, x)
    }
}

/// Every channel of every sample normalized over its own elements, then scaled and shifted if asked.
///
/// # Shapes
/// `[N, C, ..]` or `[C, ..]` with `N` more axes -> the same.
#[derive(Debug, Module)]
pub struct InstanceNormNd<const N: usize> {
    /// `[C]`
    pub weight: Option<Parameter>,
    /// `[C]`
    pub bias: Option<Parameter>,
    /// `[C]`
    pub running_mean: Option<Buffer>,
    /// `[C]`, of unbiased estimates.
    pub running_var: Option<Buffer>,
    /// `[]`, i64; it is there for its name and stays 0, as in PyTorch.
    pub num_batches_tracked: Option<Buffer>,
    /// Added to the variance.
    pub eps: f64,
    /// The share of a batch in the running statistics; none where absent.
    pub momentum: Option<f64>,
    /// Whether it is training.
    pub training: Training,
}

/// [`InstanceNormNd`] of lines.
pub type InstanceNorm1d = InstanceNormNd<1>;
/// [`InstanceNormNd`] of images.
pub type InstanceNorm2d = InstanceNormNd<2>;
/// [`InstanceNormNd`] of volumes.
pub type InstanceNorm3d = InstanceNormNd<3>;

impl<const N: usize> InstanceNormNd<N> {
    /// A layer without scale, shift and running statistics.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(channels: usize, at: impl Into<Creation>) -> Result<InstanceNormNd<N>> {
        InstanceNormNd::with(channels, BatchNormOptions::INSTANCE, at)
    }

    /// A layer with other options.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn with(
        channels: usize,
        options: BatchNormOptions,
        at: impl Into<Creation>,
    ) -> Result<InstanceNormNd<N>> {
        let parts = Channels::new(channels, options, at.into())?;
        let Channels { weight, bias, running_mean, running_var, num_batches_tracked } = parts;
        let BatchNormOptions { eps, momentum, .. } = options;
        let training = Training::default();
        Ok(InstanceNormNd {
            weight,
            bias,
            running_mean,
            running_var,
            num_batches_tracked,
            eps,
            momentum,
            training,
        })
    }

    /// The channels normalized.
    ///
    /// # Errors
    /// If the rank or the channels do not fit, or a channel of a sample has one value only.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        const NAME: &str = "instance_norm";
        if x.rank() == N + 1 {
            return self.forward(&x.unsqueeze(0)?)?.squeeze(0);
        }
        let channels = self.running_mean.as_deref().or(self.weight.as_deref()).map(Tensor::numel);
        check(NAME, x, &[N + 2], channels)?;
        let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
        let running = self.running_mean.as_deref().zip(self.running_var.as_deref());
        let is_training = self.training.is_on();
        let own = is_training || running.is_none();
        if own && x.shape()[2..].iter().all(|&extent| extent == 1) {
            let message = format!("needs more than one value a channel, got {:?}", x.shape());
            return Err(Error::op(NAME, message));
        }
        watch(self, || {
            if !own {
                let stats = BatchStats { running, training: false, momentum: 0.0, eps: self.eps };
                return x.batch_norm(weight, bias, &stats);
            }
            if let (true, Some((mean, var))) = (is_training, running) {
                no_grad(|| self.track(x, mean, var))?;
            }
            x.group_norm(x.shape()[1], weight, bias, self.eps)
        })
    }

    /// Moves the running statistics towards the means of those of the samples.
    fn track(&self, x: &Tensor, mean: &Tensor, var: &Tensor) -> Result<()> {
        // As in PyTorch, batches are not counted here, and without a momentum nothing moves.
        let share = self.momentum.unwrap_or(0.0);
        let own: Vec<i64> = (2..x.rank() as i64).collect();
        let x = x.to_dtype(crate::launch::accumulate_dtype(x.dtype()))?;
        let new_mean = x.mean_dims(&own, false)?.mean_dims(&[0], false)?;
        let new_var = x.var_dims(&own, 1.0, false)?.mean_dims(&[0], false)?;
        move_towards(mean, &new_mean, share)?;
        move_towards(var, &new_var, share)
    }
}

impl<const N: usize> Layer for InstanceNormNd<N> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        InstanceNormNd::forward(self, x)
    }
}

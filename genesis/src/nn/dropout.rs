//! Dropout as layers: of elements, of whole channels, and of what keeps mean and variance.

use super::layer::layers;
use super::{Module, Training, watch};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// In training, zeroes each element with probability `p` and scales the rest; else does nothing.
#[derive(Debug, Module)]
pub struct Dropout {
    /// The probability of a zero.
    pub p: f64,
    /// Whether it is training.
    pub training: Training,
}

impl Dropout {
    /// A layer that is in training.
    pub fn new(p: f64) -> Dropout {
        Dropout { p, training: Training::default() }
    }

    /// The input with elements zeroed in training; else the input.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]` or the dtype is not a float.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || if self.training.is_on() { x.dropout(self.p) } else { Ok(x.clone()) })
    }
}

impl Default for Dropout {
    fn default() -> Dropout {
        Dropout::new(0.5)
    }
}

layers!(Dropout);

/// One number a channel: the shape of `x` with extent 1 in its last `axes`.
fn by_channel(op: &str, x: &Tensor, axes: usize) -> Result<Vec<usize>> {
    if x.rank() < axes + 1 || x.rank() > axes + 2 {
        let message =
            format!("needs [N, C, ..] or [C, ..] with {axes} more axes, got {:?}", x.shape());
        return Err(Error::op(op, message));
    }
    let mut shape = x.shape().to_vec();
    let lead = shape.len() - axes;
    shape[lead..].fill(1);
    Ok(shape)
}

/// In training, zeroes each channel with probability `p` and scales the rest; else does nothing.
///
/// # Shapes
/// `[N, C, ..]` or `[C, ..]` with `N` more axes.
#[derive(Debug, Module)]
pub struct DropoutNd<const N: usize> {
    /// The probability of a zero.
    pub p: f64,
    /// Whether it is training.
    pub training: Training,
}

/// [`DropoutNd`] of channels of lines.
pub type Dropout1d = DropoutNd<1>;
/// [`DropoutNd`] of channels of images.
pub type Dropout2d = DropoutNd<2>;
/// [`DropoutNd`] of channels of volumes.
pub type Dropout3d = DropoutNd<3>;

impl<const N: usize> DropoutNd<N> {
    /// A layer that is in training.
    pub fn new(p: f64) -> DropoutNd<N> {
        DropoutNd { p, training: Training::default() }
    }

    /// The input with channels zeroed in training; else the input.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]`, the dtype is not a float or the rank does not fit.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            if !self.training.is_on() {
                return Ok(x.clone());
            }
            let shape = by_channel("dropout", x, N)?;
            x.mul(&Tensor::ones(&shape, (x.dtype(), x.device()))?.dropout(self.p)?)
        })
    }
}

layers!(Dropout1d, Dropout2d, Dropout3d);

/// Dropout for SELU: what is dropped takes SELU's lowest value, and all is scaled and moved so that
/// mean and variance stay.
///
/// # Source
/// arXiv:1706.02515.
#[derive(Debug, Module)]
pub struct AlphaDropout {
    /// The probability of being dropped.
    pub p: f64,
    /// Whether it is training.
    pub training: Training,
}

impl AlphaDropout {
    /// A layer that is in training.
    pub fn new(p: f64) -> AlphaDropout {
        AlphaDropout { p, training: Training::default() }
    }

    /// The input with elements dropped in training; else the input.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]` or the dtype is not a float.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || match self.training.is_on() {
            true => alpha_dropout(x, x.shape(), self.p),
            false => Ok(x.clone()),
        })
    }
}

layers!(AlphaDropout);

/// [`AlphaDropout`] of whole channels, of `[N, C, ..]`.
#[derive(Debug, Module)]
pub struct FeatureAlphaDropout {
    /// The probability of being dropped.
    pub p: f64,
    /// Whether it is training.
    pub training: Training,
}

impl FeatureAlphaDropout {
    /// A layer that is in training.
    pub fn new(p: f64) -> FeatureAlphaDropout {
        FeatureAlphaDropout { p, training: Training::default() }
    }

    /// The input with channels dropped in training; else the input.
    ///
    /// # Errors
    /// If `p` is not in `[0, 1]`, the dtype is not a float or the rank is below 2.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || match self.training.is_on() {
            true => {
                alpha_dropout(x, &by_channel("dropout", x, x.rank().saturating_sub(2))?, self.p)
            }
            false => Ok(x.clone()),
        })
    }
}

layers!(FeatureAlphaDropout);

fn alpha_dropout(x: &Tensor, mask: &[usize], p: f64) -> Result<Tensor> {
    /// SELU's limit far below 0.
    const LOWEST: f64 = -1.758_099_340_847_376_6;
    let kept = Tensor::ones(mask, (x.dtype(), x.device()))?.dropout(p)?;
    if p == 1.0 {
        return x.mul_scalar(0.0);
    }
    let scale = ((LOWEST * LOWEST * p + 1.0) * (1.0 - p)).sqrt().recip();
    let shift = -scale * p * LOWEST;
    let lowest = Tensor::full(&[], LOWEST * scale + shift, (x.dtype(), x.device()))?;
    let moved = x.mul_scalar(scale)?.add_scalar(shift)?;
    kept.ne_scalar(0.0)?.where_(&moved, &lowest)
}

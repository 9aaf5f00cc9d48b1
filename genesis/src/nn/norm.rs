//! Normalization layers over the last axes, over groups of channels, and over single samples.

use super::layer::layers;
use super::{Module, Parameter, init, is_observed, watch, watch_as};
use crate::error::{Error, Result};
use crate::ops::RowNormOf;
use crate::tensor::{Creation, Tensor};

/// The last extents of a tensor, which a layer normalizes together: `64`, `[3, 32]` or a `Vec`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extents(pub Vec<usize>);

impl From<usize> for Extents {
    fn from(extent: usize) -> Extents {
        Extents(vec![extent])
    }
}

impl<const N: usize> From<[usize; N]> for Extents {
    fn from(extents: [usize; N]) -> Extents {
        Extents(extents.to_vec())
    }
}

impl From<&[usize]> for Extents {
    fn from(extents: &[usize]) -> Extents {
        Extents(extents.to_vec())
    }
}

impl From<Vec<usize>> for Extents {
    fn from(extents: Vec<usize>) -> Extents {
        Extents(extents)
    }
}

/// What a [`LayerNorm`] is made with.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LayerNormOptions {
    /// Added to the variance.
    pub eps: f64,
    /// Whether it scales and shifts.
    pub elementwise_affine: bool,
    /// Whether it shifts, where it scales.
    pub bias: bool,
}

impl Default for LayerNormOptions {
    fn default() -> LayerNormOptions {
        LayerNormOptions { eps: 1e-5, elementwise_affine: true, bias: true }
    }
}

/// Layer norm over the last axes, with scale and shift.
///
/// # Shapes
/// `[.., extents]` -> the same, with `weight` and `bias` of the extents.
#[derive(Debug, Module)]
pub struct LayerNorm {
    /// The scale, of the normalized extents.
    pub weight: Option<Parameter>,
    /// The shift, of the normalized extents.
    pub bias: Option<Parameter>,
    /// The last extents, which are normalized together.
    pub normalized_shape: Vec<usize>,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// A layer that starts with scale 1 and shift 0.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(extents: impl Into<Extents>, at: impl Into<Creation>) -> Result<LayerNorm> {
        LayerNorm::with(extents, LayerNormOptions::default(), at)
    }

    /// A layer with other options.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn with(
        extents: impl Into<Extents>,
        options: LayerNormOptions,
        at: impl Into<Creation>,
    ) -> Result<LayerNorm> {
        let (Extents(extents), at) = (extents.into(), at.into());
        let LayerNormOptions { eps, elementwise_affine, bias } = options;
        let parameter = |wanted: bool, value: f64| {
            wanted.then(|| init::constant(&extents, value, at)).transpose()
        };
        let weight = parameter(elementwise_affine, 1.0)?;
        let bias = parameter(elementwise_affine && bias, 0.0)?;
        Ok(LayerNorm { weight, bias, normalized_shape: extents, eps })
    }

    /// The last axes normalized.
    ///
    /// # Errors
    /// If the tensor does not end in these extents.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
            x.layer_norm_over(&self.normalized_shape, weight, bias, self.eps)
        })
    }

    /// A sum and its norm, `s = x + residual` and [`LayerNorm::forward`] of it, in one launch where one axis is normalized with
    /// weight and bias. The gradient that `s` has beside that of the norm is added where that is computed.
    ///
    /// # Errors
    /// If shapes differ, or the tensor does not end in these extents.
    ///
    /// # Examples
    /// ```
    /// use genesis::Tensor;
    /// use genesis::nn::LayerNorm;
    ///
    /// let norm = LayerNorm::new(8, ())?;
    /// let (x, attended) = (Tensor::randn(&[2, 8], ())?, Tensor::randn(&[2, 8], ())?);
    /// let (sum, y) = norm.after_add(&x, &attended)?;
    /// assert_eq!(sum.to_vec::<f32>()?, x.add(&attended)?.to_vec::<f32>()?);
    /// assert_eq!(y.to_vec::<f32>()?, norm.forward(&sum)?.to_vec::<f32>()?);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    pub fn after_add(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        self.of_stream(x, Some(residual), false)
    }

    /// The norm of a residual stream, with a term added to it where there is one, on its way to products: see
    /// [`RowNormOf::for_products`]. Gives the stream and its norm.
    pub(crate) fn for_products(
        &self,
        x: &Tensor,
        added: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        // Who observes the layer sees what PyTorch would give.
        self.of_stream(x, added, !is_observed())
    }

    fn of_stream(
        &self,
        x: &Tensor,
        added: Option<&Tensor>,
        is_for_products: bool,
    ) -> Result<(Tensor, Tensor)> {
        let (Some(weight), Some(bias), [extent]) =
            (&self.weight, &self.bias, &self.normalized_shape[..])
        else {
            let sum = added.map_or(Ok(x.clone()), |added| x.add(added))?;
            let y = self.forward(&sum)?;
            return Ok((sum, y));
        };
        if x.shape().last() != Some(extent) {
            let message = format!("the last axis of {:?} is not {extent}", x.shape());
            return Err(Error::op("layer_norm", message));
        }
        watch_as(
            self,
            |(_, y)| y,
            || {
                let params: [&Tensor; 2] = [weight, bias];
                let norm = RowNormOf::layer_norm(&params, self.eps);
                if is_for_products { norm.for_products() } else { norm }.of_stream(x, added)
            },
        )
    }
}

layers!(LayerNorm);

/// RMS norm over the last axes, with scale.
#[derive(Debug, Module)]
pub struct RmsNorm {
    /// The scale, of the normalized extents.
    pub weight: Option<Parameter>,
    /// The last extents, which are normalized together.
    pub normalized_shape: Vec<usize>,
    /// Added to the mean square; where absent, the distance from 1 to the next number of the dtype.
    pub eps: Option<f64>,
}

impl RmsNorm {
    /// A layer that starts with scale 1.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(extents: impl Into<Extents>, at: impl Into<Creation>) -> Result<RmsNorm> {
        let Extents(extents) = extents.into();
        let weight = Some(init::constant(&extents, 1.0, at)?);
        Ok(RmsNorm { weight, normalized_shape: extents, eps: None })
    }

    /// [`RmsNorm::new`] with this `eps`; language models have 1e-6 or 1e-5.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn with_eps(
        extents: impl Into<Extents>,
        eps: f64,
        at: impl Into<Creation>,
    ) -> Result<RmsNorm> {
        Ok(RmsNorm { eps: Some(eps), ..RmsNorm::new(extents, at)? })
    }

    /// The last axes divided by their root mean square.
    ///
    /// # Errors
    /// If the tensor does not end in these extents.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.rms_norm_over(&self.normalized_shape, self.weight.as_deref(), self.eps))
    }

    /// A sum and its norm, as [`LayerNorm::after_add`].
    ///
    /// # Errors
    /// If shapes differ, or the tensor does not end in these extents.
    pub fn after_add(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        match (&self.weight, self.eps, &self.normalized_shape[..]) {
            (Some(weight), Some(eps), [_]) => {
                watch_as(self, |(_, y)| y, || x.add_rms_norm(residual, weight, eps))
            }
            _ => {
                let sum = x.add(residual)?;
                let y = self.forward(&sum)?;
                Ok((sum, y))
            }
        }
    }
}

layers!(RmsNorm);

/// Groups of channels (axis 1) normalized, each sample by itself, then scaled and shifted by channel.
#[derive(Debug, Module)]
pub struct GroupNorm {
    /// `[C]`
    pub weight: Option<Parameter>,
    /// `[C]`
    pub bias: Option<Parameter>,
    /// How many groups the channels make.
    pub num_groups: usize,
    /// Added to the variance.
    pub eps: f64,
}

impl GroupNorm {
    /// A layer that starts with scale 1 and shift 0.
    ///
    /// # Errors
    /// If the groups do not divide the channels, or memory runs out.
    pub fn new(groups: usize, channels: usize, at: impl Into<Creation>) -> Result<GroupNorm> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            let message = format!("{groups} groups do not divide {channels} channels");
            return Err(Error::op("group_norm", message));
        }
        let at = at.into();
        let weight = Some(init::constant(&[channels], 1.0, at)?);
        let bias = Some(init::constant(&[channels], 0.0, at)?);
        Ok(GroupNorm { weight, bias, num_groups: groups, eps: 1e-5 })
    }

    /// The groups normalized.
    ///
    /// # Errors
    /// If the channels are not those of the layer.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            let (weight, bias) = (self.weight.as_deref(), self.bias.as_deref());
            x.group_norm(self.num_groups, weight, bias, self.eps)
        })
    }
}

layers!(GroupNorm);

/// Each element over a power of what the channels around it hold.
#[derive(Clone, Copy, PartialEq, Debug, Module)]
pub struct LocalResponseNorm {
    /// How many channels count.
    pub size: usize,
    /// What the mean of their squares is multiplied by.
    pub alpha: f64,
    /// The power.
    pub beta: f64,
    /// Added before the power.
    pub k: f64,
}

impl LocalResponseNorm {
    /// A layer of `size` channels with PyTorch's defaults.
    pub fn new(size: usize) -> LocalResponseNorm {
        LocalResponseNorm { size, alpha: 1e-4, beta: 0.75, k: 1.0 }
    }

    /// The elements normalized.
    ///
    /// # Errors
    /// As [`Tensor::local_response_norm`].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || x.local_response_norm(self.size, self.alpha, self.beta, self.k))
    }
}

layers!(LocalResponseNorm);

//! Normalization layers.

use super::{Module, Visitor, init};
use crate::error::Result;
use crate::tensor::{Creation, Tensor};

/// Layer norm over the last axis, with scale and shift.
#[derive(Debug)]
pub struct LayerNorm {
    /// `[C]`
    pub weight: Tensor,
    /// `[C]`
    pub bias: Tensor,
    /// Added to the variance.
    pub eps: f64,
}

impl LayerNorm {
    /// A layer that starts with scale 1 and shift 0.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(channels: usize, at: impl Into<Creation>) -> Result<LayerNorm> {
        let at = at.into();
        let weight = init::constant(&[channels], 1.0, at)?;
        Ok(LayerNorm { weight, bias: init::constant(&[channels], 0.0, at)?, eps: 1e-5 })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.layer_norm(&self.weight, &self.bias, self.eps)
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.parameter("weight", &self.weight);
        visitor.parameter("bias", &self.bias);
    }
}

/// RMS norm over the last axis, with scale.
#[derive(Debug)]
pub struct RmsNorm {
    /// `[C]`
    pub weight: Tensor,
    /// Added to the mean square.
    pub eps: f64,
}

impl RmsNorm {
    /// A layer that starts with scale 1.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn new(channels: usize, at: impl Into<Creation>) -> Result<RmsNorm> {
        Ok(RmsNorm { weight: init::constant(&[channels], 1.0, at)?, eps: 1e-6 })
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(&self.weight, self.eps)
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a, '_>) {
        visitor.parameter("weight", &self.weight);
    }
}

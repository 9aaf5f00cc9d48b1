//! The RMS norm of decoders, with the weight as it is or, in Gemma, as its distance from 1.

use super::blueprint::Blueprint;
use super::stream_norm::StreamNorm;
use crate::error::Result;
use crate::launch::accumulate_dtype;
use crate::launch::deferred_norm::Gain;
use crate::nn::{Module, Parameter, is_observed, watch_as};
use crate::ops::RowNormOf;
use crate::tensor::Tensor;

/// `y = x / sqrt(mean(x^2) + eps) * (weight + offset)` over the last axis.
///
/// # Numerics
/// In f32 for 16-bit dtypes, rounded once. With an offset the sum is formed in f32 too: near 1 a 16-bit float
/// would lose most of the weight.
#[derive(Debug, Module)]
pub struct Norm {
    /// `[C]`
    pub weight: Parameter,
    /// Added to the mean square.
    pub eps: f64,
    /// Added to the weight: 1 in Gemma.
    pub offset: f64,
}

impl Norm {
    pub(super) fn new(plan: &Blueprint, channels: usize, eps: f64) -> Result<Norm> {
        Ok(Norm { weight: plan.parameter(&[channels])?, eps, offset: 0.0 })
    }

    /// With a weight that is stored as its distance from 1.
    pub(super) fn from_one(plan: &Blueprint, channels: usize, eps: f64) -> Result<Norm> {
        Ok(Norm { offset: 1.0, ..Norm::new(plan, channels, eps)? })
    }

    /// What rows are multiplied by.
    pub(super) fn gain(&self) -> Gain<'_> {
        Gain { weight: &self.weight, offset: self.offset }
    }

    /// A sum and its norm: `s = x + y`, then the last axis of `s` normalized.
    ///
    /// # Errors
    /// If shapes differ, or the last extent is not that of the weight.
    pub fn after_add(&self, x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
        self.of_stream(x, Some(y), false)
    }

    /// The last axis normalized.
    ///
    /// # Errors
    /// If the last extent is not that of the weight.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.of_stream(x, None, false)?.1)
    }
}

impl StreamNorm for Norm {
    fn of_stream(
        &self,
        x: &Tensor,
        added: Option<&Tensor>,
        is_for_products: bool,
    ) -> Result<(Tensor, Tensor)> {
        let weight = match self.offset {
            0.0 => self.weight.tensor().clone(),
            offset => self.weight.to_dtype(accumulate_dtype(x.dtype()))?.add_scalar(offset)?,
        };
        // Who observes the layer sees what PyTorch would give.
        let is_for_products = is_for_products && !is_observed();
        watch_as(
            self,
            |(_, normed)| normed,
            || {
                let params = [&weight];
                let norm = RowNormOf::rms_norm(&params, self.eps);
                if is_for_products { norm.for_products() } else { norm }.of_stream(x, added)
            },
        )
    }
}

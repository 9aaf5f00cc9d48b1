//! The RMS norm of decoders, with the weight as it is or, in Gemma, as its distance from 1.

use genesis_kernel::ir::DType;

use super::blueprint::Blueprint;
use crate::error::Result;
use crate::launch::accumulate_dtype;
use crate::launch::deferred_norm::Gain;
use crate::nn::{Module, Parameter, watch, watch_as};
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
        // Under autocast products are of 16 bits beside a stream in f32.
        if self.offset != 0.0 || x.dtype() != y.dtype() {
            let sum = x.add(y)?;
            let normed = self.forward(&sum)?;
            return Ok((sum, normed));
        }
        watch_as(self, |(_, normed)| normed, || x.add_rms_norm(y, &self.weight, self.eps))
    }

    /// The last axis normalized.
    ///
    /// # Errors
    /// If the last extent is not that of the weight.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        watch(self, || {
            if self.offset == 0.0 {
                return x.rms_norm(&self.weight, self.eps);
            }
            let wide: DType = accumulate_dtype(x.dtype());
            let weight = self.weight.to_dtype(wide)?.add_scalar(self.offset)?;
            x.to_dtype(wide)?.rms_norm(&weight, self.eps)?.to_dtype(x.dtype())
        })
    }
}

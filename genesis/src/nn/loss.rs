//! Losses as values with options.

use crate::error::Result;
use crate::ops::Reduction;
use crate::tensor::Tensor;

/// Cross entropy of logits against class indices.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrossEntropyLoss {
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl CrossEntropyLoss {
    /// The loss of `logits: [.., C]` against `target: [..]`.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy`].
    pub fn forward(&self, logits: &Tensor, target: &Tensor) -> Result<Tensor> {
        logits.cross_entropy(target, self.reduction)
    }
}

/// Squared differences.
#[derive(Clone, Copy, Debug, Default)]
pub struct MseLoss {
    /// How the losses of a batch become one.
    pub reduction: Reduction,
}

impl MseLoss {
    /// The loss of a prediction against a target of its shape.
    ///
    /// # Errors
    /// As [`Tensor::mse_loss`].
    pub fn forward(&self, prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
        prediction.mse_loss(target, self.reduction)
    }
}

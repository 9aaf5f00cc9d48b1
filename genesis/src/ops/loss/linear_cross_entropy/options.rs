//! What losses of a linear layer's output are asked for.

use genesis_kernel::ir::DType;

use crate::error::Result;
use crate::ops::{Classes, Reduction, composite_ending};
use crate::tensor::Tensor;

pub(super) const NAME: &str = "linear_cross_entropy";

/// What [`Tensor::linear_cross_entropy`] can be asked for.
#[derive(Clone, Debug, Default)]
pub struct LinearCrossEntropy {
    /// Weights of classes, the target that does not count, smoothing, and the reduction.
    pub classes: Classes,
    /// Logits are bounded softly: `cap tanh(logit / cap)`.
    pub softcap: Option<f64>,
    /// Factor of `L^2`, which is added to the loss of each row that counts, where `L` is the logarithm of the sum of the
    /// exponentials of its logits.
    pub z_loss: f64,
}

/// The options of a loss, in the dtype that it is computed in.
#[derive(Debug)]
pub(super) struct LossOptions {
    /// Weights of classes, `[V]`.
    pub(super) weight: Option<Tensor>,
    pub(super) ignore: i64,
    pub(super) smoothing: f64,
    pub(super) softcap: Option<f64>,
    pub(super) z_loss: f64,
    pub(super) reduction: Reduction,
}

impl LossOptions {
    pub(super) fn of(options: &LinearCrossEntropy, wide: DType) -> Result<LossOptions> {
        let Classes { weight, ignore_index, label_smoothing, reduction } = &options.classes;
        let weight = weight.as_ref().map(|weight| weight.detach().to_dtype(wide)).transpose()?;
        Ok(LossOptions {
            weight,
            ignore: *ignore_index,
            smoothing: *label_smoothing,
            softcap: options.softcap,
            z_loss: options.z_loss,
            reduction: *reduction,
        })
    }

    /// What a row counts: the weight of its target, 0 where that is ignored: `[N]`
    pub(super) fn counts(&self, target: &Tensor, wide: DType) -> Result<Tensor> {
        let counts = target.ne_scalar(self.ignore as f64)?;
        let Some(weight) = &self.weight else { return counts.to_dtype(wide) };
        let first = Tensor::zeros(&[], (DType::I64, target.device()))?;
        let weights = weight.index_select(0, &counts.where_(target, &first)?)?;
        counts.where_(&weights, &Tensor::zeros(&[], (wide, target.device()))?)
    }

    /// What the sum of losses is divided by for their mean: `[]`
    pub(super) fn divisor(&self, target: &Tensor, wide: DType) -> Result<Tensor> {
        if self.weight.is_some() {
            return self.counts(target, wide)?.sum();
        }
        let is_counted =
            |[target]: [&Tensor; 1], n: &[f64]| target.ne_scalar(n[0])?.to_dtype(DType::F32);
        composite_ending(NAME, &[self.ignore as f64], [target], is_counted, Tensor::sum)?
            .to_dtype(wide)
    }

    /// The slope of each row's loss, or of the sum of all: `dy` or what the mean makes of it. Where no row counts it is 0.
    pub(super) fn slope(&self, target: &Tensor, dy: &Tensor) -> Result<Tensor> {
        if self.reduction != Reduction::Mean {
            return Ok(dy.clone());
        }
        let divisor = self.divisor(target, dy.dtype())?;
        let nothing = Tensor::zeros(&[], (dy.dtype(), dy.device()))?;
        divisor.ne_scalar(0.0)?.where_(&dy.div(&divisor)?, &nothing)
    }
}

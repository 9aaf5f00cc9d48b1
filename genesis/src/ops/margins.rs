//! Losses of classes by margins: one class a row, several, or each by itself.
//!
//! 16-bit inputs are computed in f32; the result has the dtype of the scores.

use genesis_kernel::ir::DType;

use super::Reduction;
use crate::dispatch::autocast;
use crate::error::{Error, Result};
use crate::launch;
use crate::tensor::Tensor;

/// What [`Tensor::multi_margin_loss`] can be asked for.
#[derive(Clone, Debug)]
pub struct MultiMargin {
    /// The power of what a margin lacks, 1 or 2.
    pub p: u32,
    /// By how much the target's score must be over the others.
    pub margin: f64,
    /// A weight for each class, `[C]`.
    pub weight: Option<Tensor>,
    /// How the losses become one.
    pub reduction: Reduction,
}

impl Default for MultiMargin {
    fn default() -> MultiMargin {
        MultiMargin { p: 1, margin: 1.0, weight: None, reduction: Reduction::Mean }
    }
}

fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(launch::accumulate_dtype(x.dtype()))
}

/// Scores as rows `[N, C]` and targets as `[N, ..]`, where both may lack the first axis.
fn rows(op: &str, x: &Tensor, target: &Tensor, per_class: bool) -> Result<(Tensor, Tensor)> {
    let lead = x.rank().saturating_sub(1);
    let wanted = if per_class { x.shape() } else { &x.shape()[..lead] };
    let has_classes = x.shape().last().is_some_and(|&c| c > 0);
    if !(1..=2).contains(&x.rank()) || target.shape() != wanted || !has_classes {
        let message = format!(
            "scores must be [C] or [N, C] with a class, got {:?} and a target {:?}",
            x.shape(),
            target.shape()
        );
        return Err(Error::op(op, message));
    }
    if target.dtype() != DType::I64 {
        return Err(Error::op(op, format!("the target must be i64, got {}", target.dtype())));
    }
    let x = wide(x)?;
    Ok(if lead == 0 { (x.unsqueeze(0)?, target.unsqueeze(0)?) } else { (x, target.clone()) })
}

/// Losses of rows reduced, in the dtype and without the axis that the scores lack.
fn finish(op: &str, losses: &Tensor, x: &Tensor, reduction: Reduction) -> Result<Tensor> {
    let losses = if x.rank() == 1 { losses.squeeze(0)? } else { losses.clone() };
    reduction.of(&losses)?.to_dtype(autocast::dtype_of(op, x))
}

/// The numbers of the classes, `[C]`.
fn classes(x: &Tensor) -> Result<Tensor> {
    Tensor::arange(0.0, x.dim(-1)? as f64, 1.0, (DType::I64, x.device()))
}

impl Tensor {
    /// The mean over classes of `max(0, margin - x[target] + x[i])^p`, without the target's own.
    ///
    /// # Shapes
    /// `[N, C]` with `target: [N]`, or `[C]` with `[]`.
    /// # Errors
    /// If shapes do not fit, the target is not i64 or names no class, or p is neither 1 nor 2.
    /// # Source
    /// Same conventions as `torch.nn.functional.multi_margin_loss`.
    #[track_caller]
    pub fn multi_margin_loss(&self, target: &Tensor, options: &MultiMargin) -> Result<Tensor> {
        const NAME: &str = "multi_margin_loss";
        if !(1..=2).contains(&options.p) {
            return Err(Error::op(NAME, format!("p must be 1 or 2, got {}", options.p)));
        }
        let (x, target) = rows(NAME, self, target, false)?;
        let own = target.unsqueeze(-1)?; // [N, 1]
        let lack = (options.margin - x.gather(1, &own)?)?.add(&x)?.relu()?;
        let lack = if options.p == 2 { lack.square()? } else { lack };
        let lack = lack.masked_fill(&own.eq(&classes(&x)?)?, 0.0)?;
        let lack = match &options.weight {
            Some(weight) => {
                let weight = weight.to_dtype(x.dtype())?.index_select(0, &target)?;
                lack.mul(&weight.unsqueeze(-1)?)?
            }
            None => lack,
        };
        finish(NAME, &lack.mean_dims(&[-1], false)?, self, options.reduction)
    }

    /// The sum over targets j and classes i that are none of `max(0, 1 - x[j] + x[i])`, by the number of
    /// classes. The targets of a row are those before its first -1.
    ///
    /// # Shapes
    /// `[N, C]` or `[C]`, with a target of the same shape.
    /// # Errors
    /// If shapes differ, or the target is not i64 or names no class.
    /// # Source
    /// Same conventions as `torch.nn.functional.multilabel_margin_loss`.
    #[track_caller]
    pub fn multilabel_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        const NAME: &str = "multilabel_margin_loss";
        let (x, target) = rows(NAME, self, target, true)?;
        let counts = target.ge_scalar(0.0)?.to_dtype(DType::I64)?.cumprod(1)?.gt_scalar(0.0)?;
        let label = counts.where_(&target, &target.zeros_like()?)?; // [N, C]
        let counts = counts.unsqueeze(-1)?; // [N, C, 1]
        let named = label.unsqueeze(-1)?.eq(&classes(&x)?)?.logical_and(&counts)?; // [N, C, C]
        let is_label = named.any_dims(&[1], true)?; // [N, 1, C]
        let own = x.gather(1, &label)?.unsqueeze(-1)?; // [N, C, 1]
        let lack = (1.0 - own)?.add(&x.unsqueeze(1)?)?.relu()?; // [N, C, C]
        let is_out = counts.logical_not()?.logical_or(&is_label)?;
        let lack = lack.masked_fill(&is_out, 0.0)?.sum_dims(&[1, 2], false)?;
        finish(NAME, &lack.div_scalar(x.dim(-1)? as f64)?, self, reduction)
    }

    /// The mean over classes of the cross entropy of each score's sigmoid against 0 or 1.
    ///
    /// # Shapes
    /// `[.., C]` with a target of the same shape; `weight` is `[C]`.
    /// # Errors
    /// If shapes differ.
    /// # Source
    /// Same conventions as `torch.nn.functional.multilabel_soft_margin_loss`.
    #[track_caller]
    pub fn multilabel_soft_margin_loss(
        &self,
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const NAME: &str = "multilabel_soft_margin_loss";
        if self.rank() == 0 || self.shape() != target.shape() {
            let message = format!("scores are {:?}, the target {:?}", self.shape(), target.shape());
            return Err(Error::op(NAME, message));
        }
        let (x, target) = (wide(self)?, wide(target)?);
        let losses = x.binary_cross_entropy_with_logits(&target, Reduction::None)?;
        let losses = match weight {
            Some(weight) => losses.mul(&wide(weight)?)?,
            None => losses,
        };
        let loss = reduction.of(&losses.mean_dims(&[-1], false)?)?;
        loss.to_dtype(autocast::dtype_of(NAME, self))
    }
}

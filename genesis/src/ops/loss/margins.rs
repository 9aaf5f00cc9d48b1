//! Losses of classes by margins: one class a row, several, or each by itself.
//!
//! 16-bit inputs are computed in f32; the result has the dtype of the scores.

use std::sync::OnceLock;

use genesis_kernel::ir::DType;

use super::multi_margin::MultiMarginLoss;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Reduction, apply, composite};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[
    ("multi_margin_loss", Precision::Single),
    ("multilabel_margin_loss", Precision::Single),
    ("multilabel_soft_margin_loss", Precision::Single),
];

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
    Ok(match lead {
        0 => (x.unsqueeze(0)?, target.unsqueeze(0)?),
        _ => (x.clone(), target.clone()),
    })
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
        let (wide, dtype) = (launch::accumulate_dtype(x.dtype()), autocast::dtype_of(NAME, self));
        if x.shape()[0] == 0 {
            let losses = x.sum_dims(&[-1], false)?.to_dtype(wide)?;
            return finish(NAME, &losses, self, options.reduction);
        }
        let weight = options.weight.as_ref().map(|weight| weights(&x, weight)).transpose()?;
        let op = MultiMarginLoss {
            weight,
            is_squared: options.p == 2,
            margin: options.margin,
            reduction: options.reduction,
            dtype,
            slopes: OnceLock::new(),
        };
        let loss = apply(op, &[&x, &target.detach()])?;
        let is_one = self.rank() == 1 && options.reduction == Reduction::None;
        if is_one { loss.squeeze(0) } else { Ok(loss) }
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
        let x = wide(&x)?;
        let is_named = composite(NAME, &[], [&target], |[target], _| {
            target.ge_scalar(0.0)?.to_dtype(DType::I64)
        })?;
        let counts = is_named.cumprod(1)?; // [N, C], 1 before the first -1
        let label = composite(NAME, &[], [&target, &counts], |[target, counts], _| {
            counts.gt_scalar(0.0)?.where_(target, &target.zeros_like()?)
        })?;
        let of = [&label.unsqueeze(1)?, &counts.unsqueeze(1)?, &classes(&x)?.unsqueeze(1)?];
        let is_label = composite(NAME, &[], of, |[label, counts, class], _| {
            let is_own = label.eq(class)?.logical_and(&counts.gt_scalar(0.0)?)?; // [N, C, C]
            is_own.to_dtype(DType::I64)?.max_dims(&[-1], true)
        })?;
        let own = x.gather(1, &label)?.unsqueeze(-1)?; // [N, C, 1]
        let is_label = is_label.transpose(1, 2)?; // [N, 1, C]
        let of = [&own, &x.unsqueeze(1)?, &counts.unsqueeze(-1)?, &is_label];
        let lack = composite(NAME, &[x.dim(-1)? as f64], of, |[own, x, counts, is_label], n| {
            let lack = own.neg()?.add_scalar(1.0)?.add(x)?.relu()?; // [N, C, C]
            let is_in = counts.gt_scalar(0.0)?.logical_and(&is_label.eq_scalar(0.0)?)?;
            is_in.where_(&lack, &lack.zeros_like()?)?.div_scalar(n[0])?.sum_dims(&[1, 2], false)
        })?;
        finish(NAME, &lack, self, reduction)
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

/// Weights of the classes of scores `[N, C]`, dense, in the dtype of sums.
fn weights(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    if weight.shape() != [x.shape()[1]] {
        let message = format!("weights must be [{}], got {:?}", x.shape()[1], weight.shape());
        return Err(Error::op("multi_margin_loss", message));
    }
    weight.detach().to_dtype(launch::accumulate_dtype(x.dtype()))?.contiguous()
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::info::{Family, OpInfo, WIDE, scalar};
    use crate::ops::{MultiMargin, Reduction};
    use crate::tensor::Tensor;

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "multi_margin_loss",
            Family::Softmax,
            |x| x[0].multi_margin_loss(&x[1], &MultiMargin::default()),
            |x| {
                let loss = |i: usize| {
                    let own = x[1].data[i] as usize;
                    (0..4)
                        .filter(|&c| c != own)
                        .map(|c| (1.0 - x[0].at(&[i, own]) + x[0].at(&[i, c])).max(0.0))
                        .sum::<f64>()
                        / 4.0
                };
                scalar((0..5).map(loss).sum::<f64>() / 5.0)
            },
            &[&[&[5, 4], &[5]]],
        )
        .peer("F.multi_margin_loss(x[0], x[1])")
        .within(-2.0, 2.0)
        .indexed(&[(1, 4)]),
        OpInfo::new(
            "multilabel_margin_loss",
            Family::Softmax,
            |x| {
                let classes = Tensor::from_slice_on(&[2i64, 0, -1, 1], &[4], x[0].device())?;
                x[0].multilabel_margin_loss(&classes, Reduction::Mean)
            },
            |x| {
                let pairs = [2, 0].into_iter().flat_map(|j: usize| [1, 3].map(|i| (j, i)));
                scalar(
                    pairs.map(|(j, i)| (1.0 - x[0].data[j] + x[0].data[i]).max(0.0)).sum::<f64>()
                        / 4.0,
                )
            },
            &[&[&[4]]],
        )
        .peer(
            "F.multilabel_margin_loss(x[0], torch.tensor([2, 0, -1, 1], \
             device=x[0].device))",
        )
        .within(-2.0, 2.0)
        .of(WIDE),
        OpInfo::new(
            "multilabel_soft_margin_loss",
            Family::Softmax,
            |x| x[0].multilabel_soft_margin_loss(&x[1].detach().floor()?, None, Reduction::Mean),
            |x| {
                let loss = |i: usize| {
                    let (v, t) = (x[0].data[i], x[1].data[i].floor());
                    t * (-v).exp().ln_1p() + (1.0 - t) * v.exp().ln_1p()
                };
                scalar((0..15).map(loss).sum::<f64>() / 15.0)
            },
            &[&[&[3, 5], &[3, 5]]],
        )
        .peer("F.multilabel_soft_margin_loss(x[0], x[1].detach().floor())")
        .within(0.0, 2.0)
        .of(WIDE)
        .flat(),
    ];
}

//! Losses of numbers: how far predictions are from targets, element by element or row by row.
//!
//! 16-bit inputs are computed in f32; the result has the dtype of the prediction.

#[cfg(feature = "op-info")]
pub(super) mod info;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Op, Reduction, Saves, apply};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[
    ("bce_with_logits", Precision::Single),
    ("cosine_embedding_loss", Precision::Single),
    ("cosine_similarity", Precision::Single),
    ("gaussian_nll_loss", Precision::Single),
    ("hinge_embedding_loss", Precision::Single),
    ("huber_loss", Precision::Single),
    ("kl_div", Precision::Single),
    ("l1_loss", Precision::Single),
    ("margin_ranking_loss", Precision::Single),
    ("mse_loss", Precision::Single),
    ("pairwise_distance", Precision::Single),
    ("poisson_nll_loss", Precision::Single),
    ("smooth_l1_loss", Precision::Single),
    ("soft_margin_loss", Precision::Single),
    ("triplet_margin_loss", Precision::Single),
];

/// Losses of predictions in f32 or f64, reduced and rounded to the predictions' dtype, or to the one that
/// autocast chooses.
fn losses(
    name: &str,
    x: &Tensor,
    target: &Tensor,
    reduction: Reduction,
    f: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let losses = f(&wide(x)?, &wide(target)?)?;
    reduction.of(&losses)?.to_dtype(autocast::dtype_of(name, x))
}

fn wide(x: &Tensor) -> Result<Tensor> {
    x.to_dtype(launch::accumulate_dtype(x.dtype()))
}

impl Tensor {
    /// The mean of squared differences, or their sum, or each.
    ///
    /// # Errors
    /// If shapes do not broadcast, or dtypes or devices differ.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        losses("mse_loss", self, target, reduction, |x, t| x.sub(t)?.square())
    }

    /// The mean of distances, or their sum, or each.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        losses("l1_loss", self, target, reduction, |x, t| x.sub(t)?.abs())
    }

    /// Half the square of distances up to `delta`, beyond it `delta * (distance - delta / 2)`.
    ///
    /// # Errors
    /// If shapes do not broadcast or `delta` is not positive.
    #[track_caller]
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(Error::op("huber_loss", format!("delta must be positive, got {delta}")));
        }
        losses("huber_loss", self, target, reduction, |x, t| {
            let distance = x.sub(t)?.abs()?;
            let near = distance.square()?.mul_scalar(0.5)?;
            let far = distance.sub_scalar(0.5 * delta)?.mul_scalar(delta)?;
            distance.detach().lt_scalar(delta)?.where_(&near, &far)
        })
    }

    /// [`Tensor::huber_loss`] divided by `beta`; [`Tensor::l1_loss`] for a `beta` of 0.
    ///
    /// # Errors
    /// If shapes do not broadcast or `beta` is negative.
    #[track_caller]
    pub fn smooth_l1_loss(
        &self,
        target: &Tensor,
        beta: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        if beta == 0.0 {
            return self.l1_loss(target, reduction);
        }
        self.huber_loss(target, beta, reduction)?.div_scalar(beta)
    }

    /// `-(target log(x) + (1 - target) log(1 - x))`, logarithms at least -100.
    ///
    /// # Numerics
    /// The gradient is `(x - target) / max(x (1 - x), 1e-12)`, as PyTorch's.
    /// # Errors
    /// If shapes differ or the dtype is not a float.
    #[track_caller]
    pub fn binary_cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        if self.shape() != target.shape() {
            let message = format!("x is {:?}, the target {:?}", self.shape(), target.shape());
            return Err(Error::op("binary_cross_entropy", message));
        }
        losses("binary_cross_entropy", self, target, reduction, |x, t| {
            apply(BinaryCrossEntropy, &[x, t])
        })
    }

    /// [`Tensor::binary_cross_entropy`] of the sigmoid of scores, which does not overflow.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        losses("bce_with_logits", self, target, reduction, |x, t| {
            (1.0 - t)?.mul(x)?.sub(&x.log_sigmoid()?)
        })
    }

    /// [`Tensor::binary_cross_entropy_with_logits`] where the losses of positive targets count
    /// `pos_weight` times, which broadcasts.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn binary_cross_entropy_with_pos_weight(
        &self,
        target: &Tensor,
        pos_weight: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        losses("bce_with_logits", self, target, reduction, |x, t| {
            let weight = wide(pos_weight)?.sub_scalar(1.0)?.mul(t)?.add_scalar(1.0)?;
            (1.0 - t)?.mul(x)?.sub(&weight.mul(&x.log_sigmoid()?)?)
        })
    }

    /// `target * (log(target) - x)` for log-probabilities x: the divergence of Kullback and Leibler by
    /// elements. With `log_target` the target holds log-probabilities too.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn kl_div(
        &self,
        target: &Tensor,
        log_target: bool,
        reduction: Reduction,
    ) -> Result<Tensor> {
        losses("kl_div", self, target, reduction, |x, t| match log_target {
            true => t.exp()?.mul(&t.sub(x)?),
            false => times_log(t)?.sub(&t.mul(x)?),
        })
    }

    /// `-log(x)` of a Poisson distribution but for a constant: `exp(x) - target x` for `log_input`, else
    /// `x - target log(x + eps)`. With `full`, Stirling's approximation of that constant is added where
    /// the target is over 1.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn poisson_nll_loss(
        &self,
        target: &Tensor,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        losses("poisson_nll_loss", self, target, reduction, |x, t| {
            let loss = match log_input {
                true => x.exp()?.sub(&t.mul(x)?)?,
                false => x.sub(&t.mul(&x.add_scalar(eps)?.log()?)?)?,
            };
            if !full {
                return Ok(loss);
            }
            let is_large = t.detach().gt_scalar(1.0)?;
            let safe = is_large.where_(t, &t.ones_like()?)?;
            let root = safe.mul_scalar(2.0 * std::f64::consts::PI)?.log()?.mul_scalar(0.5)?;
            let stirling = safe.mul(&safe.log()?)?.sub(&safe)?.add(&root)?;
            loss.add(&is_large.where_(&stirling, &t.zeros_like()?)?)
        })
    }

    /// `(log(variance) + (x - target)^2 / variance) / 2`, with a variance of at least `eps`; `full` adds
    /// the constant `log(2 pi) / 2`. The gradient of the variance is as if it were not bounded.
    ///
    /// # Shapes
    /// `variance` broadcasts to the shape of x, or lacks its last axis.
    /// # Errors
    /// If shapes do not fit.
    #[track_caller]
    pub fn gaussian_nll_loss(
        &self,
        target: &Tensor,
        variance: &Tensor,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let lead = &self.shape()[..self.rank().saturating_sub(1)];
        let lacks_axis = variance.shape() != self.shape() && variance.shape() == lead;
        let variance = if lacks_axis { variance.unsqueeze(-1)? } else { variance.clone() };
        losses("gaussian_nll_loss", self, target, reduction, |x, t| {
            let v = wide(&variance)?;
            let missing = v.detach().maximum_scalar(eps)?.sub(&v.detach())?;
            let v = v.add(&missing)?;
            let loss = v.log()?.add(&x.sub(t)?.square()?.div(&v)?)?.mul_scalar(0.5)?;
            let constant = if full { 0.5 * (2.0 * std::f64::consts::PI).ln() } else { 0.0 };
            loss.add_scalar(constant)
        })
    }

    /// x where the target is 1, `max(0, margin - x)` where it is -1.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn hinge_embedding_loss(
        &self,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        losses("hinge_embedding_loss", self, target, reduction, |x, t| {
            let zero = x.zeros_like()?;
            let below = (margin - x)?.maximum_scalar(0.0)?;
            let far = t.ne_scalar(1.0)?.where_(&below, &zero)?;
            far.add(&t.ne_scalar(-1.0)?.where_(x, &zero)?)
        })
    }

    /// `log(1 + exp(-target x))`, for targets of 1 and -1.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn soft_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        losses("soft_margin_loss", self, target, reduction, |x, t| t.mul(x)?.log_sigmoid()?.neg())
    }

    /// `max(0, margin - target (x - other))`: x should be over `other` where the target is 1, below it
    /// where it is -1.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn margin_ranking_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        losses("margin_ranking_loss", self, target, reduction, |x, t| {
            (margin - x.sub(&wide(other)?)?.mul(t)?)?.maximum_scalar(0.0)
        })
    }

    /// `sum(x other) / (max(|x|, eps) max(|other|, eps))` along `dim`.
    ///
    /// # Errors
    /// If shapes do not broadcast or there is no such dimension.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
        let (x, y) = (wide(self)?, wide(other)?);
        let shape = crate::shape::broadcast_shapes("cosine_similarity", &[x.shape(), y.shape()])?;
        let (x, y) = (x.broadcast_to(&shape)?, y.broadcast_to(&shape)?);
        let length = |t: &Tensor| t.vector_norm(2.0, &[dim], true)?.maximum_scalar(eps);
        let product = x.div(&length(&x)?)?.mul(&y.div(&length(&y)?)?)?;
        product.sum_dims(&[dim], false)?.to_dtype(autocast::dtype_of("cosine_similarity", self))
    }

    /// The norm of order `p` of `x - other + eps` along the last axis.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn pairwise_distance(
        &self,
        other: &Tensor,
        p: f64,
        eps: f64,
        keep: bool,
    ) -> Result<Tensor> {
        let difference = wide(self)?.sub(&wide(other)?)?.add_scalar(eps)?;
        difference
            .vector_norm(p, &[-1], keep)?
            .to_dtype(autocast::dtype_of("pairwise_distance", self))
    }

    /// `1 - cos` of rows where the target is 1, `max(0, cos - margin)` where it is -1.
    ///
    /// # Shapes
    /// `[N, D]` twice with a target `[N]`, or `[D]` twice with a target `[]`.
    /// # Errors
    /// If shapes do not fit.
    #[track_caller]
    pub fn cosine_embedding_loss(
        &self,
        other: &Tensor,
        target: &Tensor,
        margin: f64,
        reduction: Reduction,
    ) -> Result<Tensor> {
        const EPSILON: f64 = 1e-12;
        if self.shape() != other.shape() || self.rank() != target.rank() + 1 {
            let message = format!(
                "rows are {:?} and {:?}, the target {:?}",
                self.shape(),
                other.shape(),
                target.shape()
            );
            return Err(Error::op("cosine_embedding_loss", message));
        }
        losses("cosine_embedding_loss", self, target, reduction, |x, t| {
            let y = wide(other)?;
            let sum = |t: Tensor| t.sum_dims(&[-1], false);
            let (xx, yy) =
                (sum(x.square()?)?.add_scalar(EPSILON)?, sum(y.square()?)?.add_scalar(EPSILON)?);
            let cos = sum(x.mul(&y)?)?.div(&xx.mul(&yy)?.sqrt()?)?;
            let zero = cos.zeros_like()?;
            let near = t.eq_scalar(1.0)?.where_(&(1.0 - &cos)?, &zero)?;
            let above = cos.sub_scalar(margin)?.maximum_scalar(0.0)?;
            near.add(&t.eq_scalar(-1.0)?.where_(&above, &zero)?)
        })
    }

    /// `max(0, d(x, positive) - d(x, negative) + margin)`, distances of order `p` along the last axis.
    /// With `swap`, `d(positive, negative)` counts where it is the smaller one.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn triplet_margin_loss(
        &self,
        [positive, negative]: [&Tensor; 2],
        options: &Triplet,
    ) -> Result<Tensor> {
        let Triplet { margin, p, eps, swap, reduction } = *options;
        losses("triplet_margin_loss", self, positive, reduction, |x, positive| {
            let negative = wide(negative)?;
            let near = x.pairwise_distance(positive, p, eps, false)?;
            let mut far = x.pairwise_distance(&negative, p, eps, false)?;
            if swap {
                far = far.minimum(&positive.pairwise_distance(&negative, p, eps, false)?)?;
            }
            near.sub(&far)?.add_scalar(margin)?.maximum_scalar(0.0)
        })
    }
}

/// What [`Tensor::triplet_margin_loss`] can be asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Triplet {
    /// How much nearer the positive must be.
    pub margin: f64,
    /// The order of the distance.
    pub p: f64,
    /// Added to each difference.
    pub eps: f64,
    /// Whether the distance between positive and negative counts where it is smaller.
    pub swap: bool,
    /// How the losses become one.
    pub reduction: Reduction,
}

impl Default for Triplet {
    fn default() -> Triplet {
        Triplet { margin: 1.0, p: 2.0, eps: 1e-6, swap: false, reduction: Reduction::Mean }
    }
}

/// `t log(t)`, 0 for 0.
fn times_log(t: &Tensor) -> Result<Tensor> {
    let is_zero = t.detach().eq_scalar(0.0)?;
    let safe = is_zero.where_(&t.ones_like()?, t)?;
    is_zero.where_(&t.zeros_like()?, &safe.mul(&safe.log()?)?)
}

/// Its gradient is not that of its formula, which is infinite at 0 and 1.
struct BinaryCrossEntropy;

/// The logarithms of x and of 1 - x, at least -100.
fn bounded_logs(x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (yes, no) = (x.log()?, x.neg()?.log1p()?);
    Ok((yes.maximum_scalar(-100.0)?, no.maximum_scalar(-100.0)?))
}

impl Op for BinaryCrossEntropy {
    fn name(&self) -> &'static str {
        "binary_cross_entropy"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let (x, target) = (inputs[0], inputs[1]);
        let (yes, no) = bounded_logs(x)?;
        target.mul(&yes)?.add(&(1.0 - target)?.mul(&no)?)?.neg()
    }

    fn saves(&self) -> Saves {
        Saves::inputs(3)
    }

    fn backward(&self, saved: &SavedTensors, dy: &Tensor) -> Result<Vec<Option<Tensor>>> {
        const EPSILON: f64 = 1e-12;
        let (x, target) = (saved.input(0), saved.input(1));
        let spread = x.mul(&(1.0 - x)?)?.maximum_scalar(EPSILON)?;
        let dx = dy.mul(&x.sub(target)?.div(&spread)?)?;
        let dtarget = match saved.wanted[1] {
            true => {
                let (yes, no) = bounded_logs(x)?;
                Some(dy.mul(&no.sub(&yes)?)?)
            }
            false => None,
        };
        Ok(vec![Some(dx), dtarget])
    }
}

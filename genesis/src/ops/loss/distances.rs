//! Losses of numbers: how far predictions are from targets, element by element or row by row.
//!
//! 16-bit inputs are computed in f32; the result has the dtype of the prediction.

#[cfg(feature = "op-info")]
pub(super) mod info;

use crate::autograd::SavedTensors;
use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::composite::{Description, Ending};
use crate::ops::{Op, Reduction, Saves, apply, composite_ending};
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
/// autocast chooses: one kernel, and another where a reduction takes two.
#[track_caller]
fn losses<const N: usize>(
    name: &'static str,
    numbers: &[f64],
    of: [&Tensor; N],
    reduction: Reduction,
    f: Description<N>,
) -> Result<Tensor> {
    let dtype = autocast::dtype_of(name, of[0]);
    let ending: Ending = match reduction {
        Reduction::None => |y| Ok(y.clone()),
        Reduction::Mean => Tensor::mean,
        Reduction::Sum => Tensor::sum,
    };
    composite_ending(name, numbers, of, f, ending)?.to_dtype(dtype)
}

/// Tensors in which losses are computed.
fn wide<const N: usize>(of: [&Tensor; N]) -> Result<[Tensor; N]> {
    let mut wide = of.map(Tensor::clone);
    for t in &mut wide {
        *t = t.to_dtype(launch::accumulate_dtype(t.dtype()))?;
    }
    Ok(wide)
}

impl Tensor {
    /// The mean of squared differences, or their sum, or each.
    ///
    /// # Errors
    /// If shapes do not broadcast, or dtypes or devices differ.
    #[track_caller]
    pub fn mse_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        losses("mse_loss", &[], [self, target], reduction, |of, _| {
            let [x, t] = wide(of)?;
            x.sub(&t)?.square()
        })
    }

    /// The mean of distances, or their sum, or each.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        losses("l1_loss", &[], [self, target], reduction, |of, _| {
            let [x, t] = wide(of)?;
            x.sub(&t)?.abs()
        })
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
        losses("huber_loss", &[delta], [self, target], reduction, |of, n| {
            let ([x, t], delta) = (wide(of)?, n[0]);
            let distance = x.sub(&t)?.abs()?;
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
        losses("binary_cross_entropy", &[], [self, target], reduction, |of, _| {
            let [x, t] = wide(of)?;
            apply(BinaryCrossEntropy, &[&x, &t])
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
        losses("bce_with_logits", &[], [self, target], reduction, |of, _| {
            let [x, t] = wide(of)?;
            (1.0 - &t)?.mul(&x)?.sub(&x.log_sigmoid()?)
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
        losses("bce_with_logits", &[], [self, target, pos_weight], reduction, |of, _| {
            let [x, t, pos_weight] = wide(of)?;
            let weight = pos_weight.sub_scalar(1.0)?.mul(&t)?.add_scalar(1.0)?;
            (1.0 - &t)?.mul(&x)?.sub(&weight.mul(&x.log_sigmoid()?)?)
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
        let f: Description<2> = match log_target {
            true => |of, _| {
                let [x, t] = wide(of)?;
                t.exp()?.mul(&t.sub(&x)?)
            },
            false => |of, _| {
                let [x, t] = wide(of)?;
                times_log(&t)?.sub(&t.mul(&x)?)
            },
        };
        losses("kl_div", &[], [self, target], reduction, f)
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
        let flags = [f64::from(log_input), f64::from(full), eps];
        losses("poisson_nll_loss", &flags, [self, target], reduction, |of, n| {
            let [x, t] = wide(of)?;
            let loss = match n[0] > 0.0 {
                true => x.exp()?.sub(&t.mul(&x)?)?,
                false => x.sub(&t.mul(&x.add_scalar(n[2])?.log()?)?)?,
            };
            if n[1] > 0.0 { loss.add(&stirling(&t)?) } else { Ok(loss) }
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
        let constant = if full { 0.5 * (2.0 * std::f64::consts::PI).ln() } else { 0.0 };
        let (numbers, of) = ([eps, constant], [self, target, &variance]);
        losses("gaussian_nll_loss", &numbers, of, reduction, |of, n| {
            let [x, t, v] = wide(of)?;
            let missing = v.detach().maximum_scalar(n[0])?.sub(&v.detach())?;
            let v = v.add(&missing)?;
            let loss = v.log()?.add(&x.sub(&t)?.square()?.div(&v)?)?.mul_scalar(0.5)?;
            loss.add_scalar(n[1])
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
        losses("hinge_embedding_loss", &[margin], [self, target], reduction, |of, n| {
            let [x, t] = wide(of)?;
            let zero = x.zeros_like()?;
            let below = (n[0] - &x)?.maximum_scalar(0.0)?;
            let far = t.ne_scalar(1.0)?.where_(&below, &zero)?;
            far.add(&t.ne_scalar(-1.0)?.where_(&x, &zero)?)
        })
    }

    /// `log(1 + exp(-target x))`, for targets of 1 and -1.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    #[track_caller]
    pub fn soft_margin_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        losses("soft_margin_loss", &[], [self, target], reduction, |of, _| {
            let [x, t] = wide(of)?;
            t.mul(&x)?.log_sigmoid()?.neg()
        })
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
        losses("margin_ranking_loss", &[margin], [self, target, other], reduction, |of, n| {
            let [x, t, other] = wide(of)?;
            (n[0] - x.sub(&other)?.mul(&t)?)?.maximum_scalar(0.0)
        })
    }

    /// `sum(x other) / (max(|x|, eps) max(|other|, eps))` along `dim`.
    ///
    /// # Errors
    /// If shapes do not broadcast or there is no such dimension.
    #[track_caller]
    pub fn cosine_similarity(&self, other: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
        const NAME: &str = "cosine_similarity";
        let shape = crate::shape::broadcast_shapes(NAME, &[self.shape(), other.shape()])?;
        let of = [&self.broadcast_to(&shape)?, &other.broadcast_to(&shape)?];
        losses(NAME, &[dim as f64, eps], of, Reduction::None, |of, n| {
            let ([x, y], dim) = (wide(of)?, n[0] as i64);
            let length = |t: &Tensor| t.vector_norm(2.0, &[dim], true)?.maximum_scalar(n[1]);
            let product = x.div(&length(&x)?)?.mul(&y.div(&length(&y)?)?)?;
            product.sum_dims(&[dim], false)
        })
    }

    /// `x / max(|x|, eps)` along `dim`, where `|x|` is the norm of order `p`: rows of length 1.
    ///
    /// # Shapes
    /// Any with the dimension `dim` gives the same shape.
    /// # Numerics
    /// 16-bit floats are rounded once, at the end.
    /// # Errors
    /// If there is no such dimension, or the dtype is not a float.
    /// # Source
    /// `torch.nn.functional.normalize`
    /// # Examples
    /// ```
    /// # use genesis::Tensor;
    /// let x = Tensor::from_slice(&[3f32, 4.0, 0.0, 5.0], &[2, 2])?;
    /// assert_eq!(x.normalize(2.0, -1, 1e-12)?.to_vec::<f32>()?, [0.6, 0.8, 0.0, 1.0]);
    /// # Ok::<(), genesis::Error>(())
    /// ```
    #[track_caller]
    pub fn normalize(&self, p: f64, dim: i64, eps: f64) -> Result<Tensor> {
        let numbers = [p, dim as f64, eps];
        losses("normalize", &numbers, [self], Reduction::None, |of, n| {
            let [x] = wide(of)?;
            x.div(&x.vector_norm(n[0], &[n[1] as i64], true)?.maximum_scalar(n[2])?)
        })
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
        let numbers = [p, eps, f64::from(keep)];
        losses("pairwise_distance", &numbers, [self, other], Reduction::None, |of, n| {
            let [x, y] = wide(of)?;
            x.sub(&y)?.add_scalar(n[1])?.vector_norm(n[0], &[-1], n[2] > 0.0)
        })
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
        let (numbers, of) = ([EPSILON, margin], [self, target, other]);
        losses("cosine_embedding_loss", &numbers, of, reduction, |of, n| {
            let [x, t, y] = wide(of)?;
            let sum = |t: Tensor| t.sum_dims(&[-1], false);
            let (xx, yy) =
                (sum(x.square()?)?.add_scalar(n[0])?, sum(y.square()?)?.add_scalar(n[0])?);
            let cos = sum(x.mul(&y)?)?.div(&xx.mul(&yy)?.sqrt()?)?;
            let zero = cos.zeros_like()?;
            let near = t.eq_scalar(1.0)?.where_(&(1.0 - &cos)?, &zero)?;
            let above = cos.sub_scalar(n[1])?.maximum_scalar(0.0)?;
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
        let (numbers, of) = ([margin, p, eps, f64::from(swap)], [self, positive, negative]);
        losses("triplet_margin_loss", &numbers, of, reduction, |of, n| {
            let [x, positive, negative] = &wide(of)?;
            let distance = |a: &Tensor, b: &Tensor| a.pairwise_distance(b, n[1], n[2], false);
            let mut far = distance(x, negative)?;
            if n[3] > 0.0 {
                far = far.minimum(&distance(positive, negative)?)?;
            }
            distance(x, positive)?.sub(&far)?.add_scalar(n[0])?.maximum_scalar(0.0)
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

/// Stirling's approximation of `log(t!)` where t is over 1, else 0.
fn stirling(t: &Tensor) -> Result<Tensor> {
    let is_large = t.detach().gt_scalar(1.0)?;
    let safe = is_large.where_(t, &t.ones_like()?)?;
    let root = safe.mul_scalar(2.0 * std::f64::consts::PI)?.log()?.mul_scalar(0.5)?;
    let log = safe.mul(&safe.log()?)?.sub(&safe)?.add(&root)?;
    is_large.where_(&log, &t.zeros_like()?)
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

//! Losses of classes: negative log-likelihood, and cross entropy with weights and smoothing.

use genesis_kernel::ir::DType;

use crate::dispatch::autocast::{self, Precision, Precisions};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::loss::nll::NllLoss;
use crate::ops::{Reduction, apply, composite, composite_ending};
use crate::tensor::Tensor;

/// In what autocast computes these.
pub(super) const AUTOCAST: Precisions = &[("nll_loss", Precision::Single)];

/// How classes count in a loss.
#[derive(Clone, Debug)]
pub struct Classes {
    /// A weight for each class.
    pub weight: Option<Tensor>,
    /// A target that says its row does not count.
    pub ignore_index: i64,
    /// The share of a target that is spread over all classes.
    pub label_smoothing: f64,
    /// How the losses become one.
    pub reduction: Reduction,
}

impl Default for Classes {
    fn default() -> Classes {
        let reduction = Reduction::Mean;
        Classes { weight: None, ignore_index: -100, label_smoothing: 0.0, reduction }
    }
}

/// Scores by class as the last axis, rows before it.
fn rows(op: &str, x: &Tensor, target: &[usize]) -> Result<Tensor> {
    let dim = if x.rank() == 1 { 0 } else { 1 };
    let mut lead = x.shape().to_vec();
    if x.rank() == 0 {
        return Err(Error::op(op, "needs at least 1 dimension(s), got shape []"));
    }
    lead.remove(dim);
    if lead != target {
        let message = format!("scores are {:?}, the target {target:?} must be {lead:?}", x.shape());
        return Err(Error::op(op, message));
    }
    x.movedim(&[dim as i64], &[-1])
}

/// What counts of a weight: nothing where the target is to be ignored.
fn counted([weight, target]: [&Tensor; 2], n: &[f64]) -> Result<Tensor> {
    target.ne_scalar(n[0])?.where_(weight, &Tensor::zeros(&[], (weight.dtype(), weight.device()))?)
}

/// The loss of what was picked, by its weight.
fn weighted_loss([picked, weight, target]: [&Tensor; 3], n: &[f64]) -> Result<Tensor> {
    counted([&picked.neg()?.mul(weight)?, target], n)
}

/// The loss of scores by class, `[.., C]`, by one kernel; none where it is made of ops.
fn in_one_launch(x: &Tensor, target: &Tensor, classes: &Classes) -> Result<Option<Tensor>> {
    let is_mean = match classes.reduction {
        Reduction::None => return Ok(None),
        Reduction::Mean => true,
        Reduction::Sum => false,
    };
    let is_weight = |w: &Tensor| {
        let is_plain = !w.requires_grad() && w.dtype().is_arithmetic_float();
        is_plain && w.shape() == [x.dim(-1).unwrap_or(0)] && w.device() == x.device()
    };
    let fits = !trace::is_on()
        && target.device() == x.device()
        && x.numel() > 0
        && x.dtype().is_arithmetic_float()
        && classes.weight.as_ref().is_none_or(is_weight);
    if !fits {
        return Ok(None);
    }
    let wide = launch::accumulate_dtype(x.dtype());
    let of_classes = |weight: &Tensor| weight.to_dtype(wide)?.contiguous();
    let weight = classes.weight.as_ref().map(of_classes).transpose()?;
    let (m, c) = (target.numel(), x.dim(-1)?);
    let target = target.detach().reshape(&[m])?;
    let op = NllLoss::new(weight, classes.ignore_index, is_mean);
    Ok(Some(apply(op, &[&x.reshape(&[m, c])?, &target])?))
}

impl Tensor {
    /// The negative of the log-probability of each target class.
    ///
    /// # Shapes
    /// `[C]`, `[N, C]` or `[N, C, ..]` with `target: []`, `[N]` or `[N, ..]`.
    /// # Errors
    /// If the target is not i64 or of another shape, or names no class.
    pub fn nll_loss(&self, target: &Tensor, classes: &Classes) -> Result<Tensor> {
        const NAME: &str = "nll_loss";
        if target.dtype() != DType::I64 {
            return Err(Error::op(NAME, format!("the target must be i64, got {}", target.dtype())));
        }
        if let Some(cast) = autocast::cast_inputs("nll_loss", &[self])? {
            return cast[0].nll_loss(target, classes);
        }
        let x = rows(NAME, self, target.shape())?;
        if let Some(loss) = in_one_launch(&x, target, classes)? {
            return Ok(loss);
        }
        let numbers = [classes.ignore_index as f64];
        // A row that does not count picks the first class, whatever that is.
        let safe = composite(NAME, &numbers, [target], |[target], n| {
            target
                .ne_scalar(n[0])?
                .where_(target, &Tensor::zeros(&[], (DType::I64, target.device()))?)
        })?;
        let (m, c) = (safe.numel(), x.dim(-1)?);
        let picked = x.reshape(&[m, c])?.gather(1, &safe.reshape(&[m, 1])?)?;
        let picked = picked.to_dtype(launch::accumulate_dtype(x.dtype()))?;
        let picked = picked.reshape(target.shape())?;
        let weight = match &classes.weight {
            Some(weight) => weight
                .to_dtype(picked.dtype())?
                .index_select(0, &safe.reshape(&[m])?)?
                .reshape(target.shape())?,
            None => {
                Tensor::ones(&[], (picked.dtype(), x.device()))?.broadcast_to(target.shape())?
            }
        };
        let operands = [&picked, &weight, target];
        let loss = match classes.reduction {
            Reduction::Mean => {
                let sum = composite_ending(NAME, &numbers, operands, weighted_loss, Tensor::sum)?;
                sum.div(&composite_ending(
                    NAME,
                    &numbers,
                    [&weight, target],
                    counted,
                    Tensor::sum,
                )?)?
            }
            other => other.of(&composite(NAME, &numbers, operands, weighted_loss)?)?,
        };
        loss.to_dtype(self.dtype())
    }

    /// The cross entropy of scores and target classes, or target probabilities of the scores' shape.
    /// The classes are axis 1, as in PyTorch, or the only axis.
    ///
    /// # Errors
    /// If the target is neither i64 of fitting shape nor floats of the scores' shape.
    pub fn cross_entropy_loss(&self, target: &Tensor, classes: &Classes) -> Result<Tensor> {
        const NAME: &str = "cross_entropy";
        if self.rank() == 0 {
            return Err(Error::op(NAME, "needs at least 1 dimension(s), got shape []"));
        }
        if let Some(cast) = autocast::cast_inputs("cross_entropy", &[self])? {
            return cast[0].cross_entropy_loss(target, classes);
        }
        let dim = if self.rank() == 1 { 0 } else { 1 };
        let wide = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        let log = wide.log_softmax(dim)?;
        let c = self.dim(dim)?;
        let smooth = classes.label_smoothing;
        let mut line = vec![1; self.rank()];
        line[dim as usize] = c;
        let weighted = match &classes.weight {
            Some(weight) => log.mul(&weight.to_dtype(log.dtype())?.reshape(&line)?)?,
            None => log.clone(),
        };
        if target.dtype().is_float() {
            if target.shape() != self.shape() {
                let message =
                    format!("scores are {:?}, probabilities {:?}", self.shape(), target.shape());
                return Err(Error::op(NAME, message));
            }
            let target = target.to_dtype(log.dtype())?;
            let target = match smooth {
                0.0 => target,
                _ => target.mul_scalar(1.0 - smooth)?.add_scalar(smooth / c as f64)?,
            };
            let losses = weighted.mul(&target)?.sum_dims(&[dim], false)?.neg()?;
            let loss = match classes.reduction {
                Reduction::Mean => losses.sum()?.div_scalar((self.numel() / c.max(1)) as f64)?,
                other => other.of(&losses)?,
            };
            return loss.to_dtype(self.dtype());
        }
        let loss = log.nll_loss(target, classes)?;
        if smooth == 0.0 {
            return loss.to_dtype(self.dtype());
        }
        let counts = target.ne_scalar(classes.ignore_index as f64)?;
        let spread = weighted.sum_dims(&[dim], false)?.neg()?;
        let spread = counts.where_(&spread, &spread.zeros_like()?)?;
        let spread = match classes.reduction {
            Reduction::Mean => {
                let safe = counts.where_(target, &target.zeros_like()?)?;
                let each = match &classes.weight {
                    Some(weight) => weight
                        .to_dtype(log.dtype())?
                        .index_select(0, &safe.reshape(&[safe.numel()])?)?
                        .reshape(target.shape())?,
                    None => Tensor::ones(target.shape(), (log.dtype(), log.device()))?,
                };
                spread.sum()?.div(&each.mul(&counts.to_dtype(log.dtype())?)?.sum()?)?
            }
            other => other.of(&spread)?,
        };
        let share = spread.mul_scalar(smooth / c as f64)?;
        loss.mul_scalar(1.0 - smooth)?.add(&share)?.to_dtype(self.dtype())
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use crate::ops::Classes;
    use crate::ops::info::{Family, OpInfo, scalar};

    pub(in crate::ops) static INFOS: &[OpInfo] = &[
        OpInfo::new(
            "nll_loss/log_probs",
            Family::Softmax,
            |x| x[0].nll_loss(&x[1], &Classes::default()),
            |x| scalar((0..5).map(|i| -x[0].at(&[i, x[1].data[i] as usize])).sum::<f64>() / 5.0),
            &[&[&[5, 4], &[5]]],
        )
        .peer("F.nll_loss(x[0], x[1])")
        .indexed(&[(1, 4)])
        .within(-3.0, -0.1),
        OpInfo::new(
            "cross_entropy_loss",
            Family::Softmax,
            |x| {
                let classes = Classes { label_smoothing: 0.1, ..Classes::default() };
                x[0].cross_entropy_loss(&x[1], &classes)
            },
            |x| {
                let loss = |i: usize| {
                    let total = (0..4).map(|c| x[0].at(&[i, c]).exp()).sum::<f64>().ln();
                    let log = |c: usize| x[0].at(&[i, c]) - total;
                    -0.9 * log(x[1].data[i] as usize) - 0.025 * (0..4).map(log).sum::<f64>()
                };
                scalar((0..5).map(loss).sum::<f64>() / 5.0)
            },
            &[&[&[5, 4], &[5]]],
        )
        .peer("F.cross_entropy(x[0], x[1], label_smoothing=0.1)")
        .indexed(&[(1, 4)]),
    ];
}

//! Losses made of other ops.

use genesis_kernel::ir::DType;

use super::Reduction;
use super::launch;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

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

fn reduced(losses: &Tensor, reduction: Reduction) -> Result<Tensor> {
    match reduction {
        Reduction::None => Ok(losses.clone()),
        Reduction::Mean => losses.mean(),
        Reduction::Sum => losses.sum(),
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
        let x = rows(NAME, self, target.shape())?;
        let x = x.to_dtype(launch::accumulate_dtype(x.dtype()))?;
        let counts = target.ne_scalar(classes.ignore_index as f64)?;
        let safe = counts.where_(target, &target.zeros_like()?)?;
        let (m, c) = (safe.numel(), x.dim(-1)?);
        let picked = x.reshape(&[m, c])?.gather(1, &safe.reshape(&[m, 1])?)?;
        let weight = match &classes.weight {
            Some(weight) => weight
                .to_dtype(x.dtype())?
                .index_select(0, &safe.reshape(&[m])?)?
                .reshape(target.shape())?,
            None => Tensor::ones(target.shape(), (x.dtype(), x.device()))?,
        };
        let zero = Tensor::zeros(&[], (x.dtype(), x.device()))?;
        let weight = counts.where_(&weight, &zero)?;
        let losses = picked.reshape(target.shape())?.neg()?.mul(&weight)?;
        let losses = counts.where_(&losses, &zero)?;
        let loss = match classes.reduction {
            Reduction::Mean => losses.sum()?.div(&weight.sum()?)?,
            other => reduced(&losses, other)?,
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
                other => reduced(&losses, other)?,
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
            other => reduced(&spread, other)?,
        };
        let share = spread.mul_scalar(smooth / c as f64)?;
        loss.mul_scalar(1.0 - smooth)?.add(&share)?.to_dtype(self.dtype())
    }

    /// The mean of distances, or their sum, or each.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    pub fn l1_loss(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        reduced(&self.sub(target)?.abs()?, reduction)
    }

    /// Half the square of distances up to `delta`, beyond it `delta * (distance - delta / 2)`.
    ///
    /// # Errors
    /// If shapes do not broadcast or `delta` is not positive.
    pub fn huber_loss(&self, target: &Tensor, delta: f64, reduction: Reduction) -> Result<Tensor> {
        if delta.is_nan() || delta <= 0.0 {
            return Err(Error::op("huber_loss", format!("delta must be positive, got {delta}")));
        }
        let distance = self.sub(target)?.abs()?;
        let near = distance.square()?.mul_scalar(0.5)?;
        let far = distance.sub_scalar(0.5 * delta)?.mul_scalar(delta)?;
        reduced(&distance.detach().lt_scalar(delta)?.where_(&near, &far)?, reduction)
    }

    /// [`Tensor::huber_loss`] divided by `beta`; [`Tensor::l1_loss`] for a `beta` of 0.
    ///
    /// # Errors
    /// If shapes do not broadcast or `beta` is negative.
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
    /// # Errors
    /// If shapes do not broadcast.
    pub fn binary_cross_entropy(&self, target: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let yes = self.log()?.maximum_scalar(-100.0)?;
        let no = (1.0 - self)?.log()?.maximum_scalar(-100.0)?;
        let losses = target.mul(&yes)?.add(&(1.0 - target)?.mul(&no)?)?.neg()?;
        reduced(&losses, reduction)
    }

    /// [`Tensor::binary_cross_entropy`] of the sigmoid of scores, which does not overflow.
    ///
    /// # Errors
    /// If shapes do not broadcast.
    pub fn binary_cross_entropy_with_logits(
        &self,
        target: &Tensor,
        reduction: Reduction,
    ) -> Result<Tensor> {
        let rest = self.abs()?.neg()?.exp()?.log1p()?;
        let losses = self.relu()?.sub(&self.mul(target)?)?.add(&rest)?;
        reduced(&losses, reduction)
    }

    /// `log(1 + exp(beta x)) / beta`, and x itself where `beta x` is over the threshold.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn softplus(&self, beta: f64, threshold: f64) -> Result<Tensor> {
        let x = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        let scaled = x.mul_scalar(beta)?;
        let is_far = scaled.detach().gt_scalar(threshold)?;
        let near = is_far.where_(&scaled.zeros_like()?, &scaled)?;
        let soft = near.relu()?.add(&near.abs()?.neg()?.exp()?.log1p()?)?.div_scalar(beta)?;
        is_far.where_(&x, &soft)?.to_dtype(self.dtype())
    }

    /// x where it is positive, else `slope * x`; the gradient at 0 is `slope`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        self.detach().gt_scalar(0.0)?.where_(self, &self.mul_scalar(slope)?)
    }

    /// x where it is positive, else `alpha * (exp(x) - 1)`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        let is_above = self.detach().gt_scalar(0.0)?;
        let below = is_above.where_(&self.zeros_like()?, self)?.expm1()?.mul_scalar(alpha)?;
        is_above.where_(self, &below)
    }

    /// `x * clamp(x + 3, 0, 6) / 6`
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn hardswish(&self) -> Result<Tensor> {
        let x = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        let inner = x.mul(&x.add_scalar(3.0)?)?.div_scalar(6.0)?;
        let (low, high) = (x.detach().le_scalar(-3.0)?, x.detach().ge_scalar(3.0)?);
        let y = low.where_(&x.zeros_like()?, &high.where_(&x, &inner)?)?;
        y.to_dtype(self.dtype())
    }

    /// `x * tanh(log(1 + exp(x)))`
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn mish(&self) -> Result<Tensor> {
        let x = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        x.mul(&x.softplus(1.0, 20.0)?.tanh()?)?.to_dtype(self.dtype())
    }

    /// GELU by the hyperbolic tangent: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    ///
    /// # Errors
    /// If the dtype is not a float.
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        let x = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        let cube = x.square()?.mul(&x)?.mul_scalar(0.044715)?;
        let inner = x.add(&cube)?.mul_scalar((2.0 / std::f64::consts::PI).sqrt())?.tanh()?;
        x.mul(&inner.add_scalar(1.0)?)?.mul_scalar(0.5)?.to_dtype(self.dtype())
    }
}

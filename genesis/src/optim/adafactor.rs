//! Adafactor: second moments of a matrix from those of its rows and columns.

use super::rule::{Member, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::Result;
use crate::launch::accumulate_dtype;
use crate::tensor::Tensor;
use genesis_kernel::ir::DType;

/// Options of [`Adafactor`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdafactorOptions {
    /// The learning rate: a bound of the step relative to the size of the weights.
    pub lr: f64,
    /// The decay of the second moment in step t is `1 - t^beta2_decay`.
    pub beta2_decay: f64,
    /// The least mean square of a gradient, as its root; the smallest step of the parameter's dtype
    /// from 1 where it is 0.
    pub eps1: f64,
    /// The least root mean square of a parameter.
    pub eps2: f64,
    /// The largest root mean square of a step, in learning rates.
    pub d: f64,
    /// The share of the weight that is taken from it, times the learning rate.
    pub weight_decay: f64,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for AdafactorOptions {
    fn default() -> AdafactorOptions {
        AdafactorOptions {
            lr: 1e-2,
            beta2_decay: -0.8,
            eps1: 0.0,
            eps2: 1e-3,
            d: 1.0,
            weight_decay: 0.0,
            maximize: false,
            master: true,
        }
    }
}

/// Adafactor.
///
/// # Cost
/// A matrix of m by n has m + n numbers of state. Some twenty launches a parameter.
/// # Source
/// arXiv:1804.04235; same conventions as `torch.optim.Adafactor`.
pub type Adafactor = Optim<AdafactorOptions>;

impl Rule for AdafactorOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        if parameter.rank() < 2 {
            return Ok(vec![("variance", state_like(parameter)?)]);
        }
        let at = (accumulate_dtype(parameter.dtype()), parameter.device());
        let (mut row, mut column) = (parameter.shape().to_vec(), parameter.shape().to_vec());
        row[parameter.rank() - 1] = 1;
        column[parameter.rank() - 2] = 1;
        Ok(vec![("row_var", Tensor::zeros(&row, at)?), ("col_var", Tensor::zeros(&column, at)?)])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        let wide = batch.dtypes()[1];
        let step = batch.step_tensor()?;
        // t^beta2_decay, and min(lr, 1 / sqrt(t)).
        let fresh = step.log()?.mul_scalar(self.beta2_decay)?.exp()?.to_dtype(wide)?;
        let rate = step.rsqrt()?.minimum_scalar(self.lr)?.to_dtype(wide)?;
        for member in batch.members() {
            self.step_one(batch, member, &fresh, &rate)?;
        }
        Ok(())
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("beta2_decay", (&mut self.beta2_decay).into()),
            ("eps1", (&mut self.eps1).into()),
            ("eps2", (&mut self.eps2).into()),
            ("d", (&mut self.d).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

impl AdafactorOptions {
    fn step_one(
        &self,
        batch: &Batch<'_>,
        member: &Member,
        fresh: &Tensor,
        rate: &Tensor,
    ) -> Result<()> {
        let eps1 = if self.eps1 == 0.0 { epsilon(member.weight.dtype()) } else { self.eps1 };
        let weight = member.weight()?;
        if weight.numel() == 0 {
            return Ok(());
        }
        let gradient = member.gradient()?;
        let gradient = if self.maximize { gradient.neg()? } else { gradient };
        let alpha = root_mean_square(&weight)?.maximum_scalar(self.eps2)?.mul(rate)?;
        let square = gradient.square()?;
        let variance = if gradient.rank() < 2 {
            let variance = blend(member.state(0), &square, fresh)?;
            batch.set_state(member, 0, &variance)?;
            variance
        } else {
            let row = blend(member.state(0), &square.mean_dims(&[-1], true)?, fresh)?;
            let column = blend(member.state(1), &square.mean_dims(&[-2], true)?, fresh)?;
            batch.set_state(member, 0, &row)?;
            batch.set_state(member, 1, &column)?;
            let mean = row.mean_dims(&[-2], true)?.maximum_scalar(eps1)?;
            row.mul(&column)?.div(&mean)?
        };
        let update = variance.maximum_scalar(eps1 * eps1)?.rsqrt()?.mul(&gradient)?;
        let limit = root_mean_square(&update)?.div_scalar(self.d)?.maximum_scalar(1.0)?;
        let kept = weight.mul_scalar(1.0 - self.lr * self.weight_decay)?;
        batch.set_weight(member, &kept.sub(&update.mul(&alpha.div(&limit)?)?)?)
    }
}

/// `old + (new - old) * share`
fn blend(old: &Tensor, new: &Tensor, share: &Tensor) -> Result<Tensor> {
    old.add(&new.sub(old)?.mul(share)?)
}

fn root_mean_square(x: &Tensor) -> Result<Tensor> {
    x.square()?.mean()?.sqrt()
}

/// The distance from 1 to the next number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => f64::from(half::f16::EPSILON),
        DType::BF16 => f64::from(half::bf16::EPSILON),
        _ => f64::from(f32::EPSILON),
    }
}

//! AdamW with moments of 8 bits.

use genesis_kernel::ir::DType;
use kernels::update_8bit as device;

use super::adam::{AdamOptions, power, step};
use super::rule::{Fused, sign, state_like};
use super::{Batch, Member, Optim, Rule, Setting};
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::tensor::Tensor;

/// Options of [`AdamW8bit`], with the defaults of [`AdamW`](super::AdamW).
#[derive(Clone, Copy, Debug)]
pub struct AdamW8bitOptions {
    /// The learning rate.
    pub lr: f64,
    /// Decay of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the root of the second mean.
    pub eps: f64,
    /// The share of the weight that is taken from it, times the learning rate.
    pub weight_decay: f64,
    /// Parameters of fewer elements keep moments in f32.
    pub least: f64,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for AdamW8bitOptions {
    fn default() -> AdamW8bitOptions {
        AdamW8bitOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 1e-2,
            least: 4096.0,
            maximize: false,
            master: true,
        }
    }
}

/// [`AdamW`](super::AdamW) whose moments take 2.03 bytes a parameter in the place of 8: codes of 8 bits and a scale for each
/// 256 of them, [`kernels::update_8bit`].
///
/// Its state has the codes, `exp_avg` and `exp_avg_sq`, as flat tensors of u8, and `exp_avg_scale` and `exp_avg_sq_scale` in
/// f32. Parameters below [`AdamW8bitOptions::least`] elements, such as norms and biases, and those in f64 have the moments
/// of AdamW.
///
/// # Numerics
/// A step is computed in f32 with the moments as they are before they are rounded to codes. Rounding is to the nearest;
/// a second moment that is positive stays so.
/// # Cost
/// One launch a step for parameters with codes and one for the others; memory bound, it reads and writes half of what
/// AdamW does.
/// # Source
/// arXiv:2110.02861; blocks and small parameters as in `bitsandbytes.optim.AdamW8bit`.
///
/// # Examples
/// ```
/// use genesis::nn::{Linear, Module};
/// use genesis::optim::{AdamW8bit, AdamW8bitOptions, Optimizer};
/// # use genesis::Tensor;
/// let model = Linear::new(128, 64, genesis::Device::Cpu)?;
/// let mut optimizer = AdamW8bit::new(model.named_parameters(), AdamW8bitOptions::default());
/// # use genesis::nn::Layer;
/// model.forward(&Tensor::ones(&[2, 128], ())?)?.square()?.mean()?.backward()?;
/// optimizer.step()?;
/// let state = optimizer.state_dict()?;
/// assert_eq!(state.tensors["weight/exp_avg"].shape(), [64 * 128]);
/// assert_eq!(state.tensors["weight/exp_avg_scale"].shape(), [32]);
/// # Ok::<(), genesis::Error>(())
/// ```
pub type AdamW8bit = Optim<AdamW8bitOptions>;

impl Rule for AdamW8bitOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        let elements = parameter.numel();
        let is_wide = accumulate_dtype(parameter.dtype()) != DType::F32;
        if is_wide || (elements as f64) < self.least {
            return Ok(vec![
                ("exp_avg", state_like(parameter)?),
                ("exp_avg_sq", state_like(parameter)?),
            ]);
        }
        let codes = || Tensor::zeros(&[elements], (DType::U8, parameter.device()));
        let scales = || {
            let count = elements.div_ceil(device::SHARE);
            Tensor::zeros(&[count], (DType::F32, parameter.device()))
        };
        Ok(vec![
            ("exp_avg", codes()?),
            ("exp_avg_scale", scales()?),
            ("exp_avg_sq", codes()?),
            ("exp_avg_sq_scale", scales()?),
        ])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        let all = std::mem::take(&mut batch.members);
        let is_coded = |member: &Member| member.states.len() == 4;
        let (coded, whole): (Vec<Member>, Vec<Member>) = all.into_iter().partition(is_coded);
        if !whole.is_empty() {
            batch.members = whole;
            step(&self.as_adam(), true, batch)?;
        }
        if !coded.is_empty() {
            batch.members = coded;
            self.step_codes(batch)?;
        }
        Ok(())
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("beta1", (&mut self.betas.0).into()),
            ("beta2", (&mut self.betas.1).into()),
            ("eps", (&mut self.eps).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("least", (&mut self.least).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

impl AdamW8bitOptions {
    /// The same numbers for parameters whose moments are in f32.
    fn as_adam(&self) -> AdamOptions {
        let AdamW8bitOptions { lr, betas, eps, weight_decay, maximize, master, .. } = *self;
        let stochastic_rounding = false;
        let amsgrad = false;
        AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master, stochastic_rounding }
    }

    fn step_codes(&self, batch: &mut Batch<'_>) -> Result<()> {
        let (beta1, beta2) = self.betas;
        let block = batch.block();
        if !block.is_multiple_of(device::SHARE) {
            return Err(Error::op(
                "step",
                "blocks of a launch are no whole scales, which is a bug",
            ));
        }
        let correction = |beta: f64| 1.0 - power(beta, batch.step());
        let (correction1, correction2) = (correction(beta1), correction(beta2));
        batch.fused(&Fused {
            kernel: &device::adamw_8bit::KERNEL,
            consts: &[(block / device::SHARE) as i64],
            reads_gradient: true,
            state_dtype: None,
            is_numbered: false,
            states: &[Some(0), Some(1), Some(2), Some(3)],
            exact: &[beta1, beta2],
            numbers: &[
                sign(self.maximize),
                self.lr,
                self.weight_decay,
                1.0 - beta1,
                1.0 - beta2,
                self.eps,
                self.lr / correction1,
                1.0 / correction2.sqrt(),
            ],
            rest: &super::rule::no_more,
        })
    }
}

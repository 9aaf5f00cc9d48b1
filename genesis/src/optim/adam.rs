//! Adam and AdamW.

use genesis_kernel::ir::DType;
use kernels::update as device;

use super::rule::{Fused, no_more, sign};
use super::{Batch, Optim, Rule, Setting};
use crate::error::{Error, Result};
use crate::launch::accumulate_dtype;
use crate::tensor::Tensor;

/// Options of [`Adam`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdamOptions {
    /// The learning rate.
    pub lr: f64,
    /// Decay of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the root of the second mean.
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f64,
    /// Divides by the largest second mean so far.
    pub amsgrad: bool,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
    /// Keeps parameters of bf16 and their moments in bf16 alone, 6 bytes of each in place of 14, and rounds what is stored up
    /// or down by chance, so that steps of less than a parameter's last bit count on average. `master` says nothing then.
    pub stochastic_rounding: bool,
}

impl Default for AdamOptions {
    fn default() -> AdamOptions {
        AdamOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-8,
            weight_decay: 0.0,
            amsgrad: false,
            maximize: false,
            master: true,
            stochastic_rounding: false,
        }
    }
}

/// Adam.
///
/// # Source
/// arXiv:1412.6980; same conventions as `torch.optim.Adam`.
pub type Adam = Optim<AdamOptions>;

/// Options of [`AdamW`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdamWOptions {
    /// The learning rate.
    pub lr: f64,
    /// Decay of the running means of the gradient and of its square.
    pub betas: (f64, f64),
    /// Added to the root of the second mean.
    pub eps: f64,
    /// The share of the weight that is taken from it, times the learning rate.
    pub weight_decay: f64,
    /// Divides by the largest second mean so far.
    pub amsgrad: bool,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
    /// Keeps parameters of bf16 and their moments in bf16 alone, 6 bytes of each in place of 14, and rounds what is stored up
    /// or down by chance, so that steps of less than a parameter's last bit count on average. `master` says nothing then.
    pub stochastic_rounding: bool,
}

impl Default for AdamWOptions {
    fn default() -> AdamWOptions {
        let AdamOptions { lr, betas, eps, amsgrad, maximize, master, stochastic_rounding, .. } =
            AdamOptions::default();
        let weight_decay = 1e-2;
        AdamWOptions {
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            maximize,
            master,
            stochastic_rounding,
        }
    }
}

/// Adam with weight decay apart from the gradient.
///
/// # Source
/// arXiv:1711.05101; same conventions as `torch.optim.AdamW`.
pub type AdamW = Optim<AdamWOptions>;

impl Rule for AdamOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        let dtype = self.state_dtype(parameter.dtype())?;
        let names = ["exp_avg", "exp_avg_sq", "max_exp_avg_sq"];
        let zeros =
            |name| Ok((name, Tensor::zeros(parameter.shape(), (dtype, parameter.device()))?));
        names.into_iter().take(2 + usize::from(self.amsgrad)).map(zeros).collect()
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        step(self, false, batch)
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("beta1", (&mut self.betas.0).into()),
            ("beta2", (&mut self.betas.1).into()),
            ("eps", (&mut self.eps).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("amsgrad", (&mut self.amsgrad).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
            ("stochastic_rounding", (&mut self.stochastic_rounding).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master && !self.stochastic_rounding
    }
}

impl Rule for AdamWOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        self.as_adam().states(parameter)
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        step(&self.as_adam(), true, batch)
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("beta1", (&mut self.betas.0).into()),
            ("beta2", (&mut self.betas.1).into()),
            ("eps", (&mut self.eps).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("amsgrad", (&mut self.amsgrad).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
            ("stochastic_rounding", (&mut self.stochastic_rounding).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master && !self.stochastic_rounding
    }
}

impl AdamWOptions {
    /// The same numbers for [`Adam`].
    fn as_adam(&self) -> AdamOptions {
        let AdamWOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master, .. } = *self;
        let stochastic_rounding = self.stochastic_rounding;
        AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master, stochastic_rounding }
    }
}

impl AdamOptions {
    /// The dtype of the moments of parameters of a dtype.
    fn state_dtype(&self, parameter: DType) -> Result<DType> {
        match parameter {
            DType::BF16 if self.stochastic_rounding => Ok(DType::BF16),
            DType::F16 if self.stochastic_rounding => {
                let message = "stochastic rounding is for parameters of bf16, and not of f16";
                Err(Error::op("adam", message))
            }
            dtype => Ok(accumulate_dtype(dtype)),
        }
    }
}

pub(super) fn step(options: &AdamOptions, decoupled: bool, batch: &mut Batch<'_>) -> Result<()> {
    let (beta1, beta2) = options.betas;
    let has_top = options.amsgrad;
    batch.needs_states(2 + usize::from(has_top))?;
    let state = options.state_dtype(batch.dtypes()[0])?;
    let is_stochastic = state == DType::BF16;
    batch.needs_state_dtype(state)?;
    let correction = |beta: f64| 1.0 - power(beta, batch.step());
    let (correction1, correction2) = (correction(beta1), correction(beta2));
    batch.fused(&Fused {
        kernel: &device::adam::KERNEL,
        consts: &[decoupled, has_top, is_stochastic].map(i64::from),
        reads_gradient: true,
        state_dtype: Some(state),
        is_numbered: is_stochastic,
        states: &[Some(0), Some(1), has_top.then_some(2)],
        exact: &[beta1, beta2],
        numbers: &[
            sign(options.maximize),
            options.lr,
            options.weight_decay,
            1.0 - beta1,
            1.0 - beta2,
            options.eps,
            options.lr / correction1,
            1.0 / correction2.sqrt(),
        ],
        rest: &no_more,
    })
}

/// `beta` to the power of the number of a step.
pub(super) fn power(beta: f64, step: u64) -> f64 {
    beta.powi(step.min(i32::MAX as u64) as i32)
}

//! Adam and AdamW.

use kernels::update as device;

use super::rule::{Fused, no_more, sign, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::Result;
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
}

impl Default for AdamWOptions {
    fn default() -> AdamWOptions {
        let AdamOptions { lr, betas, eps, amsgrad, maximize, master, .. } = AdamOptions::default();
        AdamWOptions { lr, betas, eps, weight_decay: 1e-2, amsgrad, maximize, master }
    }
}

/// Adam with weight decay apart from the gradient.
///
/// # Source
/// arXiv:1711.05101; same conventions as `torch.optim.AdamW`.
pub type AdamW = Optim<AdamWOptions>;

impl Rule for AdamOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        let mut states =
            vec![("exp_avg", state_like(parameter)?), ("exp_avg_sq", state_like(parameter)?)];
        if self.amsgrad {
            states.push(("max_exp_avg_sq", state_like(parameter)?));
        }
        Ok(states)
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
        ]
    }

    fn has_master(&self) -> bool {
        self.master
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
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

impl AdamWOptions {
    /// The same numbers for [`Adam`].
    fn as_adam(&self) -> AdamOptions {
        let AdamWOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master } = *self;
        AdamOptions { lr, betas, eps, weight_decay, amsgrad, maximize, master }
    }
}

pub(super) fn step(options: &AdamOptions, decoupled: bool, batch: &mut Batch<'_>) -> Result<()> {
    let (beta1, beta2) = options.betas;
    let has_top = options.amsgrad;
    batch.needs_states(2 + usize::from(has_top))?;
    let correction = |beta: f64| 1.0 - power(beta, batch.step());
    let (correction1, correction2) = (correction(beta1), correction(beta2));
    batch.fused(&Fused {
        kernel: &device::adam::KERNEL,
        consts: &[i64::from(decoupled), i64::from(has_top)],
        reads_gradient: true,
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

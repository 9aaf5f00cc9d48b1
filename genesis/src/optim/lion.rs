//! Lion.

use kernels::update as device;

use super::rule::{Fused, no_more, sign, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::Result;
use crate::tensor::Tensor;

/// Options of [`Lion`], with the defaults of its authors.
#[derive(Clone, Copy, Debug)]
pub struct LionOptions {
    /// The learning rate; a third to a tenth of AdamW's.
    pub lr: f64,
    /// The share of the momentum in the step, and its decay.
    pub betas: (f64, f64),
    /// The share of the weight that is taken from it, times the learning rate.
    pub weight_decay: f64,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for LionOptions {
    fn default() -> LionOptions {
        let betas = (0.9, 0.99);
        LionOptions { lr: 1e-4, betas, weight_decay: 0.0, maximize: false, master: true }
    }
}

/// Lion: every weight moves by the learning rate, in the direction of the sign of the momentum.
///
/// # Source
/// arXiv:2302.06675.
pub type Lion = Optim<LionOptions>;

impl Rule for LionOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        Ok(vec![("exp_avg", state_like(parameter)?)])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        let (beta1, beta2) = self.betas;
        batch.fused(&Fused {
            kernel: &device::lion::KERNEL,
            consts: &[],
            reads_gradient: true,
            state_dtype: None,
            is_numbered: false,
            states: &[Some(0)],
            exact: &[],
            numbers: &[
                sign(self.maximize),
                self.lr,
                self.weight_decay,
                beta1,
                1.0 - beta1,
                beta2,
                1.0 - beta2,
            ],
            rest: &no_more,
        })
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("beta1", (&mut self.betas.0).into()),
            ("beta2", (&mut self.betas.1).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

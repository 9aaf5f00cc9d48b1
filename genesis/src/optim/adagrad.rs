//! Adagrad.

use kernels::update as device;

use super::rule::{Fused, no_more, sign, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::Result;
use crate::tensor::Tensor;

/// Options of [`Adagrad`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct AdagradOptions {
    /// The learning rate.
    pub lr: f64,
    /// How fast the rate falls: it is divided by `1 + (step - 1) * lr_decay`.
    pub lr_decay: f64,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f64,
    /// What the sums of squares begin with.
    pub initial_accumulator_value: f64,
    /// Added to the root of the sum.
    pub eps: f64,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for AdagradOptions {
    fn default() -> AdagradOptions {
        AdagradOptions {
            lr: 1e-2,
            lr_decay: 0.0,
            weight_decay: 0.0,
            initial_accumulator_value: 0.0,
            eps: 1e-10,
            maximize: false,
            master: true,
        }
    }
}

/// Adagrad.
///
/// # Source
/// Same conventions as `torch.optim.Adagrad`.
pub type Adagrad = Optim<AdagradOptions>;

impl Rule for AdagradOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        Ok(vec![("sum", state_like(parameter)?.add_scalar(self.initial_accumulator_value)?)])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        batch.fused(&Fused {
            kernel: &device::adagrad::KERNEL,
            consts: &[],
            reads_gradient: true,
            state_dtype: None,
            is_numbered: false,
            states: &[Some(0)],
            exact: &[self.lr, self.lr_decay],
            numbers: &[sign(self.maximize), self.weight_decay, self.eps],
            rest: &no_more,
        })
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("lr_decay", (&mut self.lr_decay).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("initial_accumulator_value", (&mut self.initial_accumulator_value).into()),
            ("eps", (&mut self.eps).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

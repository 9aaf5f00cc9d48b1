//! Stochastic gradient descent.

use kernels::update as device;

use super::rule::{Fused, flag, sign, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Options of [`Sgd`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct SgdOptions {
    /// The learning rate.
    pub lr: f64,
    /// The share of the last step that is kept.
    pub momentum: f64,
    /// The share of the gradient that is left out of the momentum.
    pub dampening: f64,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's form of momentum.
    pub nesterov: bool,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for SgdOptions {
    fn default() -> SgdOptions {
        SgdOptions {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            master: true,
        }
    }
}

/// Stochastic gradient descent, with momentum if asked.
///
/// # Source
/// Same conventions as `torch.optim.SGD`.
pub type Sgd = Optim<SgdOptions>;

impl Rule for SgdOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        if self.momentum == 0.0 {
            return Ok(Vec::new());
        }
        Ok(vec![("momentum_buffer", state_like(parameter)?)])
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        if self.nesterov && (self.momentum <= 0.0 || self.dampening != 0.0) {
            return Err(Error::op("sgd", "nesterov needs a momentum and no dampening"));
        }
        let has_momentum = self.momentum != 0.0;
        batch.needs_states(usize::from(has_momentum))?;
        let nesterov = |_| Ok(vec![flag(self.nesterov)]);
        batch.fused(&Fused {
            kernel: &device::sgd::KERNEL,
            consts: &[i64::from(has_momentum)],
            reads_gradient: true,
            state_dtype: None,
            is_numbered: false,
            states: &[has_momentum.then_some(0)],
            exact: &[],
            numbers: &[
                sign(self.maximize),
                self.lr,
                self.weight_decay,
                self.momentum,
                1.0 - self.dampening,
            ],
            rest: &nesterov,
        })
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("momentum", (&mut self.momentum).into()),
            ("dampening", (&mut self.dampening).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("nesterov", (&mut self.nesterov).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

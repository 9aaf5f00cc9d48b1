//! RMSprop.

use kernels::update as device;

use super::rule::{Fused, no_more, sign, state_like};
use super::{Batch, Optim, Rule, Setting};
use crate::error::Result;
use crate::tensor::Tensor;

/// Options of [`RmsProp`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct RmsPropOptions {
    /// The learning rate.
    pub lr: f64,
    /// Decay of the running mean of the square.
    pub alpha: f64,
    /// Added to the root of that mean.
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f64,
    /// The share of the last step that is kept.
    pub momentum: f64,
    /// Divides by the deviation of the gradient instead of the root of its mean square.
    pub centered: bool,
    /// Goes up instead of down.
    pub maximize: bool,
    /// Steps a copy in f32 of parameters of 16 bits.
    pub master: bool,
}

impl Default for RmsPropOptions {
    fn default() -> RmsPropOptions {
        RmsPropOptions {
            lr: 1e-2,
            alpha: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            momentum: 0.0,
            centered: false,
            maximize: false,
            master: true,
        }
    }
}

/// RMSprop.
///
/// # Source
/// Same conventions as `torch.optim.RMSprop`.
pub type RmsProp = Optim<RmsPropOptions>;

impl Rule for RmsPropOptions {
    fn states(&self, parameter: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
        let mut states = vec![("square_avg", state_like(parameter)?)];
        if self.centered {
            states.push(("grad_avg", state_like(parameter)?));
        }
        if self.momentum > 0.0 {
            states.push(("momentum_buffer", state_like(parameter)?));
        }
        Ok(states)
    }

    fn step(&self, batch: &mut Batch<'_>) -> Result<()> {
        let has_momentum = self.momentum > 0.0;
        batch.needs_states(1 + usize::from(self.centered) + usize::from(has_momentum))?;
        batch.fused(&Fused {
            kernel: &device::rmsprop::KERNEL,
            consts: &[i64::from(self.centered), i64::from(has_momentum)],
            reads_gradient: true,
            state_dtype: None,
            is_numbered: false,
            states: &[
                Some(0),
                self.centered.then_some(1),
                has_momentum.then_some(1 + usize::from(self.centered)),
            ],
            exact: &[],
            numbers: &[
                sign(self.maximize),
                self.lr,
                self.weight_decay,
                self.alpha,
                1.0 - self.alpha,
                self.eps,
                self.momentum,
            ],
            rest: &no_more,
        })
    }

    fn options(&mut self) -> Vec<(&'static str, Setting<'_>)> {
        vec![
            ("lr", (&mut self.lr).into()),
            ("alpha", (&mut self.alpha).into()),
            ("eps", (&mut self.eps).into()),
            ("weight_decay", (&mut self.weight_decay).into()),
            ("momentum", (&mut self.momentum).into()),
            ("centered", (&mut self.centered).into()),
            ("maximize", (&mut self.maximize).into()),
            ("master", (&mut self.master).into()),
        ]
    }

    fn has_master(&self) -> bool {
        self.master
    }
}

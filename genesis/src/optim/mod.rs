//! Optimizers, learning-rate schedules, gradient clipping and averages of weights.
//!
//! An optimizer holds its parameters in groups and steps those that have a gradient; [`Optim`] is all of
//! them, a [`Rule`] is what one does differently. A step is one launch a group and dtype for SGD, Adam,
//! AdamW, RMSprop, Adagrad and Lion, however many parameters there are, and three for LAMB. Adafactor and
//! Muon need sums over rows and matrix products of each parameter and are made of tensor ops.
//!
//! [`AdamW8bit`] is AdamW with a quarter of its state: moments of 8 bits.
//!
//! Parameters of 16 bits have a copy in f32 that is stepped, and the rest of their state is in f32 too.
//! Updates bump the version of a parameter, so a backward that still needs the old values says so.

mod adafactor;
mod adagrad;
mod adam;
mod adamw_8bit;
mod clip;
mod ema;
mod group;
mod in_backward;
mod lamb;
mod lion;
mod muon;
mod rmsprop;
mod rule;
pub mod schedule;
mod sgd;
mod state;

use crate::error::Result;
use crate::tensor::Tensor;

pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use adamw_8bit::{AdamW8bit, AdamW8bitOptions};
pub(crate) use clip::unscale;
pub use clip::{clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, total_norm};
pub use ema::Ema;
pub use group::{Optim, Parameters};
pub use in_backward::StepInBackward;
pub use lamb::{Lamb, LambOptions};
pub use lion::{Lion, LionOptions};
pub use muon::{AdjustLr, Muon, MuonOptions};
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use rule::{Batch, Member, Rule, Setting};
pub use sgd::{Sgd, SgdOptions};
pub use state::State;

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn step(&mut self) -> Result<()> {
        (**self).step()
    }

    fn step_unless(&mut self, found: &Tensor) -> Result<()> {
        (**self).step_unless(found)
    }

    fn parameters(&self) -> &[Tensor] {
        (**self).parameters()
    }

    fn lrs(&self) -> Vec<f64> {
        (**self).lrs()
    }

    fn set_lrs(&mut self, lrs: &[f64]) {
        (**self).set_lrs(lrs);
    }

    fn set_momentum(&mut self, momentum: f64) {
        (**self).set_momentum(momentum);
    }

    fn state_dict(&self) -> Result<State> {
        (**self).state_dict()
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        (**self).load_state_dict(state)
    }
}

/// What every optimizer does.
pub trait Optimizer {
    /// Updates every parameter that has a gradient.
    ///
    /// # Errors
    /// If a gradient has another device or shape than its parameter, an option can't be used, or a
    /// launch fails.
    fn step(&mut self) -> Result<()>;

    /// [`Optimizer::step`], left out if `found` is not 0. Nothing waits for the device to know: the
    /// parameters stay as they are, and the step does not count. For gradient scalers.
    ///
    /// # Errors
    /// As [`Optimizer::step`], or if `found` is not one element.
    fn step_unless(&mut self, found: &Tensor) -> Result<()>;

    /// The parameters, in the order given.
    fn parameters(&self) -> &[Tensor];

    /// The learning rate of each group.
    fn lrs(&self) -> Vec<f64>;

    /// Changes the learning rate of each group, from the next step on.
    fn set_lrs(&mut self, lrs: &[f64]);

    /// Everything needed to go on where it stands: the options of the groups, and by the name of the
    /// parameter its state and the number of its steps.
    ///
    /// # Errors
    /// If two parameters have one name, or the device fails.
    fn state_dict(&self) -> Result<State>;

    /// Goes on from a saved state, the options included. Parameters without a state in it begin anew.
    ///
    /// # Errors
    /// If something is missing or unknown or has another shape. Nothing is changed then.
    fn load_state_dict(&mut self, state: &State) -> Result<()>;

    /// The learning rate of the first group.
    fn lr(&self) -> f64 {
        self.lrs().first().copied().unwrap_or(0.0)
    }

    /// Changes the learning rate of all groups from the next step on.
    fn set_lr(&mut self, lr: f64) {
        let n = self.lrs().len();
        self.set_lrs(&vec![lr; n]);
    }

    /// Changes the momentum of all groups, which of Adam and its kin is the first beta, from the next step
    /// on; nothing happens where there is none.
    fn set_momentum(&mut self, _momentum: f64) {}

    /// Forgets all gradients.
    fn zero_grad(&self) {
        for parameter in self.parameters() {
            parameter.zero_grad();
        }
    }

    /// Replaces all gradients by zeros, so that parameters without a gradient in the next backward are
    /// stepped too: PyTorch's `zero_grad(set_to_none=False)`.
    ///
    /// # Errors
    /// If memory runs out.
    fn fill_grad_with_zeros(&self) -> Result<()> {
        for parameter in self.parameters() {
            if let Some(grad) = parameter.grad() {
                parameter.set_grad(Some(grad.detach().zeros_like()?));
            }
        }
        Ok(())
    }
}

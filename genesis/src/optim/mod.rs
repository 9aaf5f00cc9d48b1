//! Optimizers and gradient clipping.
//!
//! An optimizer holds its parameters and steps those that have a gradient. State is in f32 for
//! 16-bit parameters. Updates bump the version of a parameter, so a backward that still needs the
//! old values says so.

mod adam;
mod clip;
mod sgd;

use crate::error::Result;
use crate::tensor::Tensor;

pub use adam::{Adam, AdamOptions};
pub use clip::{clip_grad_norm, clip_grad_value};
pub use sgd::{Sgd, SgdOptions};

/// What every optimizer does.
pub trait Optimizer {
    /// Updates every parameter that has a gradient.
    ///
    /// # Errors
    /// If a gradient has another device or shape than its parameter, or a launch fails.
    fn step(&mut self) -> Result<()>;

    /// The parameters, in the order given.
    fn parameters(&self) -> &[Tensor];

    /// The learning rate.
    fn lr(&self) -> f64;

    /// Changes the learning rate from the next step on.
    fn set_lr(&mut self, lr: f64);

    /// Forgets all gradients.
    fn zero_grad(&self) {
        for parameter in self.parameters() {
            parameter.zero_grad();
        }
    }
}

/// A parameter's gradient as its update reads it: of its dtype and dense.
fn gradient(parameter: &Tensor) -> Result<Option<Tensor>> {
    let Some(grad) = parameter.grad() else { return Ok(None) };
    Ok(Some(grad.detach().to_dtype(parameter.dtype())?.contiguous()?))
}

/// Zeros for a parameter's state: f32 where the parameter is narrower.
fn state_like(parameter: &Tensor) -> Result<Tensor> {
    let wide = crate::ops::launch::accumulate_dtype(parameter.dtype());
    Tensor::zeros(parameter.shape(), (wide, parameter.device()))
}

//! Steps in the backward: a gradient is used as soon as it is there, and freed.
//!
//! ```text
//! backward of layer 3   gradient of 3   step of 3   freed
//! backward of layer 2   gradient of 2   step of 2   freed
//! ```
//!
//! So the gradients of all parameters are never in memory together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Optim, Optimizer, Rule, State};
use crate::autograd::HookHandle;
use crate::error::Result;
use crate::tensor::Tensor;

/// An optimizer that steps each parameter in the backward that makes its gradient, which is freed then.
///
/// What needs the gradients of all parameters at a time, clipping by their norm and scaling them back, and what adds
/// up the gradients of several backwards, does not go together with it. A parameter that is used in several places is
/// stepped when the last of its gradients has come. [`Optimizer::step`] steps what still has a gradient, such as one that
/// was set.
///
/// # Numerics
/// The steps of the optimizer that it is made of, bit for bit.
/// # Cost
/// A launch for each parameter; memory for the largest gradients under way.
/// # Source
/// arXiv:2306.09782 (fused updates).
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::nn::{Linear, Module};
/// use genesis::optim::{AdamW, AdamWOptions, StepInBackward};
///
/// let model = Linear::new(4, 2, ())?;
/// let optimizer = AdamW::new(model.named_parameters(), AdamWOptions::default());
/// let optimizer = StepInBackward::new(optimizer)?;
/// let before = model.weight.copy()?;
/// model.forward(&Tensor::ones(&[3, 4], ())?)?.square()?.mean()?.backward()?; // steps
/// assert!(model.weight.grad().is_none());
/// assert_ne!(model.weight.to_vec::<f32>()?, before.to_vec::<f32>()?);
/// # drop(optimizer);
/// # Ok::<(), genesis::Error>(())
/// ```
#[derive(Debug)]
pub struct StepInBackward<R> {
    optimizer: Arc<Mutex<Optim<R>>>,
    parameters: Vec<Tensor>,
    hooks: Vec<HookHandle>,
}

impl<R> Drop for StepInBackward<R> {
    fn drop(&mut self) {
        self.hooks.iter().for_each(HookHandle::remove);
    }
}

impl<R: Rule + 'static> StepInBackward<R> {
    /// Lets backwards step the parameters of an optimizer, until this is dropped.
    ///
    /// # Errors
    /// If a parameter wants no gradient, or is no leaf.
    pub fn new(optimizer: Optim<R>) -> Result<StepInBackward<R>> {
        let parameters = optimizer.parameters().to_vec();
        let optimizer = Arc::new(Mutex::new(optimizer));
        let hook = |(index, parameter): (usize, &Tensor)| {
            // The parameter holds the hook, and the optimizer the parameter.
            let optimizer = Arc::downgrade(&optimizer);
            parameter.register_post_accumulate_grad_hook(move |parameter| {
                step(&optimizer, index, parameter)
            })
        };
        let hooks = parameters.iter().enumerate().map(hook).collect::<Result<_>>()?;
        Ok(StepInBackward { optimizer, parameters, hooks })
    }

    /// Changes the options of the groups from the next backward on.
    pub fn with_groups<T>(&mut self, f: impl FnOnce(&mut [R]) -> T) -> T {
        f(lock(&self.optimizer).groups_mut())
    }
}

fn step<R: Rule>(optimizer: &Weak<Mutex<Optim<R>>>, index: usize, of: &Tensor) -> Result<()> {
    let Some(optimizer) = optimizer.upgrade() else { return Ok(()) };
    lock(&optimizer).step_one(index)?;
    of.zero_grad();
    Ok(())
}

fn lock<R>(optimizer: &Mutex<Optim<R>>) -> MutexGuard<'_, Optim<R>> {
    optimizer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Rule + 'static> Optimizer for StepInBackward<R> {
    fn step(&mut self) -> Result<()> {
        lock(&self.optimizer).step()
    }

    fn step_unless(&mut self, found: &Tensor) -> Result<()> {
        lock(&self.optimizer).step_unless(found)
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn lrs(&self) -> Vec<f64> {
        lock(&self.optimizer).lrs()
    }

    fn set_lrs(&mut self, lrs: &[f64]) {
        lock(&self.optimizer).set_lrs(lrs);
    }

    fn set_momentum(&mut self, momentum: f64) {
        lock(&self.optimizer).set_momentum(momentum);
    }

    fn state_dict(&self) -> Result<State> {
        lock(&self.optimizer).state_dict()
    }

    fn load_state_dict(&mut self, state: &State) -> Result<()> {
        lock(&self.optimizer).load_state_dict(state)
    }
}

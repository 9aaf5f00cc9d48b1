//! Stochastic gradient descent.

use super::{Optimizer, gradient, state_like};
use crate::autograd::no_grad;
use crate::error::Result;
use crate::ops::update::{self, Momentum};
use crate::tensor::Tensor;

/// Options of [`Sgd`], with PyTorch's defaults.
#[derive(Clone, Copy, Debug, Default)]
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
}

/// Stochastic gradient descent, with momentum if asked.
///
/// # Source
/// Same conventions as `torch.optim.SGD`.
#[derive(Debug)]
pub struct Sgd {
    parameters: Vec<Tensor>,
    buffers: Vec<Option<Tensor>>,
    options: SgdOptions,
}

impl Sgd {
    /// An optimizer of these parameters.
    pub fn new(parameters: Vec<Tensor>, options: SgdOptions) -> Sgd {
        let buffers = vec![None; parameters.len()];
        Sgd { parameters, buffers, options }
    }
}

impl Optimizer for Sgd {
    fn step(&mut self) -> Result<()> {
        let options = self.options;
        no_grad(|| {
            for (w, buffer) in self.parameters.iter().zip(&mut self.buffers) {
                let Some(g) = gradient(w)? else { continue };
                if options.momentum == 0.0 {
                    update::sgd(w, &g, options.lr, options.weight_decay)?;
                    continue;
                }
                let first = buffer.is_none();
                let m = match buffer {
                    Some(m) => m.clone(),
                    None => buffer.insert(state_like(w)?).clone(),
                };
                let step = Momentum {
                    lr: options.lr,
                    decay: options.weight_decay,
                    momentum: options.momentum,
                    dampening: options.dampening,
                    nesterov: options.nesterov,
                    first,
                };
                update::sgd_momentum(w, &g, &m, step)?;
            }
            Ok(())
        })
    }

    fn parameters(&self) -> &[Tensor] {
        &self.parameters
    }

    fn lr(&self) -> f64 {
        self.options.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.options.lr = lr;
    }
}

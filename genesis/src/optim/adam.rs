//! Adam and AdamW.

use super::{Optimizer, gradient, state_like};
use crate::autograd::no_grad;
use crate::error::Result;
use crate::ops::update::{self, Moments};
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
    /// Weight decay: taken from the weight by AdamW, added to the gradient by Adam.
    pub weight_decay: f64,
}

impl Default for AdamOptions {
    fn default() -> AdamOptions {
        AdamOptions { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0 }
    }
}

/// Adam, or AdamW with decoupled weight decay.
///
/// # Source
/// arXiv:1412.6980 and arXiv:1711.05101; same conventions as `torch.optim.Adam` and `AdamW`.
#[derive(Debug)]
pub struct Adam {
    parameters: Vec<Tensor>,
    states: Vec<Option<State>>,
    options: AdamOptions,
    decoupled: bool,
}

/// A parameter's running means and the number of its steps.
#[derive(Debug)]
struct State {
    m: Tensor,
    v: Tensor,
    steps: u64,
}

impl Adam {
    /// Adam over these parameters.
    pub fn new(parameters: Vec<Tensor>, options: AdamOptions) -> Adam {
        let states = parameters.iter().map(|_| None).collect();
        Adam { parameters, states, options, decoupled: false }
    }

    /// AdamW over these parameters. PyTorch's default weight decay for it is 0.01.
    pub fn adamw(parameters: Vec<Tensor>, options: AdamOptions) -> Adam {
        Adam { decoupled: true, ..Adam::new(parameters, options) }
    }
}

impl Optimizer for Adam {
    fn step(&mut self) -> Result<()> {
        let (options, decoupled) = (self.options, self.decoupled);
        no_grad(|| {
            for (w, state) in self.parameters.iter().zip(&mut self.states) {
                let Some(g) = gradient(w)? else { continue };
                let state = match state {
                    Some(state) => state,
                    None => state.insert(State { m: state_like(w)?, v: state_like(w)?, steps: 0 }),
                };
                state.steps += 1;
                let step = Moments {
                    lr: options.lr,
                    betas: options.betas,
                    eps: options.eps,
                    decay: options.weight_decay,
                    decoupled,
                    step: state.steps,
                };
                update::adam(w, &g, &state.m, &state.v, step)?;
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

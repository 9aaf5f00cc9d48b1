//! Learning rates as functions of the step.
//!
//! A [`Schedule`] is pure: from the learning rate that an optimizer began with and the number of steps
//! made so far it says the learning rate of the next. Nothing has to be saved but that number, and
//! jumping to any step is free. [`LrScheduler`] keeps the number and sets the rates of an optimizer's
//! groups; [`Plateau`] is the one that must remember more.

mod compose;
mod curves;
mod cycles;
mod plateau;

use super::{Optimizer, State};
use crate::error::Result;

pub use compose::{Chained, Lambda, Sequential};
pub use curves::{
    Constant, Cosine, Exponential, InverseSqrt, Linear, MultiStep, Polynomial, StepDecay,
    WarmupStableDecay,
};
pub use cycles::{Anneal, CosineRestarts, Cyclic, CyclicMode, OneCycle};
pub use plateau::{Plateau, PlateauMode};

/// A learning rate as a function of the step.
pub trait Schedule: Send + Sync {
    /// The learning rate after `step` steps, of an optimizer that began with `base`.
    fn lr(&self, base: f64, step: u64) -> f64;

    /// The momentum after `step` steps, of a schedule that changes it too.
    fn momentum(&self, _step: u64) -> Option<f64> {
        None
    }
}

impl Schedule for Box<dyn Schedule> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        self.as_ref().lr(base, step)
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        self.as_ref().momentum(step)
    }
}

/// Sets the learning rates of an optimizer's groups by a [`Schedule`], step by step.
///
/// # Examples
/// ```
/// use genesis::Tensor;
/// use genesis::optim::schedule::{Cosine, Linear, LrScheduler, Sequential};
/// use genesis::optim::{Optimizer, Sgd, SgdOptions};
///
/// let mut sgd = Sgd::new(Vec::<Tensor>::new(), SgdOptions { lr: 1.0, ..Default::default() });
/// let warm_up = Linear { start_factor: 0.1, end_factor: 1.0, total_iters: 10 };
/// let schedule = Sequential::new(warm_up).then(10, Cosine { t_max: 90, eta_min: 0.0 });
/// let mut scheduler = LrScheduler::new(&mut sgd, schedule);
/// assert!((sgd.lr() - 0.1).abs() < 1e-12);
/// for _ in 0..10 {
///     scheduler.step(&mut sgd);
/// }
/// assert_eq!(sgd.lr(), 1.0);
/// # Ok::<(), genesis::Error>(())
/// ```
pub struct LrScheduler {
    schedule: Box<dyn Schedule>,
    bases: Vec<f64>,
    step: u64,
}

impl LrScheduler {
    /// Begins with the optimizer's learning rates as they are, and sets those of its first step.
    pub fn new(optimizer: &mut dyn Optimizer, schedule: impl Schedule + 'static) -> LrScheduler {
        let bases = optimizer.lrs();
        let scheduler = LrScheduler { schedule: Box::new(schedule), bases, step: 0 };
        scheduler.apply(optimizer);
        scheduler
    }

    /// Counts a step and sets the learning rates of the next; call it after the optimizer's step.
    pub fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.step = self.step.saturating_add(1);
        self.apply(optimizer);
    }

    /// Sets the learning rates for where the schedule stands, and the momentum if it changes that.
    pub fn apply(&self, optimizer: &mut dyn Optimizer) {
        optimizer.set_lrs(&self.last_lrs());
        if let Some(momentum) = self.schedule.momentum(self.step) {
            optimizer.set_momentum(momentum);
        }
    }

    /// The learning rate of each group.
    pub fn last_lrs(&self) -> Vec<f64> {
        self.bases.iter().map(|&base| self.schedule.lr(base, self.step)).collect()
    }

    /// Everything needed to go on.
    pub fn state_dict(&self) -> State {
        let mut state = State::default();
        state.numbers.insert("step".to_owned(), self.step as f64);
        for (group, &base) in self.bases.iter().enumerate() {
            state.numbers.insert(format!("base.{group}"), base);
        }
        state
    }

    /// Goes on from a saved state; [`LrScheduler::apply`] sets the rates.
    ///
    /// # Errors
    /// If a number is missing.
    pub fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let bases: Result<Vec<f64>> =
            (0..self.bases.len()).map(|group| state.number(&format!("base.{group}"))).collect();
        let step = state.number("step")?;
        (self.bases, self.step) = (bases?, step as u64);
        Ok(())
    }
}

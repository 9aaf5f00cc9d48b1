//! PyTorch's `ReduceLROnPlateau`.

use super::super::{Optimizer, State};
use crate::error::Result;

/// Which way a figure is better, and by how much it must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlateauMode {
    /// Less is better, by a share of the best.
    MinRelative,
    /// Less is better, by a distance.
    MinAbsolute,
    /// More is better, by a share of the best.
    MaxRelative,
    /// More is better, by a distance.
    MaxAbsolute,
}

/// Multiplies the learning rates by `factor` when the figure has not been better for more than `patience`
/// steps: `torch.optim.lr_scheduler.ReduceLROnPlateau`.
#[derive(Clone, Debug)]
pub struct Plateau {
    /// Which way is better.
    pub mode: PlateauMode,
    /// What the rates are multiplied by.
    pub factor: f64,
    /// Steps without a better figure that are borne.
    pub patience: u64,
    /// How much better it must be.
    pub threshold: f64,
    /// Steps after a change in which nothing counts.
    pub cooldown: u64,
    /// The least rate.
    pub min_lr: f64,
    /// The least change of a rate.
    pub eps: f64,
    best: f64,
    bad: u64,
    cooling: u64,
}

impl Plateau {
    /// With PyTorch's defaults.
    pub fn new(mode: PlateauMode) -> Plateau {
        Plateau {
            mode,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
            best: worst(mode),
            bad: 0,
            cooling: 0,
        }
    }

    /// Looks at the figure of a step, or of an epoch, and reduces the rates where it is time.
    pub fn step(&mut self, metric: f64, optimizer: &mut dyn Optimizer) {
        if self.is_better(metric) {
            (self.best, self.bad) = (metric, 0);
        } else {
            self.bad = self.bad.saturating_add(1);
        }
        if self.cooling > 0 {
            self.cooling -= 1;
            self.bad = 0;
        }
        if self.bad > self.patience {
            let reduced = |lr: f64| {
                let new = (lr * self.factor).max(self.min_lr);
                if lr - new > self.eps { new } else { lr }
            };
            let lrs: Vec<f64> = optimizer.lrs().into_iter().map(reduced).collect();
            optimizer.set_lrs(&lrs);
            (self.cooling, self.bad) = (self.cooldown, 0);
        }
    }

    fn is_better(&self, metric: f64) -> bool {
        match self.mode {
            PlateauMode::MinRelative => metric < self.best * (1.0 - self.threshold),
            PlateauMode::MinAbsolute => metric < self.best - self.threshold,
            PlateauMode::MaxRelative => metric > self.best * (1.0 + self.threshold),
            PlateauMode::MaxAbsolute => metric > self.best + self.threshold,
        }
    }

    /// Everything needed to go on, apart from the options.
    pub fn state_dict(&self) -> State {
        let mut state = State::default();
        let numbers =
            [("best", self.best), ("bad", self.bad as f64), ("cooling", self.cooling as f64)];
        state.numbers.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
        state
    }

    /// Goes on from a saved state.
    ///
    /// # Errors
    /// If a number is missing.
    pub fn load_state_dict(&mut self, state: &State) -> Result<()> {
        let (bad, cooling) = (state.number("bad")?, state.number("cooling")?);
        self.best = state.number("best")?;
        (self.bad, self.cooling) = (bad as u64, cooling as u64);
        Ok(())
    }
}

/// What every figure is better than.
fn worst(mode: PlateauMode) -> f64 {
    match mode {
        PlateauMode::MinRelative | PlateauMode::MinAbsolute => f64::INFINITY,
        PlateauMode::MaxRelative | PlateauMode::MaxAbsolute => f64::NEG_INFINITY,
    }
}

//! Schedules made of schedules and of functions.

use super::Schedule;

/// A factor by any function of the step: `torch.optim.lr_scheduler.LambdaLR`.
#[derive(Clone, Copy, Debug)]
pub struct Lambda<F>(pub F);

impl<F: Fn(u64) -> f64 + Send + Sync> Schedule for Lambda<F> {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (self.0)(step)
    }
}

/// One schedule after the other, each from its own step 0: `torch.optim.lr_scheduler.SequentialLR`.
pub struct Sequential {
    parts: Vec<(u64, Box<dyn Schedule>)>,
}

impl Sequential {
    /// Begins with this one.
    pub fn new(first: impl Schedule + 'static) -> Sequential {
        Sequential { parts: vec![(0, Box::new(first))] }
    }

    /// And from step number `milestone` on this one; milestones come in order.
    #[must_use]
    pub fn then(mut self, milestone: u64, next: impl Schedule + 'static) -> Sequential {
        self.parts.push((milestone, Box::new(next)));
        self
    }
}

impl Schedule for Sequential {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let begun = self.parts.iter().rev().find(|(milestone, _)| *milestone <= step);
        begun.map_or(base, |(milestone, part)| part.lr(base, step - milestone))
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        let begun = self.parts.iter().rev().find(|(milestone, _)| *milestone <= step);
        begun.and_then(|(milestone, part)| part.momentum(step - milestone))
    }
}

/// Schedules at the same time, each of the rate that the one before it gives:
/// `torch.optim.lr_scheduler.ChainedScheduler`.
#[derive(Default)]
pub struct Chained {
    parts: Vec<Box<dyn Schedule>>,
}

impl Chained {
    /// None yet.
    pub fn new() -> Chained {
        Chained::default()
    }

    /// And this one.
    #[must_use]
    pub fn with(mut self, next: impl Schedule + 'static) -> Chained {
        self.parts.push(Box::new(next));
        self
    }
}

impl Schedule for Chained {
    fn lr(&self, base: f64, step: u64) -> f64 {
        self.parts.iter().fold(base, |lr, part| part.lr(lr, step))
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        self.parts.iter().rev().find_map(|part| part.momentum(step))
    }
}

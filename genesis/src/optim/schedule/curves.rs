//! Closed-form schedules.

use std::f64::consts::PI;

use super::Schedule;

/// How much of `total` steps are made, from 0 to 1.
fn share(step: u64, total: u64) -> f64 {
    if total == 0 { 1.0 } else { step.min(total) as f64 / total as f64 }
}

/// A smaller rate for the first steps: `torch.optim.lr_scheduler.ConstantLR`.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// What the rate is multiplied by at first.
    pub factor: f64,
    /// For how many steps.
    pub total_iters: u64,
}

impl Default for Constant {
    fn default() -> Constant {
        Constant { factor: 1.0 / 3.0, total_iters: 5 }
    }
}

impl Schedule for Constant {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step < self.total_iters { base * self.factor } else { base }
    }
}

/// A straight line between two factors: `torch.optim.lr_scheduler.LinearLR`.
#[derive(Clone, Copy, Debug)]
pub struct Linear {
    /// The first factor.
    pub start_factor: f64,
    /// The last factor, which stays.
    pub end_factor: f64,
    /// Steps from one to the other.
    pub total_iters: u64,
}

impl Default for Linear {
    fn default() -> Linear {
        Linear { start_factor: 1.0 / 3.0, end_factor: 1.0, total_iters: 5 }
    }
}

impl Schedule for Linear {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let way = self.end_factor - self.start_factor;
        base * (self.start_factor + way * share(step, self.total_iters))
    }
}

/// The same factor after every step: `torch.optim.lr_scheduler.ExponentialLR`.
#[derive(Clone, Copy, Debug)]
pub struct Exponential {
    /// The factor.
    pub gamma: f64,
}

impl Schedule for Exponential {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf(step as f64)
    }
}

/// A factor every `step_size` steps: `torch.optim.lr_scheduler.StepLR`.
#[derive(Clone, Copy, Debug)]
pub struct StepDecay {
    /// Steps between two changes.
    pub step_size: u64,
    /// The factor.
    pub gamma: f64,
}

impl Schedule for StepDecay {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * self.gamma.powf((step / self.step_size.max(1)) as f64)
    }
}

/// A factor at each of some steps: `torch.optim.lr_scheduler.MultiStepLR`.
#[derive(Clone, Debug)]
pub struct MultiStep {
    /// Where the rate changes, in any order.
    pub milestones: Vec<u64>,
    /// The factor.
    pub gamma: f64,
}

impl Schedule for MultiStep {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let passed = self.milestones.iter().filter(|&&milestone| milestone <= step).count();
        base * self.gamma.powf(passed as f64)
    }
}

/// A power of what is left of `total_iters` steps: `torch.optim.lr_scheduler.PolynomialLR`.
#[derive(Clone, Copy, Debug)]
pub struct Polynomial {
    /// Steps until the rate is 0.
    pub total_iters: u64,
    /// The power; 1 is a straight line.
    pub power: f64,
}

impl Default for Polynomial {
    fn default() -> Polynomial {
        Polynomial { total_iters: 5, power: 1.0 }
    }
}

impl Schedule for Polynomial {
    fn lr(&self, base: f64, step: u64) -> f64 {
        base * (1.0 - share(step, self.total_iters)).powf(self.power)
    }
}

/// Half a cosine down to `eta_min` in `t_max` steps, and up again: `CosineAnnealingLR` of
/// `torch.optim.lr_scheduler`.
#[derive(Clone, Copy, Debug)]
pub struct Cosine {
    /// Steps from the highest to the lowest rate.
    pub t_max: u64,
    /// The lowest rate.
    pub eta_min: f64,
}

impl Schedule for Cosine {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let turn = PI * step as f64 / self.t_max.max(1) as f64;
        self.eta_min + (base - self.eta_min) * (1.0 + turn.cos()) / 2.0
    }
}

/// A straight line up for `warmup` steps, then as 1 over the root of the step; the base rate is the
/// highest.
///
/// # Source
/// arXiv:1706.03762, 5.3, by its highest rate instead of the model's width.
#[derive(Clone, Copy, Debug)]
pub struct InverseSqrt {
    /// Steps until the base rate is reached.
    pub warmup: u64,
}

impl Schedule for InverseSqrt {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step < self.warmup {
            return base * step as f64 / self.warmup as f64;
        }
        base * (self.warmup.max(1) as f64 / step.max(1) as f64).sqrt()
    }
}

/// A straight line up, the base rate for long, and down at the end.
///
/// # Source
/// arXiv:2405.18392; the decay is `1 - sqrt(share)`, which it found best, or a straight line.
#[derive(Clone, Copy, Debug)]
pub struct WarmupStableDecay {
    /// Steps up.
    pub warmup: u64,
    /// Steps at the base rate.
    pub stable: u64,
    /// Steps down.
    pub decay: u64,
    /// The last rate, as a share of the base rate.
    pub min_factor: f64,
    /// Goes down in a straight line.
    pub linear: bool,
}

impl Schedule for WarmupStableDecay {
    fn lr(&self, base: f64, step: u64) -> f64 {
        if step < self.warmup {
            return base * step as f64 / self.warmup as f64;
        }
        let into = step - self.warmup;
        if into < self.stable {
            return base;
        }
        let done = share(into - self.stable, self.decay);
        let left = if self.linear { 1.0 - done } else { 1.0 - done.sqrt() };
        base * (self.min_factor + (1.0 - self.min_factor) * left)
    }
}

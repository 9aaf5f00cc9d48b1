//! Cyclic schedules: cosine with warm restarts, one cycle, cyclic.

use std::f64::consts::PI;

use super::Schedule;

/// How a rate goes from one value to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Anneal {
    /// Half a cosine.
    #[default]
    Cosine,
    /// A straight line.
    Linear,
}

impl Anneal {
    fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Anneal::Cosine => end + (start - end) / 2.0 * (1.0 + (PI * share).cos()),
            Anneal::Linear => start + (end - start) * share,
        }
    }
}

/// Half a cosine down, again and again, each `t_mult` times as long as the last:
/// `torch.optim.lr_scheduler.CosineAnnealingWarmRestarts`.
#[derive(Clone, Copy, Debug)]
pub struct CosineRestarts {
    /// Steps until the first restart.
    pub t_0: u64,
    /// How much longer each is than the last.
    pub t_mult: u64,
    /// The lowest rate.
    pub eta_min: f64,
}

impl Schedule for CosineRestarts {
    fn lr(&self, base: f64, step: u64) -> f64 {
        let (mut length, mut at) = (self.t_0.max(1), step);
        if self.t_mult <= 1 {
            at %= length;
        }
        while at >= length {
            at -= length;
            length = length.saturating_mul(self.t_mult);
        }
        let turn = PI * at as f64 / length as f64;
        self.eta_min + (base - self.eta_min) * (1.0 + turn.cos()) / 2.0
    }
}

/// One rise to `max_lr` and one fall far below where it began; the optimizer's own rate does not
/// count. The momentum, which of Adam is the first beta, falls while the rate rises.
/// `torch.optim.lr_scheduler.OneCycleLR`.
#[derive(Clone, Copy, Debug)]
pub struct OneCycle {
    /// The highest rate.
    pub max_lr: f64,
    /// All steps.
    pub total_steps: u64,
    /// The share of the steps that go up.
    pub pct_start: f64,
    /// How it goes.
    pub anneal: Anneal,
    /// The highest rate over the first.
    pub div_factor: f64,
    /// The first rate over the last.
    pub final_div_factor: f64,
    /// Goes down as fast as up, then to the last rate in a phase of its own.
    pub three_phase: bool,
    /// The lowest and the highest momentum; it is left alone without.
    pub momentum: Option<(f64, f64)>,
}

impl OneCycle {
    /// With PyTorch's defaults.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycle {
        OneCycle {
            max_lr,
            total_steps,
            pct_start: 0.3,
            anneal: Anneal::Cosine,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
            momentum: Some((0.85, 0.95)),
        }
    }

    /// Where each phase ends.
    fn turns(&self) -> Vec<f64> {
        let total = self.total_steps as f64;
        let top = self.pct_start * total - 1.0;
        let back = 2.0 * self.pct_start * total - 2.0;
        if self.three_phase { vec![top, back, total - 1.0] } else { vec![top, total - 1.0] }
    }

    /// What goes through `values` in the phases, from each to the next.
    fn at(&self, step: u64, values: &[f64]) -> f64 {
        let (at, mut begin) = (step as f64, 0.0);
        for (end, pair) in self.turns().into_iter().zip(values.windows(2)) {
            if at <= end {
                return self.anneal.between(pair[0], pair[1], (at - begin) / (end - begin));
            }
            begin = end;
        }
        values.last().copied().unwrap_or_default()
    }
}

impl Schedule for OneCycle {
    fn lr(&self, _: f64, step: u64) -> f64 {
        let first = self.max_lr / self.div_factor;
        let last = first / self.final_div_factor;
        match self.three_phase {
            true => self.at(step, &[first, self.max_lr, first, last]),
            false => self.at(step, &[first, self.max_lr, last]),
        }
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        let (low, high) = self.momentum?;
        Some(self.at(step, &[high, low, high, high]))
    }
}

/// How the peaks of a [`Cyclic`] rate change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CyclicMode {
    /// Not at all.
    Triangular,
    /// Half as high in each cycle.
    Triangular2,
    /// This to the power of the step.
    ExpRange(f64),
}

/// Straight up and down between two rates: `torch.optim.lr_scheduler.CyclicLR`. The optimizer's own rate
/// does not count. The momentum, which of Adam is the first beta, falls while the rate rises.
#[derive(Clone, Copy, Debug)]
pub struct Cyclic {
    /// The lowest rate.
    pub base_lr: f64,
    /// The highest rate.
    pub max_lr: f64,
    /// Steps up.
    pub step_size_up: u64,
    /// Steps down.
    pub step_size_down: u64,
    /// How the peaks change.
    pub mode: CyclicMode,
    /// The lowest and the highest momentum; it is left alone without. PyTorch's are 0.8 and 0.9.
    pub momentum: Option<(f64, f64)>,
}

impl Cyclic {
    /// How far it is from the lowest to the highest.
    fn share(&self, step: u64) -> f64 {
        let total = (self.step_size_up as f64 + self.step_size_down as f64).max(1.0);
        let rise = self.step_size_up as f64 / total;
        let cycle = (1.0 + step as f64 / total).floor();
        let at = 1.0 + step as f64 / total - cycle;
        let height = if at <= rise { at / rise } else { (at - 1.0) / (rise - 1.0) };
        let scale = match self.mode {
            CyclicMode::Triangular => 1.0,
            CyclicMode::Triangular2 => 2f64.powf(1.0 - cycle),
            CyclicMode::ExpRange(gamma) => gamma.powf(step as f64),
        };
        height * scale
    }
}

impl Schedule for Cyclic {
    fn lr(&self, _: f64, step: u64) -> f64 {
        self.base_lr + (self.max_lr - self.base_lr) * self.share(step)
    }

    fn momentum(&self, step: u64) -> Option<f64> {
        let (low, high) = self.momentum?;
        Some(high - (high - low) * self.share(step))
    }
}

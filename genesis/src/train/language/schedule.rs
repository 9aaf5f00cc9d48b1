//! Learning rates of a run: up, and then down by one of the usual curves.

use serde::{Deserialize, Serialize};

use crate::optim::schedule::{Cosine, Linear, Schedule, WarmupStableDecay};

/// The curve behind the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Half a cosine down.
    #[default]
    Cosine,
    /// A straight line down.
    Linear,
    /// Level for long, and down at the end (*warm-up, stable, decay*).
    Wsd,
    /// Level.
    Constant,
}

/// The learning rate of each step.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct LearningRate {
    pub(super) curve: Curve,
    pub(super) highest: f64,
    /// The last rate, as a share of the highest.
    pub(super) lowest_share: f64,
    pub(super) warmup: usize,
    /// Steps of the decay of `wsd`.
    pub(super) decay: usize,
    pub(super) steps: usize,
}

impl LearningRate {
    /// The rate of a step, from 0 on: a function of its number only, so that nothing of it has to be saved.
    pub(super) fn at(&self, step: usize) -> f64 {
        if step < self.warmup {
            return self.highest * (step + 1) as f64 / self.warmup as f64;
        }
        let (into, left) =
            ((step - self.warmup) as u64, self.steps.saturating_sub(self.warmup).max(1) as u64);
        let share = self.lowest_share;
        match self.curve {
            Curve::Constant => self.highest,
            Curve::Cosine => {
                let curve = Cosine { t_max: left, eta_min: self.highest * share };
                curve.lr(self.highest, into.min(left))
            }
            Curve::Linear => {
                let curve = Linear { start_factor: 1.0, end_factor: share, total_iters: left };
                curve.lr(self.highest, into)
            }
            Curve::Wsd => {
                let decay = (self.decay as u64).min(left);
                let stable = left - decay;
                let curve = WarmupStableDecay {
                    warmup: 0,
                    stable,
                    decay,
                    min_factor: share,
                    linear: false,
                };
                curve.lr(self.highest, into)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(curve: Curve) -> Vec<f64> {
        let lr =
            LearningRate { curve, highest: 1.0, lowest_share: 0.1, warmup: 2, decay: 4, steps: 10 };
        (0..10).map(|step| (lr.at(step) * 1e3).round() / 1e3).collect()
    }

    #[test]
    fn rates_rise_and_fall() {
        for curve in [Curve::Cosine, Curve::Linear, Curve::Wsd, Curve::Constant] {
            let rates = rates(curve);
            assert_eq!(rates[..3], [0.5, 1.0, 1.0], "{curve:?}");
            assert!(rates.windows(2).skip(2).all(|pair| pair[1] <= pair[0]), "{rates:?}");
        }
        assert_eq!(rates(Curve::Linear)[6], 0.55);
        assert_eq!(rates(Curve::Cosine)[6], 0.55);
        assert_eq!(rates(Curve::Wsd)[6], 1.0);
        assert_eq!(rates(Curve::Wsd)[8], 0.364);
        assert_eq!(rates(Curve::Constant)[9], 1.0);
    }
}

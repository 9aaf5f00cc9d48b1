//! Connectionist temporal classification: the probability of a labeling over all its alignments.
//!
//! The labeling is extended by blanks between, before and after its labels. `alpha[s]` after `t` frames
//! is the logarithm of the probability of all ways to be at place `s`; a step of one frame comes from
//! `s`, `s - 1`, or, between different labels, `s - 2`:
//!
//! ```text
//! labels a b   ->   places  _ a _ b _        alpha'[s] = log_prob[place s]
//!                                               + logsumexp(alpha[s], alpha[s - 1], alpha[s - 2])
//! ```
//!
//! Kernels walk the frames of a labeling (`ctc_frames`); for gradients of a higher order, and labelings that are longer than
//! a program keeps, it is made of ops. No device waits for the host. Impossible ways have a large negative number in
//! the place of minus infinity, which has no gradient.

use genesis_kernel::ir::DType;

use super::ctc_frames::{self, MOST_PLACES};
use super::ctc_places::{Labelings, NEVER, losses_by_ops};
use crate::dispatch::trace;
use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{Reduction, composite, composite_ending};
use crate::tensor::Tensor;

/// What [`Tensor::ctc_loss`] can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ctc {
    /// The class that stands for no label.
    pub blank: usize,
    /// Whether a labeling that has no alignment, such as one longer than its frames, gives 0 in the
    /// place of infinity.
    pub zero_infinity: bool,
    /// How the losses become one. The mean divides each by its number of labels first.
    pub reduction: Reduction,
}

impl Tensor {
    /// The CTC loss of log-probabilities against labelings.
    ///
    /// # Shapes
    /// `[T, N, C]` with `targets: [N, S]`, or all of them one after another, `[sum of lengths]`.
    /// # Numerics
    /// Computed in f32 for 16-bit dtypes. A labeling without an alignment has a gradient of 0.
    /// # Errors
    /// If shapes, lengths or the blank do not fit, or targets are not i64.
    /// # Source
    /// Graves et al., "Connectionist temporal classification", ICML 2006.
    #[track_caller]
    pub fn ctc_loss(
        &self,
        targets: &Tensor,
        input_lengths: &[usize],
        target_lengths: &[usize],
        options: &Ctc,
    ) -> Result<Tensor> {
        const NAME: &str = "ctc_loss";
        let refuse = |message: String| Err(Error::op(NAME, message));
        let &[frames, batch, classes] = self.shape() else {
            return refuse(format!("needs log-probabilities [T, N, C], got {:?}", self.shape()));
        };
        if input_lengths.len() != batch || target_lengths.len() != batch {
            let (inputs, labels) = (input_lengths.len(), target_lengths.len());
            return refuse(format!("{inputs} and {labels} lengths for {batch} sequences"));
        }
        if input_lengths.iter().any(|&n| n > frames) {
            return refuse(format!("lengths {input_lengths:?} for {frames} frames"));
        }
        if options.blank >= classes {
            return refuse(format!("blank {} of {classes} classes", options.blank));
        }
        if targets.dtype() != DType::I64 {
            return refuse(format!("the target must be i64, got {}", targets.dtype()));
        }
        let log_probs = self.to_dtype(launch::accumulate_dtype(self.dtype()))?;
        if targets.device() != self.device() {
            return refuse(format!("devices differ, {} and {}", self.device(), targets.device()));
        }
        check_targets(targets, target_lengths)?;
        let of = Labelings {
            targets: targets.detach(),
            frames: input_lengths.to_vec(),
            labels: target_lengths.to_vec(),
            blank: options.blank,
        };
        let losses = match of.width() <= MOST_PLACES && !trace::is_on() {
            true => ctc_frames::losses(&log_probs, of)?,
            false => losses_by_ops(&log_probs, &of)?,
        };
        let instead = if options.zero_infinity { 0.0 } else { f64::INFINITY };
        let loss = match options.reduction {
            Reduction::Mean => {
                let labels: Vec<f64> = target_lengths.iter().map(|&n| n.max(1) as f64).collect();
                let at = (losses.dtype(), losses.device());
                let of = [&losses, &Tensor::from_f64(&labels, &[batch], at)?];
                let each =
                    |[losses, labels]: [&Tensor; 2], n: &[f64]| possible(losses, n[0])?.div(labels);
                composite_ending(NAME, &[instead], of, each, Tensor::mean)?
            }
            other => other.of(&composite(NAME, &[instead], [&losses], |[losses], n| {
                possible(losses, n[0])
            })?)?,
        };
        loss.to_dtype(self.dtype())
    }
}

/// Losses, and `instead` where there is no alignment.
fn possible(losses: &Tensor, instead: f64) -> Result<Tensor> {
    let is_impossible = losses.detach().gt_scalar(-0.5 * NEVER)?;
    let instead = Tensor::full(&[], instead, (losses.dtype(), losses.device()))?;
    is_impossible.where_(&instead, losses)
}

/// Refuses targets that do not hold so many labels.
fn check_targets(targets: &Tensor, lengths: &[usize]) -> Result<()> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    match *targets.shape() {
        [n, s] if n == lengths.len() && s >= longest => Ok(()),
        [total] if total == lengths.iter().sum::<usize>() => Ok(()),
        _ => {
            let message =
                format!("targets of {:?} do not hold {lengths:?} labels", targets.shape());
            Err(Error::op("ctc_loss", message))
        }
    }
}

#[cfg(feature = "op-info")]
pub(super) mod info {
    use genesis_kernel::ir::DType;

    use crate::ops::Ctc;
    use crate::ops::info::{Dense, Family, OpInfo, cpu, scalar};
    use crate::tensor::Tensor;

    /// The probability of all paths of `n` frames of a sequence that spell the labels, one by one.
    fn paths(log_probs: &Dense, sequence: usize, n: usize, labels: &[usize]) -> f64 {
        let classes = log_probs.shape[2];
        let spelled = |path: &[usize]| {
            let mut found: Vec<usize> = Vec::new();
            let mut before = 0;
            for &class in path {
                if class != 0 && class != before {
                    found.push(class);
                }
                before = class;
            }
            found == labels
        };
        let mut total = 0.0;
        for number in 0..classes.pow(n as u32) {
            let path: Vec<usize> =
                (0..n).map(|t| number / classes.pow(t as u32) % classes).collect();
            if spelled(&path) {
                let log: f64 = (0..n).map(|t| log_probs.at(&[t, sequence, path[t]])).sum();
                total += log.exp();
            }
        }
        total
    }

    pub(in crate::ops) static INFOS: &[OpInfo] = &[OpInfo::new(
        "ctc_loss",
        Family::Softmax,
        |x| {
            let labels = Tensor::from_slice_on(&[1i64, 2, 2, 1], &[2, 2], x[0].device())?;
            x[0].ctc_loss(&labels, &[4, 3], &[2, 1], &Ctc::default())
        },
        |x| {
            let first = paths(&x[0], 0, 4, &[1, 2]);
            let second = paths(&x[0], 1, 3, &[2]);
            scalar((-first.ln() / 2.0 - second.ln()) / 2.0)
        },
        &[&[&[4, 2, 3]]],
    )
    .peer(
        "F.ctc_loss(x[0], torch.tensor([[1, 2], [2, 1]], device=x[0].device), (4, \
             3), (2, 1))",
    )
    .within(-2.0, -0.5)
    .refusing(&[(
        || {
            cpu(&[4, 2], DType::F32)?.ctc_loss(
                &cpu(&[2, 3], DType::I64)?,
                &[4],
                &[3],
                &Ctc::default(),
            )
        },
        "ctc_loss: needs log-probabilities [T, N, C], got [4, 2]",
    )])];
}

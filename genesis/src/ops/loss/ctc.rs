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
//! It is made of ops, so its gradient is theirs and no device waits for the host. Impossible ways have
//! a large negative number in the place of minus infinity, which has no gradient.

use genesis_kernel::ir::DType;

use crate::error::{Error, Result};
use crate::launch;
use crate::ops::{PadMode, Reduction, composite};
use crate::tensor::Tensor;

/// The logarithm of the probability of what can't be.
const NEVER: f64 = -1e30;

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
        let places = Places::new(targets, target_lengths, options.blank)?;
        let losses = places.losses(&log_probs, input_lengths, target_lengths)?;
        let is_impossible = losses.detach().gt_scalar(-0.5 * NEVER)?;
        let instead = if options.zero_infinity { 0.0 } else { f64::INFINITY };
        let instead = Tensor::full(&[], instead, (losses.dtype(), losses.device()))?;
        let losses = is_impossible.where_(&instead, &losses)?;
        let loss = match options.reduction {
            Reduction::Mean => {
                let labels: Vec<f64> = target_lengths.iter().map(|&n| n.max(1) as f64).collect();
                let at = (losses.dtype(), losses.device());
                losses.div(&Tensor::from_f64(&labels, &[batch], at)?)?.mean()?
            }
            other => other.of(&losses)?,
        };
        loss.to_dtype(self.dtype())
    }
}

/// The extended labelings.
struct Places {
    /// The class of each place, `[N, L]` with `L = 2 S + 1`.
    classes: Tensor,
    /// Where a step from two places before is not allowed, `[N, L]`, bool.
    no_skip: Tensor,
}

impl Places {
    fn new(targets: &Tensor, lengths: &[usize], blank: usize) -> Result<Places> {
        let (batch, longest) = (lengths.len(), lengths.iter().copied().max().unwrap_or(0));
        let device = targets.device();
        let labels = rows(targets, lengths, longest)?; // [N, S]
        let blanks = Tensor::full(&[batch, longest], blank as f64, (DType::I64, device))?;
        let pairs = Tensor::stack(&[&blanks, &labels], 2)?.reshape(&[batch, 2 * longest])?;
        let last = Tensor::full(&[batch, 1], blank as f64, (DType::I64, device))?;
        let classes = Tensor::cat(&[&pairs, &last], 1)?; // [N, L]
        let before = shifted(&classes, 2, blank as f64)?;
        let no_skip = classes.eq(&before)?.logical_or(&classes.eq_scalar(blank as f64)?)?;
        // The first label has none two places before it.
        let width = classes.shape()[1];
        let index = Tensor::arange(0.0, width as f64, 1.0, (DType::I64, device))?;
        Ok(Places { classes, no_skip: no_skip.logical_or(&index.lt_scalar(2.0)?)? })
    }

    /// The negative log-probability of each labeling.
    fn losses(&self, log_probs: &Tensor, frames: &[usize], labels: &[usize]) -> Result<Tensor> {
        let at = (log_probs.dtype(), log_probs.device());
        let (batch, width) = (self.classes.shape()[0], self.classes.shape()[1]);
        let never = Tensor::full(&[], NEVER, at)?;
        let longest = frames.iter().copied().max().unwrap_or(0);
        let ones = |many: &[usize]| -> Result<Tensor> {
            let many: Vec<i64> = many.iter().map(|&n| n as i64).collect();
            Tensor::from_slice_on(&many, &[many.len(), 1], log_probs.device())
        };
        let frames_left = ones(frames)?;
        // Before the first frame: at the place in front of the first blank or the first label.
        let index = Tensor::arange(0.0, width as f64, 1.0, (DType::I64, log_probs.device()))?;
        let zero = Tensor::zeros(&[batch, 1], at)?;
        let mut alpha = index.eq_scalar(0.0)?.where_(&zero, &never)?; // [N, L]
        for t in 0..longest {
            let emitted = log_probs.select(0, t)?.gather(1, &self.classes)?;
            let next = self.step(&alpha, &emitted)?;
            alpha = match frames.iter().all(|&n| n > t) {
                true => next,
                false => frames_left.gt_scalar(t as f64)?.where_(&next, &alpha)?,
            };
        }
        let last: Vec<usize> = labels.iter().map(|&n| 2 * n).collect();
        let end = alpha.gather(1, &ones(&last)?)?;
        let before: Vec<usize> = labels.iter().map(|&n| (2 * n).max(1) - 1).collect();
        let label = alpha.gather(1, &ones(&before)?)?;
        // An empty labeling has one end only.
        let has_label = ones(labels)?.gt_scalar(0.0)?;
        let label = has_label.where_(&label, &never)?;
        sum_of_three([&end, &label, &never.broadcast_to(&[batch, 1])?])?.neg()?.reshape(&[batch])
    }

    /// The logarithm of the probability of being at each place a frame later. To the place of the first label, which
    /// has none two places before it, nothing skips.
    fn step(&self, alpha: &Tensor, emitted: &Tensor) -> Result<Tensor> {
        let (one, two) = (shifted(alpha, 1, NEVER)?, shifted(alpha, 2, NEVER)?);
        let operands = [alpha, &one, &two, &self.no_skip, emitted];
        composite("ctc_loss", &[NEVER], operands, |[alpha, one, two, no_skip, emitted], n| {
            let never = Tensor::full(&[], n[0], (two.dtype(), two.device()))?;
            let two = no_skip.where_(&never, two)?;
            // What is impossible stays near the one number, so that it does not overflow.
            sum_of_three([alpha, one, &two])?.add(emitted)?.maximum_scalar(n[0])
        })
    }
}

/// Each row moved to the right, with one value in front.
fn shifted(x: &Tensor, by: usize, value: f64) -> Result<Tensor> {
    let width = x.shape()[1];
    let by = by.min(width);
    x.narrow(1, 0, width - by)?.pad(&[by as i64, 0], PadMode::Constant(value))
}

/// `log(exp(a) + exp(b) + exp(c))` of finite numbers.
fn sum_of_three([a, b, c]: [&Tensor; 3]) -> Result<Tensor> {
    let top = a.detach().maximum(&b.detach())?.maximum(&c.detach())?;
    let part = |x: &Tensor| x.sub(&top)?.exp();
    part(a)?.add(&part(b)?)?.add(&part(c)?)?.log()?.add(&top)
}

/// The labels of each sequence as a row, `[N, longest]`, with zeros beyond its length: no way through
/// the places before them comes there.
fn rows(targets: &Tensor, lengths: &[usize], longest: usize) -> Result<Tensor> {
    let batch = lengths.len();
    match *targets.shape() {
        [n, s] if n == batch && s >= longest => {
            let inside = |&length: &usize| (0..longest).map(move |i| u8::from(i < length));
            let inside: Vec<u8> = lengths.iter().flat_map(inside).collect();
            let inside = Tensor::from_slice_on(&inside, &[batch, longest], targets.device())?;
            let labels = targets.narrow(1, 0, longest)?;
            inside.ne_scalar(0.0)?.where_(&labels, &labels.zeros_like()?)
        }
        [total] if total == lengths.iter().sum::<usize>() => {
            let mut places = Vec::with_capacity(batch * longest);
            let mut start = 0;
            for &length in lengths {
                places.extend((0..longest).map(|i| (start + i.min(length.max(1) - 1)) as i64));
                start += length;
            }
            let last = total.saturating_sub(1) as i64;
            places.iter_mut().for_each(|place| *place = (*place).min(last));
            let places = Tensor::from_slice_on(&places, &[places.len()], targets.device())?;
            targets.index_select(0, &places)?.reshape(&[batch, longest])
        }
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

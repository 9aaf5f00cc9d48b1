//! The places of CTC's alignments, and losses by ops for each frame.

use genesis_kernel::ir::DType;

use crate::error::Result;
use crate::ops::{PadMode, composite};
use crate::tensor::Tensor;

/// The logarithm of the probability of what can't be, as the kernels have it.
pub(super) const NEVER: f64 = -1e30;

/// Labelings: the labels, `[N, S]` or one after the other, with lengths.
#[derive(Clone)]
pub(super) struct Labelings {
    pub(super) targets: Tensor,
    pub(super) frames: Vec<usize>,
    pub(super) labels: Vec<usize>,
    pub(super) blank: usize,
}

impl Labelings {
    /// Blanks and labels of the longest.
    pub(super) fn width(&self) -> usize {
        2 * self.labels.iter().copied().max().unwrap_or(0) + 1
    }

    /// Where the labels of each begin, how many there are, and how many frames: `[3, N]`.
    pub(super) fn lengths(&self) -> Result<Tensor> {
        let batch = self.labels.len();
        let mut all = Vec::with_capacity(3 * batch);
        let mut next = 0;
        for (row, &labels) in self.labels.iter().enumerate() {
            all.push(if self.targets.rank() == 2 { row * self.targets.shape()[1] } else { next });
            next += labels;
        }
        all.extend(self.labels.iter().chain(&self.frames));
        let all: Vec<i64> = all.into_iter().map(|n| n as i64).collect();
        Tensor::from_slice_on(&all, &[3, batch], self.targets.device())
    }
}

/// The negative log-probability of each labeling, by ops for each frame.
pub(super) fn losses_by_ops(log_probs: &Tensor, of: &Labelings) -> Result<Tensor> {
    let places = Places::new(&of.targets, &of.labels, of.blank)?;
    places.losses(log_probs, &of.frames, &of.labels)
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
    if let [_, _] = targets.shape() {
        let inside = |&length: &usize| (0..longest).map(move |i| u8::from(i < length));
        let inside: Vec<u8> = lengths.iter().flat_map(inside).collect();
        let inside = Tensor::from_slice_on(&inside, &[batch, longest], targets.device())?;
        let labels = targets.narrow(1, 0, longest)?;
        return inside.ne_scalar(0.0)?.where_(&labels, &labels.zeros_like()?);
    }
    let mut places = Vec::with_capacity(batch * longest);
    let mut start = 0;
    for &length in lengths {
        places.extend((0..longest).map(|i| (start + i.min(length.max(1) - 1)) as i64));
        start += length;
    }
    let last = targets.numel().saturating_sub(1) as i64;
    places.iter_mut().for_each(|place| *place = (*place).min(last));
    let places = Tensor::from_slice_on(&places, &[places.len()], targets.device())?;
    targets.index_select(0, &places)?.reshape(&[batch, longest])
}

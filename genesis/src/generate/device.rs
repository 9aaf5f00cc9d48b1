//! Tokens picked on the device, by [`Tensor::sample_tokens`].
//!
//! Only the numbers of the picked tokens come to the host. A request that the kernel knows too little of, one with
//! penalties, a bias or a constraint, has its row changed on the host and picked on the device like the
//! others: what is asked for besides the token must not change which it is.

use genesis_kernel::ir::DType;

use super::batch::CachedModel;
use super::job::Job;
use super::request::Limits;
use super::row::{Draw, Draws};
use super::sequence::Sequence;
use crate::error::Result;
use crate::tensor::Tensor;

/// Picks the tokens of some jobs.
pub(super) fn pick(
    model: &CachedModel<'_>,
    hidden: &Tensor,
    jobs: &mut [Job<'_>],
    limits: &Limits,
) -> Result<()> {
    let rows: Vec<usize> = jobs.iter().flat_map(Job::rows).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let logits = model.logits_of(hidden, &rows)?; // [R, V]
    let draws: Vec<Draw> = jobs.iter().flat_map(Job::draws).collect();
    let tokens = Draws::new(&draws, model.device)?.pick(&logits)?.to_vec::<i64>()?;
    let mut first = 0;
    for job in jobs.iter_mut().filter(|job| job.is_picking()) {
        let count = job.rows().len();
        let picker = Picker { model, logits: &logits.narrow(0, first, count)?, limits };
        picker.take(job, &tokens[first..first + count])?;
        first += count;
    }
    Ok(())
}

/// Takes the tokens of a step that was launched, by the place of each job in it.
pub(super) fn take(
    model: &CachedModel<'_>,
    hidden: &Tensor,
    jobs: &mut [Job<'_>],
    tokens: &[i64],
    limits: &Limits,
) -> Result<()> {
    for job in jobs.iter_mut().filter(|job| job.is_picking()) {
        let token = tokens[job.place];
        if job.sequence.looks_at_logits() {
            let logits = model.logits_of(hidden, &[job.rows().start])?; // [1, V]
            Picker { model, logits: &logits, limits }.take(job, &[token])?;
        } else {
            job.pick(limits, |sequence, _| sequence.take(token, None, limits));
        }
    }
    Ok(())
}

/// What the tokens of one job are taken with.
struct Picker<'a> {
    model: &'a CachedModel<'a>,
    /// `[R, V]`
    logits: &'a Tensor,
    limits: &'a Limits,
}

impl Picker<'_> {
    /// Takes the tokens of the job's rows, which hold where the host changes no logits.
    fn take(&self, job: &mut Job<'_>, tokens: &[i64]) -> Result<()> {
        let rows = match job.sequence.looks_at_logits() {
            true => self.logits.to_dtype(DType::F32)?.to_vec::<f32>()?,
            false => Vec::new(),
        };
        let row = |index: usize| {
            let vocabulary = self.limits.vocab_size;
            rows.get(index * vocabulary..(index + 1) * vocabulary)
        };
        job.pick(self.limits, |sequence, index| {
            let row = row(index);
            match row.filter(|_| sequence.changes_logits()) {
                None => sequence.take(tokens[index], row, self.limits),
                Some(row) => match self.picked_of(sequence, row) {
                    Ok(token) => sequence.take(token, Some(row), self.limits),
                    Err(error) => sequence.failed(error),
                },
            }
        });
        Ok(())
    }

    /// The token of a row that the host changes first.
    fn picked_of(&self, sequence: &mut Sequence, row: &[f32]) -> Result<i64> {
        let mut row = row.to_vec();
        sequence.adjust(&mut row)?;
        let changed = Tensor::from_slice_on(&row, &[1, row.len()], self.model.device)?;
        let draws = Draws::new(&[sequence.draw(0)], self.model.device)?;
        Ok(draws.pick(&changed)?.to_vec::<i64>()?[0])
    }
}

//! What a step does for each sequence behind the model: rows of logits to tokens.
//!
//! A sequence looks at few hidden states of its new tokens: at the last one, which picks its next token; with drafts, at
//! one more for each draft; with log-probabilities of the prompt, at each of the prompt. Where all look at their last
//! one alone, a step has a row for each sequence, else one for each new token. Rows are independent, so that sequences
//! pick in parallel, and in order in each.

use rayon::prelude::*;

use super::batch::{CachedModel, Piece, ROWS};
use super::mixed::Part;
use super::request::{Event, FinishReason, Limits};
use super::row::Draw;
use super::sequence::Sequence;
use crate::error::Result;
use crate::tensor::Tensor;

/// A sequence's part in a step.
pub(super) struct Job<'a> {
    pub(super) sequence: &'a mut Sequence,
    drafts: Vec<u32>,
    /// Its number in the step.
    pub(super) place: usize,
    /// The row of the last of its tokens that are planned.
    last: usize,
    events: Vec<Event>,
}

/// What a step did for a sequence.
pub(super) struct Progress {
    pub(super) events: Vec<Event>,
    /// Leading tokens that are in the cache.
    pub(super) computed: usize,
    pub(super) prompt_tokens: usize,
    pub(super) drafted: usize,
}

impl<'a> Job<'a> {
    /// The part of a sequence at a place of a step that has a row for each sequence.
    pub(super) fn of_place(sequence: &'a mut Sequence, place: usize) -> Job<'a> {
        Job { sequence, drafts: Vec::new(), place, last: place, events: Vec::new() }
    }

    /// With a row for each sequence in place of one for each new token.
    pub(super) fn by_place(&mut self) {
        self.last = self.place;
    }

    /// The new tokens of its sequence, drafts included.
    pub(super) fn piece(&self) -> Piece {
        let Sequence { tokens, computed, planned, pages, .. } = &*self.sequence;
        let tokens = tokens[*computed..computed + planned].iter().chain(&self.drafts);
        Piece { start: *computed, tokens: tokens.copied().collect(), pages: pages.clone() }
    }

    /// Whether the last of its tokens is computed, so that the next one is picked.
    pub(super) fn is_picking(&self) -> bool {
        self.sequence.planned == self.sequence.remaining()
    }

    /// The new tokens of its sequence, of which the last picks the next one or none does.
    pub(super) fn part(&self) -> Part<'_> {
        let Sequence { tokens, computed, planned, pages, .. } = &*self.sequence;
        let tokens = &tokens[*computed..computed + planned];
        Part { start: *computed, tokens, pages, draw: self.sequence.draw(0) }
    }

    /// Whether one row at most is looked at: there are no guesses, and no log-probabilities of the prompt.
    pub(super) fn is_plain(&self) -> bool {
        let sequence = &self.sequence;
        self.drafts.is_empty() && sequence.scored_rows(sequence.planned).is_empty()
    }

    /// Whether the last of its tokens is all that it computes.
    pub(super) fn is_one_token(&self) -> bool {
        self.sequence.planned == 1 && self.is_picking()
    }

    /// Rows whose logits pick a token.
    pub(super) fn rows(&self) -> std::ops::Range<usize> {
        let end = self.last + 1;
        if self.is_picking() { self.last..end + self.drafts.len() } else { end..end }
    }

    /// What the token of each of these rows is drawn by.
    pub(super) fn draws(&self) -> impl Iterator<Item = Draw> {
        (0..self.rows().len()).map(|ahead| self.sequence.draw(ahead))
    }

    /// Picks tokens, row after row by `next`, as long as the drafts are right.
    pub(super) fn pick(
        &mut self,
        limits: &Limits,
        mut next: impl FnMut(&mut Sequence, usize) -> Event,
    ) {
        if self.sequence.left(limits.context) == 0 {
            self.events.push(self.sequence.ended(FinishReason::Length));
            return;
        }
        for index in 0..self.rows().len() {
            let event = next(self.sequence, index);
            let is_right = event.token.is_some() && event.token == self.drafts.get(index).copied();
            let is_last = event.finish.is_some();
            self.events.push(event);
            if is_last || !is_right {
                return;
            }
        }
    }

    pub(super) fn progress(self) -> Progress {
        let sequence = self.sequence;
        let generated = self.events.iter().filter(|event| event.token.is_some()).count();
        // Of the tokens that were picked all but the last are drafts that were computed.
        let computed = sequence.computed + sequence.planned + generated.saturating_sub(1);
        let prompt = sequence.request.prompt.len();
        let prompt_tokens = computed.min(prompt).saturating_sub(sequence.computed);
        Progress { events: self.events, computed, prompt_tokens, drafted: self.drafts.len() }
    }
}

pub(super) fn jobs(sequences: Vec<&mut Sequence>, drafts: Vec<Vec<u32>>) -> Vec<Job<'_>> {
    let mut next = 0;
    let job = |(place, (sequence, drafts)): (usize, (_, Vec<u32>))| {
        let sequence: &mut Sequence = sequence;
        let last = next + sequence.planned - 1;
        next += sequence.planned + drafts.len();
        Job { sequence, drafts, place, last, events: Vec::new() }
    };
    sequences.into_iter().zip(drafts).enumerate().map(job).collect()
}

/// Jobs in order, in groups of at most [`ROWS`] rows or of one job.
pub(super) fn groups<'a, 'b>(mut jobs: &'a mut [Job<'b>]) -> Vec<&'a mut [Job<'b>]> {
    let mut groups = Vec::new();
    while !jobs.is_empty() {
        let (mut count, mut rows) = (1, jobs[0].rows().len());
        while count < jobs.len() && rows + jobs[count].rows().len() <= ROWS {
            rows += jobs[count].rows().len();
            count += 1;
        }
        let (group, rest) = jobs.split_at_mut(count);
        groups.push(group);
        jobs = rest;
    }
    groups
}

/// Log-probabilities of the prompt's tokens that a job's rows give.
pub(super) fn score(model: &CachedModel<'_>, hidden: &Tensor, job: &mut Job<'_>) -> Result<()> {
    let planned = job.sequence.planned;
    let scored = job.sequence.scored_rows(planned);
    let rows: Vec<usize> = scored.map(|row| job.last + 1 - planned + row).collect();
    for rows in rows.chunks(ROWS) {
        let logits = model.logits(hidden, rows)?;
        logits.chunks(model.model.vocab_size()).for_each(|row| job.sequence.score(row));
    }
    Ok(())
}

/// Picks the tokens of some jobs on the host, as [`device::pick`](super::device::pick) does on the device.
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
    let mut logits = model.logits(hidden, &rows)?;
    let mut rest = &mut logits[..];
    let mut parts = Vec::new();
    for job in jobs.iter_mut().filter(|job| job.is_picking()) {
        let (own, others) = rest.split_at_mut(job.rows().len() * limits.vocab_size);
        parts.push((job, own));
        rest = others;
    }
    parts.into_par_iter().for_each(|(job, logits)| {
        let vocabulary = limits.vocab_size;
        job.pick(limits, |sequence, index| {
            sequence.next(&mut logits[index * vocabulary..(index + 1) * vocabulary], limits)
        });
    });
    Ok(())
}

//! What a step computes, and what becomes of it.
//!
//! A step is launched as a recorded graph and read afterwards. One with guesses, with prompts whose log-probabilities
//! are asked for, or with very many tokens runs op by op, on rows of several sequences at a time.

use std::collections::BTreeMap;

use super::batch::{CachedModel, Piece};
use super::decode::{Launched, Tokens};
use super::device;
use super::engine::Engine;
use super::job::{Job, Progress, groups, jobs, pick, score};
use super::mixed::{MOST_TOKENS, Part};
use super::recorded::{RecordedSteps, give_up};
use super::request::{Event, Limits};
use super::row::Row;
use super::sequence::Sequence;
use crate::error::Result;
use crate::tensor::Tensor;

impl Engine {
    /// Computes the step that is planned, or reads the one that was launched.
    pub(super) fn compute(&mut self, events: &mut Vec<Event>) -> Result<()> {
        if let Some(step) = self.launched.take() {
            self.stats.ahead_steps += u64::from(step.is_ahead);
            return self.finish(step, events);
        }
        let (arrivals, mut sequences) = planned(&mut self.scheduler.running);
        let drafts = self.drafter.propose(&mut sequences)?;
        self.drafter.follow(&mut sequences)?;
        let mut jobs = jobs(sequences, drafts);
        if let Some(step) = launch(&mut self.recorded, arrivals.clone(), &jobs) {
            return self.finish(step, events);
        }
        let model = CachedModel { model: &*self.model, cache: &self.cache, device: self.device };
        let pick = if self.picks_on_device { device::pick } else { pick };
        by_ops(&model, &mut jobs, pick, &self.gate.limits)?;
        let ends = jobs.into_iter().map(Job::progress).collect();
        self.note(arrivals, ends, events);
        Ok(())
    }

    /// Reads the tokens of a step that was launched, while the next one runs where it can.
    fn finish(&mut self, step: Launched, events: &mut Vec<Event>) -> Result<()> {
        for (&arrival, sequence) in &mut self.scheduler.running {
            sequence.planned = step.place(arrival).map_or(0, |place| step.rows(place).len());
        }
        self.launched = self.launch_ahead(&step);
        let tokens = step.decoded.tokens()?;
        self.stats.recorded_steps += 1;
        let part = |(&arrival, sequence)| {
            let place = step.place(arrival)?;
            Some((arrival, Job::of_place(sequence, place)))
        };
        let parts = self.scheduler.running.iter_mut().filter_map(part);
        let (arrivals, mut jobs): (Vec<u64>, Vec<Job<'_>>) = parts.unzip();
        let model = CachedModel { model: &*self.model, cache: &self.cache, device: self.device };
        device::take(&model, &step.decoded.hidden, &mut jobs, &tokens, &self.gate.limits)?;
        let ends = jobs.into_iter().map(Job::progress).collect();
        self.note(arrivals, ends, events);
        Ok(())
    }

    /// Writes down what a step did for sequences.
    fn note(&mut self, arrivals: Vec<u64>, ends: Vec<Progress>, events: &mut Vec<Event>) {
        for (arrival, progress) in arrivals.into_iter().zip(ends) {
            let tokens = progress.events.iter().filter(|event| event.token.is_some()).count();
            self.stats.prompt_tokens += progress.prompt_tokens as u64;
            self.stats.generated_tokens += tokens as u64;
            self.stats.drafted_tokens += progress.drafted as u64;
            self.stats.accepted_tokens += tokens.saturating_sub(1) as u64;
            self.scheduler.advance(arrival, progress.computed);
            if progress.events.last().is_some_and(|event| event.finish.is_some()) {
                self.scheduler.remove(arrival);
            }
            events.extend(progress.events);
        }
    }
}

/// The sequences of the step that is planned, with their arrivals.
pub(super) fn planned(running: &mut BTreeMap<u64, Sequence>) -> (Vec<u64>, Vec<&mut Sequence>) {
    let planned = running.iter_mut().filter(|(_, sequence)| sequence.planned > 0);
    planned.map(|(&arrival, sequence)| (arrival, sequence)).unzip()
}

/// Launches a step, unless the model can't be recorded: then it runs op by op from here on, and so does this step,
/// which has an error of its own if that was not the reason.
pub(super) fn launch(
    recorded: &mut Option<RecordedSteps>,
    arrivals: Vec<u64>,
    jobs: &[Job<'_>],
) -> Option<Launched> {
    let starts = starts(jobs);
    let is_few = starts.last().is_some_and(|&rows| rows <= MOST_TOKENS);
    let is_one_each = jobs.iter().all(Job::is_one_token);
    let steps =
        recorded.as_mut().filter(|_| (is_few || is_one_each) && jobs.iter().all(Job::is_plain))?;
    let launched = if is_one_each {
        let rows: Vec<Option<Row<'_>>> = jobs.iter().map(|job| Some(job.sequence.row(0))).collect();
        let last = |job: &Job<'_>| job.sequence.tokens.last().copied();
        let tokens: Vec<u32> = jobs.iter().filter_map(last).collect();
        steps.decode(&rows, Tokens::Known(&tokens))
    } else {
        let parts: Vec<Part<'_>> = jobs.iter().map(Job::part).collect();
        steps.mixed(&parts)
    };
    match launched {
        Ok(decoded) => Some(Launched { arrivals, starts, decoded, is_ahead: false }),
        Err(error) => {
            give_up(recorded, &error);
            None
        }
    }
}

/// The row of the first new token of each job, then how many rows there are.
fn starts(jobs: &[Job<'_>]) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(jobs.iter().scan(0, |row, job| {
        *row += job.sequence.planned;
        Some(*row)
    }));
    starts
}

/// How the tokens of some jobs are picked.
type Pick = fn(&CachedModel<'_>, &Tensor, &mut [Job<'_>], &Limits) -> Result<()>;

/// Computes a step op by op.
fn by_ops(
    model: &CachedModel<'_>,
    jobs: &mut [Job<'_>],
    pick: Pick,
    limits: &Limits,
) -> Result<()> {
    let pieces: Vec<Piece> = jobs.iter().map(Job::piece).collect();
    let hidden = if jobs.iter().all(Job::is_plain) {
        jobs.iter_mut().for_each(Job::by_place);
        model.hidden_ends(&pieces)?
    } else {
        model.hidden(&pieces)?
    };
    for job in &mut *jobs {
        score(model, &hidden, job)?;
    }
    // Rows of several sequences are computed together, as many as there is memory for.
    for group in groups(jobs) {
        pick(model, &hidden, group, limits)?;
    }
    Ok(())
}

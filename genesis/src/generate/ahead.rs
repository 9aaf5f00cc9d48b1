//! Steps that are launched while the tokens of the step before are still on the device.
//!
//! What a step is told besides its tokens, positions, lengths, slots, pages, seeds, follows from how many tokens there
//! are and not from which. So the host prepares and launches a step while the one before it runs, and the device
//! takes the tokens from where that one left them:
//!
//! ```text
//! device   step 1             step 2              step 3
//! host     launch 2 . read 1  launch 3 . read 2   launch 4 . read 3
//! ```
//!
//! A sequence that turns out to have ended, or is cancelled, has had a token too many computed: its row is passed
//! over when it is read, and is nobody's in the steps after. What that token wrote is in a page behind all that was
//! published, which was released with the sequence; who gets the page writes to it later in the same stream, and
//! reads nothing of it that it has not written.
//!
//! Rows keep their places, since tokens are taken by row. Sequences join, leave the cache, and close the gaps in
//! steps that are planned with everything read. Such a step is launched as soon as that is so, before anybody is told of
//! the tokens: to send 64 of them takes the host a third of the time that a step of a small model takes the device.

use super::decode::{Launched, Tokens, rows_of};
use super::engine::Engine;
use super::job::jobs;
use super::request::Event;
use super::row::Row;
use super::schedule::Scheduler;
use super::sequence::Sequence;
use super::step::{launch, planned};
use crate::error::warn;

impl Engine {
    /// Launches the step after one that was launched, unless it has to know that one's tokens.
    pub(super) fn launch_ahead(&mut self, step: &Launched) -> Option<Launched> {
        if self.needs_tokens_of(step) {
            return None;
        }
        let context = self.gate.limits.context;
        if !self.scheduler.grow_ahead(context) {
            // Somebody has to give pages back.
            return None;
        }
        let running = &self.scheduler.running;
        let row = |arrival: &u64| {
            let sequence = running.get(arrival).filter(|sequence| goes_on(sequence, context));
            sequence.map(|sequence| sequence.row(1))
        };
        let rows: Vec<Option<Row<'_>>> = step.arrivals.iter().map(row).collect();
        let launched = self.recorded.as_mut()?.decode(&rows, Tokens::Drawn);
        match launched {
            Ok(decoded) => Some(Launched::ahead(step.arrivals.clone(), decoded)),
            Err(error) => {
                // What is wrong with it is told when it is launched in its turn.
                warn(format_args!("steps are no longer launched ahead: {error}"));
                self.is_async = false;
                None
            }
        }
    }

    /// Launches the step that follows from what is known now, so that the device computes it while the caller tells of
    /// the last one. Whoever comes meanwhile is in the step after it.
    pub(super) fn launch_next(&mut self, events: &mut Vec<Event>) {
        let may_launch = self.is_async && self.recorded.is_some() && self.launched.is_none();
        if may_launch && self.plan(events) {
            let (arrivals, sequences) = planned(&mut self.scheduler.running);
            // Nothing is guessed where steps are asynchronous.
            let drafts = vec![Vec::new(); sequences.len()];
            self.launched = launch(&mut self.recorded, arrivals, &jobs(sequences, drafts));
        }
    }

    /// Whether the step after this one can't be launched before its tokens are known.
    fn needs_tokens_of(&self, step: &Launched) -> bool {
        let Scheduler { running, .. } = &self.scheduler;
        let context = self.gate.limits.context;
        let going_on = running.values().filter(|sequence| goes_on(sequence, context)).count();
        // Guesses continue what they know.
        !self.is_async
            // Penalties and constraints follow from the tokens before; log-probabilities are read of the
            // logits of this step, over which the next one writes.
            || running.values().any(Sequence::looks_at_logits)
            // Prompts under way have a chunk in the next step.
            || running.values().any(|sequence| sequence.planned < sequence.remaining())
            || self.scheduler.may_admit(going_on)
            // Too few go on for the rows that there are.
            || going_on == 0
            || rows_of(going_on) < rows_of(step.arrivals.len())
    }

    /// Waits for a step that was launched for sequences all of which have ended since.
    pub(super) fn drop_unawaited(&mut self) {
        let running = &self.scheduler.running;
        let is_awaited =
            |step: &mut Launched| step.arrivals.iter().any(|arrival| running.contains_key(arrival));
        if let Some(step) = self.launched.take_if(|step| !is_awaited(step)) {
            // Nobody is left to be told of an error; what is computed next has it as well.
            let _ = step.decoded.tokens();
        }
    }
}

/// Whether a sequence has another token after the one that is under way, unless that one ends it.
fn goes_on(sequence: &Sequence, context: usize) -> bool {
    sequence.left(context) > 1
}

impl Scheduler {
    /// Whether a sequence that waits may have a place beside so many.
    fn may_admit(&self, running: usize) -> bool {
        let is_full = self.is_full && running == self.running.len();
        !(self.waiting.is_empty() || is_full || running >= self.bounds.max_sequences)
    }

    /// Gets each sequence that goes on the page of the token after the one that is under way; all of them or none.
    fn grow_ahead(&mut self, context: usize) -> bool {
        let page_size = self.bounds.page_size;
        let all = self.running.iter().filter(|(_, sequence)| goes_on(sequence, context));
        let is_short = |s: &Sequence| s.pages.len() * page_size < s.tokens.len() + 1;
        let short = all.filter(|(_, sequence)| is_short(sequence));
        let short = short.map(|(&arrival, sequence)| (arrival, sequence.remaining() + 1));
        let short: Vec<(u64, usize)> = short.collect();
        short.len() <= self.pages.available()
            && short.into_iter().all(|(arrival, count)| self.grow(arrival, count))
    }
}

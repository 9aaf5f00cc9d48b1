//! Who computes what in a step: continuous batching over a bounded cache.
//!
//! Sequences are known by their arrival, and what came first goes first:
//!
//! 1. every running sequence whose prompt is computed gets its next token, and room for drafts;
//! 2. prompts that are under way get what is left of the step's chunk;
//! 3. waiting sequences are admitted while there is chunk and room for their whole prompt.
//!
//! Where pages run out, the youngest sequence that has no part in the step yet gives its pages back and waits
//! again; its tokens are computed anew later, and are the same. The oldest one always finds room, since no
//! sequence may become longer than the cache, so that some work is done in every step.
//!
//! ```text
//! chunk 4, 3 running      step 1      step 2      step 3
//! a  decoding             a5          a6          a7
//! b  prompt of 6          b0..b3      b4 b5       b6
//! c  prompt of 3                      c0 c1       c2
//! ```
//!
//! Samples of one request begin with the same pages: the others wait until the first has computed them.

use std::collections::BTreeMap;

use super::pages::Pages;
use super::request::RequestId;
use super::sequence::Sequence;

/// The sequences of an engine and their pages.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) pages: Pages,
    pub(super) running: BTreeMap<u64, Sequence>,
    pub(super) waiting: BTreeMap<u64, Sequence>,
    /// Sequences that were taken out of the cache so far.
    pub(super) preemptions: u64,
    /// Whether the first that waits found no room when a step was last planned, and nobody has left since.
    pub(super) is_full: bool,
    pub(super) bounds: Bounds,
    arrivals: u64,
}

/// What a step may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Tokens of a page.
    pub(super) page_size: usize,
    /// Tokens of prompts in a step in which other sequences get their next token too.
    pub(super) chunk: usize,
    /// Tokens of prompts in a step that nobody waits for.
    pub(super) idle_chunk: usize,
    /// Sequences that run at a time.
    pub(super) max_sequences: usize,
    /// Tokens of a sequence.
    pub(super) context: usize,
    /// Draft tokens of a sequence in a step.
    pub(super) drafts: usize,
}

impl Scheduler {
    pub(super) fn new(pages: Pages, bounds: Bounds) -> Scheduler {
        let (running, waiting) = (BTreeMap::new(), BTreeMap::new());
        let (preemptions, is_full, arrivals) = (0, false, 0);
        Scheduler { pages, running, waiting, preemptions, is_full, bounds, arrivals }
    }

    /// Puts a sequence at the end of the queue.
    pub(super) fn add(&mut self, sequence: Sequence) {
        self.waiting.insert(self.arrivals, sequence);
        self.arrivals += 1;
    }

    /// Plans a step: `planned` of each running sequence is how many of its tokens are computed.
    pub(super) fn plan(&mut self) {
        for sequence in self.running.values_mut() {
            (sequence.planned, sequence.room) = (0, 0);
        }
        self.is_full = false;
        let before = self.preemptions;
        self.plan_decodes();
        let chunk = self.plan_prompts();
        // What was just taken out would come back at once.
        if self.preemptions == before {
            self.admit(chunk);
        }
    }

    fn plan_decodes(&mut self) {
        for arrival in self.arrivals_of(Sequence::is_decoding) {
            if !self.running.contains_key(&arrival) {
                continue;
            }
            if self.secure(arrival, 1) {
                self.make_room(arrival);
            } else {
                self.preempt(arrival);
            }
        }
    }

    /// Gives what is left of the chunk.
    fn plan_prompts(&mut self) -> usize {
        let mut chunk = match self.running.values().any(Sequence::is_decoding) {
            true => self.bounds.chunk,
            false => self.bounds.idle_chunk,
        };
        for arrival in self.arrivals_of(|sequence| !sequence.is_decoding()) {
            let Some(sequence) = self.running.get(&arrival) else { continue };
            let count = sequence.remaining().min(chunk);
            if count > 0 && self.secure(arrival, count) {
                chunk -= count;
            }
        }
        chunk
    }

    fn admit(&mut self, mut chunk: usize) {
        let mut after = 0;
        while chunk > 0 && self.running.len() < self.bounds.max_sequences {
            let ready = |sequence: &Sequence| !self.waits_for_sibling(sequence);
            let next = self.waiting.range(after..).find(|(_, sequence)| ready(sequence));
            let Some((&arrival, _)) = next else { return };
            after = arrival + 1;
            let Some(mut sequence) = self.waiting.remove(&arrival) else { return };
            if !self.enter(&mut sequence) {
                self.waiting.insert(arrival, sequence);
                self.is_full = true;
                return;
            }
            let count = sequence.remaining().min(chunk);
            self.running.insert(arrival, sequence);
            if self.secure(arrival, count) {
                chunk -= count;
            }
        }
    }

    /// Whether another sample of the same request is about to compute the pages that this one begins with.
    fn waits_for_sibling(&self, sequence: &Sequence) -> bool {
        let is_ahead = |other: &Sequence| {
            other.id == sequence.id && other.computed + 1 < other.request.prompt.len()
        };
        sequence.request.samples > 1 && self.running.values().any(is_ahead)
    }

    /// Finds known pages for a sequence that is to run; whether there is room for the others.
    fn enter(&mut self, sequence: &mut Sequence) -> bool {
        let Bounds { page_size, .. } = self.bounds;
        // The last token is always computed: its logits are what comes next.
        let skippable = (sequence.tokens.len() - 1).min(sequence.skippable());
        let shared = self.pages.share(sequence.keys(page_size, skippable / page_size));
        let lacks = |sequence: &Sequence, has: usize| {
            (sequence.tokens.len() + 1).div_ceil(page_size).saturating_sub(has)
        };
        let is_prompt = |sequence: &&Sequence| !sequence.is_decoding();
        let promised = self.running.values().filter(is_prompt);
        let promised: usize = promised.map(|other| lacks(other, other.pages.len())).sum();
        if lacks(sequence, shared.len()) + promised > self.pages.available() {
            self.pages.release(&shared);
            return false;
        }
        sequence.computed = shared.len() * page_size;
        sequence.drafted = sequence.computed;
        sequence.published = shared.len();
        sequence.pages = shared;
        if !sequence.started {
            sequence.started = true;
            sequence.cached = sequence.computed.min(sequence.request.prompt.len());
        }
        true
    }

    /// Gets a sequence the pages for its next `count` tokens and plans them; younger ones may lose theirs.
    fn secure(&mut self, arrival: u64, count: usize) -> bool {
        while !self.grow(arrival, count) {
            let mut younger = self.running.range(arrival + 1..).rev();
            let Some((&victim, _)) = younger.find(|(_, other)| other.planned == 0) else {
                return false;
            };
            self.preempt(victim);
        }
        if let Some(sequence) = self.running.get_mut(&arrival) {
            sequence.planned = count;
        }
        true
    }

    /// Allocates what a sequence lacks for its next tokens, all of it or nothing.
    pub(super) fn grow(&mut self, arrival: u64, count: usize) -> bool {
        let Some(sequence) = self.running.get_mut(&arrival) else { return false };
        let needed = (sequence.computed + count).div_ceil(self.bounds.page_size);
        let lacking = needed.saturating_sub(sequence.pages.len());
        if lacking > self.pages.available() {
            return false;
        }
        sequence.pages.extend((0..lacking).filter_map(|_| self.pages.allocate()));
        true
    }

    /// Gives a decoding sequence room for drafts, as far as nobody else is likely to need the pages.
    fn make_room(&mut self, arrival: u64) {
        let Bounds { page_size, context, drafts, .. } = self.bounds;
        let others = self.running.len();
        let Some(sequence) = self.running.get_mut(&arrival) else { return };
        let wanted = drafts.min(sequence.left(context).saturating_sub(1));
        let taken = sequence.computed + sequence.planned;
        while sequence.pages.len() * page_size < taken + wanted && self.pages.available() > others {
            sequence.pages.extend(self.pages.allocate());
        }
        sequence.room = wanted.min(sequence.pages.len() * page_size - taken);
    }

    /// Takes a sequence out of the cache.
    fn preempt(&mut self, arrival: u64) {
        let Some(mut sequence) = self.running.remove(&arrival) else { return };
        self.pages.release(&sequence.pages);
        sequence.pages.clear();
        (sequence.computed, sequence.drafted, sequence.published) = (0, 0, 0);
        (sequence.planned, sequence.room) = (0, 0);
        self.waiting.insert(arrival, sequence);
        self.preemptions += 1;
    }

    /// Notes that the first `computed` tokens of a sequence are in the cache, and publishes full pages.
    pub(super) fn advance(&mut self, arrival: u64, computed: usize) {
        let page_size = self.bounds.page_size;
        let Some(sequence) = self.running.get_mut(&arrival) else { return };
        sequence.computed = computed;
        let full = computed / page_size;
        if full == sequence.published {
            return;
        }
        let known = sequence.published;
        let keys = sequence.keys(page_size, full)[known..].to_vec();
        for (&page, key) in sequence.pages[known..].iter().zip(keys) {
            self.pages.publish(page, key);
        }
        sequence.published = full;
    }

    /// Takes a sequence out for good.
    pub(super) fn remove(&mut self, arrival: u64) -> Option<Sequence> {
        let sequence = match self.running.remove(&arrival) {
            Some(sequence) => sequence,
            None => self.waiting.remove(&arrival)?,
        };
        self.pages.release(&sequence.pages);
        self.is_full = false;
        Some(sequence)
    }

    /// The arrivals of a request's samples that are not at their end.
    pub(super) fn samples_of(&self, id: RequestId) -> Vec<u64> {
        let all = self.running.iter().chain(&self.waiting);
        all.filter(|(_, sequence)| sequence.id == id).map(|(&arrival, _)| arrival).collect()
    }

    fn arrivals_of(&self, of_kind: impl Fn(&Sequence) -> bool) -> Vec<u64> {
        let running = self.running.iter().filter(|(_, sequence)| of_kind(sequence));
        running.map(|(&arrival, _)| arrival).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::pages::root;
    use super::super::request::{Limits, Request};
    use super::*;
    use crate::data::SampleRng;

    const LIMITS: Limits = Limits { vocab_size: 4, context: 24, max_queue: 64, has_text: false };

    fn scheduler(pages: usize, chunk: usize, max_sequences: usize) -> Scheduler {
        let context = (pages - 1) * 4;
        let (page_size, idle_chunk) = (4, chunk);
        let bounds = Bounds { page_size, chunk, idle_chunk, max_sequences, context, drafts: 0 };
        Scheduler::new(Pages::new(pages, true), bounds)
    }

    fn add(scheduler: &mut Scheduler, id: u64, prompt: Vec<u32>, samples: usize) {
        let request = Arc::new(Request { prompt, max_tokens: 6, samples, ..Request::default() });
        for sample in 0..samples {
            let new = Sequence::new((RequestId(id), sample), request.clone(), root(None), None);
            scheduler.add(new.expect("there is no constraint"));
        }
    }

    /// Computes what is planned as a model would whose next token follows from the last one.
    fn compute(scheduler: &mut Scheduler) {
        for arrival in scheduler.arrivals_of(|sequence| sequence.planned > 0) {
            let sequence = scheduler.running.get_mut(&arrival).expect("it runs");
            let computed = sequence.computed + sequence.planned;
            let mut is_over = false;
            if computed == sequence.tokens.len() {
                let mut logits = [0.0; 4];
                let last = sequence.tokens[computed - 1];
                logits[(last as usize + 1) % 4] = 1.0;
                is_over = sequence.next(&mut logits, &LIMITS).finish.is_some();
            }
            scheduler.advance(arrival, computed);
            if is_over {
                scheduler.remove(arrival);
            }
        }
    }

    fn planned(scheduler: &Scheduler) -> Vec<usize> {
        scheduler.running.values().map(|sequence| sequence.planned).collect()
    }

    /// Each page has as many readers as sequences hold it.
    fn check_pages(scheduler: &Scheduler) {
        let all = scheduler.running.values().chain(scheduler.waiting.values());
        let held: std::collections::BTreeSet<u32> =
            all.flat_map(|sequence| sequence.pages.iter().copied()).collect();
        assert_eq!(held.len(), scheduler.pages.used());
        assert!(!held.contains(&0));
        for sequence in scheduler.running.values() {
            assert!(sequence.pages.len() * 4 >= sequence.computed);
        }
        assert!(scheduler.waiting.values().all(|sequence| sequence.pages.is_empty()));
    }

    #[test]
    fn prompts_share_a_chunk_in_order_and_decodes_come_on_top() {
        let mut scheduler = scheduler(32, 4, 8);
        add(&mut scheduler, 0, vec![1], 1);
        add(&mut scheduler, 1, vec![2; 6], 1);
        add(&mut scheduler, 2, vec![3; 3], 1);
        let mut steps = Vec::new();
        for _ in 0..4 {
            scheduler.plan();
            steps.push(planned(&scheduler));
            compute(&mut scheduler);
        }
        assert_eq!(steps, [vec![1, 3], vec![1, 3, 1], vec![1, 1, 2], vec![1, 1, 1]]);
    }

    #[test]
    fn a_step_that_nobody_waits_for_takes_more_of_the_prompts() {
        let mut scheduler = scheduler(32, 4, 8);
        scheduler.bounds.idle_chunk = 8;
        add(&mut scheduler, 0, vec![1; 12], 1);
        add(&mut scheduler, 1, vec![2], 1);
        let mut steps = Vec::new();
        for step in 0..4 {
            if step == 2 {
                add(&mut scheduler, 2, vec![3; 8], 1);
            }
            scheduler.plan();
            steps.push(planned(&scheduler));
            compute(&mut scheduler);
        }
        assert_eq!(steps, [vec![8], vec![4, 1], vec![1, 1, 4], vec![1, 1, 4]]);
    }

    #[test]
    fn the_youngest_gives_its_pages_back_when_they_run_out() {
        let mut scheduler = scheduler(4, 64, 8);
        add(&mut scheduler, 0, vec![1; 4], 1);
        add(&mut scheduler, 1, vec![2; 3], 1);
        let mut order = Vec::new();
        for _ in 0..40 {
            scheduler.plan();
            check_pages(&scheduler);
            let before: Vec<u64> = scheduler.running.keys().copied().collect();
            compute(&mut scheduler);
            order.extend(before.into_iter().filter(|a| !scheduler.running.contains_key(a)));
        }
        assert_eq!(order, [0, 1], "both end, the older one first");
        assert_eq!(scheduler.preemptions, 1);
        assert_eq!(scheduler.pages.used(), 0);
    }

    #[test]
    fn samples_of_a_request_share_the_pages_of_its_prompt() {
        let mut scheduler = scheduler(32, 64, 8);
        add(&mut scheduler, 0, vec![1; 9], 3);
        scheduler.plan();
        assert_eq!(planned(&scheduler), [9], "the others wait for the first");
        compute(&mut scheduler);
        scheduler.plan();
        assert_eq!(planned(&scheduler), [1, 1, 1]);
        let pages: Vec<&[u32]> = scheduler.running.values().map(|s| &s.pages[..2]).collect();
        assert_eq!(pages[0], pages[1]);
        assert_eq!(pages[0], pages[2]);
        check_pages(&scheduler);
    }

    #[test]
    fn no_page_is_lost_in_thousands_of_random_steps() {
        let mut rng = SampleRng::new(5);
        let mut scheduler = scheduler(7, 5, 4);
        scheduler.bounds.drafts = 3;
        for step in 0..5000u64 {
            if rng.happens(0.3) && scheduler.waiting.len() < 6 {
                let prompt = (0..1 + rng.below(17)).map(|_| rng.below(2) as u32).collect();
                add(&mut scheduler, step, prompt, 1 + rng.below(3));
            }
            if rng.happens(0.05) {
                let all = scheduler.running.iter().chain(&scheduler.waiting);
                let some = all.map(|(_, sequence)| sequence.id).nth(rng.below(4));
                let gone = some.map_or_else(Vec::new, |id| scheduler.samples_of(id));
                gone.into_iter().for_each(|arrival| drop(scheduler.remove(arrival)));
            }
            scheduler.plan();
            check_pages(&scheduler);
            let has_work = !(scheduler.running.is_empty() && scheduler.waiting.is_empty());
            assert_eq!(planned(&scheduler).iter().any(|&count| count > 0), has_work);
            compute(&mut scheduler);
        }
        assert!(scheduler.preemptions > 100, "{} preemptions", scheduler.preemptions);
        for arrival in scheduler.arrivals_of(|_| true) {
            scheduler.remove(arrival);
        }
        assert_eq!(scheduler.pages.used(), 0);
    }
}

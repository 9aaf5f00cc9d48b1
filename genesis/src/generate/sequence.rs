//! A sample on its way: its tokens, its pages, and how its next token is picked.
//!
//! Everything that decides about a token is here and nowhere else: the seed, the counts of the penalties, the
//! state of the constraint, the text so far. None of it depends on the batch, so that a sequence that is taken
//! out of the cache and computed again goes on with the same tokens.

use std::sync::Arc;

use super::constraint::ConstraintState;
use super::draw::seed_of_sample;
use super::pages::{Key, key};
use super::request::{
    Event, FinishReason, Limits, Request, RequestId, TokenLogprobs, Usage, refused,
};
use super::row::{Draw, Row};
use super::sample::{Counts, Rule, adjust, logprobs, pick};
use super::stop::{Detokenizer, ShownText};
use crate::error::{Error, Result};

/// A sample of a request.
pub(super) struct Sequence {
    pub(super) id: RequestId,
    pub(super) sample: usize,
    pub(super) request: Arc<Request>,
    /// The prompt, then what was generated.
    pub(super) tokens: Vec<u32>,
    /// Leading tokens whose keys and values are in its pages.
    pub(super) computed: usize,
    /// Leading tokens that the draft model has cached, in the same pages of its own cache.
    pub(super) drafted: usize,
    /// Its pages of the cache, in order.
    pub(super) pages: Vec<u32>,
    /// Leading pages that were published.
    pub(super) published: usize,
    /// New tokens of the step that is planned.
    pub(super) planned: usize,
    /// Draft tokens that the step has room for.
    pub(super) room: usize,
    /// Whether it was admitted once, and is not counted as waiting any more.
    pub(super) started: bool,
    /// Tokens of the prompt that were cached already when it was admitted.
    pub(super) cached: usize,
    /// Of the prompt's tokens from the second on, as far as they are computed.
    pub(super) prompt_logprobs: Vec<TokenLogprobs>,
    /// The key of what is before the first page, then of each full page.
    keys: Vec<Key>,
    seed: u64,
    counts: Option<Counts>,
    constraint: Option<Box<dyn ConstraintState>>,
    text: Option<ShownText>,
}

impl Sequence {
    /// A sample that nothing is computed of.
    ///
    /// # Errors
    /// If its constraint can't be walked.
    pub(super) fn new(
        (id, sample): (RequestId, usize),
        request: Arc<Request>,
        root: Key,
        detokenizer: Option<&dyn Detokenizer>,
    ) -> Result<Sequence> {
        let sampling = &request.sampling;
        let counts = sampling.has_penalties().then(|| Counts::of_prompt(&request.prompt));
        let constraint = request.constraint.as_ref().map(|rule| rule.begin()).transpose()?;
        let text = detokenizer.map(|text| ShownText::new(text.stream(), &request.stop));
        Ok(Sequence {
            id,
            sample,
            tokens: request.prompt.clone(),
            computed: 0,
            drafted: 0,
            pages: Vec::new(),
            published: 0,
            planned: 0,
            room: 0,
            started: false,
            cached: 0,
            prompt_logprobs: Vec::new(),
            keys: vec![root],
            seed: seed_of_sample(sampling.seed, sample),
            counts,
            constraint,
            text,
            request,
        })
    }

    /// Tokens that are not computed yet.
    pub(super) fn remaining(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Whether all but the last token are computed.
    pub(super) fn is_decoding(&self) -> bool {
        self.remaining() == 1
    }

    /// Tokens generated so far.
    pub(super) fn generated(&self) -> usize {
        self.tokens.len() - self.request.prompt.len()
    }

    /// Tokens that may still come.
    pub(super) fn left(&self, context: usize) -> usize {
        let of_request = self.request.max_tokens.saturating_sub(self.generated());
        of_request.min(context.saturating_sub(self.tokens.len()))
    }

    /// The keys of its leading full pages.
    pub(super) fn keys(&mut self, page_size: usize, pages: usize) -> &[Key] {
        let known = self.keys.len() - 1;
        for page in self.tokens.chunks_exact(page_size).take(pages).skip(known) {
            let parent = &self.keys[self.keys.len() - 1];
            self.keys.push(key(parent, page));
        }
        &self.keys[1..=pages]
    }

    /// Tokens of the prompt that a prefix hit may leave out: their log-probabilities are there or unwanted.
    pub(super) fn skippable(&self) -> usize {
        let wanted = self.request.prompt.len() - 1;
        match self.request.prompt_logprobs {
            Some(_) if self.prompt_logprobs.len() < wanted => self.prompt_logprobs.len(),
            _ => usize::MAX,
        }
    }

    /// Which of the next tokens' rows give a log-probability of the prompt, counted from the first new token.
    pub(super) fn scored_rows(&self, count: usize) -> std::ops::Range<usize> {
        let end = (self.computed + count).min(self.request.prompt.len() - 1);
        let start = self.prompt_logprobs.len().max(self.computed);
        match self.request.prompt_logprobs {
            Some(_) if start < end => start - self.computed..end - self.computed,
            _ => 0..0,
        }
    }

    /// Notes the log-probability of the prompt's next token.
    pub(super) fn score(&mut self, logits: &[f32]) {
        let token = self.request.prompt[self.prompt_logprobs.len() + 1];
        let count = self.request.prompt_logprobs.unwrap_or(0);
        self.prompt_logprobs.push(logprobs(logits, token, count));
    }

    /// The token that logits give at a position, without penalties and constraints: what a draft guesses.
    pub(super) fn guess(&self, logits: &mut [f32], position: usize) -> Option<u32> {
        let (sampling, seed) = (&self.request.sampling, self.seed);
        adjust(logits, sampling, None, None);
        pick(logits, &Rule { sampling, seed, position }).ok()
    }

    /// Picks the next token by the logits of the last one.
    pub(super) fn next(&mut self, logits: &mut [f32], limits: &Limits) -> Event {
        match self.try_next(logits, limits) {
            Ok(event) => event,
            Err(error) => self.failed(error),
        }
    }

    fn try_next(&mut self, logits: &mut [f32], limits: &Limits) -> Result<Event> {
        let untouched = self.request.logprobs.map(|_| logits.to_vec());
        self.adjust(logits)?;
        let (sampling, seed, position) = (&self.request.sampling, self.seed, self.tokens.len());
        let token = pick(logits, &Rule { sampling, seed, position })?;
        self.try_take(token, untouched.as_deref(), limits)
    }

    /// Whether the host looks at its logits: to change them, or to tell log-probabilities.
    pub(super) fn looks_at_logits(&self) -> bool {
        self.changes_logits() || self.request.logprobs.is_some()
    }

    /// Whether penalties, a bias or a constraint change its logits.
    pub(super) fn changes_logits(&self) -> bool {
        let has_bias = !self.request.sampling.logit_bias.is_empty();
        self.counts.is_some() || self.constraint.is_some() || has_bias
    }

    /// Applies penalties, bias and constraint of the next token to its logits.
    pub(super) fn adjust(&mut self, logits: &mut [f32]) -> Result<()> {
        let mask = self.constraint.as_mut().map(|rule| rule.allowed()).transpose()?;
        adjust(logits, &self.request.sampling, self.counts.as_ref(), mask.as_ref());
        Ok(())
    }

    /// How the token so many places ahead of its last one is computed in a step.
    pub(super) fn row(&self, ahead: usize) -> Row<'_> {
        let position = self.tokens.len() - 1 + ahead;
        Row { position, pages: &self.pages, draw: self.draw(ahead) }
    }

    /// What the token so many places ahead of the next one is drawn by.
    pub(super) fn draw(&self, ahead: usize) -> Draw {
        let sampling = &self.request.sampling;
        Draw {
            temperature: sampling.temperature,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            top_k: sampling.top_k.map_or(0, |k| i64::try_from(k).unwrap_or(i64::MAX)),
            seed: self.seed.cast_signed(),
            position: (self.tokens.len() + ahead) as i64,
        }
    }

    /// Takes a token that was picked on the device; -1 says that it had none to pick.
    pub(super) fn take(&mut self, token: i64, logits: Option<&[f32]>, limits: &Limits) -> Event {
        let token = u32::try_from(token).map_err(|_| {
            let place = self.tokens.len();
            refused(format!("the token at position {place} has no finite largest logit"))
        });
        match token.and_then(|token| self.try_take(token, logits, limits)) {
            Ok(event) => event,
            Err(error) => self.failed(error),
        }
    }

    /// Goes on with a token; `logits` are those that nothing changed, where log-probabilities are asked for.
    fn try_take(&mut self, token: u32, logits: Option<&[f32]>, limits: &Limits) -> Result<Event> {
        self.tokens.push(token);
        if let Some(counts) = &mut self.counts {
            counts.add(token);
        }
        let (text, finish) = self.go_on(token, limits)?;
        let logprob = self.request.logprobs.zip(logits);
        let logprob = logprob.map(|(count, logits)| logprobs(logits, token, count));
        Ok(Event { token: Some(token), text, logprob, finish, ..self.event() })
    }

    /// What a token shows, and whether it is the last.
    fn go_on(&mut self, token: u32, limits: &Limits) -> Result<(String, Option<FinishReason>)> {
        if self.request.stop_tokens.contains(&token) {
            return Ok((self.rest().0, Some(FinishReason::Stop)));
        }
        let mut is_complete = false;
        if let Some(rule) = &mut self.constraint {
            rule.accept(token)?;
            is_complete = rule.is_complete();
        }
        let (mut shown, stopped) = match &mut self.text {
            Some(text) => text.push(token)?,
            None => (String::new(), false),
        };
        if stopped {
            return Ok((shown, Some(FinishReason::Stop)));
        }
        let is_full = self.left(limits.context) == 0;
        if !is_complete && !is_full {
            return Ok((shown, None));
        }
        let (rest, stopped) = self.rest();
        shown.push_str(&rest);
        let is_stop = is_complete || stopped;
        Ok((shown, Some(if is_stop { FinishReason::Stop } else { FinishReason::Length })))
    }

    /// The text that was held back.
    fn rest(&mut self) -> (String, bool) {
        self.text.as_mut().map_or_else(Default::default, ShownText::finish)
    }

    /// The end of a sequence that may have no more tokens.
    pub(super) fn ended(&mut self, reason: FinishReason) -> Event {
        let text = self.rest().0;
        Event { text, finish: Some(reason), ..self.event() }
    }

    /// The end of a sequence that can't go on.
    pub(super) fn failed(&mut self, error: Error) -> Event {
        Event { error: Some(error), ..self.ended(FinishReason::Error) }
    }

    fn event(&mut self) -> Event {
        // They go out once: nothing is scored any more when there is an event.
        let scored = match self.generated() {
            0 | 1 => self.prompt_logprobs.clone(),
            _ => Vec::new(),
        };
        let usage = Usage {
            prompt_tokens: self.request.prompt.len(),
            cached_tokens: self.cached,
            completion_tokens: self.generated(),
        };
        Event { usage, prompt_logprobs: scored, ..Event::new(self.id, self.sample) }
    }
}

impl std::fmt::Debug for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequence")
            .field("id", &self.id)
            .field("sample", &self.sample)
            .field("tokens", &self.tokens.len())
            .field("computed", &self.computed)
            .field("pages", &self.pages)
            .finish_non_exhaustive()
    }
}

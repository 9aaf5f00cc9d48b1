//! The engine: sequences in, a step of the model at a time, events out.
//!
//! A step plans, guesses, computes and picks. Everything is on the caller's thread and in plain order, so that
//! it can be tested and reasoned about; [`Runner`](super::Runner) gives it a thread of its own.

use std::sync::Arc;

use genesis_kernel::ir::DType;
use genesis_kernel::runtime::Device;

use super::batch::{CachedModel, Piece, place};
use super::decode::{Decode, Decoded};
use super::device::{self, Draw};
use super::gate::Gate;
use super::job::{Job, Progress, groups, jobs, pick, piece, score};
use super::pages::{Pages, root};
use super::request::{Event, FinishReason, Limits, Request, RequestId};
use super::schedule::{Bounds, Scheduler};
use super::sequence::Sequence;
use super::speculative::{Drafter, Speculation, page_bytes};
use super::stop::Detokenizer;
use crate::autograd::no_grad;
use crate::error::{Error, Result, warn};
use crate::models::{CausalLm, KvCache};

/// How an engine works; none of it changes what it generates.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Tokens of a page of the cache.
    pub page_size: usize,
    /// Pages of the cache; where not given, as many as `cache_bytes` have room for and sequences can fill.
    pub pages: Option<usize>,
    /// Memory of the cache, in bytes, where `pages` is not given.
    pub cache_bytes: usize,
    /// The dtype of the cache; where not given, that of the model's parameters.
    pub dtype: Option<DType>,
    /// Sequences that run at a time.
    pub max_sequences: usize,
    /// Samples that wait; more are refused as busy.
    pub max_queue: usize,
    /// Tokens of prompts that a step computes at most, beside the next token of each running sequence; where
    /// absent 512 on processors and 2,048 on GPUs, whose products are at their fastest from there on.
    pub chunk: Option<usize>,
    /// The most tokens of a sequence, where it is to be fewer than the model was made for.
    pub context: Option<usize>,
    /// Whether prefixes stay in the cache for requests that begin alike.
    pub prefix_cache: bool,
    /// How the tokens to come are guessed.
    pub speculation: Speculation,
    /// Whether tokens are picked on the device, and steps of one token a sequence recorded as graphs; on GPUs where
    /// absent. Of a request that draws, the host picks other tokens than the device.
    pub on_device: Option<bool>,
}

impl Default for EngineOptions {
    fn default() -> EngineOptions {
        EngineOptions {
            page_size: 16,
            pages: None,
            cache_bytes: 1 << 30,
            dtype: None,
            max_sequences: 64,
            max_queue: 1024,
            chunk: None,
            context: None,
            prefix_cache: true,
            speculation: Speculation::None,
            on_device: None,
        }
    }
}

/// What an engine did and has to do.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EngineStats {
    /// Samples that run.
    pub running: usize,
    /// Samples that wait.
    pub waiting: usize,
    /// Pages that samples use.
    pub pages_used: usize,
    /// Pages that there are.
    pub pages: usize,
    /// Steps so far.
    pub steps: u64,
    /// Of them those that ran as one recorded step, see [`EngineOptions::on_device`].
    pub recorded_steps: u64,
    /// Tokens of prompts that were computed so far.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were found in the cache so far.
    pub prefix_hit_tokens: u64,
    /// Tokens that were generated so far.
    pub generated_tokens: u64,
    /// Tokens that were guessed so far.
    pub drafted_tokens: u64,
    /// Guesses that were right.
    pub accepted_tokens: u64,
    /// Samples that lost their pages to older ones so far.
    pub preemptions: u64,
}

/// Generates for many requests at a time with one model.
///
/// # Examples
/// ```no_run
/// # fn main() -> genesis::Result<()> {
/// # let model: std::sync::Arc<dyn genesis::models::CausalLm> = unreachable!();
/// use genesis::generate::{Engine, EngineOptions, Request};
///
/// let mut engine = Engine::new(model, None, EngineOptions::default())?;
/// let id = engine.submit(Request { prompt: vec![1, 2, 3], ..Request::default() })?;
/// while engine.has_work() {
///     for event in engine.step() {
///         assert_eq!(event.id, id);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    model: Arc<dyn CausalLm>,
    tokenizer: Option<Arc<dyn Detokenizer>>,
    cache: Arc<KvCache>,
    device: Device,
    /// Whether tokens are picked on the device.
    picks_on_device: bool,
    /// Steps of one token a sequence, unless the model can't be recorded.
    decode: Option<Decode>,
    scheduler: Scheduler,
    drafter: Drafter,
    gate: Arc<Gate>,
    stats: EngineStats,
    prefix_cache: bool,
    /// Events of what happened between steps.
    pending: Vec<Event>,
    next_id: u64,
}

impl Engine {
    /// An engine with an empty cache. Without a tokenizer there are tokens and no text.
    ///
    /// # Errors
    /// If an option is 0 that may not be, the cache has no room for two tokens, the draft model has another
    /// vocabulary, or memory runs out.
    pub fn new(
        model: Arc<dyn CausalLm>,
        tokenizer: Option<Arc<dyn Detokenizer>>,
        options: EngineOptions,
    ) -> Result<Engine> {
        check(&options, &*model)?;
        let (device, dtype) = place(&*model);
        let dtype = options.dtype.unwrap_or(dtype);
        let most = model.max_positions().min(options.context.unwrap_or(usize::MAX));
        if most < 2 {
            let message = format!("the context is {most}, a prompt and an answer need 2 at least");
            return Err(Error::op("generate", message));
        }
        let pages = pages(&options, &*model, (most, dtype));
        let page_size = options.page_size;
        let context = most.min(pages.saturating_sub(1).saturating_mul(page_size));
        if context < 2 || u32::try_from(pages).is_err() {
            let message = format!("a cache of {pages} pages of {page_size} tokens can't be used");
            return Err(Error::op("generate", message));
        }
        let limits = Limits {
            vocab_size: model.vocab_size(),
            context,
            max_queue: options.max_queue,
            has_text: tokenizer.is_some(),
        };
        let bounds = Bounds {
            page_size,
            chunk: options.chunk.unwrap_or(if device == Device::Cpu { 512 } else { 2048 }),
            max_sequences: options.max_sequences,
            context,
            drafts: options.speculation.drafts(),
        };
        let cache = Arc::new(KvCache::new(model.kv_shape(), pages, page_size, dtype, device)?);
        let on_device = options.on_device.unwrap_or(device != Device::Cpu);
        let decode = || Decode::new(Arc::clone(&model), Arc::clone(&cache), device);
        Ok(Engine {
            picks_on_device: on_device,
            decode: on_device.then(decode),
            cache,
            drafter: Drafter::new(&options.speculation, pages, page_size)?,
            scheduler: Scheduler::new(Pages::new(pages, options.prefix_cache), bounds),
            gate: Arc::new(Gate::new(limits)),
            stats: EngineStats { pages: pages - 1, ..EngineStats::default() },
            prefix_cache: options.prefix_cache,
            pending: Vec::new(),
            next_id: 0,
            model,
            tokenizer,
            device,
        })
    }

    /// What requests may ask.
    pub fn limits(&self) -> &Limits {
        &self.gate.limits
    }

    /// Takes a request in, to be worked on in the steps to come.
    ///
    /// # Errors
    /// If the request is out of the engine's [`Limits`], or the queue is full, which [`Error::is_busy`] tells.
    pub fn submit(&mut self, request: Request) -> Result<RequestId> {
        self.gate.enter(&request)?;
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.enqueue(id, request).map(|()| id)
    }

    /// Takes a request in that the gate has let through.
    pub(super) fn enqueue(&mut self, id: RequestId, request: Request) -> Result<()> {
        let request = Arc::new(request);
        let root = root((!self.prefix_cache).then_some(id.0));
        let new = |sample| {
            let request = Arc::clone(&request);
            Sequence::new((id, sample), request, root, self.tokenizer.as_deref())
        };
        let sequences: Result<Vec<Sequence>> = (0..request.samples).map(new).collect();
        let sequences = sequences.inspect_err(|_| {
            (0..request.samples).for_each(|_| self.gate.leave());
        })?;
        sequences.into_iter().for_each(|sequence| self.scheduler.add(sequence));
        Ok(())
    }

    /// The queue, for whoever asks from other threads.
    pub(super) fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }

    /// Ends a request: its pages are free at once, and the next step says [`FinishReason::Cancelled`] for each
    /// sample that had not ended. Whether there was one.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let samples = self.scheduler.samples_of(id);
        for &arrival in &samples {
            self.end(arrival, |sequence| sequence.ended(FinishReason::Cancelled));
        }
        !samples.is_empty()
    }

    /// Ends every request with an error.
    pub(super) fn fail_all(&mut self, error: &Error) {
        let scheduler = &self.scheduler;
        let all = scheduler.running.keys().chain(scheduler.waiting.keys());
        for arrival in all.copied().collect::<Vec<u64>>() {
            self.end(arrival, |sequence| sequence.failed(error.clone()));
        }
        self.forget_prefixes();
    }

    /// Forgets the prefixes that no request uses.
    pub fn forget_prefixes(&mut self) {
        self.scheduler.pages.forget();
    }

    /// Takes a sequence out and keeps its last event for the next step.
    fn end(&mut self, arrival: u64, last: impl FnOnce(&mut Sequence) -> Event) {
        let Some(mut sequence) = self.scheduler.remove(arrival) else { return };
        if !sequence.started {
            self.gate.leave();
        }
        self.pending.push(last(&mut sequence));
    }

    /// Whether there is something to do or to tell.
    pub fn has_work(&self) -> bool {
        let Scheduler { running, waiting, .. } = &self.scheduler;
        !(running.is_empty() && waiting.is_empty() && self.pending.is_empty())
    }

    /// What it did and has to do.
    pub fn stats(&self) -> EngineStats {
        EngineStats {
            running: self.scheduler.running.len(),
            waiting: self.gate.waiting(),
            pages_used: self.scheduler.pages.used(),
            preemptions: self.scheduler.preemptions,
            ..self.stats
        }
    }

    /// Computes a step: the next token of each running sequence, and a chunk of the prompts that wait.
    ///
    /// An error of the model ends the sequences of the step, and is in their last events; the others go on.
    pub fn step(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.pending);
        let new = self.plan();
        let Scheduler { running, waiting, .. } = &self.scheduler;
        if running.is_empty() && waiting.is_empty() {
            return events;
        }
        if running.values().all(|sequence| sequence.planned == 0) {
            // The oldest sequence always finds room; a caller who waits for it must not wait forever.
            let stuck = "no sequence can go on, which is a bug in Genesis";
            self.fail_all(&Error::op("generate", stuck));
            events.append(&mut self.pending);
            return events;
        }
        self.stats.steps += 1;
        for arrival in new {
            let cached = self.scheduler.running.get(&arrival).map_or(0, |s| s.cached);
            self.stats.prefix_hit_tokens += cached as u64;
            self.gate.leave();
        }
        if let Err(error) = no_grad(|| self.compute(&mut events)) {
            let running = self.scheduler.running.iter();
            let planned = running.filter(|(_, sequence)| sequence.planned > 0);
            for arrival in planned.map(|(&arrival, _)| arrival).collect::<Vec<u64>>() {
                self.end(arrival, |sequence| sequence.failed(error.clone()));
            }
            events.append(&mut self.pending);
        }
        events
    }

    /// Plans a step, and gives the sequences that run for the first time.
    fn plan(&mut self) -> Vec<u64> {
        let waiting = self.scheduler.waiting.iter();
        let new = waiting.filter(|(_, sequence)| !sequence.started).map(|(&arrival, _)| arrival);
        let mut new: Vec<u64> = new.collect();
        self.scheduler.plan();
        new.retain(|arrival| self.scheduler.running.contains_key(arrival));
        new
    }

    fn compute(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let running = self.scheduler.running.iter_mut();
        let planned = running.filter(|(_, sequence)| sequence.planned > 0);
        let (arrivals, mut sequences): (Vec<u64>, Vec<&mut Sequence>) = planned.unzip();
        let drafts = self.drafter.propose(&mut sequences)?;
        self.drafter.follow(&mut sequences)?;
        let pieces: Vec<Piece> =
            sequences.iter().zip(&drafts).map(|(sequence, draft)| piece(sequence, draft)).collect();
        let model = CachedModel { model: &*self.model, cache: &self.cache, device: self.device };
        let mut jobs = jobs(sequences, drafts);
        let limits = &self.gate.limits;
        match decoded(&mut self.decode, &jobs, &pieces) {
            Some(Decoded { hidden, tokens }) => {
                self.stats.recorded_steps += 1;
                device::take(&model, &hidden, &mut jobs, &tokens, limits)?;
            }
            None => {
                let hidden = model.hidden(&pieces)?;
                for job in &mut jobs {
                    score(&model, &hidden, job)?;
                }
                let pick = if self.picks_on_device { device::pick } else { pick };
                // Rows of several sequences are computed together, as many as there is memory for.
                for group in groups(&mut jobs) {
                    pick(&model, &hidden, group, limits)?;
                }
            }
        }
        let ends: Vec<Progress> = jobs.into_iter().map(Job::progress).collect();
        for (arrival, progress) in arrivals.into_iter().zip(ends) {
            self.note(arrival, progress, events);
        }
        Ok(())
    }

    /// Writes down what a step did for a sequence.
    fn note(&mut self, arrival: u64, progress: Progress, events: &mut Vec<Event>) {
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

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("limits", &self.gate.limits)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// The tokens of a step in which each sequence has one, unless the model can't be recorded: then it runs op by op
/// from here on, and so does this step, which has an error of its own if that was not the reason.
fn decoded(decode: &mut Option<Decode>, jobs: &[Job<'_>], pieces: &[Piece]) -> Option<Decoded> {
    let step = decode.as_mut().filter(|_| jobs.iter().all(Job::is_one_token))?;
    let draws: Vec<Draw> = jobs.iter().flat_map(Job::draws).collect();
    match step.run(pieces, &draws) {
        Ok(decoded) => Some(decoded),
        Err(error) => {
            warn(format_args!("a step can't be a graph and runs op by op: {error}"));
            *decode = None;
            None
        }
    }
}

fn check(options: &EngineOptions, model: &dyn CausalLm) -> Result<()> {
    let sizes = [
        ("page_size", options.page_size),
        ("max_sequences", options.max_sequences),
        ("max_queue", options.max_queue),
        ("chunk", options.chunk.unwrap_or(1)),
    ];
    for (name, size) in sizes {
        if size == 0 {
            return Err(Error::op("generate", format!("{name} is 0, it must be at least 1")));
        }
    }
    options.speculation.check(model)
}

/// Pages of the cache: page 0, and what memory has room for or sequences can fill.
fn pages(options: &EngineOptions, model: &dyn CausalLm, (context, dtype): (usize, DType)) -> usize {
    let page_size = options.page_size;
    options.pages.unwrap_or_else(|| {
        let own = page_bytes(model, page_size, dtype);
        let bytes = own.saturating_add(Drafter::page_bytes(&options.speculation, page_size));
        let fits = options.cache_bytes / bytes.max(1);
        let filled = context.div_ceil(page_size).saturating_mul(options.max_sequences);
        fits.min(filled.saturating_add(1))
    })
}

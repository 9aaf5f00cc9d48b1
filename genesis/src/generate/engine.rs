//! The engine: sequences in, a step of the model at a time, events out.
//!
//! A step plans, guesses, computes and picks. Everything is on the caller's thread and in plain order, so that
//! it can be tested and reasoned about; [`Runner`](super::Runner) gives it a thread of its own.

use std::sync::Arc;

use genesis_kernel::runtime::Device;

use super::batch::place;
use super::decode::Launched;
use super::gate::Gate;
use super::options::{EngineOptions, EngineStats, check, pages};
use super::pages::{Pages, root};
use super::recorded::RecordedSteps;
use super::request::{Event, FinishReason, Limits, Request, RequestId};
use super::schedule::{Bounds, Scheduler};
use super::sequence::Sequence;
use super::speculative::Drafter;
use super::stop::Detokenizer;
use crate::autograd::no_grad;
use crate::error::{Error, Result};
use crate::models::{CausalLm, KvCache};

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
    pub(super) model: Arc<dyn CausalLm>,
    tokenizer: Option<Arc<dyn Detokenizer>>,
    pub(super) cache: Arc<KvCache>,
    pub(super) device: Device,
    /// Whether tokens are picked on the device.
    pub(super) picks_on_device: bool,
    /// Steps that are recorded, unless the model can't be.
    pub(super) recorded: Option<RecordedSteps>,
    /// Whether a step may be launched before the tokens of the one before are known.
    pub(super) is_async: bool,
    /// The step that was launched so.
    pub(super) launched: Option<Launched>,
    pub(super) scheduler: Scheduler,
    pub(super) drafter: Drafter,
    pub(super) gate: Arc<Gate>,
    pub(super) stats: EngineStats,
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
        let (chunk, idle_chunk) = match (options.chunk, device) {
            (Some(chunk), _) => (chunk, chunk),
            (None, Device::Cpu) => (512, 512),
            (None, Device::Cuda(_)) => (512, 8192),
        };
        let bounds = Bounds {
            page_size,
            chunk,
            idle_chunk,
            max_sequences: options.max_sequences,
            context,
            drafts: options.speculation.drafts(),
        };
        let cache = Arc::new(KvCache::new(model.kv_shape(), pages, page_size, dtype, device)?);
        let on_device = options.on_device.unwrap_or(device != Device::Cpu);
        let recorded = || RecordedSteps::new(&model, &cache, (device, options.max_sequences));
        let mut engine = Engine {
            picks_on_device: on_device,
            recorded: on_device.then(recorded).transpose()?,
            is_async: options.async_scheduling.unwrap_or(device != Device::Cpu)
                && options.speculation.drafts() == 0,
            launched: None,
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
        };
        if options.warm_up {
            engine.warm_up();
        }
        Ok(engine)
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
        self.drop_unawaited();
        if self.launched.is_none() && !self.plan(&mut events) {
            return events;
        }
        self.stats.steps += 1;
        if let Err(error) = no_grad(|| self.compute(&mut events)) {
            let running = self.scheduler.running.iter();
            let planned = running.filter(|(_, sequence)| sequence.planned > 0);
            for arrival in planned.map(|(&arrival, _)| arrival).collect::<Vec<u64>>() {
                self.end(arrival, |sequence| sequence.failed(error.clone()));
            }
            events.append(&mut self.pending);
        }
        no_grad(|| self.launch_next(&mut events));
        events
    }

    /// Plans a step; whether there is something to compute.
    pub(super) fn plan(&mut self, events: &mut Vec<Event>) -> bool {
        let waiting = self.scheduler.waiting.iter();
        let new = waiting.filter(|(_, sequence)| !sequence.started).map(|(&arrival, _)| arrival);
        let new: Vec<u64> = new.collect();
        self.scheduler.plan();
        let Scheduler { running, waiting, .. } = &self.scheduler;
        if running.is_empty() && waiting.is_empty() {
            return false;
        }
        if running.values().all(|sequence| sequence.planned == 0) {
            // The oldest sequence always finds room; a caller who waits for it must not wait forever.
            let stuck = "no sequence can go on, which is a bug in Genesis";
            self.fail_all(&Error::op("generate", stuck));
            events.append(&mut self.pending);
            return false;
        }
        for sequence in new.iter().filter_map(|arrival| running.get(arrival)) {
            self.stats.prefix_hit_tokens += sequence.cached as u64;
            self.gate.leave();
        }
        true
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

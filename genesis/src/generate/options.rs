//! What an engine is told when it is made, and what it tells of its work.

use genesis_kernel::ir::DType;

use super::speculative::{Drafter, Speculation, page_bytes};
use crate::error::{Error, Result};
use crate::models::CausalLm;

/// How an engine works; none of it but the dtype of the cache changes what it generates.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Tokens of a page of the cache.
    pub page_size: usize,
    /// Pages of the cache; where not given, as many as `cache_bytes` have room for and sequences can fill.
    pub pages: Option<usize>,
    /// Memory of the cache, in bytes, where `pages` is not given.
    pub cache_bytes: usize,
    /// The dtype of the cache; where not given, that of the model's parameters. Floats of 8 bits, `f8e4m3` and
    /// `f8e5m2`, keep twice as many tokens as those of 16; what is larger than their largest number is kept as that.
    pub dtype: Option<DType>,
    /// Sequences that run at a time.
    pub max_sequences: usize,
    /// Samples that wait; more are refused as busy.
    pub max_queue: usize,
    /// Tokens of prompts that a step computes at most, beside the next token of each running sequence; where
    /// absent 512, and on GPUs 8,192 while no sequence waits for its next token: 8,192 tokens at once take 10 % less
    /// time than four times 2,048 (H100).
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
    /// Whether a step is launched while the tokens of the one before it are still on the device, where nothing has to
    /// know them; on GPUs where absent. It is for steps that are recorded, and changes no bit.
    pub async_scheduling: Option<bool>,
    /// Whether kernels are compiled before the engine is there, as [`Engine::warm_up`](super::Engine::warm_up) does,
    /// and not by the steps that need them first.
    pub warm_up: bool,
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
            async_scheduling: None,
            warm_up: false,
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
    /// Of them those that were launched before the tokens of the one before were known, see
    /// [`EngineOptions::async_scheduling`].
    pub ahead_steps: u64,
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

/// Refuses options that no engine can have.
pub(super) fn check(options: &EngineOptions, model: &dyn CausalLm) -> Result<()> {
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
pub(super) fn pages(
    options: &EngineOptions,
    model: &dyn CausalLm,
    (context, dtype): (usize, DType),
) -> usize {
    let page_size = options.page_size;
    options.pages.unwrap_or_else(|| {
        let own = page_bytes(model, page_size, dtype);
        let bytes = own.saturating_add(Drafter::page_bytes(&options.speculation, page_size));
        let fits = options.cache_bytes / bytes.max(1);
        let filled = context.div_ceil(page_size).saturating_mul(options.max_sequences);
        fits.min(filled.saturating_add(1))
    })
}

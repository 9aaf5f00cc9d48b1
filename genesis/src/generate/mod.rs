//! Generation: many prompts at a time, continued token by token by one model.
//!
//! A step of a model reads all of its weights, whether it computes one token or a hundred. So requests are not
//! answered one after the other: an [`Engine`] puts the next token of every sequence that runs, and a chunk of the
//! prompts that wait, into one batch (*continuous batching*, Orca, OSDI 2022). Keys and values lie in pages
//! (*PagedAttention*, arXiv:2309.06180), so that sequences grow without moving and share the pages of a common
//! prefix.
//!
//! What a request gives does not depend on any of that. Each row of a batch is computed as if it were alone (the
//! model's promise), and each pick depends on the request's seed and the token's position only (the sampler's).
//! Equal requests so give equal tokens and equal log-probabilities to the bit: alone or among others, with a
//! chunk of 1 or of 512, after a prefix hit, after a preemption, with guesses or without.
//!
//! ```text
//! submit ─> gate ─> waiting ─┐                                  ┌─> events: token, text, log-probability
//!                            ├─ plan ─> guess ─> model ─> pick ─┤
//!                   running ─┘    (schedule)   (batch)  (sample)└─> pages published, freed (pages)
//! ```
//!
//! | part | what it does |
//! |---|---|
//! | [`Request`], [`Event`] | what is asked and what is told |
//! | `pages` | which page of the cache is whose; prefixes that are shared |
//! | `schedule` | who computes what in a step |
//! | `step` | a step op by op, and what becomes of it |
//! | `decode`, `mixed`, `recorded` | steps as recorded graphs: of next tokens, and of prompts beside them |
//! | `ahead` | steps that are launched before the tokens of the step before are known |
//! | `sample`, `draw` | from logits to a token |
//! | `stop` | text as it streams, and stop strings in it |
//! | [`Constraint`], [`Grammars`] | answers that follow a JSON schema or a grammar |
//! | [`Speculation`] | guesses that change no bit |
//! | [`Engine`] | a step at a time, on the caller's thread |
//! | [`Runner`] | an engine on a thread of its own |
//! | [`generate()`] | prompts in, answers out |
//! | [`embed()`] | a text as one vector |

mod ahead;
mod batch;
mod complete;
mod constraint;
mod decode;
mod device;
mod draw;
mod embed;
mod engine;
mod gate;
mod grammar;
mod job;
mod mixed;
mod options;
mod pages;
mod recorded;
mod request;
mod row;
mod runner;
mod sample;
mod schedule;
mod sequence;
mod speculative;
mod step;
mod stop;
mod text;
mod warm_up;

pub use complete::{Output, generate};
pub use constraint::{Constraint, ConstraintState, TokenMask};
pub use embed::embed;
pub use engine::Engine;
pub use grammar::{Grammars, TokenBytes};
pub use options::{EngineOptions, EngineStats};
pub use request::{
    Event, FinishReason, Limits, Request, RequestId, Sampling, TokenLogprobs, Usage,
};
pub use runner::{Answer, Runner};
pub use speculative::Speculation;
pub use stop::{Detokenizer, TokenText};

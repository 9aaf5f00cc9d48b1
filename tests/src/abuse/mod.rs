//! Hostile calls and damaged files by the million.
//!
//! Call or file `n` is a function of `n` alone. Workers are processes: a panic is caught in the worker, while
//! an abort, a crash or a hang ends it, and its state file still says at which number it was. The address space of a
//! worker is limited, and so is the memory of its tensors.
//!
//! ```text
//! genesis-abuse [calls=N] [files=N] [from=N] [jobs=N] [seconds=N] [patience=N] [only=NAME]
//! genesis-abuse call=N        one call, with its arguments; file=N, one file
//! ```
//!
//! `only` is a method, or the beginning of formats: `safetensors`, `gguf`, `config`, `tokenizer`, `chat-template`.

mod calls;
mod data;
mod files;
mod generate;
mod language_models;
mod launches;
mod layers;
mod memory;
mod parent;
mod table;
mod training;
mod worker;

pub use calls::{Row, rows};
pub use parent::{Plan, run};
pub use worker::{one, work};

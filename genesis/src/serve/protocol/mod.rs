//! What clients send and read: OpenAI's shapes, with the sampling settings that vLLM added.
//!
//! Requests are read field by field ([`Fields`](fields::Fields)), responses are plain structs. Nothing here
//! knows HTTP or the engine; `null` is a field that is not there.

pub(super) mod answers;
pub(super) mod chat;
pub(super) mod completion;
pub(super) mod fields;
pub(super) mod options;

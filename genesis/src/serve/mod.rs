//! A server of language models that OpenAI's clients can talk to.
//!
//! HTTP ends here and generation begins behind [`Backend`]: a request is read field by field, waits for a
//! place, becomes tokens, and its events go out as they come. A client that goes away drops its answer,
//! which cancels it. Everything that a client may take is bounded: bytes of a body, places, the queue,
//! connections, and the time that each may stay without progress.
//!
//! ```text
//! connection -> guard -> route -> places -> backend -> events
//!  idle, stall   host     body     429      tokens     SSE or one JSON
//!  time-outs     token    413      queue    cancel on drop
//! ```

mod app;
mod backend;
mod chat;
mod completion;
mod connection;
mod embedding;
mod engine;
mod guard;
mod metrics;
mod options;
mod page;
mod protocol;
mod refusal;
mod server;
mod stream;
mod tools;
mod work;

pub use backend::{Answer, Backend, Format, Gauge, ModelInfo, Refusal, Sender};
pub use engine::EngineBackend;
pub use options::ServeOptions;
pub use server::Server;

//! What the server needs of a model: the one seam between HTTP and generation.
//!
//! Handlers know tokens, events and conversations, and nothing of engines, caches and devices. So the server
//! is tested with a backend that echoes, and a process with several models would be one more backend.
//!
//! ```
//! use genesis::serve::Answer;
//!
//! // An answer ends where its sender is dropped; dropping the answer tells the sender.
//! let (sender, answer) = Answer::channel();
//! assert!(!sender.is_closed());
//! drop(answer);
//! assert!(sender.is_closed());
//! ```

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt};

use crate::error::Result;
use crate::generate::{Constraint, Event, Request, Sampling};
use crate::text::Conversation;

/// A model that answers: its tokenizer, its chat template and the engine that runs it.
pub trait Backend: Send + Sync + 'static {
    /// What is known of the model.
    fn model(&self) -> &ModelInfo;

    /// The tokens of a text.
    ///
    /// # Errors
    /// If the tokenizer refuses it.
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>>;

    /// The text of tokens, special ones included.
    ///
    /// # Errors
    /// If a token is not of the vocabulary.
    fn decode(&self, tokens: &[u32]) -> Result<String>;

    /// A conversation as the model was trained to read it.
    ///
    /// # Errors
    /// If the model has no chat template, or the template refuses the conversation.
    fn render(&self, conversation: &Conversation) -> Result<String>;

    /// Starts an answer.
    ///
    /// # Errors
    /// If the engine is full, the request can't be answered, or the engine failed.
    fn submit(&self, request: Request) -> Result<Answer, Refusal>;

    /// What holds an answer to a format; `None` where the backend can't.
    ///
    /// # Errors
    /// If a schema is none, or uses what is not supported.
    fn constraint(&self, _format: &Format) -> Result<Option<Arc<dyn Constraint>>> {
        Ok(None)
    }

    /// The mean of the last hidden states of a text's tokens; `None` where the model offers none.
    ///
    /// # Errors
    /// If the model fails.
    fn embed(&self, _tokens: &[u32]) -> Result<Option<Vec<f32>>> {
        Ok(None)
    }

    /// What the engine counts, for `/metrics`.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
}

/// What is known of a model without running it.
#[derive(Clone, Debug, Default)]
pub struct ModelInfo {
    /// The name that requests call it by.
    pub name: String,
    /// When its files were written, in seconds since 1970.
    pub created: u64,
    /// The most tokens of prompt and answer together.
    pub context: usize,
    /// The number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// How answers are sampled where a request does not say.
    pub sampling: Sampling,
    /// Tokens that end an answer.
    pub stop_tokens: Vec<u32>,
    /// Text that differs between models that answer differently, such as a digest of the weights' headers.
    pub identity: String,
}

/// What the text of an answer must be.
#[derive(Clone, PartialEq, Debug)]
pub enum Format {
    /// Any JSON object.
    JsonObject,
    /// JSON that follows a schema.
    JsonSchema(Value),
}

/// Why no answer was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The engine has no room; later it may.
    Busy(String),
    /// The request can never be answered.
    Invalid(String),
    /// The engine failed.
    Failed(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refusal::Busy(why) | Refusal::Invalid(why) | Refusal::Failed(why)) = self;
        f.write_str(why)
    }
}

impl std::error::Error for Refusal {}

/// A number of the engine's at this moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Gauge {
    /// In Prometheus' form: `genesis_cache_pages_used`.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub help: &'static str,
    /// Whether it only grows.
    pub is_counter: bool,
    /// The number.
    pub value: f64,
}

/// The events of an answer as they come; dropping it cancels the answer.
pub struct Answer {
    events: Pin<Box<dyn Stream<Item = Result<Event>> + Send>>,
}

impl Answer {
    /// An answer of the events of a stream, which cancels when it is dropped.
    pub fn new(events: impl Stream<Item = Result<Event>> + Send + 'static) -> Answer {
        Answer { events: Box::pin(events) }
    }

    /// An answer whose events another thread sends.
    pub fn channel() -> (Sender, Answer) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Sender(sender), Answer::new(Received(receiver)))
    }

    /// The next event; `None` behind the last one.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        self.events.next().await
    }

    /// The next event, if it is there; `None` behind the last one.
    pub fn poll_next(&mut self, ctx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        self.events.as_mut().poll_next(ctx)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

/// Where the events of an [`Answer::channel`] go in.
#[derive(Clone, Debug)]
pub struct Sender(mpsc::UnboundedSender<Result<Event>>);

impl Sender {
    /// Sends an event; false where nobody waits for it any more.
    pub fn send(&self, event: Result<Event>) -> bool {
        self.0.send(event).is_ok()
    }

    /// Whether nobody waits for events any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

struct Received(mpsc::UnboundedReceiver<Result<Event>>);

impl Stream for Received {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(ctx)
    }
}

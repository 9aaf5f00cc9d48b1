//! Answers on the main thread: an event at a time, with a look at Ctrl-C in between.
//!
//! A prompt may be worked on for seconds before its first token. So waiting for an event is cut into pieces,
//! and what stops the wait drops the answer, which cancels it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use genesis::generate::{Event, FinishReason, Request};
use genesis::serve::{Answer, Backend};

use super::Failure;

/// How long Ctrl-C may go unseen.
const LOOK: Duration = Duration::from_millis(50);

/// Waits for events.
pub(super) struct Waiter(tokio::runtime::Runtime);

/// What came of waiting for an event.
pub(super) enum Next {
    Event(Box<Event>),
    /// The answer has no more events.
    End,
    /// The wait was stopped.
    Stopped,
}

impl Waiter {
    pub(super) fn new() -> std::io::Result<Waiter> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        Ok(Waiter(runtime))
    }

    /// Waits for the next event, or until `stop` is set.
    pub(super) fn next(&self, answer: &mut Answer, stop: &AtomicBool) -> Result<Next, Failure> {
        while !stop.load(Ordering::SeqCst) {
            let waited = self.0.block_on(async { tokio::time::timeout(LOOK, answer.next()).await });
            return match waited {
                Err(_) => continue,
                Ok(None) => Ok(Next::End),
                Ok(Some(event)) => event_of(event?).map(|event| Next::Event(Box::new(event))),
            };
        }
        Ok(Next::Stopped)
    }

    /// Waits for the next event of any of several answers, by its place; none where `stop` was set first.
    /// An answer that ended is taken out of its place.
    pub(super) fn next_of(
        &self,
        answers: &mut [Option<Answer>],
        stop: &AtomicBool,
    ) -> Result<Option<(usize, Event)>, Failure> {
        use std::task::Poll;
        while !stop.load(Ordering::SeqCst) {
            let any = std::future::poll_fn(|ctx| {
                for (place, slot) in answers.iter_mut().enumerate() {
                    match slot.as_mut().map(|answer| answer.poll_next(ctx)) {
                        Some(Poll::Ready(Some(event))) => return Poll::Ready((place, event)),
                        Some(Poll::Ready(None)) => *slot = None,
                        Some(Poll::Pending) | None => {}
                    }
                }
                Poll::Pending
            });
            let waited = self.0.block_on(async { tokio::time::timeout(LOOK, any).await });
            if let Ok((place, event)) = waited {
                return Ok(Some((place, event_of(event?)?)));
            }
            if answers.iter().all(Option::is_none) {
                return Err(Failure::Message("the engine ended before its answers".to_owned()));
            }
        }
        Ok(None)
    }
}

/// An event, or what it says went wrong.
fn event_of(event: Event) -> Result<Event, Failure> {
    match (event.finish, &event.error) {
        (Some(FinishReason::Error), Some(error)) => Err(Failure::Message(error.to_string())),
        (Some(FinishReason::Error), None) => Err(Failure::Message("the model failed".to_owned())),
        _ => Ok(event),
    }
}

/// How a prompt is answered where a person or a file does not say more.
pub(super) fn request(
    backend: &dyn Backend,
    prompt: Vec<u32>,
    sampling: &genesis::generate::Sampling,
    max_tokens: Option<usize>,
) -> Result<Request, Failure> {
    let model = backend.model();
    let (given, context) = (prompt.len(), model.context);
    if given >= context {
        let why = "and an answer needs one at least";
        let message = format!("the prompt has {given} tokens, the context has {context} {why}");
        return Err(Failure::Message(message));
    }
    let room = context - given;
    Ok(Request {
        prompt,
        max_tokens: max_tokens.unwrap_or(room).min(room),
        stop_tokens: model.stop_tokens.clone(),
        sampling: sampling.clone(),
        ..Request::default()
    })
}

//! What was said so far, and how the next answer is made of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use genesis::generate::{FinishReason, Usage};
use genesis::serve::Backend;
use genesis::text::Conversation;
use serde_json::{Value, json};

use crate::cli::answer::{Next, Waiter, request};
use crate::cli::{Failure, Outcome, sampling};

/// A conversation with a model.
pub(super) struct Session {
    backend: Arc<dyn Backend>,
    sampling: sampling::SamplingArgs,
    waiter: Waiter,
    /// What the model is told first.
    pub(super) system: Option<String>,
    messages: Vec<Value>,
    /// Settings of the template.
    extra: serde_json::Map<String, Value>,
}

/// Why an answer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Whole,
    Length,
    /// By Ctrl-C.
    Stopped,
}

/// An answer that was given.
pub(super) struct Turn {
    pub(super) ended: Ended,
    pub(super) ends_with_newline: bool,
    pub(super) usage: Usage,
    /// Until the first token.
    pub(super) first: Option<Duration>,
    /// From the first token to the last.
    pub(super) rest: Duration,
}

impl Session {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        sampling: sampling::SamplingArgs,
    ) -> Result<Session, Failure> {
        Ok(Session {
            backend,
            sampling,
            waiter: Waiter::new()?,
            system: None,
            messages: Vec::new(),
            extra: serde_json::Map::new(),
        })
    }

    pub(super) fn model_name(&self) -> &str {
        &self.backend.model().name
    }

    /// Sets what the template may ask for.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.extra.insert(name.to_owned(), value.into());
    }

    /// Forgets what was said.
    pub(super) fn reset(&mut self) {
        self.messages.clear();
    }

    /// All messages, what the model is told first included.
    fn conversation(&self) -> Vec<Value> {
        let system = self.system.iter().map(|text| json!({"role": "system", "content": text}));
        system.chain(self.messages.iter().cloned()).collect()
    }

    /// Writes the conversation.
    pub(super) fn save(&self, path: &Path) -> Outcome {
        let value = json!({ "model": self.model_name(), "messages": self.conversation() });
        let text = format!("{value:#}\n");
        std::fs::write(path, text)
            .map_err(|error| Failure::Message(format!("can't write {}: {error}", path.display())))
    }

    /// Answers a text, piece by piece. A text that was not answered is not part of the conversation.
    pub(super) fn ask(
        &mut self,
        text: &str,
        stop: &AtomicBool,
        write: &mut dyn FnMut(&str) -> Outcome,
    ) -> Result<Turn, Failure> {
        self.messages.push(json!({"role": "user", "content": text}));
        let mut said = String::new();
        let turn = self.answer(stop, &mut |piece| {
            said.push_str(piece);
            write(piece)
        });
        match &turn {
            Ok(_) if !said.is_empty() => {
                self.messages.push(json!({"role": "assistant", "content": said}));
            }
            _ => drop(self.messages.pop()),
        }
        turn
    }

    fn answer(
        &self,
        stop: &AtomicBool,
        write: &mut dyn FnMut(&str) -> Outcome,
    ) -> Result<Turn, Failure> {
        let backend = &*self.backend;
        let conversation = Conversation {
            messages: self.conversation(),
            add_generation_prompt: true,
            extra: self.extra.clone(),
            ..Conversation::default()
        };
        let prompt = backend.encode(&backend.render(&conversation)?, false)?;
        let sampling = self.sampling.over(&backend.model().sampling);
        let request = request(backend, prompt, &sampling, self.sampling.max_tokens)?;
        let begun = Instant::now();
        let mut answer = backend.submit(request)?;
        let mut turn = Turn {
            ended: Ended::Whole,
            ends_with_newline: false,
            usage: Usage::default(),
            first: None,
            rest: Duration::ZERO,
        };
        loop {
            let event = match self.waiter.next(&mut answer, stop)? {
                Next::Event(event) => event,
                Next::Stopped => return Ok(Turn { ended: Ended::Stopped, ..turn }),
                Next::End => {
                    return Err(Failure::Message("the engine ended before the answer".to_owned()));
                }
            };
            if event.token.is_some() {
                let first = *turn.first.get_or_insert_with(|| begun.elapsed());
                turn.rest = begun.elapsed() - first;
            }
            turn.usage = event.usage;
            if !event.text.is_empty() {
                turn.ends_with_newline = event.text.ends_with('\n');
                write(&event.text)?;
            }
            match event.finish {
                None => {}
                Some(FinishReason::Length) => return Ok(Turn { ended: Ended::Length, ..turn }),
                Some(_) => return Ok(turn),
            }
        }
    }
}

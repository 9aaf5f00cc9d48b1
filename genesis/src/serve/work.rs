//! Answers in the making: their events, in time, counted.
//!
//! Several prompts of a request are answered side by side, and each prompt in several samples. An event
//! comes with the number of its answer among all of them: `prompt * samples + sample`.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use tokio::time::Instant;

use super::app::{App, Place, closing};
use super::backend::{Answer, Format};
use super::protocol::answers::{PromptDetails, Usage};
use super::protocol::completion::Prompt;
use super::protocol::options::Options;
use super::refusal::ApiError;
use crate::generate::{Event, FinishReason, Request};
use crate::text::Conversation;

/// What prompts are made of.
pub(super) enum Source {
    Chat(Conversation),
    Prompts(Vec<Prompt>),
}

impl Source {
    fn count(&self) -> usize {
        match self {
            Source::Chat(_) => 1,
            Source::Prompts(prompts) => prompts.len(),
        }
    }

    /// The tokens of each prompt. It takes time, so it is not done where connections are served.
    fn tokens(&self, app: &App) -> Result<Vec<Vec<u32>>, ApiError> {
        let backend = &app.backend;
        let refused = |error: crate::Error| ApiError::invalid(error.to_string());
        match self {
            Source::Chat(conversation) => {
                let text = backend.render(conversation).map_err(|e| refused(e).at("messages"))?;
                // Templates write the special tokens themselves.
                Ok(vec![backend.encode(&text, false).map_err(refused)?])
            }
            Source::Prompts(prompts) => {
                prompts.iter().map(|prompt| tokens(app, prompt, "prompt")).collect()
            }
        }
    }
}

/// The tokens of a prompt, which must be of the vocabulary.
pub(super) fn tokens(app: &App, prompt: &Prompt, field: &str) -> Result<Vec<u32>, ApiError> {
    let refused = |why: String| ApiError::invalid(why).at(field);
    let found = match prompt {
        Prompt::Text(text) => {
            app.backend.encode(text, true).map_err(|error| refused(error.to_string()))?
        }
        Prompt::Tokens(tokens) => tokens.clone(),
    };
    let known = app.model().vocab_size;
    if let Some(token) = found.iter().find(|&&token| token as usize >= known) {
        return Err(refused(format!("`{field}` has token {token}, the vocabulary has {known}")));
    }
    if found.is_empty() {
        return Err(refused(format!("`{field}` has no tokens")));
    }
    let (given, context) = (found.len(), app.model().context);
    if given >= context {
        return Err(too_long(given, context).at(field));
    }
    Ok(found)
}

fn too_long(given: usize, context: usize) -> ApiError {
    let why = format!(
        "the prompt has {given} tokens, the context has {context} and an answer needs one at least"
    );
    ApiError::invalid(why).code("context_length_exceeded")
}

/// Answers that are being made.
pub(super) struct Work {
    app: Arc<App>,
    /// Those that have not ended, by prompt.
    answers: Vec<Option<Answer>>,
    /// What each answer took so far.
    usage: Vec<crate::generate::Usage>,
    /// When each answer's last token came.
    last: Vec<Option<Instant>>,
    is_finished: Vec<bool>,
    samples: usize,
    begun: Instant,
    deadline: Instant,
    /// Held until the work is dropped.
    _place: Place,
}

impl Work {
    /// Waits for places, and starts the answers.
    pub(super) async fn start(
        app: &Arc<App>,
        source: Source,
        options: &Options,
        logprobs: Option<usize>,
    ) -> Result<Work, ApiError> {
        let (begun, deadline) = (Instant::now(), app.deadline());
        let count = source.count().saturating_mul(options.samples);
        let place = app.place(count, deadline).await?;
        let (shared, options) = (app.clone(), options.clone());
        let submit = move || {
            let prompts = source.tokens(&shared)?;
            let answers = submit(&shared, prompts, &options, logprobs)?;
            Ok::<_, ApiError>((answers, options.samples, place))
        };
        let submitted = app.until(deadline, tokio::task::spawn_blocking(submit)).await?;
        let failed = |_| ApiError::failed("the prompt could not be prepared");
        let (answers, samples, place) = submitted.map_err(failed)??;
        Ok(Work {
            app: app.clone(),
            answers: answers.into_iter().map(Some).collect(),
            usage: vec![Default::default(); count],
            last: vec![None; count],
            is_finished: vec![false; count],
            samples,
            begun,
            deadline,
            _place: place,
        })
    }

    /// How many answers there are.
    pub(super) fn count(&self) -> usize {
        self.is_finished.len()
    }

    /// The next event and the number of its answer; `None` behind the last.
    pub(super) async fn next(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        let app = self.app.clone();
        let Some((prompt, event)) = app.until(self.deadline, self.poll()).await? else {
            return match self.is_finished.iter().all(|&finished| finished) {
                true => Ok(None),
                false => Err(ApiError::failed("the engine ended before the answer did")),
            };
        };
        let event = event.map_err(|error| ApiError::failed(error.to_string()))?;
        let index = prompt * self.samples + event.sample;
        if index >= self.is_finished.len() {
            return Err(ApiError::failed("the engine answered what was not asked for"));
        }
        self.count_event(index, &event);
        match (event.finish, &event.error) {
            (Some(FinishReason::Error), Some(error)) => Err(ApiError::failed(error.to_string())),
            (Some(FinishReason::Error), None) => Err(ApiError::failed("the model failed")),
            (Some(FinishReason::Cancelled), _) => Err(closing()),
            _ => Ok(Some((index, event))),
        }
    }

    /// The next event of any answer.
    async fn poll(&mut self) -> Option<(usize, crate::Result<Event>)> {
        let answers = &mut self.answers;
        poll_fn(|ctx| {
            let mut is_waiting = false;
            for (prompt, place) in answers.iter_mut().enumerate() {
                let Some(answer) = place else { continue };
                match answer.poll_next(ctx) {
                    Poll::Ready(Some(event)) => return Poll::Ready(Some((prompt, event))),
                    Poll::Ready(None) => *place = None,
                    Poll::Pending => is_waiting = true,
                }
            }
            if is_waiting { Poll::Pending } else { Poll::Ready(None) }
        })
        .await
    }

    fn count_event(&mut self, index: usize, event: &Event) {
        let (now, metrics) = (Instant::now(), &self.app.metrics);
        if event.token.is_some() {
            metrics.generated_tokens.fetch_add(1, Ordering::Relaxed);
            match self.last[index].replace(now) {
                None => metrics.first_token.observe(now - self.begun),
                Some(last) => metrics.between_tokens.observe(now - last),
            }
        }
        self.usage[index] = event.usage;
        if event.finish.is_some() {
            self.is_finished[index] = true;
            metrics.whole.observe(now - self.begun);
            // The samples of a prompt share it.
            if index.is_multiple_of(self.samples) {
                let cached = event.usage.cached_tokens as u64;
                metrics.cached_tokens.fetch_add(cached, Ordering::Relaxed);
            }
        }
    }

    /// What all answers took so far.
    pub(super) fn usage(&self) -> Usage {
        let prompts = || self.usage.iter().step_by(self.samples);
        let prompt_tokens = prompts().map(|usage| usage.prompt_tokens).sum();
        let completion_tokens = self.usage.iter().map(|usage| usage.completion_tokens).sum();
        let cached_tokens = prompts().map(|usage| usage.cached_tokens).sum();
        Usage {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens },
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.is_finished.iter().any(|&finished| !finished) {
            self.app.metrics.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Starts an answer to each prompt.
fn submit(
    app: &App,
    prompts: Vec<Vec<u32>>,
    options: &Options,
    logprobs: Option<usize>,
) -> Result<Vec<Answer>, ApiError> {
    let model = app.model();
    let start = |prompt: Vec<u32>| {
        if prompt.len() >= model.context {
            return Err(too_long(prompt.len(), model.context));
        }
        let tokens = prompt.len() as u64;
        let room = model.context - prompt.len();
        // State of its own for each answer.
        let constraint =
            options.format.as_ref().map(|format| constraint(app, format)).transpose()?;
        let request = Request {
            prompt,
            max_tokens: options.max_tokens.unwrap_or(room).min(room),
            stop_tokens: model.stop_tokens.clone(),
            stop: options.stop.clone(),
            sampling: options.sampling.clone(),
            samples: options.samples,
            logprobs,
            constraint,
            ..Request::default()
        };
        let answer = app.backend.submit(request)?;
        app.metrics.prompt_tokens.fetch_add(tokens, Ordering::Relaxed);
        Ok(answer)
    };
    prompts.into_iter().map(start).collect()
}

fn constraint(
    app: &App,
    format: &Format,
) -> Result<Arc<dyn crate::generate::Constraint>, ApiError> {
    let refused = |why: String| ApiError::invalid(why).at("response_format");
    let constraint = app.backend.constraint(format).map_err(|error| refused(error.to_string()))?;
    constraint.ok_or_else(|| {
        refused("`response_format` must be text, this server can't hold answers to JSON".to_owned())
    })
}

/// Why an answer ended, in the protocol's words.
pub(super) fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Length => "length",
        FinishReason::Stop | FinishReason::Cancelled | FinishReason::Error => "stop",
    }
}

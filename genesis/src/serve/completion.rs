//! `/v1/completions`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

use super::app::App;
use super::chat::token_text;
use super::guard;
use super::protocol::answers::{Head, Reply, TextChoice, TextLogprobs, Usage};
use super::protocol::completion::{CompletionRequest, Prompt};
use super::protocol::fields::Fields;
use super::refusal::ApiError;
use super::stream::{self, Broken, Pieces};
use super::work::{Source, Work, finish_reason};
use crate::generate::{Event, TokenLogprobs};

/// Lets texts go on.
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let answering = guard::answering(&request);
    let body = app.body(request).await?;
    let request = CompletionRequest::read(Fields::of(&body)?, app.model(), app.fresh_seed())?;
    drop(body);
    app.check_model(request.model.as_deref())?;
    let echoes = match request.echo {
        true => echoes(&app, &request.prompts)?,
        false => vec![String::new(); request.prompts.len()],
    };
    let source = Source::Prompts(request.prompts);
    let work = Work::start(&app, source, &request.options, request.logprobs).await?;
    let begin = |index| TextChoice {
        index,
        text: echoes[index / request.options.samples].clone(),
        logprobs: None,
        finish_reason: None,
    };
    let choices = (0..work.count()).map(begin).collect();
    let head = app.head("cmpl", "text_completion");
    let texts = Texts { choices, work, app: app.clone(), head };
    let mut response = if request.options.stream {
        let include_usage = request.options.include_usage;
        stream::respond(answering, |pieces| texts.stream(pieces, include_usage))
    } else {
        Json(texts.gather().await?).into_response()
    };
    guard::name_ignored(&mut response, &request.ignored);
    Ok(response)
}

/// The prompts as text.
fn echoes(app: &App, prompts: &[Prompt]) -> Result<Vec<String>, ApiError> {
    let echo = |prompt: &Prompt| match prompt {
        Prompt::Text(text) => Ok(text.clone()),
        Prompt::Tokens(tokens) => app
            .backend
            .decode(tokens)
            .map_err(|error| ApiError::invalid(error.to_string()).at("prompt")),
    };
    prompts.iter().map(echo).collect()
}

/// Texts that go on.
struct Texts {
    choices: Vec<TextChoice>,
    work: Work,
    app: Arc<App>,
    head: Head,
}

impl Texts {
    /// The whole texts.
    async fn gather(mut self) -> Result<Reply<TextChoice>, ApiError> {
        let mut offsets = vec![0; self.choices.len()];
        while let Some((index, event)) = self.work.next().await? {
            let choice = &mut self.choices[index];
            choice.text.push_str(&event.text);
            if let Some(logprob) = &event.logprob {
                let columns = choice.logprobs.get_or_insert_default();
                add_row(columns, &self.app, logprob, &mut offsets[index]);
            }
            choice.finish_reason = event.finish.map(finish_reason).or(choice.finish_reason);
        }
        let usage = Some(Some(self.work.usage()));
        Ok(Reply { head: self.head, choices: self.choices, usage })
    }

    /// The texts piece by piece.
    async fn stream(mut self, pieces: Pieces, include_usage: bool) -> Result<(), Broken> {
        let no_usage = include_usage.then_some(None);
        let head = self.head.clone();
        let chunk = |choices: Vec<TextChoice>, usage: Option<Option<Usage>>| Reply {
            head: head.clone(),
            choices,
            usage,
        };
        let mut offsets = vec![0; self.choices.len()];
        for echo in std::mem::take(&mut self.choices) {
            if !echo.text.is_empty() {
                pieces.send(&chunk(vec![echo], no_usage)).await?;
            }
        }
        while let Some((index, event)) = self.work.next().await? {
            let Event { text, logprob, finish, .. } = event;
            let columns = logprob.map(|logprob| {
                let mut columns = TextLogprobs::default();
                add_row(&mut columns, &self.app, &logprob, &mut offsets[index]);
                columns
            });
            if text.is_empty() && columns.is_none() && finish.is_none() {
                continue;
            }
            let finish_reason = finish.map(finish_reason);
            let piece = TextChoice { index, text, logprobs: columns, finish_reason };
            pieces.send(&chunk(vec![piece], no_usage)).await?;
        }
        if include_usage {
            pieces.send(&chunk(Vec::new(), Some(Some(self.work.usage())))).await?;
        }
        Ok(())
    }
}

/// Adds a token to the columns.
fn add_row(columns: &mut TextLogprobs, app: &App, logprobs: &TokenLogprobs, offset: &mut usize) {
    let text = token_text(app, logprobs.token);
    columns.text_offset.push(*offset);
    *offset += text.chars().count();
    columns.tokens.push(text);
    columns.token_logprobs.push(logprobs.logprob);
    let top = logprobs.top.iter();
    let top: Map<String, Value> =
        top.map(|&(token, logprob)| (token_text(app, token), Value::from(logprob))).collect();
    columns.top_logprobs.push(top);
}

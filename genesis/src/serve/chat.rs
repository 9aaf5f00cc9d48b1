//! `/v1/chat/completions`

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::guard;
use super::protocol::answers::{
    ChatChoice, ChatDelta, ChatLogprobs, Head, Likely, Message, Reply, TokenEntry, ToolCall, Usage,
};
use super::protocol::chat::ChatRequest;
use super::protocol::fields::Fields;
use super::refusal::ApiError;
use super::stream::{self, Broken, Pieces};
use super::tools::{Piece, ToolReader};
use super::work::{Source, Work, finish_reason};
use crate::generate::{Event, FinishReason, TokenLogprobs};

/// Answers a conversation.
pub(super) async fn chat(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let answering = guard::answering(&request);
    let body = app.body(request).await?;
    let request = ChatRequest::read(Fields::of(&body)?, app.model(), app.fresh_seed())?;
    drop(body);
    app.check_model(request.model.as_deref())?;
    let source = Source::Chat(request.conversation);
    let work = Work::start(&app, source, &request.options, request.logprobs).await?;
    let chat = Chat {
        choices: (0..work.count())
            .map(|_| Choice::new(request.tools.clone(), request.parallel_tool_calls))
            .collect(),
        work,
        app: app.clone(),
    };
    let mut response = if request.options.stream {
        let head = app.head("chatcmpl", "chat.completion.chunk");
        let include_usage = request.options.include_usage;
        stream::respond(answering, |pieces| chat.stream(pieces, head, include_usage))
    } else {
        let head = app.head("chatcmpl", "chat.completion");
        Json(chat.gather(head).await?).into_response()
    };
    guard::name_ignored(&mut response, &request.ignored);
    Ok(response)
}

/// The answers to a conversation.
struct Chat {
    choices: Vec<Choice>,
    work: Work,
    app: Arc<App>,
}

/// An answer to a conversation.
struct Choice {
    reader: ToolReader,
    parallel_tool_calls: bool,
    calls: usize,
}

/// What an event adds to an answer.
#[derive(Default)]
struct Addition {
    text: String,
    calls: Vec<ToolCall>,
    finish: Option<&'static str>,
}

impl Choice {
    fn new(tools: Vec<String>, parallel_tool_calls: bool) -> Choice {
        Choice { reader: ToolReader::new(tools), parallel_tool_calls, calls: 0 }
    }

    fn add(&mut self, event: &Event, app: &App) -> Addition {
        let mut pieces = self.reader.push(&event.text);
        if event.finish.is_some() {
            pieces.extend(self.reader.finish());
        }
        let mut addition = Addition::default();
        for piece in pieces {
            match piece {
                Piece::Text(text) => addition.text.push_str(&text),
                Piece::Call(_) if self.calls > 0 && !self.parallel_tool_calls => {}
                Piece::Call(function) => {
                    let id = app.fresh_id("call");
                    let index = Some(self.calls);
                    addition.calls.push(ToolCall { index, id, kind: "function", function });
                    self.calls += 1;
                }
            }
        }
        addition.finish = event.finish.map(|finish| match finish {
            FinishReason::Stop if self.calls > 0 => "tool_calls",
            other => finish_reason(other),
        });
        addition
    }
}

impl Chat {
    /// The whole answers.
    async fn gather(mut self, head: Head) -> Result<Reply<ChatChoice>, ApiError> {
        let empty = |index| ChatChoice {
            index,
            message: Message { role: Some("assistant"), ..Message::default() },
            logprobs: None,
            finish_reason: "stop",
        };
        let mut choices: Vec<ChatChoice> = (0..self.choices.len()).map(empty).collect();
        let mut texts = vec![String::new(); choices.len()];
        while let Some((index, event)) = self.work.next().await? {
            let addition = self.choices[index].add(&event, &self.app);
            let choice = &mut choices[index];
            texts[index].push_str(&addition.text);
            choice.message.tool_calls.extend(addition.calls);
            if let Some(logprob) = &event.logprob {
                let logprobs = choice.logprobs.get_or_insert_default();
                logprobs.content.push(entry(&self.app, logprob));
            }
            choice.finish_reason = addition.finish.unwrap_or(choice.finish_reason);
        }
        for (choice, text) in choices.iter_mut().zip(texts) {
            let calls = &mut choice.message.tool_calls;
            // An index is of deltas only.
            calls.iter_mut().for_each(|call| call.index = None);
            let is_null = text.is_empty() && !calls.is_empty();
            choice.message.content = Some((!is_null).then_some(text));
        }
        Ok(Reply { head, choices, usage: Some(Some(self.work.usage())) })
    }

    /// The answers piece by piece.
    async fn stream(
        mut self,
        pieces: Pieces,
        head: Head,
        include_usage: bool,
    ) -> Result<(), Broken> {
        let no_usage = include_usage.then_some(None);
        let chunk = |choices: Vec<ChatDelta>, usage: Option<Option<Usage>>| Reply {
            head: head.clone(),
            choices,
            usage,
        };
        for index in 0..self.choices.len() {
            let content = Some(Some(String::new()));
            let delta = Message { role: Some("assistant"), content, tool_calls: Vec::new() };
            let begin = ChatDelta { index, delta, logprobs: None, finish_reason: None };
            pieces.send(&chunk(vec![begin], no_usage)).await?;
        }
        while let Some((index, event)) = self.work.next().await? {
            let addition = self.choices[index].add(&event, &self.app);
            let logprobs = event.logprob.as_ref();
            let logprobs =
                logprobs.map(|logprob| ChatLogprobs { content: vec![entry(&self.app, logprob)] });
            if !(addition.text.is_empty() && addition.calls.is_empty() && logprobs.is_none()) {
                let content = (!addition.text.is_empty()).then_some(Some(addition.text));
                let delta = Message { role: None, content, tool_calls: addition.calls };
                let piece = ChatDelta { index, delta, logprobs, finish_reason: None };
                pieces.send(&chunk(vec![piece], no_usage)).await?;
            }
            if let Some(finish) = addition.finish {
                let delta = Message::default();
                let end = ChatDelta { index, delta, logprobs: None, finish_reason: Some(finish) };
                pieces.send(&chunk(vec![end], no_usage)).await?;
            }
        }
        if include_usage {
            pieces.send(&chunk(Vec::new(), Some(Some(self.work.usage())))).await?;
        }
        Ok(())
    }
}

/// A token's log-probability beside those of others.
fn entry(app: &App, logprobs: &TokenLogprobs) -> TokenEntry {
    let likely = |(token, logprob): (u32, f32)| {
        let token = token_text(app, token);
        // The sign of a part of a character.
        let is_whole = !token.contains('\u{FFFD}');
        let bytes = is_whole.then(|| token.clone().into_bytes());
        Likely { token, logprob, bytes }
    };
    TokenEntry {
        chosen: likely((logprobs.token, logprobs.logprob)),
        top_logprobs: logprobs.top.iter().copied().map(likely).collect(),
    }
}

/// A token as text; one that the tokenizer does not know has none.
pub(super) fn token_text(app: &App, token: u32) -> String {
    app.backend.decode(&[token]).unwrap_or_default()
}

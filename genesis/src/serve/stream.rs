//! Answers as server-sent events: a `data:` line for each piece, and `[DONE]` at the end.
//!
//! A task makes the pieces and the connection takes them. Where the connection goes, the task is dropped
//! at its next wait, and with it the answer. A comment is sent every few seconds without a piece, so that
//! proxies keep the connection and one that is dead is noticed.
//!
//! ```text
//! data: {"object": "chat.completion.chunk", "choices": [{"delta": {"content": "Par"}, ..}], ..}
//! data: [DONE]
//! ```

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::connection::Answering;
use super::refusal::ApiError;

/// Pieces that are made ahead of a client that reads slowly.
const AHEAD: usize = 16;

/// Without a piece for so long, a comment is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Where the pieces of a stream go.
pub(super) struct Pieces(mpsc::Sender<Result<Event, Infallible>>);

/// The client has gone.
pub(super) struct Gone;

impl Pieces {
    pub(super) async fn send(&self, piece: &impl Serialize) -> Result<(), Gone> {
        let text = serde_json::to_string(piece).map_err(|_| Gone)?;
        self.0.send(Ok(Event::default().data(text))).await.map_err(|_| Gone)
    }

    async fn end(&self, result: Result<(), ApiError>) -> Result<(), Gone> {
        match result {
            Ok(()) => self.0.send(Ok(Event::default().data("[DONE]"))).await.map_err(|_| Gone),
            // No [DONE]: what came before is not the whole answer.
            Err(error) => self.send(&error.body()).await,
        }
    }
}

/// Why a stream has no more pieces.
pub(super) enum Broken {
    Gone,
    Failed(ApiError),
}

impl From<Gone> for Broken {
    fn from(_: Gone) -> Broken {
        Broken::Gone
    }
}

impl From<ApiError> for Broken {
    fn from(error: ApiError) -> Broken {
        Broken::Failed(error)
    }
}

/// A response whose pieces a future makes.
pub(super) fn respond<F>(answering: Option<Answering>, make: impl FnOnce(Pieces) -> F) -> Response
where
    F: Future<Output = Result<(), Broken>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(AHEAD);
    let pieces = Pieces(sender);
    let last = Pieces(pieces.0.clone());
    let making = make(pieces);
    tokio::spawn(async move {
        let _answering = answering;
        let ended = tokio::select! {
            ended = making => ended,
            () = last.0.closed() => Err(Broken::Gone),
        };
        let result = match ended {
            Ok(()) => Ok(()),
            Err(Broken::Failed(error)) => Err(error),
            Err(Broken::Gone) => return,
        };
        // A client that has gone needs no end.
        let _ = last.end(result).await;
    });
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
    let mut response =
        Sse::new(ReceiverStream::new(receiver)).keep_alive(keep_alive).into_response();
    // Proxies that gather pieces would undo the streaming.
    let name = axum::http::HeaderName::from_static("x-accel-buffering");
    response.headers_mut().insert(name, axum::http::HeaderValue::from_static("no"));
    response
}

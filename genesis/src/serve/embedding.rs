//! `/v1/embeddings`: the mean of the last hidden states of each text.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::app::App;
use super::guard;
use super::protocol::answers::{Embedding, EmbeddingUsage, Embeddings};
use super::protocol::completion::{EmbeddingRequest, Prompt};
use super::protocol::fields::Fields;
use super::refusal::ApiError;
use super::work::tokens;

/// Gives a vector for each text.
pub(super) async fn embed(
    State(app): State<Arc<App>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = app.body(request).await?;
    let EmbeddingRequest { model, inputs, is_base64, ignored } =
        EmbeddingRequest::read(Fields::of(&body)?)?;
    app.check_model(model.as_deref())?;
    let deadline = app.deadline();
    // One place for all: they are computed one after the other.
    let place = app.place(1, deadline).await?;
    let shared = app.clone();
    let compute = tokio::task::spawn_blocking(move || {
        let _place = place;
        inputs.iter().map(|input| vector(&shared, input)).collect::<Result<Vec<_>, ApiError>>()
    });
    let failed = |_| ApiError::failed("the embedding failed");
    let vectors = app.until(deadline, compute).await?.map_err(failed)??;
    let prompt_tokens = vectors.iter().map(|(_, tokens)| tokens).sum();
    app.metrics.prompt_tokens.fetch_add(prompt_tokens as u64, Ordering::Relaxed);
    let entry = |(index, (vector, _)): (usize, (Vec<f32>, usize))| {
        let embedding = if is_base64 { Value::from(base64(&vector)) } else { Value::from(vector) };
        Embedding { object: "embedding", index, embedding }
    };
    let mut response = Json(Embeddings {
        object: "list",
        data: vectors.into_iter().enumerate().map(entry).collect(),
        model: app.model().name.clone(),
        usage: EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens },
    })
    .into_response();
    guard::name_ignored(&mut response, &ignored);
    Ok(response)
}

/// The vector of a text, and its number of tokens.
fn vector(app: &App, input: &Prompt) -> Result<(Vec<f32>, usize), ApiError> {
    let tokens = tokens(app, input, "input")?;
    let vector = app.backend.embed(&tokens).map_err(|error| ApiError::failed(error.to_string()))?;
    let missing = || {
        let why = "this model offers no embeddings";
        ApiError::new(StatusCode::NOT_IMPLEMENTED, why)
    };
    Ok((vector.ok_or_else(missing)?, tokens.len()))
}

/// The bytes of the numbers, little end first, in base64.
fn base64(vector: &[f32]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            text.push(if at > group.len() { '=' } else { char::from(digit) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads_to_groups_of_four() {
        assert_eq!(base64(&[]), "");
        // 00 00 80 3f
        assert_eq!(base64(&[1.0]), "AACAPw==");
        assert_eq!(base64(&[1.0, -2.0]), "AACAPwAAAMA=");
        assert_eq!(base64(&[1.0, -2.0, 0.5]), "AACAPwAAAMAAAAA/");
    }
}

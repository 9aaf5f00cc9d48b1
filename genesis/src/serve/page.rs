//! What GET gives: the chat page, health, metrics and the model.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::app::{App, Phase, closing};
use super::refusal::ApiError;

/// The chat page: one file that asks nothing of any other server.
const PAGE: &str = include_str!("page.html");

/// What the page may do: its own styles and script, and requests to this server.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

pub(super) async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, PAGE).into_response()
}

/// Whether requests are taken.
pub(super) async fn health(State(app): State<Arc<App>>) -> Response {
    match *app.phases.borrow() {
        Phase::Open => Json(json!({ "status": "ok" })).into_response(),
        Phase::Closing | Phase::Closed => closing().into_response(),
    }
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (headers, app.metrics.text(&app.backend.gauges())).into_response()
}

/// The models, of which there is one.
pub(super) async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [entry(&app)] }))
}

/// A model by its name.
pub(super) async fn model(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    app.check_model(Some(&name))?;
    Ok(Json(entry(&app)))
}

fn entry(app: &App) -> Value {
    let model = app.model();
    json!({
        "id": model.name,
        "object": "model",
        "created": model.created,
        "owned_by": "genesis",
        "max_model_len": model.context,
    })
}

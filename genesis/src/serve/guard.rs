//! What stands before every route: who may ask, from where, and that it is counted.
//!
//! A server on this machine needs no token, but browsers of this machine show pages of others. Such a page
//! can send requests here, and one whose name an attacker points here (DNS rebinding) can read answers. So
//! the host must be a name of this machine, bodies must be of a type that browsers ask about first, and no
//! other origin may read, unless it was named.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app::App;
use super::connection::{Answering, Requests};
use super::refusal::ApiError;

/// Names the fields that nothing was done with.
const IGNORED: HeaderName = HeaderName::from_static("x-genesis-ignored");

/// The most of them that are named.
const MAX_IGNORED: usize = 32;

/// Lets a request pass, and counts it.
pub(super) async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let _answering = answering(&request);
    let route = route(request.uri().path());
    let origin = allowed_origin(&app, &request);
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match check(&app, &request, route) {
        _ if is_preflight && origin.is_some() => preflight(),
        Err(refusal) => refusal.into_response(),
        Ok(()) => next.run(request).await,
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        let names = HeaderValue::from_static("x-genesis-ignored, retry-after");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, names);
    }
    app.metrics.request(route, response.status().as_u16());
    response
}

/// The route of a path, of which there are few, however many paths clients make up.
fn route(path: &str) -> &'static str {
    const ROUTES: [&str; 7] = [
        "/",
        "/health",
        "/metrics",
        "/v1/models",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
    ];
    match ROUTES.iter().find(|route| **route == path) {
        Some(route) => route,
        None if path.starts_with("/v1/models/") => "/v1/models",
        None => "other",
    }
}

fn check(app: &App, request: &Request, route: &str) -> Result<(), ApiError> {
    let Some(token) = &app.options.token else {
        return match app.is_loopback && !is_own_host(request) {
            true => {
                let why = "the host is no name of this machine; give the server a token to be \
                           reached by others";
                Err(ApiError::new(StatusCode::FORBIDDEN, why))
            }
            false => Ok(()),
        };
    };
    // The page asks for the token; health is for those who watch.
    if matches!(route, "/" | "/health") || bearer(request).is_some_and(|given| same(given, token)) {
        return Ok(());
    }
    let why = "the request has no valid token, send it as `Authorization: Bearer ..`";
    let refusal = ApiError::new(StatusCode::UNAUTHORIZED, why).code("invalid_api_key");
    Err(refusal.header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
}

fn bearer(request: &Request) -> Option<&[u8]> {
    let value = request.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token.trim_ascii())
}

/// Compares in a time that says nothing of how much is right: hashes compare in constant time.
fn same(given: &[u8], token: &str) -> bool {
    blake3::hash(given) == blake3::hash(token.trim().as_bytes())
}

/// Whether the request was sent to a name that only this machine has.
fn is_own_host(request: &Request) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    // Browsers always send one.
    host.is_none_or(is_own_name)
}

fn is_own_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_address = name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_address || name.eq_ignore_ascii_case("localhost")
}

/// The origin that may read the response, where one was named and it is this request's.
fn allowed_origin(app: &App, request: &Request) -> Option<HeaderValue> {
    let allowed = app.options.allow_origin.as_deref()?;
    let origin = request.headers().get(header::ORIGIN)?;
    (allowed == "*" || origin.as_bytes() == allowed.as_bytes()).then(|| origin.clone())
}

/// What a browser is told that asks whether a page may send a request.
fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// A text as the value of a header.
pub(super) fn header(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

/// Says in a header which fields nothing was done with.
pub(super) fn name_ignored(response: &mut Response, names: &[String]) {
    if names.is_empty() {
        return;
    }
    // Names come from outside, and headers hold no other characters.
    let plain = |name: &String| -> String {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        name.chars().take(64).map(|c| if is_plain(c) { c } else { '?' }).collect()
    };
    let mut list: Vec<String> = names.iter().take(MAX_IGNORED).map(plain).collect();
    if names.len() > MAX_IGNORED {
        list.push("..".to_owned());
    }
    if let Some(value) = header(&list.join(", ")) {
        response.headers_mut().insert(IGNORED, value);
    }
}

/// Says that a request of a connection is being answered, for as long as the guard lives.
pub(super) fn answering(request: &Request) -> Option<Answering> {
    let info = request.extensions().get::<ConnectInfo<Requests>>();
    info.map(|ConnectInfo(requests)| requests.begin())
}

/// The answer to a path that is none.
pub(super) async fn no_route(request: Request) -> ApiError {
    let path: String = request.uri().path().chars().take(200).collect();
    ApiError::new(StatusCode::NOT_FOUND, format!("there is no {path}"))
}

/// The answer to a method that a route does not have.
pub(super) async fn no_method(request: Request) -> ApiError {
    let why = format!("{} does not take {}", route(request.uri().path()), request.method());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known() {
        for own in ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.3.2.1:80", "[::1]:8000"] {
            assert!(is_own_name(own), "{own}");
        }
        for other in ["example.com", "localhost.example.com:80", "10.0.0.1", "[::2]", "", "["] {
            assert!(!is_own_name(other), "{other}");
        }
    }

    #[test]
    fn paths_that_clients_make_up_are_one_route() {
        assert_eq!(route("/v1/models/org/name"), "/v1/models");
        assert_eq!(route("/v1/modelsX"), "other");
        assert_eq!(route("/%00"), "other");
    }

    #[test]
    fn ignored_names_can_not_break_the_header() {
        let mut response = Response::default();
        let names = ["a\r\nb".to_owned(), "é".repeat(1000)];
        name_ignored(&mut response, &names);
        let expected = format!("a??b, {}", "?".repeat(64));
        assert_eq!(response.headers()[IGNORED], expected.as_str());
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"secret", "secret"));
        assert!(!same(b"secre", "secret"));
        assert!(!same(b"", "secret"));
    }
}

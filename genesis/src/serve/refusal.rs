//! What a refused request is told, in the form that OpenAI's clients read.
//!
//! ```text
//! HTTP/1.1 400 Bad Request
//! {"error": {"message": "`n` is 0, it must be a whole number from 1 to 128",
//!            "type": "invalid_request_error", "param": "n", "code": null}}
//! ```

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::backend::Refusal;

/// Why a request is refused, and how that is said. In a box, so that what is not refused stays small.
#[derive(Clone, Debug)]
pub(in crate::serve) struct ApiError(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl ApiError {
    pub(in crate::serve) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        let message = message.into();
        ApiError(Box::new(Parts { status, message, param: None, code: None, header: None }))
    }

    /// The request is wrong.
    pub(in crate::serve) fn invalid(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, message)
    }

    /// There is no room now.
    pub(in crate::serve) fn busy(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, message)
            .code("rate_limit_exceeded")
            .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// The model or the engine failed.
    pub(in crate::serve) fn failed(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Names the field that is wrong.
    pub(in crate::serve) fn at(mut self, param: impl Into<String>) -> ApiError {
        self.0.param = Some(param.into());
        self
    }

    /// Gives a reason that programs read.
    pub(in crate::serve) fn code(mut self, code: &'static str) -> ApiError {
        self.0.code = Some(code);
        self
    }

    pub(in crate::serve) fn header(mut self, name: HeaderName, value: HeaderValue) -> ApiError {
        self.0.header = Some((name, value));
        self
    }

    #[cfg(test)]
    pub(in crate::serve) fn message(&self) -> &str {
        &self.0.message
    }

    /// The body, which is also the last event of a stream that fails.
    pub(in crate::serve) fn body(&self) -> Value {
        let kind = match self.0.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        json!({
            "error": {
                "message": self.0.message,
                "type": kind,
                "param": self.0.param,
                "code": self.0.code,
            }
        })
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> ApiError {
        match refusal {
            Refusal::Busy(why) => ApiError::busy(why),
            Refusal::Invalid(why) => ApiError::invalid(why),
            Refusal::Failed(why) => ApiError::failed(why),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.0.status, axum::Json(self.body())).into_response();
        if let Some((name, value)) = self.0.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

//! Errors as Anthropic's clients expect them.

use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

/// An error of a route of Anthropic's.
pub(crate) struct AnthropicError(pub(crate) ApiError);

impl From<ApiError> for AnthropicError {
    fn from(error: ApiError) -> Self {
        Self(error)
    }
}

/// The body, also as an event.
pub(crate) fn to_json(error: &ApiError) -> Value {
    let kind = match error {
        ApiError::ContextExceeded { .. } => "invalid_request_error",
        ApiError::TooLarge { .. } => "request_too_large",
        ApiError::Busy(_) => "rate_limit_error",
        ApiError::ShuttingDown | ApiError::ModelGone | ApiError::NotLoaded(_) => "overloaded_error",
        ApiError::Internal(_) | ApiError::NotSupported(_) => "api_error",
        error => error.kind(),
    };
    json!({"type": "error", "error": {"type": kind, "message": error.to_string()}})
}

impl IntoResponse for AnthropicError {
    fn into_response(self) -> Response {
        self.0.log();
        self.0.with_body(to_json(&self.0))
    }
}

//! A request's body as JSON, within limits of bytes and time.

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_LENGTH;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::state::App;

/// A body that is a JSON object; an empty body is one without keys.
pub(crate) struct JsonBody(pub(crate) Value);

impl FromRequest<App> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let (limit, time) = (app.options.body_limit, app.options.read_timeout);
        let declared = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if declared.is_some_and(|n: u64| n > limit as u64) {
            return Err(ApiError::TooLarge { limit });
        }
        let read = tokio::time::timeout(time, to_bytes(request.into_body(), limit)).await;
        let bytes = read.map_err(|_| ApiError::Slow(time.as_secs()))?.map_err(|error| {
            let source = std::error::Error::source(&error);
            match source.is_some_and(|source| source.to_string().contains("length limit")) {
                true => ApiError::TooLarge { limit },
                false => ApiError::invalid("", format!("the body cannot be read: {error}")),
            }
        })?;
        if bytes.is_empty() {
            return Ok(Self(Value::Object(Map::new())));
        }
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| ApiError::invalid("", format!("the body is no JSON: {error}")))?;
        match value.is_object() {
            true => Ok(Self(value)),
            false => Err(ApiError::invalid("", "the body is no JSON object")),
        }
    }
}

/// Reads what a route knows; keys that it does not know are left alone.
pub(crate) fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        ApiError::invalid(path.clone(), format!("`{path}`: {}", error.inner()))
    })
}

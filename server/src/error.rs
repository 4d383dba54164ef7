//! What is wrong with a request, as JSON with a status; and why a server does not start.

use std::net::IpAddr;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use open_genie::serving::ServeError;
use open_genie::{DialogError, sampler};
use serde_json::{Map, Value, json};

/// Why a server does not start, or ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Anyone on the network could use it.
    #[error("`{host}` can be reached from other machines, but no key is set: expected a loopback address or a key")]
    OpenWithoutKey {
        /// The address.
        host: IpAddr,
    },
    /// A key that everyone has.
    #[error("key {} is empty: expected some text", index + 1)]
    EmptyKey {
        /// Which one, from 0.
        index: usize,
    },
    /// The address is taken, or not this machine's.
    #[error("cannot listen on `{address}`")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No threads for it.
    #[error("the server's threads cannot be started")]
    Runtime(#[source] std::io::Error),
    /// The steps cannot be recorded.
    #[error("the steps cannot be recorded: {reason}")]
    Record {
        /// Why.
        reason: String,
    },
    /// HTTPS was left out of this build.
    #[error("this build has no HTTPS: expected the feature `tls`")]
    NoTls,
    /// Certificate and key are of no use.
    #[error("`{}` cannot be used for HTTPS: {reason}", path.display())]
    Tls {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder of slots is none.
    #[error("the folder of slots `{}` cannot be used", path.display())]
    SlotFolder {
        /// The folder.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another server keeps its slots in the folder.
    #[error("another server keeps its slots in `{}`", path.display())]
    SlotFolderTaken {
        /// The folder.
        path: std::path::PathBuf,
    },
    /// The model does not start.
    #[error(transparent)]
    Model(#[from] open_genie::Error),
}

/// What is wrong with one request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("{message}")]
    Invalid { param: Option<String>, message: String },
    #[error(
        "the prompt has {n_prompt} tokens, which is longer than the model's context length: expected at most {limit}, and one row is for the reply"
    )]
    ContextExceeded { n_prompt: usize, limit: usize, n_ctx: usize },
    #[error("no key, or a wrong one: expected `Authorization: Bearer KEY`")]
    Unauthorized,
    #[error("{0}")]
    Forbidden(String),
    #[error("no such route: `{method} {path}`")]
    NoRoute { method: String, path: String },
    #[error("`{path}` does not take `{method}`")]
    Method { method: String, path: String },
    #[error("the model `{model}` does not exist: this server has {served}")]
    NoModel { model: String, served: String },
    #[error("the body has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    NotSupported(String),
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the model's thread has ended after a fault: the server has to be started again")]
    ModelGone,
    #[error("{0}")]
    NotLoaded(String),
    #[error("the request did not arrive within {0} s")]
    Slow(u64),
    #[error("the reply was not finished within {0} s")]
    Timeout(u64),
    #[error("{0}")]
    Internal(String),
}

/// Seconds after which a client that found the queue full may ask again.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

impl ApiError {
    /// A value that cannot be taken; `param` is the key's path.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        let param = Some(param.into()).filter(|param| !param.is_empty() && param != ".");
        Self::Invalid { param, message: message.into() }
    }

    /// Of a request that ran when its model's thread ended.
    pub(crate) fn cut_off() -> Self {
        Self::Internal("the reply was cut off: the model's thread has ended after a fault".into())
    }

    /// Writes a fault of the server into the log; other errors are the client's affair.
    pub(crate) fn log(&self) {
        if let Self::Internal(message) = self {
            tracing::error!(message, "a request failed");
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid { .. } | Self::ContextExceeded { .. } => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NoRoute { .. } | Self::NoModel { .. } => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::NotSupported(_) => StatusCode::NOT_IMPLEMENTED,
            Self::ShuttingDown | Self::ModelGone | Self::NotLoaded(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Slow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// OpenAI's and llama.cpp's word for it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Invalid { .. } | Self::TooLarge { .. } | Self::Method { .. } | Self::Slow(_) => {
                "invalid_request_error"
            }
            Self::ContextExceeded { .. } => "exceed_context_size_error",
            Self::Unauthorized => "authentication_error",
            Self::Forbidden(_) => "permission_error",
            Self::NoRoute { .. } | Self::NoModel { .. } => "not_found_error",
            Self::Busy(_) => "rate_limit_error",
            Self::NotSupported(_) => "not_supported_error",
            Self::ShuttingDown | Self::ModelGone | Self::NotLoaded(_) => "unavailable_error",
            Self::Timeout(_) => "timeout_error",
            Self::Internal(_) => "server_error",
        }
    }

    fn code(&self) -> Option<&'static str> {
        Some(match self {
            Self::ContextExceeded { .. } => "context_length_exceeded",
            Self::Unauthorized => "invalid_api_key",
            Self::NoModel { .. } => "model_not_found",
            Self::Busy(_) => "queue_full",
            _ => return None,
        })
    }

    /// The object that stands behind `error`.
    pub(crate) fn to_json(&self) -> Value {
        let param = match self {
            Self::Invalid { param, .. } => param.clone(),
            Self::NoModel { .. } => Some("model".to_owned()),
            _ => None,
        };
        let mut object = Map::new();
        object.insert("message".into(), self.to_string().into());
        object.insert("type".into(), self.kind().into());
        object.insert("param".into(), param.map_or(Value::Null, Value::from));
        object.insert("code".into(), self.code().map_or(Value::Null, Value::from));
        if let Self::ContextExceeded { n_prompt, n_ctx, .. } = self {
            object.insert("n_prompt_tokens".into(), (*n_prompt).into());
            object.insert("n_ctx".into(), (*n_ctx).into());
        }
        json!({ "error": object })
    }

    /// Status and headers without a body.
    pub(crate) fn with_body(&self, body: Value) -> Response {
        let mut response = (self.status(), Json(body)).into_response();
        if matches!(self, Self::Busy(_) | Self::ShuttingDown | Self::NotLoaded(_)) {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        if matches!(self, Self::Unauthorized) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        self.with_body(self.to_json())
    }
}

/// Its text with those of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

impl From<open_genie::Error> for ApiError {
    fn from(error: open_genie::Error) -> Self {
        match error {
            open_genie::Error::Serving(error) => error.into(),
            open_genie::Error::Dialog(error) => error.into(),
            open_genie::Error::Template { source } => Self::invalid("messages", with_causes(&source)),
            error => Self::Internal(with_causes(&error)),
        }
    }
}

impl From<ServeError> for ApiError {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::QueueFull { .. } => Self::Busy(error.to_string()),
            ServeError::TooManyAtOnce { found, most } => Self::invalid(
                "n",
                format!(
                    "{found} replies to one request: expected at most {most}, the slots and the places of the queue"
                ),
            ),
            ServeError::PromptTooLong { found, limit } => {
                Self::ContextExceeded { n_prompt: found, limit, n_ctx: limit }
            }
            // The server itself ends only after its connections.
            ServeError::ShutDown => Self::ModelGone,
            ServeError::Dialog(error) => error.into(),
            error => Self::Internal(with_causes(&error)),
        }
    }
}

impl From<DialogError> for ApiError {
    fn from(error: DialogError) -> Self {
        match error {
            DialogError::Empty => Self::invalid("prompt", "the prompt is empty: expected at least one token"),
            DialogError::BiasToken { .. } | DialogError::BiasNumber { .. } => {
                Self::invalid("logit_bias", error.to_string())
            }
            DialogError::EmptyStopSequence { .. } => Self::invalid("stop", error.to_string()),
            // A model gives every token a finite number, so it was the request that left none.
            DialogError::Sampler(error @ sampler::SamplerError::AllMasked { .. }) => {
                Self::invalid("", format!("the request's grammar, biases and penalties leave no token: {error}"))
            }
            DialogError::Grammar(error) => Self::invalid("grammar", with_causes(&error)),
            DialogError::Tokenizer(error) => Self::invalid("prompt", with_causes(&error)),
            error => Self::Internal(with_causes(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_leaves_no_token_is_the_clients_fault() {
        let error = ApiError::from(DialogError::from(sampler::SamplerError::AllMasked { n_vocab: 3 }));
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
        assert!(error.to_string().contains("leave no token: all 3 logits are -inf"), "{error}");
        let broken = sampler::SamplerError::NotFinite { token: 1, value: f32::NAN, n_bad: 1, n_vocab: 3 };
        assert_eq!(ApiError::from(DialogError::from(broken)).status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}

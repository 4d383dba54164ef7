//! What stands before the routes: who may ask, and what is written down of it.

mod access;
mod host;
mod key;
mod origin;

use axum::extract::{Request, State as Extract};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::anthropic::error::AnthropicError;
use crate::error::ApiError;
use crate::page;
use crate::state::App;

pub(crate) use access::log;
pub(crate) use origin::cors;

/// Refuses requests by host, origin and key, in this order.
pub(crate) async fn check(Extract(app): Extract<App>, request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    match allowed(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(error) if is_anthropic(&path) => AnthropicError(error).into_response(),
        Err(error) => error.into_response(),
    }
}

fn allowed(app: &App, request: &Request) -> Result<(), ApiError> {
    host::check(&app.options, request.headers())?;
    origin::check(&app.options, request.headers())?;
    let path = request.uri().path();
    let is_open = matches!(path, "/health" | "/v1/health" | "/openapi.json") || page::is_file(path);
    if is_open { Ok(()) } else { key::check(&app.options, request.headers()) }
}

/// Routes whose clients know Anthropic's errors only.
fn is_anthropic(path: &str) -> bool {
    path.strip_prefix("/v1").unwrap_or(path).starts_with("/messages")
}

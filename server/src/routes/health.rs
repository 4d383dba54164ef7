//! `GET /health`: whether requests are taken. Open to everyone.

use axum::Json;
use axum::extract::State as Extract;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::App;

/// Waits for no step: a model's thread is looked at, not asked.
pub(crate) async fn health(Extract(app): Extract<App>) -> Result<Json<Value>, ApiError> {
    if app.shutdown.has_begun() {
        return Err(ApiError::ShuttingDown);
    }
    match app.models.one() {
        // One of several is loaded again at its next request.
        Some(model) if !model.is_running() => Err(ApiError::ModelGone),
        _ => Ok(Json(json!({"status": "ok"}))),
    }
}

//! `GET /health`: whether requests are taken. Open to everyone.

use axum::Json;
use axum::extract::State as Extract;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::state::App;

pub(crate) async fn health(Extract(app): Extract<App>) -> Result<Json<Value>, ApiError> {
    match app.shutdown.has_begun() {
        true => Err(ApiError::ShuttingDown),
        false => Ok(Json(json!({"status": "ok"}))),
    }
}

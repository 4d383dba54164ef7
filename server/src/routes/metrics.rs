//! `GET /metrics`: for Prometheus.

use axum::extract::State as Extract;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::state::App;

pub(crate) async fn metrics(Extract(app): Extract<App>) -> Result<Response, ApiError> {
    let models = app.models.loaded();
    // Each model's thread answers between two of its steps; one that has ended has no counts, and the others' go on.
    let asked = spawn_blocking(move || models.iter().filter_map(|held| held.model.server().counts().ok()).collect());
    let counts: Vec<_> =
        asked.await.map_err(|_| ApiError::Internal("the models' threads could not be asked".into()))?;
    let text = app.metrics.text(&counts);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

//! `GET /v1/models`, `GET /v1/models/{id}`: the models there are, and whether they are loaded.

use axum::Json;
use axum::extract::State as Extract;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::PathTail;
use crate::models::Row;
use crate::state::App;

fn shown(row: &Row) -> Value {
    let mut model = json!({
        "id": &*row.name,
        "object": "model",
        "created": row.created,
        "owned_by": "open-genie",
        "status": {"value": if row.model.is_some() { "loaded" } else { "unloaded" }},
    });
    if let Some(loaded) = &row.model {
        model["meta"] = json!({"n_ctx": loaded.n_ctx(), "n_vocab": loaded.n_vocab()});
    }
    if let Some(bytes) = row.bytes {
        model["bytes"] = bytes.into();
    }
    model
}

pub(crate) async fn list(Extract(app): Extract<App>) -> Result<Json<Value>, ApiError> {
    let rows = app.models.rows(&app.options).await?;
    Ok(Json(json!({"object": "list", "data": rows.iter().map(shown).collect::<Value>()})))
}

pub(crate) async fn one(Extract(app): Extract<App>, PathTail(id): PathTail) -> Result<Json<Value>, ApiError> {
    let rows = app.models.rows(&app.options).await?;
    let is_own = |row: &Row| app.models.is_one() && row.model.as_ref().is_some_and(|model| model.name() == id);
    match rows.iter().find(|row| *row.name == *id || is_own(row)) {
        Some(row) => Ok(Json(shown(row))),
        None => {
            let names: Vec<String> = rows.iter().map(|row| format!("`{}`", row.name)).collect();
            Err(ApiError::NoModel { model: id, served: names.join(", ") })
        }
    }
}

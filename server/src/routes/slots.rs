//! `GET /slots`, `POST /slots/{id}?action=save|restore|erase`: the sequences of the cache, and their files in one folder.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use axum::Json;
use open_genie::SeqId;
use open_genie::serving::ServeError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ApiError, with_causes};
use crate::extract::{ModelRequest, PathTail, QueryModel, QueryParams};
use crate::state::State;

#[derive(Deserialize)]
pub(crate) struct Action {
    #[serde(default)]
    action: String,
}

pub(crate) async fn list(QueryModel(state): QueryModel) -> Result<Json<Value>, ApiError> {
    let slots = state.ask(|model| model.server().slots()).await??;
    let shown = slots.iter().map(|slot| {
        json!({
            "id": slot.seq.0,
            "state": slot.state.name(),
            "is_processing": slot.request.is_some(),
            "id_task": slot.request.map_or(-1, |request| i64::try_from(request.0).unwrap_or(-1)),
            "n_ctx": state.model.n_ctx(),
            "n_past": slot.n_past,
            "n_prompt_tokens": slot.n_prompt,
            "n_decoded": slot.n_generated,
        })
    });
    Ok(Json(shown.collect()))
}

pub(crate) async fn act(
    PathTail(id): PathTail,
    QueryParams(Action { action }): QueryParams<Action>,
    ModelRequest { state, body }: ModelRequest,
) -> Result<Json<Value>, ApiError> {
    let slot = id.parse::<u8>().map(SeqId);
    let slot = slot.map_err(|_| ApiError::invalid("id", format!("slot `{id}`: expected a number of `GET /slots`")))?;
    let refused = |error: open_genie::Error| match error {
        open_genie::Error::Serving(ServeError::ShutDown) => ApiError::ModelGone,
        error => ApiError::invalid("id", with_causes(&error)),
    };
    let of_file = |name: &str, error: open_genie::Error| match error {
        error @ open_genie::Error::Serving(_) => refused(error),
        error if is_of_the_disk(&error) => {
            ApiError::Internal(format!("`{name}` cannot be restored: {}", with_causes(&error)))
        }
        error => ApiError::invalid("filename", format!("`{name}`: {}", with_causes(&error))),
    };
    match action.as_str() {
        "erase" => {
            let n = state.ask(move |model| model.running().erase_slot(slot)).await?.map_err(refused)?;
            Ok(Json(json!({"id_slot": slot.0, "n_erased": n})))
        }
        "save" => {
            let (name, path) = file(&state, &body)?;
            let saved = state.ask(move |model| model.running().save_slot(slot, path)).await?;
            // The name is a good one: what fails is this machine.
            let n = saved.map_err(|error| match error {
                error @ open_genie::Error::Serving(_) => refused(error),
                error => ApiError::Internal(format!("`{name}` cannot be saved: {}", with_causes(&error))),
            })?;
            Ok(Json(json!({"id_slot": slot.0, "filename": name, "n_saved": n})))
        }
        "restore" => {
            let (name, path) = file(&state, &body)?;
            let restored = state.ask(move |model| model.running().restore_slot(slot, path)).await?;
            let n = restored.map_err(|error| of_file(&name, error))?.n_past;
            Ok(Json(json!({"id_slot": slot.0, "filename": name, "n_restored": n})))
        }
        other => {
            let message = format!("`action`: expected `save`, `restore` or `erase`, found `{other}`");
            Err(ApiError::invalid("action", message))
        }
    }
}

/// Whether the system failed to read a file that is there; the request named a good one then.
fn is_of_the_disk(error: &open_genie::Error) -> bool {
    let causes = std::iter::successors(Some(error as &(dyn Error + 'static)), |&cause| cause.source());
    let mut io = causes.filter_map(|cause| cause.downcast_ref::<io::Error>());
    // None such, no regular file any more, one that became shorter.
    let of_request = [ErrorKind::NotFound, ErrorKind::InvalidInput, ErrorKind::UnexpectedEof];
    io.any(|error| !of_request.contains(&error.kind()))
}

/// A file of the folder of slots: a plain name, so that no other folder can be reached.
fn file(state: &State, body: &Value) -> Result<(String, PathBuf), ApiError> {
    let folder = state.options.slot_folder.as_ref();
    let folder =
        folder.ok_or_else(|| ApiError::NotSupported("slots are not saved: no folder was set for them".into()))?;
    let name = body.get("filename").and_then(Value::as_str).unwrap_or_default();
    if !is_plain(name) {
        let message = "`filename`: expected letters, digits, `-`, `_` and `.`, not at the start, at most 128 of them";
        return Err(ApiError::invalid("filename", message));
    }
    let path = folder.join(name);
    // A link might lead out of the folder.
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => Err(ApiError::invalid("filename", format!("`{name}` is no regular file"))),
        _ => Ok((name.to_owned(), path)),
    }
}

fn is_plain(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=128).contains(&name.len()) && !name.starts_with('.') && name.chars().all(letter)
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_plain_names_are_files() {
        for good in ["a", "chat-1.bin", "A_b.c.d"] {
            assert!(super::is_plain(good), "{good}");
        }
        for bad in ["", ".", "..", ".hidden", "a/b", "../a", "/etc/passwd", "a\\b", "a\0b", "C:a", "\u{e9}"] {
            assert!(!super::is_plain(bad), "{bad}");
        }
        assert!(!super::is_plain(&"a".repeat(129)));
    }
}

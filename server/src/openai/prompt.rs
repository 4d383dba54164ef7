//! Prompts without messages: a text, tokens, or lists of either.

use open_genie::TokenId;
use serde_json::Value;

use crate::error::ApiError;
use crate::state::State;

/// Most prompts of one request.
const MOST: usize = 64;

/// The prompts of a body's `prompt`: 1 to [`MOST`] of them.
///
/// # Errors
/// It is missing, of another type, has too many prompts or tokens that there are not.
pub(crate) fn prompts(state: &State, body: &Value) -> Result<Vec<Vec<TokenId>>, ApiError> {
    let prompts = match body.get("prompt") {
        None | Some(Value::Null) => {
            return Err(ApiError::invalid("prompt", "`prompt` is missing: expected a text or tokens"));
        }
        Some(text @ Value::String(_)) => vec![one(state, text)?],
        // Numbers are one prompt; texts and lists are a prompt each.
        Some(Value::Array(all)) if all.iter().all(Value::is_number) && !all.is_empty() => {
            vec![tokens(state, "prompt", all)?]
        }
        // Counted first: making tokens of too many would take long.
        Some(Value::Array(all)) if !(1..=MOST).contains(&all.len()) => {
            let message = format!("`prompt`: expected 1 to {MOST} prompts, found {}", all.len());
            return Err(ApiError::invalid("prompt", message));
        }
        Some(Value::Array(all)) => all.iter().map(|prompt| one(state, prompt)).collect::<Result<_, _>>()?,
        Some(_) => return Err(ApiError::invalid("prompt", "`prompt`: expected a text, tokens, or a list of them")),
    };
    Ok(prompts)
}

fn one(state: &State, prompt: &Value) -> Result<Vec<TokenId>, ApiError> {
    match prompt {
        Value::String(text) => state.model.encode(text),
        Value::Array(all) => tokens(state, "prompt", all),
        _ => Err(ApiError::invalid("prompt", "`prompt`: expected texts or lists of tokens")),
    }
}

/// Ids of the list of a key.
pub(crate) fn tokens(state: &State, key: &str, all: &[Value]) -> Result<Vec<TokenId>, ApiError> {
    let n_vocab = state.model.n_vocab() as u64;
    let id = |value: &Value| {
        let id = value.as_u64().filter(|id| *id < n_vocab);
        id.map(|id| TokenId(id as u32))
            .ok_or_else(|| ApiError::invalid(key, format!("token {value}: expected a number below {n_vocab}")))
    };
    all.iter().map(id).collect()
}

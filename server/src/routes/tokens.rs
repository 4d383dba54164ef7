//! `POST /tokenize`, `/detokenize`, `/apply-template`: what a prompt becomes, without running the model.

use axum::Json;
use serde_json::{Value, json};

use crate::asked::Asked;
use crate::error::ApiError;
use crate::openai::chat_request::ChatRequest;
use crate::openai::prompt;

pub(crate) async fn tokenize(Asked { state, body }: Asked) -> Result<Json<Value>, ApiError> {
    let text = body.get("content").and_then(Value::as_str);
    let text = text.ok_or_else(|| ApiError::invalid("content", "`content`: expected a text"))?;
    let flag = |key: &str, default| body.get(key).and_then(Value::as_bool).unwrap_or(default);
    let tokenizer = state.model.server().base().tokenizer();
    let tokens = match (flag("add_special", false), flag("parse_special", true)) {
        (true, _) => state.model.encode(text)?,
        (false, true) => tokenizer.encode(text).map_err(open_genie::DialogError::from)?,
        (false, false) => tokenizer.encode_plain(text).map_err(open_genie::DialogError::from)?,
    };
    let with_pieces = flag("with_pieces", false);
    let shown = tokens.iter().map(|token| match with_pieces {
        true => json!({"id": token.0, "piece": tokenizer.id_to_token(*token)}),
        false => token.0.into(),
    });
    Ok(Json(json!({"tokens": shown.collect::<Vec<Value>>()})))
}

pub(crate) async fn detokenize(Asked { state, body }: Asked) -> Result<Json<Value>, ApiError> {
    let list = body.get("tokens").and_then(Value::as_array);
    let list = list.ok_or_else(|| ApiError::invalid("tokens", "`tokens`: expected a list of numbers"))?;
    let text = state.model.decode(&prompt::tokens(&state, list)?)?;
    Ok(Json(json!({"content": text})))
}

pub(crate) async fn apply_template(Asked { state, body }: Asked) -> Result<Json<Value>, ApiError> {
    Ok(Json(json!({"prompt": ChatRequest::read(&state, &body)?.chat.text})))
}

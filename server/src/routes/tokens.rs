//! `POST /tokenize`, `/detokenize`, `/apply-template`: what a prompt becomes, without running the model.

use axum::Json;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::ModelRequest;
use crate::openai::chat_request::ChatRequest;
use crate::openai::prompt;
use crate::state::State;

pub(crate) async fn tokenize(ModelRequest { state, body }: ModelRequest) -> Result<Json<Value>, ApiError> {
    state.prepare(move |state| tokens_of(state, &body)).await.map(Json)
}

fn tokens_of(state: &State, body: &Value) -> Result<Value, ApiError> {
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
    Ok(json!({"tokens": shown.collect::<Vec<Value>>()}))
}

pub(crate) async fn detokenize(ModelRequest { state, body }: ModelRequest) -> Result<Json<Value>, ApiError> {
    let text = state.prepare(move |state| {
        let list = body.get("tokens").and_then(Value::as_array);
        let list = list.ok_or_else(|| ApiError::invalid("tokens", "`tokens`: expected a list of numbers"))?;
        state.model.decode(&prompt::tokens(state, "tokens", list)?)
    });
    Ok(Json(json!({"content": text.await?})))
}

pub(crate) async fn apply_template(ModelRequest { state, body }: ModelRequest) -> Result<Json<Value>, ApiError> {
    let request = state.prepare(move |state| ChatRequest::read(state, &body)).await?;
    Ok(Json(json!({"prompt": request.chat.text})))
}

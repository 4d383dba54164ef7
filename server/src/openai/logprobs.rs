//! How likely tokens were, in OpenAI's form.

use open_genie::TokenId;
use open_genie::serving::Logprobs;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::served_model::ServedModel;

/// Most of the likeliest tokens that are given for each.
const MOST_TOP: i64 = 20;

/// A number of likeliest tokens.
pub(crate) fn checked(key: &'static str, n: i64) -> Result<usize, ApiError> {
    let within = usize::try_from(n).ok().filter(|_| n <= MOST_TOP);
    within.ok_or_else(|| ApiError::invalid(key, format!("`{key}`: expected 0 to {MOST_TOP}, found {n}")))
}

/// The tokens of a completion's choice, gathered as they come.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompletionLogprobs {
    tokens: Vec<Value>,
    likely: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters of the text so far.
    n_chars: usize,
}

impl CompletionLogprobs {
    /// Takes the tokens of a piece.
    pub(crate) fn push(&mut self, model: &ServedModel, all: &[Logprobs]) {
        for found in all {
            let text = model.decode(&[found.token]).unwrap_or_default();
            self.offsets.push(self.n_chars);
            self.n_chars += text.chars().count();
            self.likely.push(number(found.logprob.unwrap_or(f32::NEG_INFINITY)));
            let mut top = Map::new();
            for (token, logprob) in &found.top {
                // Two tokens may have one text: the likelier one comes first.
                top.entry(model.decode(&[*token]).unwrap_or_default()).or_insert_with(|| number(*logprob));
            }
            self.top.push(top.into());
            self.tokens.push(text.into());
        }
    }

    /// What was gathered since the last call, in OpenAI's older form; null without tokens.
    pub(crate) fn take(&mut self) -> Value {
        if self.tokens.is_empty() {
            return Value::Null;
        }
        let Self { tokens, likely, top, offsets, n_chars } = std::mem::take(self);
        self.n_chars = n_chars;
        json!({"tokens": tokens, "token_logprobs": likely, "top_logprobs": top, "text_offset": offsets})
    }
}

/// JSON has no infinity.
fn number(logprob: f32) -> Value {
    logprob.max(-9999.0).into()
}

/// The tokens of a chat's choice; also llama.cpp's `completion_probabilities`, which has their numbers besides.
pub(crate) fn of_chat(model: &ServedModel, all: &[Logprobs]) -> Vec<Value> {
    let one = |token: TokenId, logprob: f32| {
        let text = model.decode(&[token]).unwrap_or_default();
        json!({"id": token.0, "token": text, "logprob": number(logprob), "bytes": text.as_bytes()})
    };
    let with_top = |found: &Logprobs| {
        let mut entry = one(found.token, found.logprob.unwrap_or(f32::NEG_INFINITY));
        entry["top_logprobs"] = found.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect();
        entry
    };
    all.iter().map(with_top).collect()
}

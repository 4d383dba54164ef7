//! How likely tokens were, in OpenAI's form.
//!
//! A character may be cut into several tokens. `bytes` are then each token's own part of it, and texts of such a token show the bytes
//! that are no character as `\xF0` (behind `bytes:` in the older form), as OpenAI's do.

use open_genie::TokenId;
use open_genie::serving::Logprobs;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::served_model::{ServedModel, TextLength};

/// Most of the likeliest tokens that are given for each.
const MOST_TOP: i64 = 20;

/// A number of likeliest tokens.
pub(crate) fn checked(key: &'static str, n: i64) -> Result<usize, ApiError> {
    let within = usize::try_from(n).ok().filter(|_| n <= MOST_TOP);
    within.ok_or_else(|| ApiError::invalid(key, format!("`{key}`: expected 0 to {MOST_TOP}, found {n}")))
}

/// The tokens of a completion's choice, gathered as they come.
pub(crate) struct CompletionLogprobs {
    tokens: Vec<Value>,
    logprobs: Vec<Value>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters of the text so far.
    length: TextLength,
}

impl CompletionLogprobs {
    /// One for each choice.
    pub(crate) fn of_choices(model: &ServedModel, n: usize) -> Vec<Self> {
        let one = || Self {
            tokens: Vec::new(),
            logprobs: Vec::new(),
            top: Vec::new(),
            offsets: Vec::new(),
            length: model.text_length(),
        };
        (0..n).map(|_| one()).collect()
    }

    /// Takes the tokens of a piece.
    pub(crate) fn push(&mut self, model: &ServedModel, all: &[Logprobs]) {
        for found in all {
            // The character that a token goes on with began before it, and counts once it is whole.
            self.offsets.push(self.length.before(found.token));
            self.logprobs.push(number(found.logprob.unwrap_or(f32::NEG_INFINITY)));
            let mut top = Map::new();
            for (token, logprob) in &found.top {
                // Two tokens may have one text: the likelier one comes first.
                top.entry(older_text(&model.bytes_of(*token))).or_insert_with(|| number(*logprob));
            }
            self.top.push(top.into());
            self.tokens.push(older_text(&model.bytes_of(found.token)).into());
        }
    }

    /// What was gathered since the last call, in OpenAI's older form; null without tokens.
    pub(crate) fn take(&mut self) -> Value {
        if self.tokens.is_empty() {
            return Value::Null;
        }
        json!({
            "tokens": std::mem::take(&mut self.tokens),
            "token_logprobs": std::mem::take(&mut self.logprobs),
            "top_logprobs": std::mem::take(&mut self.top),
            "text_offset": std::mem::take(&mut self.offsets),
        })
    }
}

/// JSON has no infinity.
fn number(logprob: f32) -> Value {
    logprob.max(-9999.0).into()
}

/// The tokens of a chat's choice; also llama.cpp's `completion_probabilities`, which has their numbers besides.
pub(crate) fn of_chat(model: &ServedModel, all: &[Logprobs]) -> Vec<Value> {
    let one = |token: TokenId, logprob: f32| {
        let bytes = model.bytes_of(token);
        json!({"id": token.0, "token": text(&bytes), "logprob": number(logprob), "bytes": bytes})
    };
    let with_top = |found: &Logprobs| {
        let mut entry = one(found.token, found.logprob.unwrap_or(f32::NEG_INFINITY));
        entry["top_logprobs"] = found.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect();
        entry
    };
    all.iter().map(with_top).collect()
}

/// Bytes as text; those that are no character by their number.
fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// The same in the older form.
fn older_text(bytes: &[u8]) -> String {
    let text = text(bytes);
    if std::str::from_utf8(bytes).is_ok() { text } else { format!("bytes:{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_is_shown_by_its_bytes() {
        assert_eq!((text(b" the"), older_text(b" the")), (" the".into(), " the".into()));
        assert_eq!((text(b"\xf0\x9f"), older_text(b"\xf0\x9f")), ("\\xf0\\x9f".into(), "bytes:\\xf0\\x9f".into()));
        assert_eq!(
            (text(b"a \x99\x82"), older_text(b"a \x99\x82")),
            ("a \\x99\\x82".into(), "bytes:a \\x99\\x82".into())
        );
        assert_eq!((text(b""), older_text(b"")), (String::new(), String::new()));
    }
}

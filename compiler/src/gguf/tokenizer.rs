//! The file's tokenizer as `tokenizer.json`, and its chat template as `tokenizer_config.json`.
//!
//! Two kinds are supported: byte-level BPE (`gpt2`; `tokenizer.ggml.pre` names the pre-tokenizer) and SentencePiece BPE
//! (`llama`; its merges follow from the pieces' scores, since the file has none).
//! *Source*: the tokenizers crate's file format; the patterns are those of the models' published `tokenizer.json`.

use super::{Gguf, Value};
use crate::{CompileError, Result};
use serde_json::{Map, json};
use std::collections::HashMap;

/// Kinds of pieces in `token_type` that are not ordinary text: unknown, control, defined by the user.
const UNKNOWN: i64 = 2;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;

/// Pre-tokenizer patterns, by their names in the file.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

impl Gguf {
    fn tokenizer_value(&self, key: &str) -> Option<&Value> {
        self.values.get(&format!("tokenizer.ggml.{key}"))
    }

    fn bad_tokenizer(&self, detail: impl Into<String>) -> CompileError {
        CompileError::BadTokenizer { path: self.path.clone(), detail: detail.into() }
    }

    /// `tokenizer.json`.
    ///
    /// # Errors
    /// No tokenizer, or one of an unsupported kind.
    pub(crate) fn tokenizer(&self) -> Result<serde_json::Value> {
        let kind = self.tokenizer_value("model").and_then(Value::text);
        let kind = kind.ok_or_else(|| self.bad_tokenizer("no `tokenizer.ggml.model`"))?;
        let tokens = self.tokenizer_value("tokens").and_then(Value::texts);
        let tokens = tokens.ok_or_else(|| self.bad_tokenizer("no `tokenizer.ggml.tokens`"))?;
        let types = self.tokenizer_value("token_type").and_then(Value::numbers).unwrap_or_default();
        let types: Vec<i64> = types.iter().map(|&t| t as i64).collect();
        let mut file = match kind {
            "gpt2" => self.byte_level(tokens)?,
            "llama" => self.sentence_piece(tokens)?,
            other => return Err(self.bad_tokenizer(format!("tokenizer `{other}`: expected `gpt2` or `llama`"))),
        };
        let added = tokens.iter().enumerate().filter_map(|(id, token)| {
            let kind = types.get(id).copied().unwrap_or(1);
            let special = kind == CONTROL || kind == UNKNOWN;
            (special || kind == USER_DEFINED).then(|| {
                json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                       "normalized": false, "special": special})
            })
        });
        file["added_tokens"] = added.collect();
        Ok(file)
    }

    /// `tokenizer_config.json`: whether a BOS is prepended, and the chat template.
    pub(crate) fn tokenizer_config(&self) -> serde_json::Value {
        let tokens = self.tokenizer_value("tokens").and_then(Value::texts).unwrap_or_default();
        let token = |key: &str| {
            let id = self.tokenizer_value(key).and_then(Value::unsigned)?;
            tokens.get(usize::try_from(id).ok()?)
        };
        // Without the key, SentencePiece models and Llama 3 begin with one, as in llama.cpp.
        let default = self.tokenizer_value("model").and_then(Value::text) == Some("llama")
            || self.tokenizer_value("pre").and_then(Value::text) == Some("llama-bpe");
        let mut config = Map::new();
        let add_bos = self.tokenizer_value("add_bos_token").and_then(Value::bool).unwrap_or(default);
        config.insert("add_bos_token".into(), json!(add_bos));
        config.insert("bos_token".into(), json!(token("bos_token_id")));
        config.insert("eos_token".into(), json!(token("eos_token_id")));
        if let Some(template) = self.values.get("tokenizer.chat_template").and_then(Value::text) {
            config.insert("chat_template".into(), json!(template));
        }
        config.into()
    }

    fn byte_level(&self, tokens: &[String]) -> Result<serde_json::Value> {
        let merges = self.tokenizer_value("merges").and_then(Value::texts);
        let merges = merges.ok_or_else(|| self.bad_tokenizer("no `tokenizer.ggml.merges`"))?;
        let pairs = merges
            .iter()
            .map(|m| m.split_once(' ').ok_or_else(|| self.bad_tokenizer(format!("merge `{m}` has no second part"))))
            .collect::<Result<Vec<_>>>()?;
        let split = |pattern: &str| {
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ]})
        };
        let plain = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let pre = self.tokenizer_value("pre").and_then(Value::text).unwrap_or("default");
        let (cut, normalizer) = match pre {
            "llama-bpe" | "llama3" | "llama-v3" => (split(LLAMA3), json!(null)),
            "qwen2" => (split(QWEN2), json!({"type": "NFC"})),
            "smollm" => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                (json!({"type": "Sequence", "pretokenizers": [digits, plain]}), json!(null))
            }
            "default" | "gpt-2" => (plain, json!(null)),
            other => {
                let expected = "`llama-bpe`, `qwen2`, `smollm`, `gpt-2` or `default`";
                return Err(self.bad_tokenizer(format!("pre-tokenizer `{other}`: expected {expected}")));
            }
        };
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": normalizer,
            "pre_tokenizer": cut,
            "post_processor": null,
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                      "ignore_merges": pre.starts_with("llama"), "vocab": vocabulary(tokens), "merges": pairs},
        }))
    }

    fn sentence_piece(&self, tokens: &[String]) -> Result<serde_json::Value> {
        let scores = self.tokenizer_value("scores").and_then(Value::numbers);
        let scores = scores.filter(|s| s.len() == tokens.len());
        let scores = scores.ok_or_else(|| self.bad_tokenizer("no `tokenizer.ggml.scores` for each token"))?;
        let unknown = self.tokenizer_value("unknown_token_id").and_then(Value::unsigned).unwrap_or(0);
        let prefix = self.tokenizer_value("add_space_prefix").and_then(Value::bool).unwrap_or(true);
        let mut normalizers = vec![json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})];
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if prefix {
            normalizers.insert(0, json!({"type": "Prepend", "prepend": "▁"}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        Ok(json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": normalizers},
            "pre_tokenizer": null,
            "post_processor": null,
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {"type": "BPE", "dropout": null, "unk_token": tokens.get(unknown as usize),
                      "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": true,
                      "byte_fallback": true, "ignore_merges": false, "vocab": vocabulary(tokens),
                      "merges": merges_of(tokens, &scores)},
        }))
    }
}

fn vocabulary(tokens: &[String]) -> Map<String, serde_json::Value> {
    tokens.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect()
}

/// Pairs of pieces that make a piece, best score first; of one piece's pairs the one with the earlier parts first.
fn merges_of<'t>(tokens: &'t [String], scores: &[f64]) -> Vec<(&'t str, &'t str)> {
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
    let mut found = Vec::new();
    for (token, &score) in tokens.iter().zip(scores) {
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if let (Some(&l), Some(&r)) = (ids.get(left), ids.get(right)) {
                found.push((score, l, r, left, right));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    found.into_iter().map(|(_, _, _, left, right)| (left, right)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_follow_the_scores() {
        let tokens: Vec<String> = ["a", "b", "c", "ab", "abc", "bc"].map(String::from).into();
        let scores = [0.0, 0.0, 0.0, -1.0, -3.0, -2.0];
        assert_eq!(merges_of(&tokens, &scores), [("a", "b"), ("b", "c"), ("a", "bc"), ("ab", "c")]);
    }
}

//! Byte-level BPE, the kind `gpt2`: pre-tokenizers by name, and the file's merges.

use super::super::value::shown;
use super::{Gguf, Vocabulary, key};
use crate::Result;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The pre-tokenizer of files without a name of one.
pub(super) const UNNAMED: &str = "default";

/// Pre-tokenizer patterns, by their names in the file.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Qwen 3.5: marks belong to words.
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|",
    r"\s+(?!\S)|\s+"
);
/// DeepSeek's models cut in several passes; those of the chat models have their letters listed.
const DEEPSEEK_LLM: [&str; 5] =
    [r"[\r\n]", super::letters::DEEPSEEK_WORD, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK];
const DEEPSEEK_CODER: [&str; 4] = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK];
const CJK: &str = "[一-龥ࠀ-一가-퟿]+";

/// llama.cpp's, of files that name no other: passes in this order.
const DEFAULT: [&str; 4] = [
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    "[0-9][0-9][0-9]",
];

/// Of o200k: words are cut where small letters are followed by capital ones.
const O200K: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// Llama 3's tokenizer by any of its names: whole words come before merges, and a text begins with BOS unless a key says otherwise.
pub(super) fn is_llama3(pre: &str) -> bool {
    ["llama-bpe", "llama3", "llama-v3"].contains(&pre)
}

impl Gguf {
    pub(super) fn byte_level(&self, vocabulary: &Vocabulary<'_>) -> Result<Value> {
        let split = |pattern: &str| {
            json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ]})
        };
        let passes = |patterns: &[&str], digits: bool| {
            let cut = |pattern: &&str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            let mut all: Vec<Value> = patterns.iter().map(cut).collect();
            all.extend(digits.then(|| json!({"type": "Digits", "individual_digits": true})));
            all.push(json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}));
            json!({"type": "Sequence", "pretokenizers": all})
        };
        let plain = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let pre = self.meta.text(&key("pre"))?.unwrap_or(UNNAMED);
        let (cut, normalizer) = match pre {
            "llama-bpe" | "llama3" | "llama-v3" | "dbrx" | "smaug-bpe" => (split(LLAMA3), json!(null)),
            "gpt-4o" => (split(O200K), json!(null)),
            "qwen2" | "stablelm2" => (split(QWEN2), json!({"type": "NFC"})),
            "qwen35" => (split(QWEN35), json!(null)),
            "smollm" | "refact" | "starcoder" | "command-r" => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                let normalizer = if pre == "command-r" { json!({"type": "NFC"}) } else { json!(null) };
                (json!({"type": "Sequence", "pretokenizers": [digits, plain]}), normalizer)
            }
            "deepseek-llm" => (passes(&DEEPSEEK_LLM, true), json!(null)),
            "deepseek-coder" => (passes(&DEEPSEEK_CODER, true), json!(null)),
            "falcon" => {
                let punctuation = json!({"type": "Punctuation", "behavior": "Contiguous"});
                let digits = json!({"type": "Digits", "individual_digits": false});
                let threes = json!({"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false});
                (json!({"type": "Sequence", "pretokenizers": [punctuation, plain, digits, threes]}), json!(null))
            }
            // Not that of GPT-2: punctuation stands apart, and so do numbers, in threes.
            "default" => (passes(&DEFAULT, false), json!(null)),
            "gpt-2" => (plain, json!(null)),
            "olmo" | "mpt" => (plain, json!({"type": "NFC"})),
            _ => {
                let expected = "`llama-bpe`, `dbrx`, `smaug-bpe`, `qwen2`, `stablelm2`, `gpt-4o`, `smollm`, `refact`, `olmo`, `gpt-2`, \
                                `qwen35`, `starcoder`, `command-r`, `deepseek-llm`, `deepseek-coder`, `falcon`, `mpt` or `default`";
                return Err(self.meta.refused(&key("pre"), expected));
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
                      "ignore_merges": is_llama3(pre), "vocab": vocabulary.to_json(),
                      "merges": self.merges(vocabulary)?},
        }))
    }

    /// Pairs of entries that make an entry, best first. A pair that is there twice counts where it is first, as in llama.cpp.
    pub(super) fn merges(&self, vocabulary: &Vocabulary<'_>) -> Result<Vec<(&str, &str)>> {
        let merges = self.meta.required(&key("merges"), self.meta.texts(&key("merges"))?)?;
        let mut pairs = Vec::with_capacity(merges.len());
        let mut seen = HashSet::with_capacity(merges.len());
        let mut joined = String::new();
        for (i, merge) in merges.iter().enumerate() {
            let bad = |what: String| self.bad_tokenizer(format!("merge {i}, `{}`, {what}", shown(merge)));
            let pair = merge.split_once(' ').ok_or_else(|| bad("has no second part".into()))?;
            joined.clear();
            joined.extend([pair.0, pair.1]);
            if let Some(part) = [pair.0, pair.1, &joined].into_iter().find(|part| !vocabulary.ids.contains_key(part)) {
                return Err(bad(format!("needs the token `{}`, which is not there", shown(part))));
            }
            if seen.insert(pair) {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }
}

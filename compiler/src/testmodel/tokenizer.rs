//! A byte-level BPE tokenizer of any size, in Hugging Face's JSON.
//!
//! Ids 0..256 are the bytes, 256 and 257 the special tokens. The rest are words of small letters, each made by one
//! merge of a shorter token and a letter, so every id up to the vocabulary's end decodes to some text.

use super::{BOS, EOS, N_BYTES};
use serde_json::{Map, Value, json};

const BOS_TEXT: &str = "<|begin|>";
const EOS_TEXT: &str = "<|end|>";

/// Texts by id, and merges, for `vocab` entries, at least `N_BYTES + 2`.
pub(super) fn lists(vocab: usize) -> (Vec<String>, Vec<String>) {
    let mut tokens: Vec<String> = (0..N_BYTES).map(|byte| byte_char(byte as u8).into()).collect();
    tokens.extend([BOS_TEXT, EOS_TEXT].map(String::from));
    let mut words: Vec<String> = ('a'..='z').map(String::from).collect();
    let mut merges = Vec::new();
    for next in 0..vocab - tokens.len() {
        let (stem, letter) = (&words[next / 26], char::from(b'a' + (next % 26) as u8));
        let word = format!("{stem}{letter}");
        merges.push(format!("{stem} {letter}"));
        tokens.push(word.clone());
        words.push(word);
    }
    (tokens, merges)
}

/// The document for `vocab` entries, at least `N_BYTES + 2`.
pub(super) fn json(vocab: usize) -> Value {
    let (tokens, merges) = lists(vocab);
    let ids: Map<String, Value> = tokens.into_iter().enumerate().map(|(id, token)| (token, json!(id))).collect();
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(BOS.0, BOS_TEXT), special(EOS.0, EOS_TEXT)],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": null,
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": false,
            "byte_fallback": false,
            "ignore_merges": false,
            "vocab": ids,
            "merges": merges,
        },
    })
}

fn special(id: u32, content: &str) -> Value {
    json!({
        "id": id,
        "content": content,
        "single_word": false,
        "lstrip": false,
        "rstrip": false,
        "normalized": false,
        "special": true,
    })
}

/// The printable character that byte-level BPE writes for a byte: itself where it prints, else one from U+0100 on.
fn byte_char(byte: u8) -> char {
    let prints = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if prints(byte) {
        return char::from(byte);
    }
    let hidden_before = (0..byte).filter(|&b| !prints(b)).count() as u32;
    char::from_u32(0x100 + hidden_before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

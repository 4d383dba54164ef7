//! Tokenizers of every form that models are published with, small ones made here.

use serde_json::{Value, json};

/// A form by its name.
pub struct Form {
    pub name: &'static str,
    pub json: Value,
    /// Rows of a model that it fits.
    pub rows: usize,
}

/// The demo's BPE, a WordPiece, a Unigram with a character map, SentencePiece's BPE with byte fallback, a WordLevel.
pub fn all() -> Vec<Form> {
    let form = |name, json: Value, rows| Form { name, json, rows };
    vec![
        form("bpe", byte_level_bpe(), 2048),
        form("wordpiece", word_piece(), 16),
        form("unigram", unigram(), 12),
        form("fallback", byte_fallback(), 270),
        form("wordlevel", word_level(), 4),
    ]
}

pub fn byte_level_bpe() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo/tokenizer.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn word_piece() -> Value {
    let words = ["[PAD]", "[UNK]", "[CLS]", "play", "##ing", "##ed", "chess", ".", ",", "hello", "world", "the", "a"];
    let vocab: Value = words.iter().enumerate().map(|(id, w)| ((*w).to_owned(), json!(id))).collect();
    whole(
        json!({"type": "WordPiece", "vocab": vocab, "unk_token": "[UNK]", "continuing_subword_prefix": "##",
               "max_input_chars_per_word": 100}),
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
               "lowercase": true}),
        json!({"type": "BertPreTokenizer"}),
        json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
        json!([added(0, "[PAD]", true), added(1, "[UNK]", true), added(2, "[CLS]", true)]),
    )
}

pub fn unigram() -> Value {
    let entries = json!([
        ["<unk>", 0.0],
        ["<s>", 0.0],
        ["</s>", 0.0],
        ["\u{2581}", -2.0],
        ["\u{2581}the", -3.0],
        ["a", -4.0],
        ["e", -4.5],
        ["h", -5.0],
        ["l", -5.0],
        ["o", -5.5],
        ["\u{2581}h", -6.0],
    ]);
    whole(
        json!({"type": "Unigram", "vocab": entries, "unk_id": 0, "byte_fallback": false}),
        json!({"type": "Sequence", "normalizers": [
            {"type": "Precompiled", "precompiled_charsmap": charsmap()},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]}),
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true},
        ]}),
        json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}),
        json!([added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)]),
    )
}

pub fn byte_fallback() -> Value {
    let mut vocab = serde_json::Map::new();
    let words = ["<unk>", "<s>", "</s>"].map(String::from).into_iter();
    let bytes = (0..256).map(|b| format!("<0x{b:02X}>"));
    let pieces = ["\u{2581}", "a", "b", "ab", "\u{2581}a", "\u{e9}", "\u{2581}\u{65e5}\u{672c}"].map(String::from);
    for (id, word) in words.chain(bytes).chain(pieces).enumerate() {
        vocab.insert(word, json!(id));
    }
    whole(
        json!({"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
               "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
               "vocab": vocab, "merges": [["a", "b"], ["\u{2581}", "a"]]}),
        json!({"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u{2581}"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
        ]}),
        Value::Null,
        json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]}),
        json!([added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)]),
    )
}

pub fn word_level() -> Value {
    whole(
        json!({"type": "WordLevel", "vocab": {"to": 0, "be": 1, "or": 2, "not": 3}, "unk_token": "to"}),
        Value::Null,
        json!({"type": "Sequence", "pretokenizers": [
            {"type": "Whitespace"},
            {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}"}, "behavior": "Isolated", "invert": false},
            {"type": "FixedLength", "length": 8}, {"type": "Punctuation", "behavior": "Isolated"},
            {"type": "Digits", "individual_digits": true}, {"type": "UnicodeScripts"},
        ]}),
        Value::Null,
        json!([]),
    )
}

pub fn added(id: u32, content: &str, special: bool) -> Value {
    json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
           "special": special})
}

fn whole(model: Value, normalizer: Value, pre_tokenizer: Value, decoder: Value, added: Value) -> Value {
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
           "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder, "model": model})
}

/// A character map with one rule: `A` becomes `a`.
pub fn charsmap() -> String {
    let mut units = vec![0_u32; 512];
    units[0] = 256 << 10;
    let node = 256 ^ usize::from(b'A');
    units[node] = u32::from(b'A') | 1 << 8 | 1 << 10;
    let mut map = 2048_u32.to_le_bytes().to_vec();
    units.iter().for_each(|unit| map.extend_from_slice(&unit.to_le_bytes()));
    map.extend_from_slice(b"a\0");
    base64::encode(map)
}

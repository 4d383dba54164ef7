//! Tokenizers: keys of tokenizer.json, parts of other kinds, entries of the vocabulary.

use std::path::Path;

use anyhow::Result;
use fuzz_targets::Rng;
use serde_json::{Value, json};

use crate::base::{Base, PROMPT, compile, copy};
use crate::change::{self, replace_file};
use crate::situation::{Expect, Situation, Step};

/// Parts that other tokenizers have, some of them out of order.
const PARTS: [(&str, &str); 22] = [
    ("normalizer", r#"{"type":"Precompiled","precompiled_charsmap":"AAAA"}"#),
    ("normalizer", r#"{"type":"NFC"}"#),
    ("normalizer", r#"{"type":"Sequence","normalizers":[]}"#),
    ("normalizer", r#"{"type":"Replace","pattern":{"Regex":"(a"},"content":"b"}"#),
    ("normalizer", r#"{"type":"Nonsense"}"#),
    ("normalizer", r#"{"type":"Prepend"}"#),
    ("normalizer", r#"{"type":"Replace","pattern":{"String":""},"content":"b"}"#),
    ("pre_tokenizer", r#"{"type":"FixedLength","length":0}"#),
    ("pre_tokenizer", r#"{"type":"Split","pattern":{"Regex":"(?<"},"behavior":"Isolated","invert":false}"#),
    ("pre_tokenizer", r#"{"type":"Split","pattern":{"Regex":"(a*)*b"},"behavior":"Isolated","invert":false}"#),
    ("pre_tokenizer", r#"{"type":"Split","pattern":{"String":""},"behavior":"Removed","invert":false}"#),
    ("pre_tokenizer", r#"{"type":"Metaspace","replacement":"ab"}"#),
    ("pre_tokenizer", r#"{"type":"Whitespace"}"#),
    ("decoder", r#"{"type":"Strip","content":" ","start":99999999999,"stop":0}"#),
    ("decoder", r#"{"type":"CTC"}"#),
    ("decoder", r#"{"type":"Nothing"}"#),
    ("decoder", r#"{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"ByteFallback"}]}"#),
    (
        "post_processor",
        r#"{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<no>","type_id":0}}],"pair":[],"special_tokens":{}}"#,
    ),
    ("post_processor", r#"{"type":"BertProcessing","sep":["x",999999],"cls":["y",0]}"#),
    ("truncation", r#"{"direction":"Right","max_length":0,"strategy":"LongestFirst","stride":5}"#),
    (
        "padding",
        r#"{"strategy":{"Fixed":1000000000000},"direction":"Right","pad_to_multiple_of":0,"pad_id":0,"pad_type_id":0,"pad_token":"x"}"#,
    ),
    ("truncation", r#"{"direction":"Right","max_length":1,"strategy":"LongestFirst","stride":0}"#),
];

/// A tokenizer with a change.
pub(super) fn make(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    let model = rng.pick(&base.models);
    copy(&model.folder, &room.join("model"))?;
    let path = room.join("model/tokenizer.json");
    let file = ["tokenizer.json".to_string()];
    let run = Step::new(["run", "-c", "bundle", "-p", PROMPT, "-n", "4", "--greedy"]);
    let doctor = Step::new(["doctor", "bundle"]);
    let steps = vec![compile("model", "bundle"), run, doctor];
    if rng.one_in(12) {
        let how = replace_file(&path, rng)?;
        return Ok(Situation::new(format!("tokenizer.json {how}"), Expect::Refuse, steps).named(file).early());
    }
    let mut document: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    let (what, mut names) = match rng.below(4) {
        0 => {
            let (part, value) = rng.pick(&PARTS);
            document[*part] = serde_json::from_str(value)?;
            let kind = document[*part]["type"].as_str().unwrap_or_default().to_string();
            (format!("{part} is {value}"), vec![(*part).to_string(), kind])
        }
        1 => vocabulary(&mut document, rng),
        2 => {
            let all = ["added_tokens", "pre_tokenizer", "decoder", "post_processor", "normalizer", "version"];
            let part = format!("/{}", rng.pick(&all));
            let below = document.pointer(&part).map(change::pointers).unwrap_or_default();
            let inner = if below.is_empty() { String::new() } else { rng.pick(&below).clone() };
            let change = change::json_at(&mut document, &format!("{part}{inner}"), rng);
            (change.what, [change.names, vec![part[1..].to_string()]].concat())
        }
        _ => {
            let keys = ["type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk"];
            let keys = [&keys[..], &["byte_fallback", "ignore_merges", "vocab", "merges"]].concat();
            let change = change::json_at(&mut document, &format!("/model/{}", rng.pick(&keys)), rng);
            (change.what, [change.names, vec!["model".into()]].concat())
        }
    };
    names.retain(|name| !name.is_empty());
    std::fs::write(&path, document.to_string())?;
    Ok(Situation::new(what, Expect::Open, steps).named(names).early())
}

fn vocabulary(document: &mut Value, rng: &mut Rng) -> (String, Vec<String>) {
    let tokens: Vec<String> =
        document["model"]["vocab"].as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
    let names = |token: &str| vec![token.to_string(), "vocab".into(), "merges".into(), "added_tokens".into()];
    let Some(token) = (!tokens.is_empty()).then(|| rng.pick(&tokens).clone()) else {
        return ("nothing".into(), names("vocab"));
    };
    let id = document["model"]["vocab"][&token].clone();
    let mut named = names(&token);
    named.push(format!("{id}"));
    let what = match rng.below(6) {
        0 => {
            document["model"]["vocab"][&token] = json!(*rng.pick(&[-1i64, 5000, 1 << 40, 3]));
            named.push(document["model"]["vocab"][&token].to_string());
            format!("id of `{token}` is {}", document["model"]["vocab"][&token])
        }
        1 => {
            if let Some(map) = document["model"]["vocab"].as_object_mut() {
                map.remove(&token);
            }
            format!("`{token}` removed from the vocabulary")
        }
        2 => {
            document["model"]["vocab"][&token] = rng.pick(&[json!("7"), json!(1.5), json!(null), json!([1])]).clone();
            format!("id of `{token}` is {}", document["model"]["vocab"][&token])
        }
        3 => {
            let merge =
                rng.pick(&[json!("zq qz"), json!(["a"]), json!("abc"), json!(5), json!(["a", "b", "c"])]).clone();
            if let Some(merges) = document["model"]["merges"].as_array_mut() {
                merges.push(merge.clone());
            }
            named.extend(["zq", "merge"].map(String::from));
            format!("one more merge, {merge}")
        }
        4 => {
            let added = json!({"id": *rng.pick(&[100_000u64, 0, 300, 319]), "content": "<|more|>", "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true});
            let what = format!("one more added token, id {}", added["id"]);
            named.push("<|more|>".into());
            if let Some(list) = document["added_tokens"].as_array_mut() {
                list.push(added);
            }
            what
        }
        _ => {
            document["model"]["vocab"] = json!({"a": 0});
            "a vocabulary of one entry".into()
        }
    };
    (what, named)
}

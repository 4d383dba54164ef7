//! Log probabilities of tokens that are parts of one character: each has its own bytes.

use serde_json::{Value, json};

use crate::client::{Running, plain};

/// The reply is this one character.
fn body(streamed: bool) -> Value {
    json!({
        "prompt": "O", "messages": [{"role": "user", "content": "O"}], "grammar": "root ::= \"\u{1f642}\" \"a\"", "max_tokens": 20,
        "temperature": 0, "stream": streamed,
    })
}

fn with(mut body: Value, more: &[(&str, Value)]) -> Value {
    more.iter().for_each(|(key, value)| body[key] = value.clone());
    body
}

fn bytes_of(tokens: &[Value]) -> Vec<u8> {
    tokens
        .iter()
        .flat_map(|token| token["bytes"].as_array().unwrap())
        .map(|byte| byte.as_u64().unwrap() as u8)
        .collect()
}

fn chat(server: &Running) -> Vec<Value> {
    let wanted = [("logprobs", true.into()), ("top_logprobs", 2.into())];
    let reply = server.ok("/v1/chat/completions", &with(body(false), &wanted));
    assert_eq!(reply["choices"][0]["message"]["content"], "\u{1f642}a");
    reply["choices"][0]["logprobs"]["content"].as_array().unwrap().clone()
}

#[test]
fn parts_of_a_character_have_their_own_bytes() {
    let server = plain();
    let tokens = chat(&server);
    assert!(tokens.len() > 2, "the demo model has no token for this character: {tokens:?}");
    assert_eq!(bytes_of(&tokens), "\u{1f642}a".as_bytes());
    assert_eq!(tokens[0]["token"], "\\xf0");
    let own = server.ok("/completion", &with(body(false), &[("n_probs", 1.into())]));
    assert_eq!(bytes_of(own["completion_probabilities"].as_array().unwrap()), "\u{1f642}a".as_bytes());
}

#[test]
fn offsets_count_whole_characters() {
    let server = plain();
    let wanted = [("logprobs", 1.into())];
    let whole = server.ok("/v1/completions", &with(body(false), &wanted));
    let found = &whole["choices"][0]["logprobs"];
    assert_eq!(found["tokens"][0], "bytes:\\xf0", "{found}");
    let offsets: Vec<u64> = found["text_offset"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    let n_parts = chat(&server).len() - 1;
    // All parts of the first character begin with it; `a` is the second.
    assert_eq!(offsets, [vec![0; n_parts], vec![1]].concat(), "{found}");
    let events = server.events("/v1/completions", &with(body(true), &wanted));
    let streamed = events.iter().filter_map(|event| event.pointer("/choices/0/logprobs/text_offset")?.as_array());
    assert_eq!(streamed.flatten().filter_map(Value::as_u64).collect::<Vec<_>>(), offsets);
}

//! Every key of the request schemas: a value of another kind is refused with 400 and the key's name, so none is read by halves. A key
//! that is new in a schema fails here until the table below says what a wrong value of it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::client::plain;

/// Routes, the schema of each, and a request that is good.
fn routes() -> Vec<(&'static str, &'static str, Value)> {
    let messages = json!([{"role": "user", "content": "O"}]);
    vec![
        ("/v1/chat/completions", "ChatRequest", json!({"messages": messages, "max_tokens": 1})),
        ("/v1/completions", "CompletionRequest", json!({"prompt": "O", "max_tokens": 1})),
        ("/completion", "OwnCompletionRequest", json!({"prompt": "O", "n_predict": 1})),
        ("/v1/responses", "ResponsesRequest", json!({"input": "O", "max_output_tokens": 1})),
        ("/v1/messages", "MessagesRequest", json!({"messages": messages, "max_tokens": 1})),
    ]
}

/// A value that no key of that name takes.
fn wrong() -> BTreeMap<&'static str, Value> {
    let number = "temperature top_p top_k seed max_tokens max_completion_tokens max_output_tokens n_predict presence_penalty \
        frequency_penalty repeat_penalty repeat_last_n n logprobs top_logprobs best_of n_probs min_p typical_p top_n_sigma dry_multiplier \
        dry_base dry_allowed_length dry_penalty_last_n xtc_probability xtc_threshold dynatemp_range dynatemp_exponent mirostat \
        mirostat_tau mirostat_eta priority";
    let flag = "ignore_eos stream echo parallel_tool_calls timings_per_token add_generation_prompt background";
    let text = "suffix reasoning_format reasoning_effort grammar previous_response_id instructions";
    let list = "stop_sequences samplers dry_sequence_breakers messages tools";
    let object = "stream_options chat_template_kwargs response_format text reasoning";
    // What takes texts and more.
    let other = "stop logit_bias prompt input system tool_choice json_schema conversation";
    let all = [
        (number, json!("?")),
        (flag, json!("?")),
        (list, json!("?")),
        (object, json!("?")),
        (text, json!(3)),
        (other, json!(3)),
    ];
    all.iter().flat_map(|(keys, value)| keys.split_whitespace().map(move |key| (key, value.clone()))).collect()
}

fn keys_of(schema: &Value, out: &mut BTreeSet<String>) {
    schema["properties"].as_object().into_iter().for_each(|all| out.extend(all.keys().cloned()));
    schema["allOf"].as_array().into_iter().flatten().for_each(|part| keys_of(part, out));
}

#[test]
fn no_key_of_a_schema_is_read_by_halves() {
    let server = plain();
    let schemas = server.get("/openapi.json").1["components"]["schemas"].clone();
    let wrong = wrong();
    for (path, name, good) in routes() {
        server.ok(path, &good);
        let mut keys = BTreeSet::new();
        keys_of(&schemas[name], &mut keys);
        assert!(keys.len() > 35, "{name}: {keys:?}");
        // With one model its name does not matter.
        keys.remove("model");
        let mut empty = good.clone();
        for key in keys {
            let mut body = good.clone();
            body[&key] = wrong.get(&*key).unwrap_or_else(|| panic!("{name}: `{key}` is new")).clone();
            let (status, reply) = server.post(path, &body);
            let message = reply["error"]["message"].as_str().unwrap_or_default();
            assert!(status == 400 && message.contains(&format!("`{key}")), "{path} {key}: {status} {reply}");
            if good.get(&key).is_none() {
                empty[&key] = Value::Null;
            }
        }
        // Null is as good as left out, except for what the route needs.
        server.ok(path, &empty);
    }
}

/// Keys of other servers that would change the reply are refused; those that change nothing are ignored.
#[test]
fn what_would_change_a_reply_is_refused_and_the_rest_ignored() {
    let server = plain();
    let (path, _, good) = routes().swap_remove(0);
    for (key, value) in [
        ("functions", json!([{"name": "f"}])),
        ("modalities", json!(["audio"])),
        ("lora", json!([{"id": 0, "scale": 1.0}])),
        ("top_logprobs", json!(2)),
        ("reasoning_format", json!("other")),
    ] {
        let mut body = good.clone();
        body[key] = value;
        let (status, reply) = server.post(path, &body);
        assert_eq!((status, &reply["error"]["param"]), (400, &Value::from(key)), "{reply}");
    }
    for (path, _, good) in routes().into_iter().skip(2) {
        let mut body = good;
        body["n"] = 2.into();
        assert_eq!(server.post(path, &body).0, 400, "{path}: n");
    }
    let mut body = good;
    for key in ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"] {
        body[key] = "x".into();
    }
    server.ok(path, &body);
}

//! The other routes: completions, llama.cpp's, Anthropic's, responses, slots, metrics; keys and hosts.

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::ServerOptions;

use crate::client::{plain, start};

fn text(reply: &Value, at: &str) -> String {
    reply.pointer(at).and_then(Value::as_str).unwrap_or_else(|| panic!("{at}: {reply}")).to_owned()
}

#[test]
fn completions_say_the_same_on_each_route() {
    let server = plain();
    let body = json!({"prompt": "ROMEO:", "max_tokens": 10, "temperature": 0});
    let whole = server.ok("/v1/completions", &body);
    let said = text(&whole, "/choices/0/text");
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = server.events("/v1/completions", &streamed);
    assert_eq!(events.iter().filter_map(|event| event.pointer("/choices/0/text")?.as_str()).collect::<String>(), said);
    let own = server.ok("/completion", &json!({"prompt": "ROMEO:", "n_predict": 10, "temperature": 0}));
    assert_eq!(
        (text(&own, "/content"), &own["stop_type"], &own["tokens_predicted"]),
        (said.clone(), &"limit".into(), &10.into())
    );
    let ids = server.ok("/tokenize", &json!({"content": "ROMEO:", "add_special": true}))["tokens"].clone();
    let by_ids =
        server.ok("/v1/completions", &json!({"prompt": ids, "max_tokens": 10, "temperature": 0, "echo": true}));
    assert!(text(&by_ids, "/choices/0/text").ends_with(&said));
    let plain_ids = server.ok("/tokenize", &json!({"content": "ROMEO:"}))["tokens"].clone();
    assert_eq!(server.ok("/detokenize", &json!({"tokens": plain_ids}))["content"], "ROMEO:");
    let two =
        server.ok("/v1/completions", &json!({"prompt": ["ROMEO:", "JULIET:"], "max_tokens": 10, "temperature": 0}));
    assert_eq!((two["choices"].as_array().unwrap().len(), text(&two, "/choices/0/text")), (2, said));
}

#[test]
fn bias_and_log_probabilities() {
    let server = plain();
    let body = |more: Value| {
        let mut body = json!({
            "messages": [{"role": "user", "content": "ROMEO:"}], "max_tokens": 4, "temperature": 0, "logprobs": true, "top_logprobs": 2,
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let reply = server.ok("/v1/chat/completions", &body(json!({})));
    let tokens = reply["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(tokens.len(), 4);
    for token in tokens {
        // Without bias and temperature the likeliest is taken.
        assert_eq!(
            (token["top_logprobs"].as_array().unwrap().len(), &token["top_logprobs"][0]["token"]),
            (2, &token["token"])
        );
        assert!(token["logprob"].as_f64().unwrap() <= 0.0);
    }
    let first = text(&tokens[0], "/token");
    let id = server.ok("/tokenize", &json!({"content": first}))["tokens"][0].as_u64().unwrap();
    let biased = server.ok("/v1/chat/completions", &body(json!({"logit_bias": {id.to_string(): -100}})));
    assert_ne!(text(&biased, "/choices/0/logprobs/content/0/token"), first);
    assert_eq!(server.post("/v1/chat/completions", &body(json!({"logit_bias": {"99999999": 1}}))).0, 400);
}

#[test]
fn messages_in_anthropics_form() {
    let server = plain();
    let body = json!({
        "model": "x", "max_tokens": 8, "temperature": 0, "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "ROMEO:"}]}],
    });
    let whole = server.ok("/v1/messages", &body);
    assert_eq!(
        (&whole["type"], &whole["stop_reason"], &whole["usage"]["output_tokens"]),
        (&"message".into(), &"max_tokens".into(), &8.into())
    );
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = server.events("/v1/messages", &streamed);
    let said: String = events.iter().filter_map(|event| event.pointer("/delta/text")?.as_str()).collect();
    assert_eq!(said, text(&whole, "/content/0/text"));
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!((kinds[0], kinds[kinds.len() - 1]), ("message_start", "message_stop"));
    let counted =
        server.ok("/v1/messages/count_tokens", &json!({"messages": body["messages"], "system": body["system"]}));
    let usage = &whole["usage"];
    assert_eq!(
        counted["input_tokens"].as_u64().unwrap(),
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap()
    );
    let (status, error) = server.post("/v1/messages", &json!({"messages": [], "max_tokens": 1}));
    assert_eq!(
        (status, &error["type"], &error["error"]["type"]),
        (400, &"error".into(), &"invalid_request_error".into())
    );
}

#[test]
fn responses_are_typed_events() {
    let server = plain();
    let body = json!({"input": "ROMEO:", "max_output_tokens": 8, "temperature": 0, "tools": [{"type": "web_search"}]});
    let whole = server.ok("/v1/responses", &body);
    assert_eq!((&whole["object"], &whole["status"]), (&"response".into(), &"incomplete".into()));
    let said = text(&whole, "/output/0/content/0/text");
    let mut streamed = body;
    streamed["stream"] = true.into();
    let events = server.events("/v1/responses", &streamed);
    let deltas = events.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.filter_map(|event| event["delta"].as_str()).collect::<String>(), said);
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["type"], "response.incomplete");
    assert_eq!(
        server.post("/v1/responses", &json!({"input": "x", "previous_response_id": "r"})).1["error"]["param"],
        "previous_response_id"
    );
}

#[test]
fn slots_are_saved_restored_and_erased_in_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions { slot_folder: Some(folder.path().to_owned()), ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    let body = json!({"prompt": "Now is the winter of our discontent", "n_predict": 4, "temperature": 0});
    server.ok("/completion", &body);
    let slots = server.get("/slots").1;
    let (id, n_past) = (slots[0]["id"].as_u64().unwrap(), slots[0]["n_past"].as_u64().unwrap());
    assert!(n_past > 4 && slots[0]["is_processing"] == false);
    let at = |action: &str| format!("/slots/{id}?action={action}");
    assert_eq!(server.ok(&at("save"), &json!({"filename": "one"}))["n_saved"], n_past);
    assert!(folder.path().join("one").is_file());
    assert_eq!(server.ok(&at("erase"), &json!({}))["n_erased"], n_past);
    assert_eq!(server.get("/slots").1, json!([]));
    assert_eq!(server.ok(&at("restore"), &json!({"filename": "one"}))["n_restored"], n_past);
    assert!(server.ok("/completion", &body)["tokens_cached"].as_u64().unwrap() > 4);
    for name in ["../one", "/etc/passwd", "", "none"] {
        assert_eq!(server.post(&at("restore"), &json!({"filename": name})).0, 400, "{name}");
    }
    std::fs::write(folder.path().join("torn"), &std::fs::read(folder.path().join("one")).unwrap()[..500]).unwrap();
    for name in ["none", "torn"] {
        let error = server.post(&at("restore"), &json!({"filename": name})).1["error"].take();
        let message = error["message"].as_str().unwrap();
        assert!(error["param"] == "filename" && message.contains(&format!("`{name}`")), "{error}");
    }
    assert_eq!(server.post(&at("dance"), &json!({})).0, 400);
    // A folder that is gone is not the request's fault; the slot stays as it is.
    folder.close().unwrap();
    let (status, reply) = server.post(&at("save"), &json!({"filename": "one"}));
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(status == 500 && message.starts_with("`one` cannot be saved: "), "{status}: {reply}");
    assert_eq!(server.ok(&at("erase"), &json!({}))["n_erased"].as_u64().unwrap(), n_past);
    assert_eq!(plain().post("/slots/0?action=save", &json!({"filename": "one"})).0, 501);
}

/// The memory of a process is a file that is there, and that cannot be read at its beginning.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_is_not_the_fault_of_who_restores() {
    let options = ServerOptions { slot_folder: Some("/proc/self".into()), ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    let (status, reply) = server.post("/slots/0?action=restore", &json!({"filename": "mem"}));
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("`mem` cannot be restored: cannot read snapshot `/proc/self/mem`: "), "{reply}");
    assert_eq!((status, &reply["error"]["type"]), (500, &json!("server_error")));
    // None such is, as are files that hold something else.
    for name in ["none", "status"] {
        let (status, reply) = server.post("/slots/0?action=restore", &json!({"filename": name}));
        assert_eq!((status, &reply["error"]["param"]), (400, &json!("filename")), "{name}: {reply}");
    }
}

#[test]
fn keys_are_not_asked_for_health_alone() {
    let options = ServerOptions { api_keys: vec!["s3cret".into()], ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    for path in ["/v1/models", "/metrics", "/slots", "/props"] {
        assert_eq!(server.call("GET", path, &[], "").0, 401, "{path}");
        assert_eq!(server.call("GET", path, &[("authorization", "Bearer s3cret")], "").0, 200, "{path}");
        assert_eq!(
            server.call("GET", path, &[("x-api-key", "s3cret"), ("origin", "http://evil.example")], "").0,
            403,
            "{path}"
        );
    }
    // Anthropic's clients get errors in their own form before the routes, too.
    let (status, text) = server.call("POST", "/v1/messages", &[], "{}");
    assert!(status == 401 && text.contains(r#"{"type":"error","error":{"type":"authentication_error""#), "{text}");
    assert_eq!(server.get("/health").0, 200);
    assert_eq!(server.call("GET", "/health", &[("host", "evil.example")], "").0, 403);
}

#[test]
fn what_is_measured_and_what_is_refused_by_name() {
    let server = plain();
    server.ok("/completion", &json!({"prompt": "O", "n_predict": 3, "temperature": 0}));
    let (_, metrics) = server.call("GET", "/metrics", &[], "");
    assert!(
        metrics.contains("genie_tokens_predicted_total 3\n") && metrics.contains("genie_requests_finished_total 1\n"),
        "{metrics}"
    );
    assert_eq!(server.get("/props").1["total_slots"], 8);
    assert_eq!(server.post("/v1/embeddings", &json!({"input": "x"})).0, 501);
    let prompt = server.ok("/apply-template", &json!({"messages": [{"role": "user", "content": "Hi"}]}));
    assert_eq!(prompt["prompt"], "User: Hi\nAssistant:");
}

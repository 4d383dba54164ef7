//! `/v1/chat/completions`: whole and in pieces, limits, errors, cancellation, the queue.

use std::time::{Duration, Instant};

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::ServerOptions;

use crate::client::{content_of, plain, read_until, start};

fn ask(text: &str, more: Value) -> Value {
    let mut body = json!({
        "model": "demo", "messages": [{"role": "user", "content": text}], "max_tokens": 12, "temperature": 0,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_stream_says_what_a_whole_reply_says() {
    let server = plain();
    let whole = server.ok("/v1/chat/completions", &ask("ROMEO:", json!({})));
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["finish_reason"]),
        (&"chat.completion".into(), &"length".into())
    );
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());
    assert_eq!(
        (&whole["usage"]["completion_tokens"], &whole["choices"][0]["message"]["role"]),
        (&12.into(), &"assistant".into())
    );
    let more = json!({"stream": true, "stream_options": {"include_usage": true}, "unknown_key": [1]});
    let events = server.events("/chat/completions", &ask("ROMEO:", more));
    assert_eq!(content_of(&events), text);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": null}));
    let (done, usage, last) = (&events[events.len() - 1], &events[events.len() - 2], &events[events.len() - 3]);
    assert_eq!((done, &usage["choices"]), (&"[DONE]".into(), &json!([])));
    assert_eq!(usage["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    assert_eq!((&last["choices"][0]["delta"], &last["choices"][0]["finish_reason"]), (&json!({}), &"length".into()));
    assert!(events[..events.len() - 1].iter().all(|event| event["id"] == events[0]["id"]));
    // Asked again, all of the prompt but its last token is there.
    let n_prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(usage["usage"]["prompt_tokens_details"]["cached_tokens"], n_prompt - 1);
}

#[test]
fn seeds_choices_and_stops_hold() {
    let server = plain();
    let more = json!({"temperature": 1.0, "seed": 7, "n": 3, "top_p": 1.0});
    let texts = |reply: &Value| -> Vec<String> {
        reply["choices"].as_array().unwrap().iter().map(|choice| choice["message"]["content"].to_string()).collect()
    };
    let first = texts(&server.ok("/v1/chat/completions", &ask("O", more.clone())));
    assert_eq!(first, texts(&server.ok("/v1/chat/completions", &ask("O", more))));
    assert_eq!(first.len(), 3);
    assert!(first[0] != first[1] && first[1] != first[2], "{first:?}");
    // Each choice is the reply that its own seed has alone.
    let alone = server.ok("/v1/chat/completions", &ask("O", json!({"temperature": 1.0, "seed": 8, "top_p": 1.0})));
    assert_eq!(texts(&alone)[0], first[1]);
    let whole = server.ok("/v1/chat/completions", &ask("ROMEO:", json!({})));
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    let stop: String = text.chars().skip(3).take(3).collect();
    let stopped = server.ok("/v1/chat/completions", &ask("ROMEO:", json!({"stop": [stop]})));
    let choice = &stopped["choices"][0];
    assert_eq!(choice["message"]["content"].as_str().unwrap(), text.split(&stop).next().unwrap());
    assert_eq!(choice["finish_reason"], "stop");
}

#[test]
fn a_reply_follows_a_schema() {
    let server = plain();
    let schema = json!({
        "type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"], "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "strict": true, "schema": schema}});
    let reply = server.ok("/v1/chat/completions", &ask("Well?", json!({"max_tokens": 100, "response_format": format})));
    let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap();
    assert!(value == json!({"answer": "yes"}) || value == json!({"answer": "no"}), "{text}");
}

#[test]
fn a_call_is_forced_and_streamed() {
    let server = plain();
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": tool_schema()}});
    let more =
        json!({"max_tokens": 100, "tools": [tool], "tool_choice": {"type": "function", "function": {"name": "look"}}});
    let reply = server.ok("/v1/chat/completions", &ask("Look!", more.clone()));
    let call = &reply["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(
        (&call["function"]["name"], &reply["choices"][0]["finish_reason"]),
        (&"look".into(), &"tool_calls".into())
    );
    let arguments = call["function"]["arguments"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(arguments).unwrap()["far"].is_boolean());
    let mut more = more;
    more["stream"] = true.into();
    let events = server.events("/v1/chat/completions", &ask("Look!", more));
    let pieces = events.iter().filter_map(|e| e.pointer("/choices/0/delta/tool_calls/0/function/arguments")?.as_str());
    assert_eq!(pieces.collect::<String>(), arguments);
}

/// A client that reads `tool_calls` parses the arguments; those that a stop sequence cut off are none.
#[test]
fn a_call_that_is_cut_off_is_no_call() {
    let server = plain();
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": tool_schema()}});
    // Of `{"name": "look", "arguments": {"far": ..}}` the end is missing.
    let more = json!({"max_tokens": 100, "tools": [tool], "tool_choice": "required", "stop": ["}"]});
    let reply = server.ok("/v1/chat/completions", &ask("Look!", more.clone()));
    let choice = &reply["choices"][0];
    assert_eq!(
        (&choice["message"]["tool_calls"][0]["function"]["name"], &choice["finish_reason"]),
        (&"look".into(), &"stop".into())
    );
    let mut more = more;
    more["stream"] = true.into();
    let events = server.events("/v1/chat/completions", &ask("Look!", more.clone()));
    let finish = events.iter().filter_map(|event| event.pointer("/choices/0/finish_reason")?.as_str());
    assert_eq!(finish.collect::<Vec<_>>(), ["stop"]);

    let anthropic = json!({
        "model": "demo", "max_tokens": 100, "temperature": 0, "messages": [{"role": "user", "content": "Look!"}],
        "tools": [{"name": "look", "input_schema": tool_schema()}], "tool_choice": {"type": "any"},
    });
    let reason = |stops: Value| {
        let mut body = anthropic.clone();
        body["stop_sequences"] = stops;
        let reply = server.ok("/v1/messages", &body);
        (reply["stop_reason"].clone(), reply["stop_sequence"].clone())
    };
    assert_eq!(reason(json!(["}"])), ("stop_sequence".into(), "}".into()));
    assert_eq!(reason(json!([])), ("tool_use".into(), Value::Null));

    let mut body = json!({
        "input": "Look!", "temperature": 0, "tool_choice": "required",
        "tools": [{"type": "function", "name": "look", "parameters": tool_schema()}],
    });
    let status = |reply: &Value| (reply["output"][0]["type"].clone(), reply["output"][0]["status"].clone());
    assert_eq!(status(&server.ok("/v1/responses", &body)), ("function_call".into(), "completed".into()));
    body["stop"] = json!(["}"]);
    assert_eq!(status(&server.ok("/v1/responses", &body)), ("function_call".into(), "incomplete".into()));
    body["stream"] = true.into();
    let events = server.events("/v1/responses", &body);
    let done = events.iter().find(|event| event["type"] == "response.output_item.done").unwrap();
    assert_eq!(done["item"]["status"], "incomplete");
}

fn tool_schema() -> Value {
    json!({"type": "object", "properties": {"far": {"type": "boolean"}}, "required": ["far"]})
}

#[test]
fn a_schema_as_text_is_that_schema() {
    let server = plain();
    let schema = json!({"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"]});
    let reply = |schema: Value| {
        let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
        let reply =
            server.ok("/v1/chat/completions", &ask("Well?", json!({"max_tokens": 100, "response_format": format})));
        reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
    };
    assert_eq!(reply(schema.to_string().into()), reply(schema));
    let format = json!({"type": "json_schema", "json_schema": {"schema": "{\"type\": "}});
    assert_eq!(server.post("/v1/chat/completions", &ask("x", json!({"response_format": format}))).0, 400);
}

/// Chats without a system message get the server's; a text before calls of tools is not lost where the template knows no tools.
#[test]
fn messages_become_what_the_template_can_write() {
    let options = ServerOptions { system: Some("Be brief.".into()), ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    let prompt = |messages: Value| server.ok("/apply-template", &json!({"messages": messages}))["prompt"].clone();
    let user = json!({"role": "user", "content": "hi"});
    assert_eq!(prompt(json!([user])), "System: Be brief.\nUser: hi\nAssistant:");
    assert_eq!(prompt(json!([{"role": "system", "content": "Rhyme."}, user])), "System: Rhyme.\nUser: hi\nAssistant:");
    assert_eq!(server.post("/apply-template", &json!({"messages": []})).0, 400);
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let said = json!({"role": "assistant", "content": "Let me see.", "tool_calls": [call]});
    let expected =
        "System: Be brief.\nUser: hi\nAssistant: Let me see.\n{\"name\": \"f\", \"arguments\": {}}\nAssistant:";
    assert_eq!(prompt(json!([user, said])), expected);
}

#[test]
fn errors_name_the_key_of_their_interface() {
    let server = plain();
    let param = |path: &str, body: Value| {
        let (status, reply) = server.post(path, &body);
        (status, reply["error"]["param"].clone())
    };
    assert_eq!(param("/v1/responses", json!({"model": "demo", "input": []})), (400, "input".into()));
    assert_eq!(param("/detokenize", json!({"tokens": [4_000_000_000_u32]})), (400, "tokens".into()));
    assert_eq!(param("/completion", json!({"prompt": [4_000_000_000_u32]})), (400, "prompt".into()));
}

#[test]
fn errors_have_their_status_and_shape() {
    let server = start(ServerOptions { body_limit: 4096, ..Default::default() }, ServeOptions::default(), None);
    let of = |body: &Value| {
        let (status, reply) = server.post("/v1/chat/completions", body);
        (status, reply["error"]["type"].as_str().unwrap_or_default().to_owned(), reply["error"]["param"].clone())
    };
    let invalid = |param: &str| (400, "invalid_request_error".to_owned(), Value::from(param));
    assert_eq!(of(&json!({"messages": []})), invalid("messages"));
    assert_eq!(of(&ask("x", json!({"temperature": -1}))), invalid("temperature"));
    assert_eq!(of(&ask("x", json!({"temperature": "hot"}))), invalid("temperature"));
    assert_eq!(of(&ask("x", json!({"min_p": 2}))), invalid("min_p"));
    assert_eq!(of(&ask("x", json!({"n": 0}))), invalid("n"));
    assert_eq!(of(&ask("x", json!({"response_format": {"type": "xml"}}))), invalid("response_format"));
    assert_eq!(of(&ask("x", json!({"tool_choice": "required"}))), invalid("tool_choice"));
    assert_eq!(
        of(&json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})),
        invalid("messages[0].content[0]")
    );
    assert_eq!(of(&json!({"messages": [{"role": "user"}]})), invalid("messages[0].content"));
    assert_eq!(of(&ask("x", json!({"suffix": "y"}))), invalid("suffix"));
    assert_eq!(of(&ask("x", json!({"stop": ["a", 5]}))), invalid("stop"));
    let (status, kind, _) = of(&ask(&"word ".repeat(700), json!({})));
    assert_eq!((status, kind.as_str()), (400, "exceed_context_size_error"));
    assert_eq!(of(&ask(&"x".repeat(5000), json!({}))).0, 413);
    assert_eq!(server.call("POST", "/v1/chat/completions", &[], "{").0, 400);
    assert_eq!(server.call("POST", "/v1/nothing", &[], "{}").0, 404);
    assert_eq!(server.call("GET", "/v1/chat/completions", &[], "").0, 405);
    assert_eq!((server.get("/health").0, server.get("/v1/models").1["object"].clone()), (200, "list".into()));
}

/// A client that goes frees its place: the next one, which waits for it, has its reply long before the first would have ended.
#[test]
fn a_client_that_goes_frees_its_slot() {
    let serve = ServeOptions { max_slots: 1, max_waiting: 1, ..Default::default() };
    let server = start(ServerOptions::default(), serve, None);
    for stream in [true, false] {
        let long = ask("ROMEO:", json!({"max_tokens": 200, "ignore_eos": true, "stream": stream}));
        let mut first = server.raw("/v1/chat/completions", &long);
        if stream {
            read_until(&mut first, "\"content\":\"");
        }
        drop(first);
        let began = Instant::now();
        loop {
            let (status, _) = server.post("/v1/chat/completions", &ask("x", json!({"max_tokens": 1})));
            match status {
                200 => break,
                429 => assert!(began.elapsed() < Duration::from_secs(60)),
                status => panic!("{status}"),
            }
        }
    }
}

#[test]
fn a_full_queue_is_said_with_429() {
    let serve = ServeOptions { max_slots: 1, max_waiting: 1, ..Default::default() };
    let server = start(ServerOptions::default(), serve, None);
    // More replies than ever fit are no matter of waiting.
    let (status, reply) = server.post("/v1/chat/completions", &ask("x", json!({"n": 3, "max_tokens": 1})));
    assert_eq!((status, &reply["error"]["param"]), (400, &"n".into()), "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("at most 2"), "{reply}");
    let (status, reply) = server.post("/v1/chat/completions", &ask("x", json!({"n": 2, "max_tokens": 1})));
    assert_eq!((status, reply["choices"].as_array().map(Vec::len)), (200, Some(2)), "{reply}");
    let long = ask("ROMEO:", json!({"max_tokens": 200, "stream": true}));
    let mut first = server.raw("/v1/chat/completions", &long);
    read_until(&mut first, "\"content\":\"");
    let waiting: Vec<_> = (0..3).map(|_| server.raw("/v1/chat/completions", &long)).collect();
    let refused = waiting
        .into_iter()
        .map(|mut socket| {
            let reply = read_until(&mut socket, "\r\n\r\n");
            // A stream goes on for long; a refusal is read to its end.
            let is_part = reply.starts_with("HTTP/1.1 429") && !reply.contains("}}");
            if is_part { reply + &read_until(&mut socket, "}}") } else { reply }
        })
        .filter(|reply| reply.starts_with("HTTP/1.1 429"));
    let refused: Vec<String> = refused.collect();
    assert!(!refused.is_empty());
    for reply in refused {
        assert!(reply.to_lowercase().contains("retry-after"), "{reply}");
        let error = reply.find("{\"error\"").map(|at| serde_json::from_str::<Value>(&reply[at..]).unwrap());
        let error = error.unwrap_or_else(|| panic!("{reply}"))["error"].take();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("queue full"), "{message}");
        assert_eq!((&error["type"], &error["code"]), (&"rate_limit_error".into(), &"queue_full".into()));
    }
}

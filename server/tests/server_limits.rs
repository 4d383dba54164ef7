//! Limits: bodies that are slow or too large, replies that take too long, a server that ends, connections that stay half open,
//! links in the folder of slots, slots from one run to the next.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use open_genie::serving::ServeOptions;
use serde_json::{Value, json};
use server::{HttpServer, ServerError, ServerOptions};

use crate::client;
use crate::client::{plain, read_until, start};

fn connect(server: &client::Running, text: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.write_all(text.as_bytes()).unwrap();
    socket
}

fn head(more: &str) -> String {
    format!("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}\r\n\r\n")
}

fn quick() -> ServerOptions {
    ServerOptions { read_timeout: Duration::from_millis(200), ..Default::default() }
}

#[test]
fn a_body_that_does_not_come_is_408() {
    let server = start(quick(), ServeOptions::default(), None);
    let mut socket = connect(&server, &(head("Content-Length: 100") + "{\"prompt\":"));
    let reply = read_until(&mut socket, "}}");
    assert!(reply.starts_with("HTTP/1.1 408") && reply.contains("did not arrive"), "{reply}");
}

#[test]
fn a_body_without_a_length_is_measured_while_it_comes() {
    let options = ServerOptions { body_limit: 1000, ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    let mut socket = connect(&server, &head("Transfer-Encoding: chunked"));
    // The server may close while the rest is written.
    let _ = socket.write_all(format!("7d0\r\n{}\r\n0\r\n\r\n", " ".repeat(2000)).as_bytes());
    let reply = read_until(&mut socket, "}}");
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("more than 1000 bytes"), "{reply}");
}

/// Only one connection at a time, and the first sends half a head: it is closed, and the next one has its turn.
#[test]
fn a_half_open_connection_gives_its_place_back() {
    let server = start(ServerOptions { max_connections: 1, ..quick() }, ServeOptions::default(), None);
    let mut half = connect(&server, "POST /v1/completions HTTP/1.1\r\nHost: loc");
    let mut next = connect(&server, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(read_until(&mut next, "ok").starts_with("HTTP/1.1 200"));
    let mut rest = Vec::new();
    // An end, or an answer with an end.
    half.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&rest));
}

#[test]
fn a_reply_that_takes_too_long_is_504() {
    let options = ServerOptions { reply_timeout: Duration::from_millis(1), ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    let body = json!({"prompt": "ROMEO:", "max_tokens": 400, "ignore_eos": true});
    let (status, reply) = server.post("/v1/completions", &body);
    assert_eq!((status, &reply["error"]["type"]), (504, &"timeout_error".into()), "{reply}");
    // Behind the head of a stream it is an event.
    let mut streamed = body;
    streamed["stream"] = true.into();
    let events = server.events("/v1/completions", &streamed);
    assert_eq!(events.last().unwrap()["error"]["type"], "timeout_error");
    // What timed out has left its slot.
    let mut counts = String::new();
    for _ in 0..400 {
        counts = server.call("GET", "/metrics", &[], "").1;
        if counts.contains("genie_requests_processing 0\n") {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("{counts}");
}

/// A request whose body is complete only after the server was asked to end is refused; what runs is finished.
#[test]
fn a_server_that_ends_takes_no_request() {
    let server = plain();
    let long = json!({"prompt": "ROMEO:", "max_tokens": 60, "ignore_eos": true, "stream": true});
    let mut running = server.raw("/v1/completions", &long);
    read_until(&mut running, "data: ");
    let body = json!({"prompt": "x", "max_tokens": 1}).to_string();
    let (first, rest) = body.split_at(5);
    let mut late = connect(&server, &(head(&format!("Content-Length: {}\r\nExpect: 100-continue", body.len()))));
    // Its head is read once the server asks for the body.
    read_until(&mut late, "100 Continue");
    late.write_all(first.as_bytes()).unwrap();
    server.begin_shutdown();
    late.write_all(rest.as_bytes()).unwrap();
    let reply = read_until(&mut late, "}}");
    assert!(reply.starts_with("HTTP/1.1 503") && reply.to_lowercase().contains("retry-after"), "{reply}");
    assert!(read_until(&mut running, "[DONE]").contains("[DONE]"));
}

#[cfg(unix)]
#[test]
fn a_link_in_the_folder_of_slots_leads_nowhere() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "mine").unwrap();
    std::os::unix::fs::symlink(&secret, folder.path().join("link")).unwrap();
    std::os::unix::fs::symlink(outside.path(), folder.path().join("way")).unwrap();
    let options = ServerOptions { slot_folder: Some(folder.path().to_owned()), ..Default::default() };
    let server = start(options, ServeOptions::default(), None);
    server.ok("/completion", &json!({"prompt": "Now is the winter", "n_predict": 2}));
    let id = server.get("/slots").1[0]["id"].as_u64().unwrap();
    for action in ["save", "restore"] {
        for name in ["link", "way", "way/secret", "..", "%2e%2e", "\u{2e}\u{2e}/secret", "a\u{0}b"] {
            let (status, reply) = server.post(&format!("/slots/{id}?action={action}"), &json!({"filename": name}));
            assert_eq!(status, 400, "{action} {name:?}: {reply}");
        }
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn a_restart_finds_the_slots() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        || ServerOptions { slot_folder: Some(folder.path().to_owned()), keep_slots: true, ..Default::default() };
    let body = json!({"prompt": "Now is the winter of our discontent", "n_predict": 4, "temperature": 0});
    let first = start(options(), ServeOptions::default(), None);
    let alone = first.ok("/completion", &body);
    assert_eq!(alone["tokens_cached"], 0);
    drop(first);
    let names = || -> Vec<String> {
        let entries = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = entries.filter(|name| name.starts_with(".parked-")).collect();
        names.sort();
        names
    };
    let [kept] = names().try_into().unwrap();
    // A file that is no slot does no harm, and those of other models stay.
    let broken = format!("{}-9", kept.rsplit_once('-').unwrap().0);
    let foreign = ".parked-0123456789abcdef-0".to_owned();
    std::fs::write(folder.path().join(&broken), "no slot").unwrap();
    std::fs::copy(folder.path().join(&kept), folder.path().join(&foreign)).unwrap();
    let second = start(options(), ServeOptions::default(), None);
    let again = second.ok("/completion", &body);
    assert_eq!(again["content"], alone["content"]);
    assert!(again["tokens_cached"].as_u64().unwrap() > 4, "{again}");
    drop(second);
    let is_there = |name: &String| names().contains(name);
    assert_eq!([&foreign, &kept, &broken].map(is_there), [true, true, false], "{:?}", names());
}

#[test]
fn one_server_at_a_time_keeps_its_slots_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        || ServerOptions { slot_folder: Some(folder.path().to_owned()), keep_slots: true, ..Default::default() };
    let first = start(options(), ServeOptions::default(), None);
    let error = HttpServer::bind(client::demo_model(ServeOptions::default(), None), options()).unwrap_err();
    assert!(matches!(&error, ServerError::SlotFolderTaken { path } if path == folder.path()), "{error}");
    drop(first);
    drop(start(options(), ServeOptions::default(), None));
}

#[test]
fn what_cannot_act_is_refused_by_name() {
    let server = plain();
    let cases: [(&str, &str, Value); 8] = [
        ("/completion", "id_slot", json!(3)),
        ("/completion", "cache_prompt", json!(false)),
        ("/completion", "return_progress", json!(true)),
        ("/v1/completions", "best_of", json!(4)),
        ("/v1/completions", "logprobs", json!(99)),
        ("/v1/completions", "mirostat", json!(3)),
        ("/v1/completions", "xtc_probability", json!(2)),
        ("/v1/completions", "dry_base", json!(0.5)),
    ];
    for (path, key, value) in cases {
        let mut body = json!({"prompt": "x", "max_tokens": 1});
        body[key] = value;
        let (status, reply) = server.post(path, &body);
        assert_eq!((status, &reply["error"]["param"]), (400, &Value::from(key)), "{reply}");
    }
    let fine = json!({"prompt": "x", "max_tokens": 1, "id_slot": -1, "cache_prompt": true, "return_progress": false});
    server.ok("/completion", &fine);
}

/// What would end the process by its stack, take all memory, or minutes, is a bad request.
#[test]
fn what_a_request_may_have_compiled_is_bounded() {
    let server = plain();
    let properties: serde_json::Map<String, Value> = (0..6_000).map(|i| (format!("p{i}"), json!({}))).collect();
    let schema = json!({"type": "object", "minProperties": 1, "properties": properties});
    let long = format!("root ::= {}", "[a] ".repeat(100_000));
    let cases = [
        (json!({"grammar": format!("root ::= [a]{}", "+".repeat(50_000))}), "operators behind an element"),
        (json!({"grammar": long}), "at most 262144 bytes"),
        (json!({"json_schema": schema}), "found 6000"),
        (json!({"dry_multiplier": 1, "dry_sequence_breakers": ["e".repeat(1_000_000)]}), "at most 64 texts"),
    ];
    for (more, words) in cases {
        let mut body = json!({"prompt": "x", "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, reply) = server.post("/v1/completions", &body);
        let said = reply["error"]["message"].as_str().unwrap();
        assert!(status == 400 && said.contains(words), "{status}: {said}");
    }
    server.ok("/completion", &json!({"prompt": "x", "max_tokens": 1}));
}

/// DRY and mirostat of one request change its reply, and no other's.
#[test]
fn stages_of_a_request_act() {
    let server = plain();
    let text = |more: Value| {
        let mut body = json!({"prompt": "O O O O", "max_tokens": 100, "temperature": 0, "ignore_eos": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.ok("/v1/completions", &body)["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let bare = text(json!({}));
    // Long enough that a greedy reply repeats two tokens, which DRY forbids here.
    let dry = json!({"dry_multiplier": 50, "dry_allowed_length": 1, "dry_sequence_breakers": []});
    assert_ne!(text(dry), bare);
    assert_eq!(text(json!({})), bare);
    let sampled = |more: Value| {
        let mut all = json!({"temperature": 1.0, "seed": 5, "top_k": 0, "top_p": 1.0});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        text(all)
    };
    assert_ne!(sampled(json!({"mirostat": 2, "mirostat_tau": 0.1})), sampled(json!({})));
}

#[test]
fn log_probabilities_of_completions() {
    let server = plain();
    let body = json!({"prompt": "ROMEO:", "max_tokens": 5, "temperature": 0, "logprobs": 2});
    let reply = server.ok("/v1/completions", &body);
    let (choice, found) = (&reply["choices"][0], &reply["choices"][0]["logprobs"]);
    let tokens: String = found["tokens"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!((tokens.as_str(), found["tokens"].as_array().unwrap().len()), (choice["text"].as_str().unwrap(), 5));
    for (token, (likely, top)) in found["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .zip(found["token_logprobs"].as_array().unwrap().iter().zip(found["top_logprobs"].as_array().unwrap()))
    {
        // Greedy: the token is the likeliest.
        assert_eq!(&top[token.as_str().unwrap()], likely);
        assert!(top.as_object().unwrap().values().all(|other| other.as_f64() <= likely.as_f64()));
    }
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let events = server.events("/v1/completions", &streamed);
    let offsets: Vec<u64> = events
        .iter()
        .filter_map(|event| event.pointer("/choices/0/logprobs/text_offset")?.as_array())
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    assert_eq!(json!(offsets), found["text_offset"]);
    let own = server.ok("/completion", &json!({"prompt": "ROMEO:", "n_predict": 5, "temperature": 0, "n_probs": 2}));
    let likely = own["completion_probabilities"].as_array().unwrap();
    assert_eq!((likely.len(), &likely[0]["logprob"]), (5, &found["token_logprobs"][0]));
}

/// Clients that read nothing of long streams hold no other request up; once they go, nothing of theirs is left.
#[test]
fn slow_readers_hold_nothing_up_and_leave_nothing() {
    let server = plain();
    let long = json!({"prompt": "ROMEO:", "max_tokens": 100, "ignore_eos": true, "stream": true, "logprobs": 20});
    // Fewer than slots: the others go on beside them.
    let slow: Vec<TcpStream> = (0..4).map(|_| server.raw("/v1/completions", &long)).collect();
    let body = json!({"prompt": "JULIET:", "max_tokens": 5, "temperature": 0});
    let alone = plain().ok("/v1/completions", &body)["choices"].clone();
    for _ in 0..4 {
        assert_eq!(server.ok("/v1/completions", &body)["choices"], alone);
    }
    drop(slow);
    let mut counts = String::new();
    for _ in 0..400 {
        counts = server.call("GET", "/metrics", &[], "").1;
        if counts.contains("genie_requests_processing 0\n") && counts.contains("genie_requests_deferred 0\n") {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("{counts}");
}

//! `genie serve`: the program on the demo model, asked over a socket, ended by SIGTERM.

#![cfg(all(unix, feature = "server"))]

use std::io::Read;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::program::with_users_cache;
use crate::served::{self, Server};

fn serve(args: &[&str]) -> Server {
    Server::start(served::serve().args(args))
}

fn chat(server: &Server, body: &Value) -> TcpStream {
    server.send("POST", "/v1/chat/completions", &body.to_string()).unwrap()
}

fn all(mut socket: TcpStream) -> String {
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_smaller_context_is_served_where_it_is_asked_for() {
    let server = serve(&["--ctx-size", "64"]);
    let props = server.json("GET", "/props", &Value::Null);
    assert_eq!(props["default_generation_settings"]["n_ctx"], 64);
    let (status, text) = server.ask("POST", "/completion", &json!({"prompt": "a b ".repeat(64)}));
    assert!(status == 400 && text.contains("expected at most 64"), "{status}: {text}");
}

/// SIGTERM while a stream runs: the stream ends as it would have, the access log has its line, the exit code is the signal's.
#[test]
fn sigterm_finishes_what_runs() {
    let server = serve(&["--alias", "bard"]);
    let body = json!({
        "messages": [{"role": "user", "content": "ROMEO:"}], "max_tokens": 40, "temperature": 0, "stream": true,
    });
    let whole = all(chat(&server, &body));
    assert!(whole.contains("\"model\":\"bard\"") && whole.contains("data: [DONE]"), "{whole}");
    let mut socket = chat(&server, &body);
    let mut first = [0; 64];
    socket.read_exact(&mut first).unwrap();
    server.signal("-TERM");
    let rest = all(socket);
    assert!(rest.contains("data: [DONE]"), "{rest}");
    let (code, lines) = server.end();
    assert_eq!(code, Some(143));
    let log: Vec<Value> = lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(log.iter().filter(|line| line["path"] == "/v1/chat/completions" && line["status"] == 200).count(), 2);
    assert!(log.iter().all(|line| line["id"].as_str().is_some_and(|id| id.starts_with("req_"))));
}

/// Widths are chosen by measured times where a target is given; the reply is the same however steps are filled.
#[test]
fn flags_say_how_requests_share_the_model() {
    let request = json!({"messages": [{"role": "user", "content": "ROMEO:"}], "max_tokens": 12, "temperature": 0});
    let reply = |args: &[&str]| {
        let server = serve(args);
        let said = "timed a step of each width with an empty and a full cache, in ms: 1 rows ";
        let timed = server.said.iter().find(|line| line.starts_with(said)).is_some_and(|line| line.contains("32 rows"));
        let text = all(chat(&server, &request));
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        let body: Value = serde_json::from_str(text.rsplit_once("\r\n\r\n").unwrap().1).unwrap();
        (timed, body["choices"][0]["message"]["content"].as_str().unwrap().to_owned())
    };
    let (timed, plain) = reply(&[]);
    assert!(!timed && !plain.is_empty());
    let flags = [
        ["--target-ms", "40"],
        ["--step-policy", "alternating-batched"],
        ["--chunk", "4"],
        ["--reserve", "8"],
        ["--parking", "recompute"],
        ["--ageing-ms", "0"],
        ["--turn", "0"],
        ["--queue", "3"],
    ];
    assert_eq!(reply(&flags.concat()), (true, plain));
    for (flags, what) in [
        (["--step-policy", "random"], "expected one of one, prefill-first"),
        (["--target-ms", "0"], "--target-ms"),
        (["--parking", "disk"], "[possible values: snapshot, recompute]"),
        (["--chunk", "0"], "--chunk"),
    ] {
        let output = with_users_cache(&["serve"]).args(flags).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(what), "{flags:?}: {said}");
    }
}

#[test]
fn an_address_that_others_reach_needs_a_key() {
    let output = with_users_cache(&["serve", "--host", "0.0.0.0", "--port", "0", "--threads", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`0.0.0.0` can be reached from other machines") && text.contains("--api-key"), "{text}");
}

/// What a build without HTTPS prints, and one with it for files that are not there.
#[test]
fn https_that_cannot_be_is_refused_with_a_hint() {
    let flags = ["serve", "--port", "0", "--threads", "1", "--tls-cert", "none.pem", "--tls-key", "none.key"];
    let output = with_users_cache(&flags).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let hint = if cfg!(feature = "tls") { "--tls-key" } else { "--features tls" };
    assert!(output.status.code() == Some(1) && text.contains("hint:") && text.contains(hint), "{text}");
    let incomplete = with_users_cache(&["serve", "--tls-cert", "c.pem"]).output().unwrap();
    assert_eq!(incomplete.status.code(), Some(2));
}

/// `max-tokens = -1` at the top of `genie.toml` is for every command: `serve` takes it, too, as no limit.
#[test]
fn defaults_of_every_command_do_not_stop_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("genie.toml");
    let body = json!({"messages": [{"role": "user", "content": "ROMEO:"}], "temperature": 0, "ignore_eos": true});
    for (limit, counted) in [("-1", None), ("3", Some(3))] {
        // The planner's policy is another thing than the scheduler's.
        std::fs::write(&file, format!("max-tokens = {limit}\npolicy = \"cost\"\n")).unwrap();
        let server = Server::start(served::serve().env("GENIE_TOML", &file));
        let reply = all(chat(&server, &body));
        let reply: Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        let n = reply["usage"]["completion_tokens"].as_u64().unwrap();
        match counted {
            Some(wanted) => assert_eq!(n, wanted, "{reply}"),
            None => assert!(n > 100, "{reply}"),
        }
    }
}

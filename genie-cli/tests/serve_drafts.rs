//! `genie serve --spec`: drafts of another model and of trees change no reply, and what cannot be is refused with the reason.

#![cfg(all(unix, feature = "server"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::{Value, json};

/// The texts of a few sampled replies, each asked twice: the second time the prompt is cached.
fn replies(args: &[&str]) -> Vec<String> {
    let mut command = Command::cargo_bin("genie").unwrap();
    command.args(["serve", "--port", "0", "--threads", "1"]).args(args).env_remove("GENIE_LOG");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.by_ref().find_map(|line| Some(line.unwrap().strip_prefix("serving on http://")?.to_owned()));
    let address = address.expect("it says where it listens");
    let ask = |prompt: &str, seed: usize| {
        let body = json!({"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "seed": seed}).to_string();
        let mut socket = TcpStream::connect(&address).unwrap();
        let head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length:";
        write!(socket, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let body: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
        body["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let prompts = ["Enter 0", "ROMEO: What light", "KING RICHARD III:\nNow is"];
    let found = (0..6).map(|n| ask(prompts[n % 3], n % 3)).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    found
}

#[test]
fn drafts_of_a_model_change_no_sampled_reply() {
    let demo = open_genie::demo::bundle().unwrap();
    let plain = replies(&[]);
    assert_eq!(plain[..3], plain[3..], "a cached prompt has the same reply");
    assert_eq!(replies(&["--spec", &format!("draft:{}", demo.display()), "--draft-len", "3"]), plain);
}

#[test]
fn drafts_of_trees_change_no_sampled_reply() {
    assert_eq!(replies(&["--spec", "lade:2,3,2"]), replies(&[]));
}

#[test]
fn drafts_that_cannot_be_are_refused_with_the_reason() {
    for (spec, reason) in [
        ("lade:999,3,9", "steps with the 2016 rows of a tree of these settings"),
        ("ssd:/no/such/folder", "/no/such/folder"),
        ("eaglet:/no/such/folder", "cannot open the `draft` model"),
    ] {
        let mut command = Command::cargo_bin("genie").unwrap();
        let output = command.args(["serve", "--port", "0", "--threads", "1", "--spec", spec]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(reason), "{spec}: {text}");
    }
}

//! `genie serve --record`: each step is a line of the file, and a file that cannot be written is refused before the model is loaded.

#![cfg(all(unix, feature = "server"))]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

#[test]
fn steps_are_lines_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steps.jsonl");
    std::fs::write(&file, "what was there before\n").unwrap();
    let mut command = Command::cargo_bin("genie").unwrap();
    command.args(["serve", "--port", "0", "--threads", "1", "--alias", "bard", "--record"]).arg(&file);
    let mut child = command.env_remove("GENIE_LOG").stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.by_ref().find_map(|line| Some(line.unwrap().strip_prefix("serving on http://")?.to_owned()));
    let mut socket = TcpStream::connect(address.expect("it says where it listens")).unwrap();
    let body = r#"{"prompt": "ROMEO:", "n_predict": 5, "temperature": 0}"#;
    let n = body.len();
    let head = "POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    write!(socket, "{head}Content-Length: {n}\r\n\r\n{body}").unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("\"tokens_predicted\":5"), "{reply}");
    // SIGKILL: what has happened is in the file all the same.
    let written = || -> Vec<Value> {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let is_last = |line: &Value| line["slots"][0]["state"] == "idle" || line["slots"][0]["n_out"] == 5;
    while !written().last().is_some_and(is_last) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let steps = written();
    assert_eq!((&steps[0]["type"], &steps[0]["model"]), (&"engine".into(), &"bard".into()));
    let rows = || steps[1..].iter().flat_map(|step| step["rows"].as_array().unwrap());
    let n_of = |kind: &str| rows().filter(|row| row["kind"] == kind).map(|row| row["n"].as_u64().unwrap()).sum::<u64>();
    let tokens: Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!((Some(n_of("prefill")), n_of("decode")), (tokens["tokens_evaluated"].as_u64(), 4));
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none").join("steps.jsonl");
    let mut command = Command::cargo_bin("genie").unwrap();
    let output = command.args(["serve", "--port", "0", "--threads", "1", "--record"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`--record`") && text.contains("steps.jsonl"), "{text}");
}

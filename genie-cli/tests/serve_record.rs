//! `genie serve --record`: each step is a line of the file, and a file that cannot be written is refused before the model is loaded.

#![cfg(all(unix, feature = "server"))]

use serde_json::{Value, json};

use crate::program::with_users_cache;
use crate::served::{Server, serve};

#[test]
fn steps_are_lines_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steps.jsonl");
    std::fs::write(&file, "what was there before\n").unwrap();
    let server = Server::start(serve().args(["--alias", "bard", "--record"]).arg(&file));
    let reply = server.post("/completion", &json!({"prompt": "ROMEO:", "n_predict": 5, "temperature": 0}));
    assert_eq!(reply["tokens_predicted"], 5, "{reply}");
    // SIGKILL: what has happened is in the file all the same.
    let written = || -> Vec<Value> {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let is_last = |line: &Value| line["slots"][0]["state"] == "idle" || line["slots"][0]["n_out"] == 5;
    while !written().last().is_some_and(is_last) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    drop(server);
    let steps = written();
    assert_eq!((&steps[0]["type"], &steps[0]["model"]), (&"engine".into(), &"bard".into()));
    let rows = || steps[1..].iter().flat_map(|step| step["rows"].as_array().unwrap());
    let n_of = |kind: &str| rows().filter(|row| row["kind"] == kind).map(|row| row["n"].as_u64().unwrap()).sum::<u64>();
    assert_eq!((Some(n_of("prefill")), n_of("decode")), (reply["tokens_evaluated"].as_u64(), 4));
}

/// A server that does not start, here for its port, leaves the recording of another one alone.
#[test]
fn a_start_that_fails_leaves_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("steps.jsonl");
    std::fs::write(&file, "what was there before\n").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = with_users_cache(&["serve", "--port", &port, "--record"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "what was there before\n");
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none").join("steps.jsonl");
    let output = serve().arg("--record").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`--record`") && text.contains("steps.jsonl"), "{text}");
}

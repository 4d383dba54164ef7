//! `genie serve --spec`: drafts of another model and of trees change no reply, and what cannot be is refused with the reason.

#![cfg(all(unix, feature = "server"))]

use serde_json::json;

use crate::served::{Server, serve};

/// The texts of a few sampled replies, each asked twice: the second time the prompt is cached.
fn replies(args: &[&str]) -> Vec<String> {
    let server = Server::start(serve().args(args));
    let ask = |prompt: &str, seed: usize| {
        let body = json!({"prompt": prompt, "max_tokens": 24, "temperature": 0.8, "seed": seed});
        let reply = server.post("/v1/completions", &body);
        reply["choices"][0]["text"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned()
    };
    let prompts = ["Enter 0", "ROMEO: What light", "KING RICHARD III:\nNow is"];
    (0..6).map(|n| ask(prompts[n % 3], n % 3)).collect()
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
        let output = serve().args(["--spec", spec]).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains(reason), "{spec}: {text}");
    }
}

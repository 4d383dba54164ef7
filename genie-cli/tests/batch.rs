//! `genie run --prompts` and batches of prompts: each reply is what the prompt gets alone, also in its second turn.

use std::path::Path;

use open_genie::{Options, Prompt, SentenceCode, Session};
use serde_json::{Value, json};

use crate::program::{compiled, genie};

fn bundle() -> tempfile::TempDir {
    compiled(&["--ar", "1,8", "--cl", "96"])
}

fn record(folder: &Path, args: &[&str]) -> Value {
    let output = genie(folder, &[&["run", "-c", "bundle", "--json", "--greedy", "-n", "6"], args].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

const PROMPTS: [&str; 3] = ["a b", "the longest of the three prompts", "x"];

#[test]
fn each_prompt_of_a_file_gets_the_reply_that_it_gets_alone() {
    let folder = bundle();
    std::fs::write(folder.path().join("prompts.txt"), PROMPTS.join("\n")).unwrap();
    let batch = record(folder.path(), &["--prompts", "prompts.txt"]);
    let streams = batch["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 3);
    let mut n_prompt = 0;
    for (prompt, stream) in PROMPTS.iter().zip(streams) {
        let alone = record(folder.path(), &["-p", prompt]);
        assert_eq!((&stream["tokens"], &stream["text"]), (&alone["tokens"], &alone["text"]), "{prompt:?}");
        assert_eq!(stream["stop"], alone["stop"]);
        n_prompt += alone["kpis"]["num-prompt-tokens"].as_u64().unwrap();
    }
    assert_eq!(batch["kpis"]["num-prompt-tokens"], n_prompt);
    let printed = genie(folder.path(), &["run", "-c", "bundle", "--greedy", "-n", "6", "--prompts", "prompts.txt"]);
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    for (number, stream) in streams.iter().enumerate() {
        for line in stream["text"].as_str().unwrap().lines().filter(|line| !line.is_empty()) {
            assert!(printed.contains(&format!("{}| {line}", number + 1)), "{printed:?} lacks {line:?}");
        }
    }
}

/// Greedy replies of five tokens.
fn open(folder: &Path) -> Session {
    let mut session = Session::open(folder.join("bundle"), &Options::new()).unwrap();
    session.set_max_tokens(Some(5));
    let greedy = session.sampler().clone().with_greedy(true);
    session.set_sampler(greedy);
    session
}

fn ask(session: &mut Session, texts: &[String], code: SentenceCode) -> Vec<Vec<u32>> {
    let reply = session.query(Prompt::Batch(texts), code).into_reply().unwrap();
    reply.streams.iter().map(|stream| stream.tokens.iter().map(|t| t.0).collect()).collect()
}

#[test]
fn conversations_of_a_batch_go_on_side_by_side() {
    let folder = bundle();
    let open = || open(folder.path());
    let turns = [["a b", "the longer one"], ["and", "then more"]].map(|turn| turn.map(str::to_owned));
    let mut batch = open();
    let found = turns.clone().map(|turn| ask(&mut batch, &turn, SentenceCode::Complete));
    for number in 0..2 {
        let mut alone = open();
        for (turn, found) in turns.iter().zip(&found) {
            let reply = alone.generate(&turn[number]).into_reply().unwrap();
            let tokens: Vec<u32> = reply.tokens.iter().map(|t| t.0).collect();
            assert_eq!(found[number], tokens, "prompt {number}, {turn:?}");
        }
    }
    // In parts: the same as at once.
    let mut parts = open();
    let text = |list: [&str; 2]| list.map(str::to_owned);
    assert!(ask(&mut parts, &text(["a ", "the "]), SentenceCode::Begin).is_empty());
    let whole = ask(&mut parts, &text(["b", "longer"]), SentenceCode::End);
    for (number, found) in whole.iter().enumerate() {
        let mut alone = open();
        alone.query(&text(["a ", "the "])[number], SentenceCode::Begin).into_reply().unwrap();
        let reply = alone.query(&text(["b", "longer"])[number], SentenceCode::End).into_reply().unwrap();
        assert_eq!(*found, reply.tokens.iter().map(|t| t.0).collect::<Vec<_>>());
    }
    // Another number is refused, a query of one starts from nothing.
    let error = parts.query(Prompt::Batch(&turns[0][..1]), SentenceCode::Complete).into_reply().unwrap_err();
    assert!(error.to_string().contains("1 prompts came, but the conversations of this batch are 2"), "{error}");
    let saved = parts.save(folder.path().join("saved")).unwrap_err();
    let why = std::error::Error::source(&saved).unwrap().to_string();
    assert!(why.contains("a batch of prompts cannot be saved"), "{why}");
    let after = parts.generate("x").into_reply().unwrap();
    assert_eq!(after.tokens, open().generate("x").into_reply().unwrap().tokens);
    assert_eq!(json!(after.streams.len()), json!(0));
}

#[test]
fn a_refused_batch_leaves_the_conversation() {
    let folder = bundle();
    let open = || open(folder.path());
    let (mut session, mut other) = (open(), open());
    for session in [&mut session, &mut other] {
        session.generate("a b").into_reply().unwrap();
    }
    let too_long = ["hi".to_owned(), "x".repeat(200)];
    let error = session.query(Prompt::Batch(&too_long), SentenceCode::Complete).into_reply().unwrap_err();
    assert!(error.to_string().contains("context"), "{error}");
    assert_eq!(session.history(), other.history());
    let next = session.generate("and").into_reply().unwrap().tokens;
    assert_eq!(next, other.generate("and").into_reply().unwrap().tokens);
    // No batch has run: the next one may have any number of prompts.
    let three = PROMPTS.map(str::to_owned);
    assert_eq!(ask(&mut session, &three, SentenceCode::Complete).len(), 3);
}

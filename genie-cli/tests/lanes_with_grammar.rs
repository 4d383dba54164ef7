//! Several replies at once under a grammar: each has a state of its own, and is what the same prompt gets alone.

use std::path::Path;

use open_genie::{Grammar, GrammarKind, Options, Prompt, SentenceCode, Session, StopReason};
use serde_json::Value;

use crate::program::{compiled, genie};

fn bundle() -> tempfile::TempDir {
    compiled(&["--ar", "1,8", "--cl", "160"])
}

fn record(folder: &Path, args: &[&str]) -> Value {
    let output = genie(folder, &[&["run", "-c", "bundle", "--json", "--greedy", "-n", "24"], args].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Replies of different lengths, whose way depends on the model.
const RULES: &str = "(ab|b[c-e]){1,4}(x|yz?)[0-3]{2}";

fn matches(text: &str) -> bool {
    let rest = text.trim_end_matches(|c: char| ('0'..='3').contains(&c));
    let digits = text.len() - rest.len();
    let Some(letters) = ["x", "yz", "y"].iter().find_map(|end| rest.strip_suffix(end)) else { return false };
    let pieces = letters.len() / 2;
    digits == 2
        && letters.len() % 2 == 0
        && (1..=4).contains(&pieces)
        && (0..pieces).all(|i| ["ab", "bc", "bd", "be"].contains(&&letters[2 * i..2 * i + 2]))
}

#[test]
fn prompts_of_a_batch_follow_the_grammar_each_for_itself() {
    let folder = bundle();
    let prompts = ["a b", "the longest of the three prompts", "x", "zebra, and more"];
    std::fs::write(folder.path().join("prompts.txt"), prompts.join("\n")).unwrap();
    let batch = record(folder.path(), &["--prompts", "prompts.txt", "--regex", RULES]);
    let streams = batch["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 4);
    for (prompt, stream) in prompts.iter().zip(streams) {
        let alone = record(folder.path(), &["-p", prompt, "--regex", RULES]);
        assert_eq!((&stream["text"], &stream["stop"]), (&alone["text"], &alone["stop"]), "{prompt:?}");
        assert!(matches(stream["text"].as_str().unwrap()), "{stream}");
    }
    let document = r#"{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":9}},"required":["n"],"additionalProperties":false}"#;
    let batch = record(folder.path(), &["--prompts", "prompts.txt", "-j", document, "--json-white-space", "none"]);
    for stream in batch["streams"].as_array().unwrap() {
        let found: Value = serde_json::from_str(stream["text"].as_str().unwrap()).unwrap();
        assert!(found["n"].as_u64() < Some(10), "{stream}");
    }
}

#[test]
fn streams_of_one_prompt_follow_the_grammar_from_their_first_tokens_on() {
    let folder = bundle();
    let alone = record(folder.path(), &["-p", "a b", "--regex", RULES]);
    let found = record(folder.path(), &["-p", "a b", "--regex", RULES, "--streams", "3"]);
    let streams = found["streams"].as_array().unwrap();
    assert!(streams.len() > 1, "{found}");
    assert_eq!(streams[0]["text"], alone["text"], "the first is the likeliest");
    assert!(streams.iter().all(|stream| matches(stream["text"].as_str().unwrap())), "{found}");
    assert!(streams.iter().skip(1).all(|stream| stream["tokens"][0] != streams[0]["tokens"][0]));
    // Only one token may come first: more streams have nothing to begin with.
    let one = record(folder.path(), &["-p", "a b", "--regex", "q[a-z]{3}", "--streams", "3"]);
    assert_eq!(one["streams"].as_array().unwrap().len(), 1, "{one}");
}

#[test]
fn streams_follow_the_bias_from_their_first_tokens_on_and_end_where_the_grammar_does() {
    let folder = bundle();
    let plain = record(folder.path(), &["-p", "a b", "--streams", "3"]);
    let first = plain["streams"][0]["tokens"][0].as_u64().unwrap();
    let bias = format!("{first}-inf");
    let biased = record(folder.path(), &["-p", "a b", "--streams", "3", "--logit-bias", &bias]);
    let firsts = |found: &Value| -> Vec<u64> {
        found["streams"].as_array().unwrap().iter().map(|stream| stream["tokens"][0].as_u64().unwrap()).collect()
    };
    assert_eq!(firsts(&biased)[..2], firsts(&plain)[1..], "the second is the likeliest then");
    let ended = record(folder.path(), &["-p", "a b", "--regex", "yes|no|maybe", "--streams", "3", "--ignore-eos"]);
    let texts: Vec<&str> = ended["streams"].as_array().unwrap().iter().map(|s| s["text"].as_str().unwrap()).collect();
    assert!(texts.iter().all(|text| ["yes", "no", "maybe"].contains(text)) && texts.len() > 1, "{texts:?}");
}

fn session(folder: &Path) -> Session {
    let grammar = Grammar::new(GrammarKind::Regex, "[a-c]{4}-[0-9]{6}!").unwrap();
    let mut session = Session::open(folder.join("bundle"), &Options::new().grammar(grammar)).unwrap();
    session.set_sampler(open_genie::SamplerSettings::argmax());
    session
}

fn texts(session: &mut Session, prompts: &[&str], code: SentenceCode) -> Vec<(String, StopReason)> {
    let prompts: Vec<String> = prompts.iter().map(|&text| text.into()).collect();
    let reply = session.query(Prompt::Batch(&prompts), code).into_reply().unwrap();
    reply.streams.into_iter().map(|stream| (stream.text, stream.stop)).collect()
}

#[test]
fn each_prompts_grammar_goes_on_in_its_next_query_or_starts_again() {
    let folder = bundle();
    let mut session = session(folder.path());
    session.set_max_tokens(Some(3));
    let first = texts(&mut session, &["one", "two words"], SentenceCode::Complete);
    assert!(first.iter().all(|(text, stop)| text.len() == 3 && *stop == StopReason::MaxTokens), "{first:?}");
    // Cut after three letters: END goes on behind them, COMPLETE starts with letters again.
    session.set_max_tokens(Some(30));
    let rest = texts(&mut session, &["k", "m"], SentenceCode::End);
    for (text, _) in &rest {
        let (letter, digits) = text.split_once('-').unwrap();
        assert!(letter.len() == 1 && digits.len() == 7 && digits.ends_with('!'), "{rest:?}");
    }
    let again = texts(&mut session, &["k", "m"], SentenceCode::Complete);
    assert!(again.iter().all(|(text, _)| text.len() == 12 && text.as_bytes()[4] == b'-'), "{again:?}");
    // Without the grammar the prompts go on as they like.
    session.set_grammar(None).unwrap();
    let free = texts(&mut session, &["k", "m"], SentenceCode::Complete);
    assert!(free.iter().any(|(text, _)| !text.contains('!')), "{free:?}");
}

#[test]
fn the_grammar_of_the_first_stream_goes_on_in_a_saved_dialog() {
    let folder = bundle();
    let saved = folder.path().join("saved");
    let go_on = |session: &mut Session| {
        session.set_max_tokens(Some(30));
        session.query("k", SentenceCode::End).into_reply().unwrap().text
    };
    let mut first = session(folder.path());
    first.set_streams(2, 0.0).unwrap();
    first.set_max_tokens(Some(3));
    let reply = first.query("one", SentenceCode::Complete).into_reply().unwrap();
    assert_eq!((reply.streams.len(), reply.text.len()), (2, 3), "{reply:?}");
    first.save(&saved).unwrap();
    let live = go_on(&mut first);
    assert!(live.as_bytes()[1] == b'-' && live.len() == 9, "{live}");
    let mut second = session(folder.path());
    second.restore(&saved).unwrap();
    assert_eq!(go_on(&mut second), live);
}

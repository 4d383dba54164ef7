//! Each kind of long context from the command line: beyond the compiled context, saved and taken up, gone back, and refused with a
//! hint. Qualcomm's library: `recorded_long_context_htp`.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use genie_types::TokenId;
use open_genie::{LongContext, Options, PolicyChoice, SamplerSettings, SentenceCode, Session, StopReason};
use serde_json::Value;

use crate::program::{stderr as said, without_qnn};

/// Flags of each kind, and whether libGenie's policy is followed.
const KINDS: &[(&str, &str, bool)] = &[
    ("window:20", "2", false),
    ("window:57", "0", false),
    ("window:20", "3", true),
    ("shift", "2", false),
    ("shift:7", "0", false),
    ("keydiff:1", "2", false),
    ("keydiff:9", "4", false),
];

fn genie(folder: &Path, args: &[&str]) -> Output {
    without_qnn(folder, args).output().unwrap()
}

/// The record of a run of `base` with these flags.
fn record(folder: &Path, kind: (&str, &str, bool), args: &[&str]) -> Value {
    let mut all =
        vec!["run", "-c", "base", "--greedy", "--json", "--long-context", kind.0, "--reserved-tokens", kind.1];
    if kind.2 {
        all.extend(["--policy", "genie"]);
    }
    all.extend(args);
    let output = genie(folder, &all);
    assert_eq!(output.status.code(), Some(0), "{all:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn tokens(record: &Value) -> Vec<u32> {
    record["tokens"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

/// A folder with the bundle `base` of contexts 32 and 64, of a model that was trained for 400 positions; no token ends a reply.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = TestModel { max_positions: 400, ..TestModel::tiny(Family::Llama) };
    model.write(&folder.path().join("model")).unwrap();
    let args = ["compile", "model", "-o", "base", "--ar", "1,8", "--cl", "32,64", "-q"];
    let output = genie(folder.path(), &args);
    assert!(output.status.success(), "{}", said(&output));
    let path = folder.path().join("base/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["dialog"]["context"]["eos-token"] = (-1).into();
    config["dialog"]["context"]["pad-token"] = 0.into();
    std::fs::write(&path, config.to_string()).unwrap();
    folder
}

fn list(tokens: &[u32]) -> String {
    tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn prompt(n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 37 + 11) % 250).collect()
}

/// Two turns in one process, through the library.
fn in_one_process(folder: &Path, kind: (&str, &str, bool), turns: [(&[u32], usize); 2]) -> [Vec<u32>; 2] {
    let long: LongContext = kind.0.parse().unwrap();
    let mut options = Options::new().long_context(long).reserved_tokens(kind.1.parse().unwrap());
    if kind.2 {
        options = options.policy(PolicyChoice::Genie);
    }
    let mut session = Session::open(folder.join("base"), &options).unwrap();
    session.start_with_sampler(SamplerSettings::argmax());
    turns.map(|(prompt, n)| {
        let ids: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
        session.set_max_tokens(Some(n));
        let reply = session.generate(&ids[..]).into_reply().unwrap();
        reply.tokens.iter().map(|token| token.0).collect()
    })
}

#[test]
fn each_kind_goes_beyond_the_compiled_context_and_on_from_a_saved_dialog() {
    let folder = folder();
    for &kind in KINDS {
        let first = prompt(10);
        let second = [77, 5, 31];
        let want = in_one_process(folder.path(), kind, [(&first, 120), (&second, 40)]);
        let ids = list(&first);
        let begun = record(folder.path(), kind, &["--prompt-tokens", &ids, "-n", "120", "--save", "saved"]);
        assert_eq!(tokens(&begun), want[0], "{kind:?}: one run and one process");
        assert_eq!(want[0].len(), 120, "{kind:?}: beyond the context of 64");
        let on = ["--restore", "saved", "--prompt-tokens", &list(&second), "-n", "40"];
        assert_eq!(tokens(&record(folder.path(), kind, &on)), want[1], "{kind:?}: restored and not");
        std::fs::remove_dir_all(folder.path().join("saved")).unwrap();
    }
    let plain = ["run", "-c", "base", "--greedy", "--json", "--prompt-tokens", &list(&prompt(10)), "-n", "120"];
    let output = genie(folder.path(), &plain);
    let ended: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(tokens(&ended).len() < 60, "without long context it ends: {ended}");
}

#[test]
fn each_kind_goes_back_to_another_prompt() {
    let folder = folder();
    for &kind in KINDS {
        let ids = list(&prompt(12));
        record(folder.path(), kind, &["--prompt-tokens", &ids, "-n", "100", "--save", "saved"]);
        // The whole conversation, with BOS in front: it parts from the saved one after six tokens.
        let fresh = record(
            folder.path(),
            kind,
            &["--prompt-tokens", &list(&[&prompt(6)[..], &[9, 8, 7]].concat()), "-n", "90"],
        );
        let whole: Vec<u32> = fresh["input"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let back = ["--restore", "saved", "--rewind", "--prompt-tokens", &list(&whole), "-n", "90"];
        assert_eq!(tokens(&record(folder.path(), kind, &back)), tokens(&fresh), "{kind:?}");
        std::fs::remove_dir_all(folder.path().join("saved")).unwrap();
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_hint() {
    let folder = folder();
    let refused = |args: &[&str], code: i32| {
        let output = genie(folder.path(), &[&["run", "-c", "base", "-p", "x"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        said(&output).to_owned()
    };
    for (args, hint) in [
        (
            &["--long-context", "window:65"][..],
            "use `--long-context window:64` or less, or a bundle with a longer context",
        ),
        (
            // As long as what the model was trained for.
            &["--long-context", "window:400"],
            "use `--long-context window:64` or less, or a bundle with a longer context",
        ),
        (
            &["--long-context", "window:62", "--reserved-tokens", "5"],
            "use `--long-context window:59` or less beside the 5 reserved tokens, or a bundle with a longer context",
        ),
        (
            &["--long-context", "window:2", "--reserved-tokens", "70"],
            "use `--reserved-tokens 63` or less, or a bundle with a longer context",
        ),
        (
            &["--long-context", "keydiff", "--reserved-tokens", "63"],
            "use `--reserved-tokens 62` or less, or a bundle with a longer context",
        ),
    ] {
        let said = refused(args, 1);
        assert!(said.contains(&format!("hint: {hint}\n")), "{args:?}: {said}");
    }
    let unknown = refused(&["--long-context", "ring"], 2);
    assert!(unknown.contains("expected `window:N`, `shift`, `shift:N`, `keydiff`, `keydiff:N` or `none`"), "{unknown}");
    let none = refused(&["--long-context", "none", "--reserved-tokens", "3"], 1);
    assert!(none.contains("hint: add `--long-context`, or remove `--reserved-tokens`\n"), "{none}");
}

/// A conversation that repeats itself, so that drafts are found in it.
fn periodic(n: u32) -> Vec<u32> {
    (0..n).map(|i| 40 + i % 3).collect()
}

#[test]
fn drafts_go_on_where_rows_are_dropped() {
    let folder = folder();
    let mut n_refused = 0;
    for &kind in KINDS.iter().filter(|kind| !kind.2) {
        let ids = list(&periodic(30));
        let args = ["--prompt-tokens", &ids, "-n", "120"];
        let (plain, drafted) = (
            record(folder.path(), kind, &args),
            record(folder.path(), kind, &[&args[..], &["--spec", "lookup"]].concat()),
        );
        assert_eq!(tokens(&drafted).len(), 120, "{kind:?}");
        if !kind.0.starts_with("keydiff") {
            assert_eq!(tokens(&drafted), tokens(&plain), "{kind:?}");
        }
        let n = |key: &str| drafted["speculation"][key].as_u64().unwrap();
        n_refused += n("drafted") - n("accepted");
    }
    assert!(n_refused > 0, "no drafted token was refused");
}

#[test]
fn a_stop_sequence_of_several_tokens_ends_a_reply_where_rows_are_dropped() {
    let folder = folder();
    for &(kind, reserved, _) in KINDS.iter().filter(|kind| !kind.2) {
        let options = Options::new().long_context(kind.parse().unwrap()).reserved_tokens(reserved.parse().unwrap());
        let open = || {
            let mut session = Session::open(folder.path().join("base"), &options).unwrap();
            // Drawn, as the most likely tokens repeat themselves.
            session.start_with_sampler(SamplerSettings::default().with_seed(Some(5)).with_temp(1.5).unwrap());
            session.set_max_tokens(Some(110));
            session
        };
        let prompt = String::from_utf8(prompt(10).iter().map(|id| 97 + (id % 26) as u8).collect()).unwrap();
        let whole = open().generate(&*prompt).into_reply().unwrap().text;
        // Two characters that come once only, far behind the first rows that were dropped.
        let chars: Vec<(usize, char)> = whole.char_indices().collect();
        let found = chars.windows(3).rev().find_map(|pair| {
            let stop = &whole[pair[0].0..pair[2].0];
            let is_text = pair[..2].iter().all(|(_, c)| *c != char::REPLACEMENT_CHARACTER);
            (is_text && whole.find(stop) == Some(pair[0].0)).then_some((pair[0].0, stop))
        });
        let Some((at, stop)) = found.filter(|(at, _)| *at > 60) else { panic!("{kind}: no such text in {whole:?}") };
        let mut session = open();
        session.set_stop_sequences(vec![stop.to_owned()]).unwrap();
        let reply = session.generate(&*prompt).into_reply().unwrap();
        assert_eq!(
            (reply.text.as_str(), &reply.stop),
            (&whole[..at], &StopReason::StopSequence(stop.to_owned())),
            "{kind}"
        );
        let (n, history) = (reply.tokens.len(), session.history());
        let is_cut = (1..=8).any(|n_cut| history.ends_with(&reply.tokens[n - n_cut - 10..n - n_cut]));
        assert!(is_cut, "{kind}: {history:?}, {:?}", reply.tokens);
        // The conversation is there, and goes on; an empty end of a sentence takes its last token back.
        session.set_stop_sequences(Vec::new()).unwrap();
        let n_before = session.history().len();
        assert!(n_before > if kind.starts_with("shift") { 30 } else { 60 }, "{kind}: {n_before}");
        session.query("ab", SentenceCode::Begin).into_reply().unwrap();
        let reply = session.query("", SentenceCode::End).into_reply().unwrap();
        assert_eq!(reply.tokens.len(), 110, "{kind}");
    }
}

#[test]
fn stored_prefixes_are_those_of_the_same_rule() {
    let folder = folder();
    let ids = list(&prompt(40));
    let run = |rule: &str, cached: bool| {
        let mut args = vec!["run", "-c", "base", "--greedy", "--json", "--prompt-tokens", &ids, "-n", "20"];
        args.extend(["--long-context", rule]);
        if cached {
            args.extend(["--prefix-cache", "prefixes", "--prefix-min-tokens", "8"]);
        }
        let output = genie(folder.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        (tokens(&record), record["kpis"]["num-restored-tokens"].as_u64().unwrap_or(0))
    };
    for rule in ["window:12", "none", "window:30", "keydiff:2"] {
        let plain = run(rule, false);
        let (first, n_first) = run(rule, true);
        assert_eq!((first, n_first), plain, "{rule}: another rule's rows");
        let (again, n_again) = run(rule, true);
        assert_eq!(again, plain.0, "{rule}: its own rows");
        assert!(n_again > 0 || rule == "keydiff:2", "{rule}: nothing was restored");
    }
    // A session says so.
    let saved = ["run", "-c", "base", "--prompt-tokens", &ids, "-n", "10", "--greedy", "--save", "saved"];
    let window = genie(folder.path(), &[&saved[..], &["--long-context", "window:12"]].concat());
    assert_eq!(window.status.code(), Some(0), "{}", said(&window));
    let restored = genie(folder.path(), &["run", "-c", "base", "-p", "x", "-n", "3", "--restore", "saved"]);
    assert_eq!(restored.status.code(), Some(1), "{}", said(&restored));
    assert!(said(&restored).contains("under another rule for long contexts"), "{}", said(&restored));
}

/// Positions that no dialog reaches take no memory: their rotary tables alone would have been 68 GB.
#[test]
fn a_context_may_be_as_large_as_numbers_are() {
    let folder = folder();
    for kind in [("window:20", "2", false), ("keydiff:9", "4", false)] {
        let wide = record(folder.path(), kind, &["-p", "a b", "-n", "90", "--context-size", "2147483647"]);
        assert_eq!(tokens(&wide), tokens(&record(folder.path(), kind, &["-p", "a b", "-n", "90"])), "{}", kind.0);
    }
}

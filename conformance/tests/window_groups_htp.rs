//! Cache groups with a window under policy `genie`: libGenie's slots, so its tokens and its graphs, on Qualcomm's libraries.
//!
//! The bundles are composed here. What libGenie said of each case is kept in `testdata/window_groups.json`; the library is asked
//! again as well. `GENIE_RECORD=1` writes the file.

use std::path::{Path, PathBuf};

use conformance::genie::{self, Act, LogLevel, Sentence, Session};
use conformance::{backends, golden};
use genie_types::Dtype;
use qnn_api::BackendOptions;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::{Decoder, Form, Size};

const SM8650: u32 = 57;

/// One dialog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    /// AR of the graphs; CL is 128.
    ars: Vec<usize>,
    /// Slots of the group.
    slots: usize,
    /// Its `window-size`.
    window: usize,
    #[serde(default)]
    reserved: usize,
    /// Tokens of each turn's prompt, and the most to be said.
    turns: Vec<(usize, u32)>,
    /// What libGenie said, by turn.
    #[serde(default)]
    tokens: Vec<Vec<u32>>,
    /// The graphs that it ran, and how often each.
    #[serde(default)]
    graphs: Vec<(String, usize)>,
}

fn cases() -> Vec<Case> {
    let reserving = |reserved, ars: &[usize], slots, window, turns: &[(usize, u32)]| Case {
        ars: ars.to_vec(),
        slots,
        window,
        reserved,
        turns: turns.to_vec(),
        tokens: Vec::new(),
        graphs: Vec::new(),
    };
    let case = |ars: &[usize], slots, window, turns: &[(usize, u32)]| reserving(0, ars, slots, window, turns);
    vec![
        case(&[1, 32], 64, 33, &[(80, 17)]),
        case(&[1, 32], 64, 33, &[(30, 8), (22, 8), (9, 6)]),
        case(&[1, 32], 64, 40, &[(60, 20)]),
        case(&[1, 32], 64, 40, &[(30, 8), (30, 8), (10, 8)]),
        case(&[1, 32], 64, 60, &[(33, 40)]),
        case(&[1, 32], 64, 60, &[(12, 30), (20, 10)]),
        case(&[1, 32], 64, 16, &[(40, 14), (25, 10)]),
        case(&[1, 8, 32], 64, 40, &[(55, 10), (21, 8)]),
        case(&[1, 8, 32], 64, 60, &[(23, 10), (21, 8)]),
        case(&[1, 8], 40, 36, &[(23, 20), (7, 20)]),
        case(&[1, 16], 48, 20, &[(61, 9), (17, 9), (3, 9)]),
        // The window counts reserved tokens; where a step writes over them they are gone.
        reserving(4, &[1, 8], 40, 20, &[(23, 12), (7, 8)]),
        reserving(2, &[1, 8], 40, 36, &[(12, 3), (20, 12)]),
        reserving(4, &[1, 8], 40, 36, &[(23, 20), (7, 14)]),
        reserving(9, &[1, 8], 40, 36, &[(23, 20), (16, 8)]),
    ]
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/window_groups.json")
}

/// A bundle's folder, with the tokenizer and the config of a recorded one.
fn bundle(case: &Case, folder: &Path) {
    let backend = backends::htp(&BackendOptions { soc: Some(SM8650), ..Default::default() });
    let decoder = Decoder::for_type(Size::RECORDED, 3, Dtype::F16);
    let variants: Vec<(usize, usize)> = case.ars.iter().map(|&ar| (ar, 128)).collect();
    let form =
        Form { dtype: Dtype::F16, scatter: true, htp: true, files: Some(&["model.bin"]), ..Form::new(&variants) };
    form.with_window_group(case.slots).save(&decoder, &backend, folder);
    let recorded = golden::bundle("fp16_scatter").dir;
    std::fs::copy(recorded.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let config = std::fs::read(recorded.join("genie_config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    // The recorded one writes its tensors below the working directory.
    config["dialog"].as_object_mut().unwrap().remove("debug");
    std::fs::write(folder.join("genie_config.json"), config.to_string()).unwrap();
}

fn session(case: &Case, folder: &Path) -> Session {
    let mut first = 0;
    let mut acts = Vec::new();
    for &(n, most) in &case.turns {
        let prompt = (first..first + n).map(|i| (i * 37 + i * i * 11 + 5) as u32 % Size::RECORDED.vocab as u32);
        acts.extend([Act::MaxTokens(most), Act::Tokens(prompt.collect(), Sentence::Complete)]);
        first += n;
    }
    let mut session = Session::greedy(genie::library(), folder.join("genie_config.json"), acts);
    session.log = LogLevel::Verbose;
    let window = json!({"version": 1, "type": "sliding-window", "reserved-tokens": case.reserved, "sliding-window": {"version": 1, "window-size": case.window}});
    session.changes = json!({"dialog": {
        "context": {"size": 128, "bos-token": 126, "eos-token": 127, "pad-token": 0, "n-vocab": Size::RECORDED.vocab},
        "sampler": {"top-k": 1},
        "engine": {"cache-groups": [{"version": 1, "prefix": "past_"}, {"version": 1, "prefix": "swa_", "longcontext": window}]},
    }});
    session
}

/// Names that follow each other as one, with their number.
fn counted<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(String, usize)> {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for name in names {
        match runs.last_mut() {
            Some((last, n)) if last == name => *n += 1,
            _ => runs.push((name.to_owned(), 1)),
        }
    }
    runs
}

/// What libGenie says of a case now.
fn by_libgenie(case: &Case, session: &Session) -> Case {
    let run = session.run().unwrap_or_else(|e| panic!("libGenie, {case:?}: {e}"));
    let tokens = run.outcome.replies.iter().filter(|r| !r.calls.is_empty()).map(|r| r.tokens.clone()).collect();
    Case { tokens, graphs: counted(run.executed().into_iter()), ..case.clone() }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn groups_with_windows_are_those_of_libgenie() {
    let record = std::env::var_os("GENIE_RECORD").is_some();
    let known: Vec<Case> = if record {
        cases()
    } else {
        serde_json::from_slice(&std::fs::read(file()).expect("the recordings")).expect("their form")
    };
    let backend = backends::htp(&BackendOptions::default());
    let (mut recorded, mut wrong) = (Vec::new(), Vec::new());
    for case in known {
        let folder = tempfile::tempdir().unwrap();
        bundle(&case, folder.path());
        let session = session(&case, folder.path());
        let real = by_libgenie(&case, &session);
        let ours = session.play_as_genie(&backend).unwrap_or_else(|e| panic!("ours, {case:?}: {e}"));
        let said: Vec<Vec<u32>> = ours.tokens().iter().map(|tokens| tokens.to_vec()).collect();
        let graphs = counted(ours.executed.iter().map(String::as_str));
        if !record && real != case {
            wrong.push(format!("libGenie is not as recorded:\n{real:?}\n{case:?}"));
        }
        if said != real.tokens || graphs != real.graphs {
            wrong.push(format!("ours differs:\n{real:?}\n{said:?}\n{graphs:?}"));
        }
        recorded.push(real);
    }
    if record {
        std::fs::write(file(), serde_json::to_string(&recorded).unwrap().replace("},{", "},\n{") + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! A second turn on a ring (`sliding-window` on the default group) on Qualcomm's libraries: libGenie and ours under policy `genie` say the
//! same until a wide step meets more rows than its graph's past holds. From there on libGenie's keys and mask are wrong
//! (docs/long-context.md) and ours are exact, which `long_context.rs` shows against a naive cache.
//!
//! What libGenie said is kept in `testdata/ring_second_turn.json`; the library is asked again as well. `GENIE_RECORD=1` writes the
//! file.

use std::path::{Path, PathBuf};

use conformance::genie::{self, Act, Sentence, Session};
use conformance::{backends, golden};
use genie_types::Dtype;
use qnn_api::BackendOptions;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::{Decoder, Form, Size};

const SM8650: u32 = 57;

/// One dialog with graphs of AR-1 and AR-32, CL-128.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    scatter: bool,
    reserved: usize,
    /// Tokens of each turn's prompt, and the most to be said.
    turns: Vec<(usize, u32)>,
    /// What libGenie said, by turn.
    #[serde(default)]
    tokens: Vec<Vec<u32>>,
    /// Turns that say the same here.
    equal: usize,
}

fn cases() -> Vec<Case> {
    let case = |scatter, reserved, equal, turns: &[(usize, u32)]| {
        let (turns, tokens) = (turns.to_vec(), Vec::new());
        Case { scatter, reserved, turns, tokens, equal }
    };
    vec![
        // 79 rows before the second turn, of 96 that a wide step sees.
        case(false, 0, 2, &[(60, 20), (12, 8)]),
        case(true, 4, 2, &[(60, 20), (12, 8)]),
        // 127 rows.
        case(false, 0, 1, &[(100, 40), (20, 8)]),
        case(false, 4, 1, &[(100, 40), (20, 8)]),
        case(true, 0, 1, &[(100, 40), (20, 8)]),
    ]
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/ring_second_turn.json")
}

fn bundle(scatter: bool, folder: &Path) {
    let backend = backends::htp(&BackendOptions { soc: Some(SM8650), ..Default::default() });
    let decoder = Decoder::for_type(Size::RECORDED, 3, Dtype::F16);
    let files = Some(&["model.bin"][..]);
    let form = Form { dtype: Dtype::F16, scatter, htp: true, files, ..Form::new(&[(1, 128), (32, 128)]) };
    form.save(&decoder, &backend, folder);
    let recorded = golden::bundle("fp16_scatter").dir;
    std::fs::copy(recorded.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let config = std::fs::read(recorded.join("genie_config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    // The recorded one writes its tensors below the working directory.
    config["dialog"].as_object_mut().unwrap().remove("debug");
    std::fs::write(folder.join("genie_config.json"), config.to_string()).unwrap();
}

fn session(case: &Case, folder: &Path) -> Session {
    let (mut first, mut acts) = (0, Vec::new());
    for &(n, most) in &case.turns {
        let prompt = (first..first + n).map(|i| (i * 37 + i * i * 11 + 5) as u32 % Size::RECORDED.vocab as u32);
        acts.extend([Act::MaxTokens(most), Act::Tokens(prompt.collect(), Sentence::Complete)]);
        first += n;
    }
    let mut session = Session::greedy(genie::library(), folder.join("genie_config.json"), acts);
    session.changes = json!({"dialog": {
        "context": {"size": 400, "bos-token": 126, "eos-token": 127, "pad-token": 0, "n-vocab": Size::RECORDED.vocab},
        "sampler": {"top-k": 1},
        "engine": {"longcontext": {"version": 1, "type": "sliding-window", "reserved-tokens": case.reserved,
            "sliding-window": {"version": 1, "window-size": 64}}},
    }});
    session
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_second_turn_is_that_of_libgenie_as_long_as_libgenie_is_right() {
    let record = std::env::var_os("GENIE_RECORD").is_some();
    let known: Vec<Case> = if record {
        cases()
    } else {
        serde_json::from_slice(&std::fs::read(file()).expect("the recordings")).expect("their form")
    };
    let folders = [false, true].map(|scatter| {
        let folder = tempfile::tempdir().unwrap();
        bundle(scatter, folder.path());
        folder
    });
    let backend = backends::htp(&BackendOptions::default());
    let (mut recorded, mut wrong) = (Vec::new(), Vec::new());
    for case in known {
        let session = session(&case, folders[usize::from(case.scatter)].path());
        let real = session.run().unwrap_or_else(|e| panic!("libGenie, {case:?}: {e}"));
        let real: Vec<Vec<u32>> = real.tokens().iter().map(|tokens| tokens.to_vec()).collect();
        let ours = session.play_as_genie(&backend).unwrap_or_else(|e| panic!("ours, {case:?}: {e}"));
        let equal = ours.tokens().iter().zip(&real).take_while(|(ours, real)| **ours == real.as_slice()).count();
        // Beyond that libGenie reads memory of its heap, which need not be the same again.
        let same = real.iter().zip(&case.tokens).take_while(|(real, known)| real == known).count();
        if !record && same < case.equal {
            wrong.push(format!("libGenie is not as recorded: {case:?}\n{real:?}"));
        }
        if equal != case.equal {
            wrong.push(format!("{equal} turns are equal: {case:?}\n{:?}", ours.tokens()));
        }
        recorded.push(Case { tokens: real, ..case });
    }
    if record {
        std::fs::write(file(), serde_json::to_string(&recorded).unwrap().replace("},{", "},\n{") + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

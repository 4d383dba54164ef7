//! KeyDiff with a bundle's own network on Qualcomm's libraries: libGenie and our engine keep the same rows, so they say the
//! same tokens. The bundles and networks are composed here.
//!
//! Scatter graphs only: over a concat cache libGenie hands the network a buffer whose rows are shorter than the network's
//! (its past has CL - AR columns, the network takes CL), so it ranks by shifted numbers.

use std::path::{Path, PathBuf};

use conformance::genie::{self, Act, Sentence, Session};
use conformance::{backends, golden};
use genie_types::Dtype;
use qnn_api::BackendOptions;
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::{CacheType, Decoder, Form, Size};

const SM8650: u32 = 57;

/// A bundle's folder: graphs with anchors, a network, and the config and tokenizer of a recorded one.
fn bundle(variants: &[(usize, usize)], quantised: bool, folder: &Path) {
    let backend = backends::htp(&BackendOptions { soc: Some(SM8650), ..Default::default() });
    let decoder = Decoder::for_type(Size::RECORDED, 3, Dtype::F16);
    let form = Form {
        dtype: Dtype::F16,
        scatter: true,
        htp: true,
        anchors: true,
        cache: if quantised { CacheType::U8 { scale: 0.0625 } } else { CacheType::Float },
        files: Some(&["model.bin"]),
        ..Form::new(variants)
    };
    form.save(&decoder, &backend, folder);
    form.save_scorer(&decoder, &backend, &folder.join("scorer.bin"));
    let recorded = golden::bundle("fp16_scatter").dir;
    std::fs::copy(recorded.join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    let config = std::fs::read(recorded.join("genie_config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_slice(&config).unwrap();
    // The recorded one writes its tensors below the working directory.
    let dialog = config["dialog"].as_object_mut().unwrap();
    dialog.remove("debug");
    std::fs::write(folder.join("genie_config.json"), config.to_string()).unwrap();
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 37 + i * i * 11 + 5) as u32 % Size::RECORDED.vocab as u32).collect()
}

/// One dialog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    /// The cache has u8 codes.
    quantised: bool,
    /// Rows that a scoring serves.
    every: usize,
    reserved: usize,
    /// Tokens of the prompt, and the most to be said.
    prompt: usize,
    n: u32,
    /// What libGenie said.
    #[serde(default)]
    tokens: Vec<u32>,
}

fn cases() -> Vec<Case> {
    let case =
        |quantised, (every, reserved, prompt, n)| Case { quantised, every, reserved, prompt, n, tokens: Vec::new() };
    let float = [
        // Rows are dropped by steps of one token, in three scorings.
        (8, 4, 90, 60),
        // By an input's last step of two tokens, of one, of all; by steps in its middle.
        (8, 4, 98, 40),
        (4, 2, 97, 60),
        (1, 4, 128, 40),
        (8, 4, 150, 50),
        (1, 0, 250, 60),
        (16, 8, 193, 70),
    ];
    let quantised = [(8, 4, 90, 80), (4, 2, 140, 60)];
    float.map(|c| case(false, c)).into_iter().chain(quantised.map(|c| case(true, c))).collect()
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/scorer_network.json")
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_network_keeps_the_rows_that_libgenie_keeps() {
    let record = std::env::var_os("GENIE_RECORD").is_some();
    let known: Vec<Case> = if record {
        cases()
    } else {
        serde_json::from_slice(&std::fs::read(file()).expect("the recordings")).expect("their form")
    };
    let folders = [false, true].map(|quantised| {
        let folder = tempfile::tempdir().unwrap();
        bundle(&[(1, 128), (32, 128)], quantised, folder.path());
        folder
    });
    let backend = backends::htp(&BackendOptions::default());
    let (mut recorded, mut wrong) = (Vec::new(), Vec::new());
    for case in known {
        let acts = vec![Act::MaxTokens(case.n), Act::Tokens(prompt(case.prompt), Sentence::Complete)];
        let folder = &folders[usize::from(case.quantised)];
        let mut session = Session::greedy(genie::library(), folder.path().join("genie_config.json"), acts);
        session.changes = json!({"dialog": {
            "context": {"size": 400, "bos-token": -1, "eos-token": -1, "pad-token": 0, "n-vocab": Size::RECORDED.vocab},
            "sampler": {"top-k": 1},
            "engine": {"longcontext": {"version": 1, "type": "keydiff", "reserved-tokens": case.reserved,
                "keydiff": {"version": 1, "scoring-network": "scorer.bin", "update-frequency": case.every}}},
        }});
        let real = session.run().unwrap_or_else(|e| panic!("libGenie, {case:?}: {e}")).tokens().concat();
        let ours = session.play_as_genie(&backend).unwrap_or_else(|e| panic!("ours, {case:?}: {e}")).tokens().concat();
        assert_eq!(real.len(), case.n as usize, "{case:?}");
        if !record && real != case.tokens {
            wrong.push(format!("libGenie is not as recorded: {case:?}\n{real:?}"));
        }
        if ours != real {
            let equal = ours.iter().zip(&real).take_while(|(ours, real)| ours == real).count();
            wrong.push(format!("ours differs at token {equal}: {case:?}\n{ours:?}"));
        }
        recorded.push(Case { tokens: real, ..case });
    }
    if record {
        std::fs::write(file(), serde_json::to_string(&recorded).unwrap().replace("},{", "},\n{") + "\n").unwrap();
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

//! KeyDiff with a bundle's own network on Qualcomm's libraries: libGenie and our engine keep the same rows, so they say the
//! same tokens. The bundles and networks are composed here.
//!
//! Scatter graphs only: over a concat cache libGenie hands the network a buffer whose rows are shorter than the network's
//! (its past has CL - AR columns, the network takes CL), so it ranks by shifted numbers.

use std::path::Path;

use conformance::genie::{self, Act, Sentence, Session};
use conformance::{backends, golden};
use genie_types::Dtype;
use qnn_api::BackendOptions;
use serde_json::json;
use testkit::{Decoder, Form, Size};

const SM8650: u32 = 57;

/// A bundle's folder: graphs with anchors, a network, and the config and tokenizer of a recorded one.
fn bundle(variants: &[(usize, usize)], folder: &Path) {
    let backend = backends::htp(&BackendOptions { soc: Some(SM8650), ..Default::default() });
    let decoder = Decoder::for_type(Size::RECORDED, 3, Dtype::F16);
    let form = Form {
        dtype: Dtype::F16,
        scatter: true,
        htp: true,
        anchors: true,
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

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_network_keeps_the_rows_that_libgenie_keeps() {
    let folder = tempfile::tempdir().unwrap();
    bundle(&[(1, 128), (32, 128)], folder.path());
    let backend = backends::htp(&BackendOptions::default());
    // Rows are dropped by steps of one token, in three scorings. Where wide steps drop them the tokens part (docs/long-context.md).
    let (every, reserved, n_prompt, n) = (8, 4, 90, 60);
    let acts = vec![Act::MaxTokens(n), Act::Tokens(prompt(n_prompt), Sentence::Complete)];
    let mut session = Session::greedy(genie::library(), folder.path().join("genie_config.json"), acts);
    session.changes = json!({"dialog": {
        "context": {"size": 400, "bos-token": -1, "eos-token": -1, "pad-token": 0, "n-vocab": Size::RECORDED.vocab},
        "sampler": {"top-k": 1},
        "engine": {"longcontext": {"version": 1, "type": "keydiff", "reserved-tokens": reserved,
            "keydiff": {"version": 1, "scoring-network": "scorer.bin", "update-frequency": every}}},
    }});
    let what = format!("update-frequency {every}, {reserved} reserved, prompt of {n_prompt}");
    let real = session.run().unwrap_or_else(|e| panic!("libGenie, {what}: {e}"));
    let ours = session.play_as_genie(&backend).unwrap_or_else(|e| panic!("ours, {what}: {e}"));
    assert_eq!(real.tokens().concat().len(), n as usize, "{what}: {:?}", real.codes());
    assert_eq!(ours.tokens(), real.tokens(), "{what}");
}

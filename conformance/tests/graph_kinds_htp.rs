//! Kinds of graphs beside the plain ones on Qualcomm's library: ours against plain code, and what libGenie does with the
//! same bundle. The table is in `docs/graph-contract.md`.

use std::path::{Path, PathBuf};

use conformance::backends::shared_htp;
use conformance::genie::{self, Act, Sentence, Session};
use conformance::golden;
use engine::{DumpOptions, Engine, EngineConfig, Policy, TokenModel};
use genie_types::{Dtype, TokenId};
use serde_json::json;
use testkit::{Decoder, Form, Size, distance};

/// Largest difference of two logits, over the largest logit, in float16.
const TOLERANCE: f64 = 2e-2;
const SIZE: Size = Size::RECORDED;
/// A prompt whose last chunk is padded on the wide graph.
const PADDED: u32 = 41;
/// One whose last token is a chunk of its own.
const EVEN: u32 = 33;

fn weights() -> Decoder {
    Decoder::for_type(SIZE, Decoder::SEED, Dtype::F16)
}

fn two_widths() -> Form {
    Form { dtype: Dtype::F16, htp: true, ..Form::new(&[(1, 128), (32, 128)]) }
}

fn prompt(n: u32) -> Vec<u32> {
    (0..n).map(|i| (i * 13 + 5) % SIZE.vocab as u32).collect()
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

/// What libGenie does with a bundle.
#[derive(Debug, PartialEq)]
enum Real {
    /// It answers with our tokens.
    Runs,
    /// It answers without an error, with other tokens.
    OtherTokens,
    /// It makes no dialog.
    Refuses,
    /// The query ends with that status.
    Fails(i32),
}

/// A bundle's files as libGenie wants them.
fn genie_config(folder: &Path, bins: &[PathBuf]) -> PathBuf {
    let recorded = golden::bundle("fp16_ar1_32_cl128").dir;
    let mut config = golden::json(&recorded.join("genie_config.json"));
    let dialog = &mut config["dialog"];
    dialog["context"]["n-vocab"] = json!(SIZE.vocab);
    dialog["context"]["bos-token"] = json!(-1);
    dialog["tokenizer"]["path"] = json!(recorded.join("tokenizer.json"));
    dialog["engine"]["model"]["binary"]["ctx-bins"] = json!(bins);
    let path = folder.join("genie_config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// Our tokens, each against plain code, then libGenie's.
fn check(form: &Form, n_prompt: u32, want: &Real) {
    let (weights, folder) = (weights(), tempfile::tempdir().unwrap());
    let bins = form.save(&weights, &shared_htp(), folder.path());
    let config = EngineConfig { n_threads: 1, ..form.config(&weights, bins.clone()) };
    let mut engine = Engine::open(&config, &shared_htp()).unwrap_or_else(|e| panic!("{form:?}: {e}"));
    let (mut tokens, mut fresh) = (prompt(n_prompt), prompt(n_prompt));
    for _ in 0..6 {
        let found = engine.process(&ids(&fresh)).unwrap().to_vec();
        let off = distance(&found, &weights.logits_kept(&tokens, |x| form.kept(x)));
        assert!(off < TOLERANCE, "{form:?}: off by {off} of the largest logit at {}", tokens.len());
        let best = (0..SIZE.vocab).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap() as u32;
        tokens.push(best);
        fresh = vec![best];
    }
    let acts = vec![Act::MaxTokens(6), Act::Tokens(prompt(n_prompt), Sentence::Complete)];
    let session = Session::greedy(genie::library(), genie_config(folder.path(), &bins), acts).endless();
    let real = match session.run() {
        Err(error) => {
            eprintln!("{error}");
            Real::Refuses
        }
        Ok(run) if run.codes()[1] < 0 => Real::Fails(run.codes()[1]),
        Ok(run) if run.tokens() == [&tokens[n_prompt as usize..]] => Real::Runs,
        Ok(run) => {
            eprintln!("libGenie: {:?}, here: {:?}", run.tokens(), &tokens[n_prompt as usize..]);
            Real::OtherTokens
        }
    };
    assert_eq!(real, *want, "libGenie with {n_prompt} tokens on {form:?}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_plain_bundle_runs_in_both() {
    check(&two_widths(), PADDED, &Real::Runs);
    check(&two_widths().in_two(), EVEN, &Real::Runs);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn graphs_of_which_only_cache_rows_come_out() {
    check(&Form { rows_only: &[32], ..two_widths() }, EVEN, &Real::Refuses);
    let cut = Form { rows_only: &[32], ..two_widths().in_two() };
    check(&cut, PADDED, &Real::Fails(-6));
    check(&cut, EVEN, &Real::Fails(-6));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_head_of_one_row_beside_wide_decoders() {
    let form = Form { head_ars: Some(&[1]), ..two_widths().in_two() };
    check(&form, PADDED, &Real::Fails(-6));
    check(&form, EVEN, &Real::Fails(-6));
}

/// libGenie feeds the input zeros and says nothing.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_heads_weight_as_an_input() {
    check(&Form { head_weight_input: true, ..two_widths().in_two() }, EVEN, &Real::OtherTokens);
    check(&Form { head_weight_input: true, ..two_widths() }, PADDED, &Real::OtherTokens);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_slot_of_each_row() {
    check(&Form { scatter: true, ..two_widths() }, PADDED, &Real::Runs);
    check(&Form { scatter: true, slot_per_row: true, ..two_widths() }, PADDED, &Real::Runs);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn binaries_loaded_on_demand() {
    let (weights, folder, form) = (weights(), tempfile::tempdir().unwrap(), two_widths().in_two());
    let config = form.config(&weights, form.save(&weights, &shared_htp(), folder.path()));
    let mut kept = Engine::open(&config, &shared_htp()).unwrap();
    let mut freed = Engine::open(&EngineConfig { dynamic_load: true, ..config }, &shared_htp()).unwrap();
    for tokens in [&prompt(PADDED)[..], &[3], &[50]] {
        assert_eq!(kept.process(&ids(tokens)).unwrap(), freed.process(&ids(tokens)).unwrap());
    }
    assert_eq!(freed.executor().loaded(), Some(1));
}

/// Every file below a folder, with its path from there.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn dumped_tensors_are_libgenies() {
    for name in ["fp16_split2", "w8a16"] {
        let bundle = golden::bundle(name);
        let (real, ours) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let prompt: Vec<u32> = (1..=40).collect();
        let acts = vec![Act::MaxTokens(4), Act::Tokens(prompt.clone(), Sentence::Complete)];
        let mut session = Session::greedy(genie::library(), bundle.dir.join("genie_config.json"), acts);
        session.changes["dialog"]["debug"] = json!({
            "path": real.path(), "dump-tensors": true, "dump-specs": true, "dump-outputs": true, "dump-start": 1, "dump-end": 3
        });
        let tokens = session.run().unwrap().tokens().concat();
        session.changes["dialog"]["debug"]["path"] = json!(ours.path());
        assert_eq!(session.play_as_genie(&shared_htp()).unwrap().tokens().concat(), tokens, "{name}");
        let (real, ours) = (files(real.path()), files(ours.path()));
        let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&ours), names(&real), "{name}");
        for ((file, ours), (_, real)) in ours.iter().zip(&real) {
            // Beyond the valid rows libGenie leaves whatever the memory held.
            let is_past = file.contains("_in_past_");
            assert!(if is_past { ours.len() == real.len() } else { ours == real }, "{name}: `{file}` differs");
        }
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_dump_changes_no_token() {
    let bundle = golden::bundle("fp16_ar1_32_cl128");
    let config = dialog::DialogConfig::from_file(bundle.dir.join("genie_config.json")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut logits = Vec::new();
    for dump in [None, Some(DumpOptions { tensors: true, ..DumpOptions::new(folder.path()) })] {
        let engine = EngineConfig { dump, policy: Policy::Genie, ..config.engine().clone() };
        let mut engine = Engine::open(&engine, &shared_htp()).unwrap();
        logits.push(engine.process(&ids(&prompt(PADDED))).unwrap().to_vec());
    }
    assert_eq!(logits[0], logits[1]);
}

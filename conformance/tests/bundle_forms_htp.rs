//! Forms of bundles that the recordings do not have, composed for HTP by hand and run by the engine on Qualcomm's own
//! library, against a double-precision reference without graphs, cache or float16.
//!
//! *Tolerance*: 2 % of the largest logit. Where the reference's margin is 0.15 or more, the most likely token is the same.
//! A cache of 8 bits has a reference of its own in `u8_cache_htp.rs`. The recorded bundle `w8a16` has one, too, and equals
//! libGenie's tokens (`golden_htp.rs`).

use std::path::{Path, PathBuf};

use conformance::backends::shared_htp;
use engine::{EmbeddingLut, Engine, EngineConfig, LutDtype, Policy, TokenModel};
use genie_types::{Dtype, TokenId};
use half::f16;
use testkit::{CacheType, Decoder, Form, Size};

/// Largest difference of two logits, over the largest logit.
const TOLERANCE: f64 = 2e-2;
/// Keys and values lie within -8 to 8.
const U16_CACHE: CacheType = CacheType::U16 { scale: (16.0 / 65535.0) as f32 };

/// float16 everywhere, rank 4, all heads in one tensor, ids, one binary.
fn plain(variants: &[(usize, usize)]) -> Form {
    Form { dtype: Dtype::F16, htp: true, ..Form::new(variants) }
}

fn two_widths() -> Form {
    plain(&[(1, 128), (32, 128)])
}

fn weights() -> Decoder {
    Decoder::for_type(Size::TINY, Decoder::SEED, Dtype::F16)
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn prompt(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 13 + 5) % Size::TINY.vocab as u32).collect()
}

fn config(form: &Form, bins: Vec<PathBuf>) -> EngineConfig {
    EngineConfig { n_threads: 1, ..form.config(&weights(), bins) }
}

fn open(form: &Form, folder: &Path, change: impl FnOnce(&mut EngineConfig)) -> Engine {
    let mut config = config(form, form.save(&weights(), &shared_htp(), folder));
    change(&mut config);
    Engine::open(&config, &shared_htp()).unwrap_or_else(|e| panic!("{form:?}: {e}"))
}

/// The two largest of a row: where the largest is, and by how much it leads.
fn best(logits: &[f64]) -> (usize, f64) {
    let (mut at, mut top, mut next) = (0, f64::MIN, f64::MIN);
    for (i, &x) in logits.iter().enumerate() {
        if x > top {
            (at, top, next) = (i, x, top);
        } else if x > next {
            next = x;
        }
    }
    (at, top - next)
}

/// A prompt, then steps along the reference's own greedy tokens.
fn check(engine: &mut Engine, form: &Form, n_prompt: usize, n_steps: usize) {
    let tiny = weights();
    engine.reset().unwrap();
    let mut tokens = prompt(n_prompt);
    let mut fresh = tokens.clone();
    let mut n_clear = 0;
    for _ in 0..=n_steps {
        let found: Vec<f64> = engine.process(&ids(&fresh)).unwrap().iter().map(|&x| x.into()).collect();
        let want = tiny.logits_kept(&tokens, |x| form.kept(x));
        let top = want.iter().fold(0.0f64, |top, x| top.max(x.abs()));
        let off = found.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / top;
        assert!(off < TOLERANCE, "{form:?}: off by {off} of the largest logit at {} of {n_prompt}", tokens.len());
        let (next, margin) = best(&want);
        if margin >= 0.15 {
            assert_eq!(best(&found).0, next, "{form:?}: at {}, margin {margin}", tokens.len());
            n_clear += 1;
        }
        tokens.push(next as u32);
        fresh = vec![next as u32];
    }
    assert!(n_clear > 0 || n_steps == 0, "{form:?}: none of {n_steps} margins is clear");
}

fn check_form(form: &Form) {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(form, folder.path(), |_| {});
    assert_eq!(engine.layout().splits.len(), form.parts.len());
    for (n_prompt, n_steps) in [(1, 4), (33, 6)] {
        check(&mut engine, form, n_prompt, n_steps);
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn masks_and_rotary_rows_of_rank_3() {
    check_form(&Form { rank3: true, ..two_widths() });
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_cache_tensor_for_each_head() {
    check_form(&Form { per_head: true, ..two_widths() });
    check_form(&Form { per_head: true, cache: U16_CACHE, ..two_widths() });
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn sixteen_bits_in_cache_mask_rotary_rows_and_logits() {
    check_form(&Form { cache: U16_CACHE, quantised_edge: true, ..two_widths() });
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn three_splits_are_ordered_by_graph_name_not_by_file() {
    let folder = tempfile::tempdir().unwrap();
    // The names and their order in a config are independent of the order of the splits.
    let form = Form { files: Some(&["c.bin", "a.bin", "b.bin"]), ..two_widths().in_three() };
    let mut engine = open(&form, folder.path(), |config| config.ctx_bins.sort());
    assert_eq!(engine.layout().splits.len(), 3);
    check(&mut engine, &form, 33, 4);
    // The head runs for the last chunk only.
    let runs: Vec<&str> = engine.steps().names().take(8).collect();
    let step = |ar: usize, n: usize| (1..=n).map(move |i| format!("ar{ar}_cl128_{i}_of_3"));
    assert_eq!(runs, step(32, 2).chain(step(1, 3)).chain(step(1, 3)).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn embeddings_from_a_table_of_float32_or_the_inputs_type() {
    let form = Form { embeds: true, ..two_widths() };
    let table = weights().embed;
    let folder = tempfile::tempdir().unwrap();
    let bins = form.save(&weights(), &shared_htp(), folder.path());
    let tables = [
        (LutDtype::Float32, table.data.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()),
        (LutDtype::Native, table.data.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()),
    ];
    for (dtype, bytes) in tables {
        let path = folder.path().join("lut.raw");
        std::fs::write(&path, bytes).unwrap();
        let embedding = Some(EmbeddingLut { path, size: Size::TINY.hidden, dtype });
        let mut engine =
            Engine::open(&EngineConfig { embedding, ..config(&form, bins.clone()) }, &shared_htp()).unwrap();
        check(&mut engine, &form, 33, 4);
    }
    let error = Engine::open(&config(&form, bins), &shared_htp()).unwrap_err().to_string();
    assert!(error.contains("takes `inputs_embeds` of width 32, but no embedding table"), "{error}");
}

/// A query's tokens and the graphs it runs, as runs of (AR, CL, times).
type Query = (usize, &'static [(usize, usize, usize)]);

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn widths_and_context_lengths_are_picked_as_measured() {
    // Recorded on libGenie 1.21 with {1,8,32} x {128,256}.
    const PROMPTS: [Query; 5] = [
        (8, &[(8, 128, 1)]),
        (33, &[(32, 128, 1), (1, 128, 1)]),
        (40, &[(32, 128, 1), (8, 128, 1)]),
        (98, &[(32, 128, 3), (8, 128, 1)]),
        (119, &[(32, 128, 3), (32, 256, 1)]),
    ];
    let form = plain(&[(1, 128), (8, 128), (32, 128), (1, 256), (8, 256), (32, 256)]);
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(&form, folder.path(), |config| config.policy = Policy::Genie);
    let runs = |engine: &Engine| -> Vec<(String, usize)> {
        engine.steps().runs().into_iter().map(|(name, n)| (name.to_owned(), n)).collect()
    };
    let named = |list: &[(usize, usize, usize)]| -> Vec<(String, usize)> {
        list.iter().map(|&(ar, cl, n)| (format!("ar{ar}_cl{cl}_1_of_1"), n)).collect()
    };
    for (n, graphs) in PROMPTS {
        engine.clear_steps();
        check(&mut engine, &form, n, 0);
        assert_eq!(runs(&engine), named(graphs), "{n} tokens");
    }
    // Decode returns to the short context, and leaves it where that ends.
    engine.clear_steps();
    check(&mut engine, &form, 119, 10);
    assert_eq!(runs(&engine), named(&[(32, 128, 3), (32, 256, 1), (1, 128, 8), (1, 256, 2)]));
    // 233 tokens: the last chunk does not fit the recorded run. The default policy runs the same graphs and continues.
    let error = engine.reset().and_then(|()| engine.prefill(&ids(&prompt(233)))).unwrap_err().to_string();
    assert_eq!(error, "libGenie gives up at 224 past tokens with a chunk of 9; policy `lenient` goes on");
    engine.set_policy(Policy::default());
    engine.clear_steps();
    check(&mut engine, &form, 233, 1);
    assert_eq!(runs(&engine), named(&[(32, 128, 3), (32, 256, 5), (1, 256, 1)]));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_context_size_between_two_context_lengths() {
    let form = plain(&[(1, 128), (32, 128), (1, 256), (32, 256)]);
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(&form, folder.path(), |config| config.context_size = Some(140));
    assert_eq!(engine.context_size(), 140);
    check(&mut engine, &form, 136, 4);
    assert_eq!(engine.n_past(), 140);
    let error = engine.process(&ids(&[1])).unwrap_err().to_string();
    assert_eq!(error, "context limit exceeded: 140 past + 1 new tokens > 140");
    // More than the graphs have is refused, as in libGenie.
    let bins = config(&form, vec![folder.path().join("part1.bin")]);
    let error = Engine::open(&EngineConfig { context_size: Some(300), ..bins }, &shared_htp()).unwrap_err().to_string();
    assert!(error.contains("context size 300 does not fit the graphs: expected 1 to 256"), "{error}");
}

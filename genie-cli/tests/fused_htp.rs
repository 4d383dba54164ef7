//! Fused graphs on Qualcomm's emulator: two requests that take turns have the tokens that each has alone and on plain graphs, whether the client
//! writes new rows into the caches or the graphs do; both leave the same bytes.

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use engine::{SeqId, SeqTokens, SequenceModel, TokenModel};
use genie_types::{KvDtype, TokenId};
use open_genie::{BackendChoice, Bundle, Options, PairModel};
use serde_json::Value;

use crate::program::done;

fn compile(folder: &Path, bundle: &str, flags: &[&str]) {
    let args = ["compile", "model", "-o", bundle, "--soc", "sm8650", "--ar", "1,8", "--cl", "64", "-q"];
    done(folder, &[&args, flags].concat());
}

fn options() -> Options {
    Options::new().backend(BackendChoice::Htp)
}

fn prompt(seed: u32, n: u32) -> Vec<TokenId> {
    (0..n).map(|i| TokenId((i * 7 + seed * 11 + 3) % 50)).collect()
}

fn argmax(logits: &[f32]) -> TokenId {
    let best = (0..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    TokenId(best as u32)
}

const PROMPTS: [(u32, u32); 2] = [(1, 9), (2, 17)];
const NEW: usize = 8;

/// Greedy tokens of one request with nothing beside it.
fn alone(model: &mut dyn TokenModel, tokens: &[TokenId]) -> Vec<TokenId> {
    model.reset().unwrap();
    let mut found = vec![argmax(model.process(tokens).unwrap())];
    while found.len() < NEW {
        let last = [found[found.len() - 1]];
        found.push(argmax(model.process(&last).unwrap()));
    }
    found
}

/// Both requests in one run: the first decodes while the second's prompt comes in chunks of three, then both decode.
fn together(pair: &mut PairModel) -> [Vec<TokenId>; 2] {
    let runner = pair.runner_mut();
    runner.reset().unwrap();
    runner.clear_steps();
    let prompts = PROMPTS.map(|(seed, n)| prompt(seed, n));
    let mut found = [Vec::new(), Vec::new()];
    let mut rest: [&[TokenId]; 2] = [&prompts[0], &prompts[1]];
    while found.iter().any(|tokens| tokens.len() < NEW) {
        let mut inputs: Vec<(usize, Vec<TokenId>)> = Vec::new();
        for s in 0..2 {
            // The second comes when the first has a token.
            if !rest[s].is_empty() && (s == 0 || !found[0].is_empty()) {
                let n = if s == 0 { rest[s].len() } else { rest[s].len().min(3) };
                inputs.push((s, rest[s][..n].to_vec()));
                rest[s] = &rest[s][n..];
            } else if rest[s].is_empty() && found[s].len() < NEW {
                inputs.push((s, found[s].last().copied().into_iter().collect()));
            }
        }
        let batch: Vec<_> = inputs.iter().map(|(s, tokens)| SeqTokens { seq: SeqId(*s as u8), tokens }).collect();
        runner
            .process_batch(&batch, &mut |i, logits| {
                let s = inputs[i].0;
                if rest[s].is_empty() {
                    found[s].push(argmax(logits));
                }
            })
            .unwrap();
    }
    found
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_requests_have_the_tokens_that_each_has_alone() {
    take_turns(&["--kv-cache", "plain"], KvDtype::F16);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_requests_have_them_with_caches_of_8_bits() {
    take_turns(&["--kv-cache", "u8"], KvDtype::U8);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_requests_have_them_with_weights_of_8_bits() {
    take_turns(&["--weights", "w8"], KvDtype::F16);
}

fn take_turns(form: &[&str], dtype: KvDtype) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    TestModel { head_dim: 32, ..TestModel::tiny(Family::Llama) }.write(&folder.join("model")).unwrap();
    compile(folder, "plain", form);
    let mut plain = Bundle::read(folder.join("plain")).unwrap().open(&options()).unwrap();
    let wanted = PROMPTS.map(|(seed, n)| alone(plain.engine_mut(), &prompt(seed, n)));
    drop(plain);
    let mut caches = Vec::new();
    for update in ["host", "graph"] {
        let flags = [form, &["--pd-total-lens", "4,8", "--pd-only", "--pd-kv-update", update]].concat();
        compile(folder, update, &flags);
        let mut pair = Bundle::read(folder.join(update)).unwrap().open_pair(&options()).unwrap();
        assert!(pair.backend().library().is_htp());
        assert_eq!(pair.runner().layout().updates, update == "graph");
        assert!(pair.runner().layout().tensors.iter().all(|tensor| tensor.tensor.dtype == dtype));
        assert_eq!(together(&mut pair), wanted, "{update}, together");
        let steps = pair.runner().steps().to_string();
        assert!(steps.contains("model.0.pd.s4") && steps.contains("model.0.s1"), "{steps}");
        let runner = pair.runner();
        let rows = (0..2u8).flat_map(|s| (0..runner.layout().tensors.len()).map(move |t| (s, t)));
        caches.push(rows.map(|(s, t)| runner.rows_of(SeqId(s), t)).collect::<Vec<_>>());
        let of_each = PROMPTS.map(|(seed, n)| alone(pair.runner_mut(), &prompt(seed, n)));
        assert_eq!(of_each, wanted, "{update}, alone");
    }
    // The graphs' own update once more, with whole caches written aside.
    let config = folder.join("graph/genie_config.json");
    let mut aside: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    aside["dialog"]["engine"]["pd_fusion"]["in_place"] = false.into();
    std::fs::write(&config, aside.to_string()).unwrap();
    let mut pair = Bundle::read(folder.join("graph")).unwrap().open_pair(&options()).unwrap();
    assert!(pair.runner().bytes_written_aside() > 0);
    assert_eq!(together(&mut pair), wanted, "aside");
    assert!(caches[0].iter().all(|rows| !rows.is_empty()));
    assert!(caches[0] == caches[1], "the graphs' own update leaves other bytes than the client's");
}

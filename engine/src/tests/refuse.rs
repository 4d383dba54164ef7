//! What the engine refuses, in which words, and that nothing is lost by it.

use genie_types::{DataFormat, TokenId};
use kvmanager::{Eviction, ModeKind};
use nsp_graph::{Options, analyze};

use super::bundle::{Cut, Form, config};
use super::toy::Toy;
use crate::{Engine, EngineConfig, EngineError, RopeConfig, TokenModel};

const FORM: Form = Form { cut: Cut::Two, ..Form::plain(&[(1, 16), (4, 16)]) };

fn open(form: Form, config: &EngineConfig) -> Result<Engine<Toy>, EngineError> {
    Engine::with_executor(form.layout(), Toy::new(form.layout()), config)
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

#[test]
fn settings_that_do_not_fit_the_graphs() {
    let cases = [
        (
            EngineConfig { rope: None, ..config() },
            "the graphs take `position_ids_cos` and `position_ids_sin` of width 2, but no rotary positions are configured; add `positional-encoding` with `rope-dim` 2",
        ),
        (
            EngineConfig { rope: Some(RopeConfig::new(8, 1e4)), ..config() },
            "`position_ids_cos` of graph `ar1_cl16_1_of_2` is 2 wide, but `rope-dim` is 8",
        ),
        (
            EngineConfig { context_size: Some(64), ..config() },
            "context size 64 does not fit the graphs: expected 1 to 16, the largest CL loaded",
        ),
        (
            EngineConfig { long_context: vec![("swa_".into(), Eviction::None)], ..config() },
            "long context: expected the prefix of a cache group, found `swa_`",
        ),
        (
            EngineConfig { long_context: vec![("past_".into(), Eviction::Window { size: 0, sinks: 0 })], ..config() },
            "cache group 0 (`past_`): window size 0, expected at least 1",
        ),
        (EngineConfig { pad_token: TokenId(61), ..config() }, "pad token 61 is not in the vocabulary of 61"),
    ];
    for (config, want) in cases {
        assert_eq!(open(FORM, &config).err().map(|e| e.to_string()).as_deref(), Some(want));
    }
}

#[test]
fn heads_that_fill_no_tiles() {
    let mut binaries = FORM.binaries();
    for graph in binaries.iter_mut().flat_map(|b| &mut b.graphs) {
        for t in graph.inputs.iter_mut().chain(&mut graph.outputs).filter(|t| t.name.starts_with("past_")) {
            t.format = DataFormat::HmxWeight;
        }
    }
    let layout = analyze(&binaries, &Options::default()).unwrap();
    let err = Engine::with_executor(layout.clone(), Toy::new(layout), &config()).err().unwrap();
    let want = "native-kv cannot keep `past_key_0`: head_dim 4 does not divide into tiles of 32 by 32";
    assert_eq!(err.to_string(), want);
}

#[test]
fn a_cache_mode_must_fit_the_bundles_tensors() {
    let layout = FORM.layout();
    let with = |mode| EngineConfig { kv_mode: Some(mode), ..config() };
    let err =
        Engine::with_executor(layout.clone(), Toy::new(layout.clone()), &with(ModeKind::NATIVE_KV)).err().unwrap();
    let want = "cache mode: expected `smart-mask`, `shift-concat` or `pointer-shift`, since the bundle's cache tensors are flat, found `native-kv`";
    assert_eq!(err.to_string(), want);
    let mode = |config| Engine::with_executor(layout.clone(), Toy::new(layout.clone()), &config).unwrap().kv_mode();
    assert_eq!(mode(config()), ModeKind::SMART_MASK, "the bundle's own");
    assert_eq!(mode(with(ModeKind::SHIFT_CONCAT)), ModeKind::SHIFT_CONCAT);
    let scatter = Form { scatter: true, ..FORM }.layout();
    let err = Engine::with_executor(scatter.clone(), Toy::new(scatter), &with(ModeKind::SHIFT_CONCAT)).err().unwrap();
    assert!(err.to_string().starts_with("shift-concat cannot keep `past_key_0`: a scatter graph"), "{err}");
}

#[test]
fn bad_tokens_leave_everything_as_it_was() {
    let mut engine = open(FORM, &config()).unwrap();
    engine.process(&ids(&[1, 2, 3])).unwrap();
    let n_calls = engine.executor().calls.len();
    let cases: [(&[u32], &str); 3] = [
        (&[], "no tokens to process: at least one is needed for logits"),
        (&[4, 61], "token 61 at place 1 of the input is not in the vocabulary of 61"),
        (&[5; 14], "context limit exceeded: 3 past + 14 new tokens > 16"),
    ];
    for (tokens, want) in cases {
        assert_eq!(engine.process(&ids(tokens)).unwrap_err().to_string(), want);
        assert_eq!((engine.n_past(), engine.executor().calls.len()), (3, n_calls));
    }
    engine.prefill(&[]).unwrap();
    let err = engine.rewind(4).unwrap_err().to_string();
    assert!(err.starts_with("cannot rewind to 4: the cache stands at 3 tokens"), "{err}");
    assert_eq!(engine.n_past(), 3);
    engine.process(&ids(&[5; 13])).unwrap();
}

#[test]
fn a_failing_graph_is_named_and_the_dialog_goes_on() {
    for fail_at in 1..=6 {
        let mut engine = open(FORM, &config()).unwrap();
        let want = engine.process(&ids(&[1, 2, 3, 4, 5, 6, 7, 8, 9])).unwrap().to_vec();
        engine.rewind(2).unwrap();
        let toy = engine.executor_mut();
        toy.fail_at = Some(toy.calls.len() + fail_at);
        match engine.process(&ids(&[3, 4, 5, 6, 7, 8, 9])) {
            Ok(logits) => assert_eq!((logits, fail_at > 3), (&want[..], true)),
            Err(e) => {
                assert!(e.to_string().ends_with("of_2` failed"), "{e}");
                assert_eq!(std::error::Error::source(&e).unwrap().to_string(), "the toy was asked to fail");
                assert_eq!(engine.n_past(), 2);
                assert_eq!(engine.process(&ids(&[3, 4, 5, 6, 7, 8, 9])).unwrap(), want);
            }
        }
    }
}

#[test]
fn nonsense_logits_are_an_error_and_leave_no_trace() {
    let mut engine = open(FORM, &config()).unwrap();
    let want = engine.process(&ids(&[1, 2, 3])).unwrap().to_vec();
    engine.rewind(1).unwrap();
    let toy = engine.executor_mut();
    toy.poison = Some((toy.calls.len() + 1..toy.calls.len() + 3, 42));
    let err = engine.process(&ids(&[2, 3])).unwrap_err().to_string();
    assert_eq!(
        err,
        "logits of graph `ar1_cl16_2_of_2` contain NaN at token 42, position 2; the weights or an activation overflow are to blame"
    );
    assert_eq!(engine.n_past(), 1);
    assert_eq!(engine.process(&ids(&[2, 3])).unwrap(), want);
}

#[test]
fn a_model_without_cache_survives_a_failure() {
    let mut engine = open(Form { variants: &[(16, 16)], ..FORM }, &config()).unwrap();
    let want = engine.process(&ids(&[1, 2, 3, 4])).unwrap().to_vec();
    engine.rewind(3).unwrap();
    let toy = engine.executor_mut();
    toy.fail_at = Some(toy.calls.len() + 1);
    assert!(engine.process(&ids(&[4])).is_err());
    assert_eq!(engine.n_past(), 3);
    assert_eq!(engine.process(&ids(&[4])).unwrap(), want);

    // Failing again while the history is processed again, the dialog is lost, and the error names that.
    engine.executor_mut().fail_from = Some(0);
    let err = engine.process(&ids(&[5])).unwrap_err();
    assert_eq!(err.to_string(), "the dialog's cache was lost after a failure and has been cleared");
    assert_eq!(engine.n_past(), 0);
    engine.executor_mut().fail_from = None;
    assert_eq!(engine.process(&ids(&[1, 2, 3, 4])).unwrap(), want);
}

#[test]
fn an_engine_may_move_between_threads() {
    fn movable<T: Send>() {}
    movable::<Engine>();
}

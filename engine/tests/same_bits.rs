//! The logits of a token have the same bits in a wide step, alone behind a cache, beside rows of other sequences, and behind rows
//! shared with another: what a sampled reply rests on, as one number that differs may change a draw.

use std::cell::RefCell;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Precision, Silent, Splits, Weights, compile};
use engine::{Engine, EngineConfig, LogitsRequest, RopeConfig, SeqId, SeqRows, TokenModel};
use genie_types::TokenId;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use qnn_api::{Backend, BackendOptions, Library};

type Host = Engine<engine::QnnExecutor>;

fn open(family: Family, precision: Precision, weights: Weights, n_threads: usize) -> (tempfile::TempDir, Host) {
    let library = Library::linked(qnn_host::providers());
    let backend: Arc<Backend> = Backend::new(&library.unwrap(), &BackendOptions::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model = TestModel::tiny(family);
    model.write(&folder.path().join("model")).unwrap();
    let options = CompileOptions {
        ars: vec![1, 4, 16],
        cls: vec![64, 128],
        splits: Splits::DecoderLmhead,
        one_file: true,
        precision,
        weights: Some(weights),
        ..CompileOptions::new(folder.path().join("model"), folder.path().join("bundle"))
    };
    compile(&options, &backend, &mut Silent).unwrap();
    let bins = vec![folder.path().join("bundle/model.bin")];
    let rope = RopeConfig::new(model.head_dim / 2, model.rope_theta).with_scaling(model.scaling.clone());
    let engine =
        Engine::open(&EngineConfig { rope: Some(rope), n_threads, ..EngineConfig::new(bins) }, &backend).unwrap();
    (folder, engine)
}

fn bits(row: &[f32]) -> Vec<u32> {
    row.iter().map(|x| x.to_bits()).collect()
}

fn one(engine: &mut Host, seq: SeqId, tokens: &[TokenId]) -> Vec<u32> {
    let mut found = Vec::new();
    let rows = SeqRows { seq, tokens, wanted: LogitsRequest::Last, prompt: false };
    engine.process_mixed(&[rows], &mut |_, _, row| found = bits(row)).unwrap();
    found
}

#[test]
fn a_prompt_cut_anywhere_has_the_same_logits() {
    let cases = [
        (Family::Llama, Precision::F16, Weights::Float, 1),
        (Family::Qwen2, Precision::F32, Weights::Float, 2),
        (Family::Llama, Precision::F16, Weights::Bf16, 2),
        (Family::Llama, Precision::F16, Weights::W8, 1),
        (Family::Qwen3, Precision::F16, Weights::Q8_0, 2),
        (Family::Llama, Precision::F16, Weights::Q4_0, 1),
    ];
    for (family, precision, weights, n_threads) in cases {
        let (_folder, engine) = open(family, precision, weights, n_threads);
        let engine = RefCell::new(engine);
        let inputs = (
            prop::collection::vec(0u32..320, 3..40),
            prop::collection::vec(1usize..20, 40),
            prop::collection::vec(0u32..320, 1..6),
        );
        let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(6) });
        let done = runner.run(&inputs, |(prompt, cuts, other)| {
            let prompt: Vec<TokenId> = prompt.into_iter().map(TokenId).collect();
            let other: Vec<TokenId> = other.into_iter().map(TokenId).collect();
            let engine = &mut *engine.borrow_mut();
            engine.reset().unwrap();
            let whole = one(engine, SeqId(0), &prompt);
            // Another sequence with pieces of other lengths, its last token alone.
            let (mut rest, mut pieces) = (&prompt[..prompt.len() - 1], cuts.iter());
            while let (false, Some(&n)) = (rest.is_empty(), pieces.next()) {
                let (piece, behind) = rest.split_at(n.min(rest.len()));
                one(engine, SeqId(1), piece);
                rest = behind;
            }
            prop_assert_eq!(&one(engine, SeqId(1), &prompt[prompt.len() - 1..]), &whole, "cut as {:?}", cuts);
            // The rows of the first, shared up to the last token, which then runs beside rows of another sequence.
            engine.share(SeqId(0), SeqId(2), 0..prompt.len() - 1).unwrap();
            let mut beside = Vec::new();
            let rows = [
                SeqRows {
                    seq: SeqId(2),
                    tokens: &prompt[prompt.len() - 1..],
                    wanted: LogitsRequest::Last,
                    prompt: false,
                },
                SeqRows { seq: SeqId(3), tokens: &other, wanted: LogitsRequest::Nothing, prompt: false },
            ];
            engine.process_mixed(&rows, &mut |_, _, row| beside = bits(row)).unwrap();
            prop_assert_eq!(&beside, &whole, "shared, beside others");
            Ok(())
        });
        done.unwrap_or_else(|e| panic!("{family:?} {precision:?} {weights:?}: {e}"));
    }
}

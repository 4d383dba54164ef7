//! The engine over the embedded backend: a hand-composed tiny Llama, saved, mapped, run, and compared with plain code.

use std::path::{Path, PathBuf};

use engine::{Engine, EngineConfig, EngineError, TokenModel};
use genie_types::{Dtype, TokenId};
use testkit::{Decoder, Form, Size, distance, linked_backend};

const VOCAB: usize = Size::TINY.vocab;

/// A decoder's bundle and its configuration.
fn save(form: &Form, decoder: &Decoder, folder: &Path) -> EngineConfig {
    config(form, decoder, form.save(decoder, &linked_backend(), folder))
}

fn config(form: &Form, decoder: &Decoder, bins: Vec<PathBuf>) -> EngineConfig {
    EngineConfig { n_threads: 2, ..form.config(decoder, bins) }
}

fn tiny() -> Decoder {
    Decoder::random(Size::TINY, Decoder::SEED, |x| x)
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

struct Case {
    form: Form,
    tolerance: f64,
}

#[test]
fn cached_generation_equals_plain_code() {
    let backend = linked_backend();
    let four = [(1, 16), (4, 16), (1, 32), (4, 32)];
    let cases = [
        Case { form: Form::new(&four), tolerance: 1e-5 },
        Case { form: Form::new(&four).in_two(), tolerance: 1e-5 },
        Case { form: Form::new(&[(1, 32), (8, 32)]).in_three(), tolerance: 1e-5 },
        Case { form: Form::new(&[(1, 24), (24, 24)]).in_three(), tolerance: 1e-5 },
        Case { form: Form { dtype: Dtype::F16, ..Form::new(&[(1, 32), (8, 32)]).in_two() }, tolerance: 1e-2 },
    ];
    for Case { form, tolerance } in cases {
        let tiny = Decoder::for_type(Size::TINY, Decoder::SEED, form.dtype);
        let folder = tempfile::tempdir().unwrap();
        let config = save(&form, &tiny, folder.path());
        let mut engine = Engine::open(&config, &backend).unwrap();
        let mut naive = Engine::open(&config, &backend).unwrap();
        assert_eq!((engine.vocab_size(), engine.layout().splits.len()), (VOCAB, form.parts.len()));
        for prompt in [1, 4, 5, 11, engine.context_size()] {
            engine.reset().unwrap();
            let mut tokens: Vec<u32> = (0..prompt as u32).map(|i| (i * 13 + 5) % VOCAB as u32).collect();
            let mut fresh = tokens.clone();
            loop {
                let found = engine.process(&ids(&fresh)).unwrap().to_vec();
                let off = distance(&found, &tiny.logits(&tokens));
                assert!(off < tolerance, "{form:?}: off by {off} at {} of {prompt}", tokens.len());
                let again = naive.recompute(&ids(&tokens)).unwrap();
                let wide: Vec<f64> = again.iter().map(|&x| x.into()).collect();
                assert!(distance(&found, &wide) < tolerance, "against recomputation at {}", tokens.len());
                if tokens.len() == engine.context_size() {
                    break;
                }
                let next = (0..VOCAB).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap() as u32;
                tokens.push(next);
                fresh = vec![next];
            }
        }
    }
}

#[test]
fn rewinding_and_starting_again_changes_nothing() {
    let (tiny, folder) = (tiny(), tempfile::tempdir().unwrap());
    let form = Form::new(&[(1, 16), (4, 16), (1, 32), (4, 32)]).in_two();
    let mut engine = Engine::open(&save(&form, &tiny, folder.path()), &linked_backend()).unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| (i * 29 + 11) % VOCAB as u32).collect();
    let want = engine.process(&ids(&tokens)).unwrap().to_vec();
    for keep in [0, 3, 12, 16, 19] {
        engine.rewind(keep).unwrap();
        assert!(distance(engine.process(&ids(&tokens[keep..])).unwrap(), &tiny.logits(&tokens)) < 1e-5, "from {keep}");
    }
    engine.reset().unwrap();
    assert_eq!(engine.process(&ids(&tokens)).unwrap(), want);
}

#[test]
fn rows_of_every_token() {
    let (tiny, folder) = (tiny(), tempfile::tempdir().unwrap());
    let form = Form::new(&[(1, 16), (4, 16)]).in_two();
    let mut engine = Engine::open(&save(&form, &tiny, folder.path()), &linked_backend()).unwrap();
    let tokens = [3, 1, 4, 1, 5, 9, 2];
    let mut places = Vec::new();
    let each = &mut |place: usize, logits: &[f32]| {
        assert!(distance(logits, &tiny.logits(&tokens[..=place])) < 1e-5, "row {place}");
        places.push(place);
    };
    engine.process_rows(&ids(&tokens), each).unwrap();
    assert_eq!(places, [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn nan_weights_are_named() {
    let (mut tiny, folder) = (tiny(), tempfile::tempdir().unwrap());
    tiny.head.data[7 * Size::TINY.hidden] = f32::NAN;
    let config = save(&Form::new(&[(1, 16)]), &tiny, folder.path());
    let mut engine = Engine::open(&config, &linked_backend()).unwrap();
    let err = engine.process(&ids(&[1])).unwrap_err().to_string();
    assert!(err.starts_with("logits of graph `ar1_cl16_1_of_1` contain NaN at token 7, position 0"), "{err}");
}

#[test]
fn bad_files_are_named() {
    let (tiny, form) = (tiny(), Form::new(&[(1, 16)]).in_two());
    let (backend, folder) = (linked_backend(), tempfile::tempdir().unwrap());
    let config = |bins| config(&form, &tiny, bins);
    let gone = folder.path().join("gone.bin");
    let err = Engine::open(&config(vec![gone.clone()]), &backend).err().unwrap();
    assert_eq!(err.to_string(), format!("context binary `{}` does not exist", gone.display()));

    let garbage = folder.path().join("garbage.bin");
    std::fs::write(&garbage, b"this is no context binary").unwrap();
    let err = Engine::open(&config(vec![garbage.clone()]), &backend).err().unwrap();
    assert_eq!(err.to_string(), format!("cannot load context binary `{}`", garbage.display()));
    assert!(std::error::Error::source(&err).is_some());

    let bins = form.save(&tiny, &backend, folder.path());
    let err = Engine::open(&config(bins[..1].to_vec()), &backend).err().unwrap();
    assert!(matches!(err, EngineError::Layout(_)), "{err}");
    assert_eq!(err.to_string(), "split 2 of 2 is missing; the graphs found are ar1_cl16_1_of_2");
}

//! The engine over the embedded backend: a hand-composed tiny Llama, saved, mapped, run, and held against plain code.

#[path = "host/compose.rs"]
mod compose;
#[path = "host/tiny.rs"]
mod tiny;

use engine::{Engine, EngineConfig, EngineError, RopeConfig, TokenModel};
use genie_types::{Dtype, TokenId};
use half::f16;

use compose::{MONO, Part, THREE, TWO, backend, save};
use tiny::{HEAD_DIM, THETA, Tiny, VOCAB};

fn config(bins: Vec<std::path::PathBuf>) -> EngineConfig {
    EngineConfig { rope: Some(RopeConfig::new(HEAD_DIM / 2, THETA)), n_threads: 2, ..EngineConfig::new(bins) }
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

/// Largest difference over the largest logit.
fn distance(found: &[f32], want: &[f64]) -> f64 {
    let top = want.iter().fold(0.0f64, |top, x| top.max(x.abs()));
    found.iter().zip(want).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max) / top
}

struct Case {
    parts: &'static [Part],
    variants: &'static [(usize, usize)],
    dtype: Dtype,
    tolerance: f64,
}

#[test]
fn cached_generation_equals_plain_code() {
    let backend = backend();
    let cases = [
        Case { parts: MONO, variants: &[(1, 16), (4, 16), (1, 32), (4, 32)], dtype: Dtype::F32, tolerance: 1e-5 },
        Case { parts: TWO, variants: &[(1, 16), (4, 16), (1, 32), (4, 32)], dtype: Dtype::F32, tolerance: 1e-5 },
        Case { parts: THREE, variants: &[(1, 32), (8, 32)], dtype: Dtype::F32, tolerance: 1e-5 },
        Case { parts: THREE, variants: &[(1, 24), (24, 24)], dtype: Dtype::F32, tolerance: 1e-5 },
        Case { parts: TWO, variants: &[(1, 32), (8, 32)], dtype: Dtype::F16, tolerance: 1e-2 },
    ];
    for Case { parts, variants, dtype, tolerance } in cases {
        let tiny = Tiny::new(|x| if dtype == Dtype::F16 { f16::from_f32(x).to_f32() } else { x });
        let folder = tempfile::tempdir().unwrap();
        let bins = save(&backend, folder.path(), &tiny, parts, variants, dtype);
        let mut engine = Engine::open(&config(bins.clone()), &backend).unwrap();
        let mut naive = Engine::open(&config(bins), &backend).unwrap();
        assert_eq!((engine.vocab_size(), engine.layout().splits.len()), (VOCAB, parts.len()));
        for prompt in [1, 4, 5, 11, engine.context_size()] {
            engine.reset().unwrap();
            let mut tokens: Vec<u32> = (0..prompt as u32).map(|i| (i * 13 + 5) % VOCAB as u32).collect();
            let mut fresh = tokens.clone();
            loop {
                let found = engine.process(&ids(&fresh)).unwrap().to_vec();
                let off = distance(&found, &tiny.logits(&tokens));
                assert!(off < tolerance, "{parts:?} {dtype}: off by {off} at {} of {prompt}", tokens.len());
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
    let backend = backend();
    let tiny = Tiny::new(|x| x);
    let folder = tempfile::tempdir().unwrap();
    let bins = save(&backend, folder.path(), &tiny, TWO, &[(1, 16), (4, 16), (1, 32), (4, 32)], Dtype::F32);
    let mut engine = Engine::open(&config(bins), &backend).unwrap();
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
    let backend = backend();
    let tiny = Tiny::new(|x| x);
    let folder = tempfile::tempdir().unwrap();
    let bins = save(&backend, folder.path(), &tiny, TWO, &[(1, 16), (4, 16)], Dtype::F32);
    let mut engine = Engine::open(&config(bins), &backend).unwrap();
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
    let backend = backend();
    let mut tiny = Tiny::new(|x| x);
    tiny.head.data[7 * tiny::HIDDEN] = f32::NAN;
    let folder = tempfile::tempdir().unwrap();
    let bins = save(&backend, folder.path(), &tiny, MONO, &[(1, 16)], Dtype::F32);
    let mut engine = Engine::open(&config(bins), &backend).unwrap();
    let err = engine.process(&ids(&[1])).unwrap_err().to_string();
    assert!(err.starts_with("logits of graph `ar1_cl16_1_of_1` contain NaN at token 7, position 0"), "{err}");
}

#[test]
fn bad_files_are_named() {
    let backend = backend();
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone.bin");
    let err = Engine::open(&config(vec![gone.clone()]), &backend).err().unwrap();
    assert_eq!(err.to_string(), format!("context binary `{}` does not exist", gone.display()));

    let garbage = folder.path().join("garbage.bin");
    std::fs::write(&garbage, b"this is no context binary").unwrap();
    let err = Engine::open(&config(vec![garbage.clone()]), &backend).err().unwrap();
    assert_eq!(err.to_string(), format!("cannot load context binary `{}`", garbage.display()));
    assert!(std::error::Error::source(&err).is_some());

    let bins = save(&backend, folder.path(), &Tiny::new(|x| x), TWO, &[(1, 16)], Dtype::F32);
    let err = Engine::open(&config(bins[..1].to_vec()), &backend).err().unwrap();
    assert!(matches!(err, EngineError::Layout(_)), "{err}");
    assert_eq!(err.to_string(), "split 2 of 2 is missing; the graphs found are ar1_cl16_1_of_2");
}

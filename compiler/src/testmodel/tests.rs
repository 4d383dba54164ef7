//! Test models are repeatable, readable by others, and their tokenizers cover the vocabulary.

use super::*;
use genie_tokenizer::Tokenizer;

#[test]
fn the_same_spec_gives_the_same_bytes() {
    let hash = |model: &TestModel| {
        let dir = tempfile::tempdir().unwrap();
        model.write(dir.path()).unwrap();
        genie_bundle::hash::hash_file(&dir.path().join("model.safetensors")).unwrap().sha256
    };
    let model = TestModel::tiny(Family::Llama);
    assert_eq!(hash(&model), hash(&model));
    assert_ne!(hash(&model), hash(&TestModel { seed: 2, ..model.clone() }));
}

#[test]
fn shards_hold_the_values_of_the_single_file() {
    let read = |shards: usize| {
        let dir = tempfile::tempdir().unwrap();
        TestModel { shards, ..TestModel::tiny(Family::Qwen2) }.write(dir.path()).unwrap();
        let mut tensors = std::collections::BTreeMap::new();
        for entry in std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()) {
            if entry.extension().is_some_and(|e| e == "safetensors") {
                let bytes = std::fs::read(entry).unwrap();
                let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
                tensors.extend(file.tensors().into_iter().map(|(n, t)| (n, (t.shape().to_vec(), t.data().to_vec()))));
            }
        }
        tensors
    };
    let single = read(1);
    assert_eq!(single.len(), 2 + 2 * 12);
    assert_eq!(single["model.layers.1.self_attn.k_proj.bias"].0, [32]);
    assert_eq!(read(3), single);
}

#[test]
fn every_id_has_text_and_every_text_has_ids() {
    for vocab in [258, 320, 2048] {
        let dir = tempfile::tempdir().unwrap();
        TestModel { vocab, ..TestModel::tiny(Family::Llama) }.write(dir.path()).unwrap();
        let tokenizer = Tokenizer::from_file(dir.path().join("tokenizer.json")).unwrap();
        assert_eq!(tokenizer.vocab_size(), vocab);
        assert!((0..vocab as u32).all(|id| tokenizer.id_to_token(TokenId(id)).is_some()));
        for text in ["To be, or not to be", "héllo\n\t wörld \u{1F600}", ""] {
            let ids = tokenizer.encode(text).unwrap();
            assert!(ids.iter().all(|id| (id.0 as usize) < vocab));
            assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        }
    }
}

#[test]
fn impossible_models_are_refused() {
    struct Bad {
        change: fn(&mut TestModel),
        message: &'static str,
    }
    let cases = [
        Bad {
            change: |m| m.vocab = 100,
            message: "a test model with a vocabulary of 100: expected at least 258: all bytes and two special tokens",
        },
        Bad {
            change: |m| m.kv_heads = 3,
            message: "a test model with a key head count of 3: expected a divisor of the query heads",
        },
        Bad { change: |m| m.head_dim = 7, message: "a test model with a head width of 7: expected an even number" },
        Bad { change: |m| m.ffn = 0, message: "a test model with an extent of 0: expected at least 1" },
        Bad { change: |m| m.shards = 0, message: "a test model with a shard count of 0: expected at least 1" },
    ];
    for case in cases {
        let mut model = TestModel::tiny(Family::Llama);
        (case.change)(&mut model);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(model.write(dir.path()).unwrap_err().to_string(), case.message);
    }
}

//! Flipped bits and truncated files: compiling any model directory ends in a bundle or an error.

use crate::family::Family;
use crate::testing::compile;
use crate::testmodel::TestModel;
use proptest::prelude::*;

/// One file of a sharded model with bits flipped near the given places, then cut.
fn damaged(file: &str, flips: &[(prop::sample::Index, u8)], keep: f64) -> Result<(), String> {
    let place = tempfile::tempdir().unwrap();
    let model = TestModel { shards: 2, layers: 1, hidden: 16, ffn: 16, head_dim: 4, ..TestModel::tiny(Family::Qwen2) };
    let dir = place.path().join("model");
    model.write(&dir).unwrap();
    let path = dir.join(file);
    let mut bytes = std::fs::read(&path).unwrap();
    // Headers are where damage does harm: half of the flips go to the first kilobyte.
    let head = bytes.len().min(1024);
    for (i, (at, bit)) in flips.iter().enumerate() {
        let at = at.index(if i % 2 == 0 { head } else { bytes.len() });
        bytes[at] ^= 1 << (bit % 8);
    }
    bytes.truncate((bytes.len() as f64 * keep) as usize);
    std::fs::write(&path, bytes).unwrap();
    let out = place.path().join("bundle");
    match compile(&dir, &out, |_| {}) {
        Ok(manifest) => manifest.verify_files(&out).map_err(|e| e.to_string()),
        Err(error) if error.to_string().is_empty() => Err("an error without a message".into()),
        Err(_) if out.exists() => Err("an error, and yet a bundle".into()),
        Err(_) => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn damage_gives_errors_not_panics(
        file in prop::sample::select(vec![
            "config.json", "generation_config.json", "tokenizer.json",
            "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
        ]),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in prop_oneof![3 => Just(1.0), 1 => 0.0..1.0_f64],
    ) {
        prop_assert_eq!(damaged(file, &flips, keep), Ok(()));
    }
}

//! Random damage to context binaries and configs: an error or an answer, never a panic, never a crash.

use std::sync::OnceLock;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, Family, Precision};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::DialogConfig;
use engine::{Engine, EngineConfig, RopeConfig, TokenModel};
use genie_types::TokenId;
use proptest::prelude::*;

/// A small bundle's binary and config, made once.
fn originals() -> &'static (Vec<u8>, String) {
    static MADE: OnceLock<(Vec<u8>, String)> = OnceLock::new();
    MADE.get_or_init(|| {
        let model =
            TestModel { layers: 1, hidden: 32, heads: 2, kv_heads: 1, ffn: 32, ..TestModel::tiny(Family::Llama) };
        let bundle = Bundle::make(&model, &backends::linked(), |o| {
            (o.ars, o.cls, o.precision) = (vec![1, 4], vec![16], Precision::F32);
        });
        let binary = std::fs::read(&bundle.config().engine().ctx_bins[0]).unwrap();
        (binary, std::fs::read_to_string(bundle.dir().join(CONFIG_FILE)).unwrap())
    })
}

/// Where to flip: half of the places lie in the description at the front, where damage does harm.
fn flips() -> impl Strategy<Value = Vec<(prop::sample::Index, bool, u8)>> {
    prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0..8u8), 0..5)
}

fn damage(bytes: &mut Vec<u8>, flips: &[(prop::sample::Index, bool, u8)], keep: f64) {
    let front = bytes.len().min(4096);
    for (at, in_front, bit) in flips {
        let at = at.index(if *in_front { front } else { bytes.len() });
        bytes[at] ^= 1 << bit;
    }
    bytes.truncate((bytes.len() as f64 * keep) as usize);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_binary_is_refused_or_runs(flips in flips(), keep in prop_oneof![3 => Just(1.0), 2 => 0.0..1.0_f64]) {
        let mut bytes = originals().0.clone();
        damage(&mut bytes, &flips, keep);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.bin");
        std::fs::write(&path, &bytes).unwrap();
        let config = EngineConfig { rope: Some(RopeConfig::new(8, 1e4)), ..EngineConfig::new([path]) };
        match Engine::open(&config, &backends::linked()) {
            // What survives is a flipped weight; it may say so when it runs (not a number), and may not crash.
            Ok(mut engine) => drop(engine.process(&[TokenId(1), TokenId(2), TokenId(3)]).map(<[f32]>::to_vec)),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn a_damaged_config_is_refused_or_read(flips in flips(), keep in prop_oneof![3 => Just(1.0), 2 => 0.0..1.0_f64]) {
        let mut bytes = originals().1.clone().into_bytes();
        damage(&mut bytes, &flips, keep);
        if let Err(error) = DialogConfig::from_json(&String::from_utf8_lossy(&bytes), "/") {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

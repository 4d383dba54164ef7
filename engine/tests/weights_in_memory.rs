//! Weights that move from a mapped file into memory while the engine runs (`use-mmap: false` on the embedded backend).
#![cfg(target_os = "linux")]

use std::path::Path;
use std::time::{Duration, Instant};

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, Splits, Weights, compile};
use engine::{EncoderOptions, Engine, EngineConfig, RopeConfig, TextEncoder, TokenModel};
use genie_types::{PositionKind, TokenId};
use testkit::{linked_backend, mapped_bytes, save_encoder};

const HUGE_PAGE: u64 = 2 << 20;

/// A thread moves all but what no whole huge page holds.
fn wait_for_the_move(bin: &Path) {
    let began = Instant::now();
    while mapped_bytes(bin) > 2 * HUGE_PAGE {
        assert!(began.elapsed() < Duration::from_secs(120), "{} bytes are mapped still", mapped_bytes(bin));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn weights_move_behind_sixteen_steps_and_logits_stay() {
    let folder = tempfile::tempdir().unwrap();
    let model = TestModel {
        layers: 4,
        hidden: 512,
        heads: 8,
        kv_heads: 2,
        head_dim: 64,
        ffn: 2048,
        vocab: 8000,
        ..TestModel::tiny(Family::Llama)
    };
    model.write(&folder.path().join("model")).unwrap();
    let options = CompileOptions {
        ars: vec![1, 16],
        cls: vec![128],
        splits: Splits::DecoderLmhead,
        one_file: true,
        weights: Some(Weights::Q8_0),
        ..CompileOptions::new(folder.path().join("model"), folder.path().join("bundle"))
    };
    compile(&options, &linked_backend(), &mut Silent).unwrap();
    let written = std::fs::read_to_string(folder.path().join("bundle/genie_config.json")).unwrap();
    assert!(written.contains("\"use-mmap\": false"), "{written}");

    let bin = folder.path().join("bundle/model.bin");
    let len = std::fs::metadata(&bin).unwrap().len();
    assert!(len > 4 * HUGE_PAGE, "{len} bytes");
    let config = EngineConfig {
        rope: Some(RopeConfig::new(model.head_dim / 2, model.rope_theta)),
        ..EngineConfig::new([bin.clone()])
    };
    let config = |use_mmap| EngineConfig { use_mmap, ..config.clone() };
    let prompt: Vec<_> = (0..20).map(|i| TokenId(i * 7 % 2000)).collect();

    let mut logits = Vec::new();
    for use_mmap in [true, false] {
        let mut engine = Engine::open(&config(use_mmap), &linked_backend()).unwrap();
        let mut rows = vec![engine.process(&prompt).unwrap().to_vec()];
        // Fewer than sixteen steps of either split: all is where it was.
        let steps = |engine: &mut Engine<_>, rows: &mut Vec<Vec<f32>>, tokens: std::ops::Range<u32>| {
            tokens.for_each(|token| rows.push(engine.process(&[TokenId(token)]).unwrap().to_vec()));
        };
        steps(&mut engine, &mut rows, 0..8);
        assert!(mapped_bytes(&bin) >= len);
        steps(&mut engine, &mut rows, 8..30);
        if use_mmap {
            assert!(mapped_bytes(&bin) >= len);
        } else {
            wait_for_the_move(&bin);
        }
        steps(&mut engine, &mut rows, 30..60);
        logits.push(rows);
        drop(engine);
        assert_eq!(mapped_bytes(&bin), 0, "contexts are freed");
    }
    assert!(logits[0] == logits[1]);
}

#[test]
fn weights_of_a_text_encoder_move_behind_sixteen_texts() {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("encoder.bin");
    // 16 MB.
    save_encoder(&bin, 8192, 512);
    let len = std::fs::metadata(&bin).unwrap().len();
    let tokens = [3, 8191, 0, 17, 4096].map(TokenId);
    for use_mmap in [true, false] {
        let (ctx_bins, positions) = (vec![bin.clone()], PositionKind::None);
        let options = EncoderOptions { ctx_bins, pad_token: TokenId(1), positions, use_mmap };
        let mut encoder = TextEncoder::open(&options, &linked_backend()).unwrap();
        let encoded = encoder.encode(&tokens).unwrap();
        assert_eq!(encoded.rows[512..514], [8191.0 * 512.0, 8191.0 * 512.0 + 1.0]);
        (1..15).for_each(|_| assert_eq!(encoder.encode(&tokens).unwrap(), encoded));
        assert!(mapped_bytes(&bin) >= len);
        (15..20).for_each(|_| assert_eq!(encoder.encode(&tokens).unwrap(), encoded));
        if use_mmap {
            assert!(mapped_bytes(&bin) >= len);
        } else {
            wait_for_the_move(&bin);
            assert_eq!(encoder.encode(&tokens).unwrap(), encoded);
        }
    }
}

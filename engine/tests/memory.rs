//! What a running model takes besides its mapped file: the cache, and one set of buffers for all of its graphs.

use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, Splits, Weights, compile};
use engine::{Engine, EngineConfig, RopeConfig, TokenModel};
use genie_types::TokenId;
use qnn_api::{Backend, BackendOptions, Library};

fn backend() -> Arc<Backend> {
    let library = Library::linked(qnn_host::providers());
    let options = BackendOptions { platform: Some(c"host_threads:1".into()), ..BackendOptions::default() };
    Backend::new(&library.unwrap(), &options).unwrap()
}

/// Most bytes allocated at a time while a model is opened, prefilled and decoded with, on a fresh backend.
fn peak_bytes(config: &EngineConfig) -> usize {
    let counted = allocation_counter::measure(|| {
        let mut engine = Engine::open(config, &backend()).unwrap();
        let prompt: Vec<_> = (0..150).map(|i| TokenId(i * 7 % 2000)).collect();
        engine.process(&prompt).unwrap();
        for token in 0..4 {
            engine.process(&[TokenId(token)]).unwrap();
        }
    });
    usize::try_from(counted.bytes_max).unwrap()
}

#[test]
fn variants_share_weights_and_buffers() {
    let folder = tempfile::tempdir().unwrap();
    let model = TestModel {
        layers: 4,
        hidden: 256,
        heads: 8,
        kv_heads: 2,
        head_dim: 32,
        ffn: 1024,
        vocab: 2000,
        ..TestModel::tiny(Family::Llama)
    };
    model.write(&folder.path().join("model")).unwrap();
    let n_weights = model.vocab * model.hidden + model.layers * model.hidden * (3 * model.ffn + 2 * model.hidden);
    for weights in [Weights::Float, Weights::W8, Weights::Q8_0, Weights::Q4_0] {
        let options = CompileOptions {
            ars: vec![1, 16, 64],
            cls: vec![64, 128, 256],
            splits: Splits::DecoderLmhead,
            one_file: true,
            weights: Some(weights),
            force: true,
            ..CompileOptions::new(folder.path().join("model"), folder.path().join("bundle"))
        };
        let manifest = compile(&options, &backend(), &mut Silent).unwrap();
        let config = EngineConfig {
            rope: Some(RopeConfig::new(model.head_dim / 2, model.rope_theta)),
            n_threads: 0,
            ..EngineConfig::new([folder.path().join("bundle/model.bin")])
        };
        let widest = |name: &str| name.starts_with("ar64_cl256_") || name.starts_with("ar1_cl256_");
        let few = manifest.graphs.iter().map(|g| g.name.clone()).filter(|name| widest(name)).collect();
        let all = peak_bytes(&config);
        let few = peak_bytes(&EngineConfig { select_graphs: Some(few), ..config });
        // What a graph adds is the list of its steps.
        assert!(all < few + few / 2, "{weights}: {all} bytes for 9 shapes, {few} for 2");
        if weights == Weights::Float {
            assert!(all < n_weights, "{all} bytes beside {n_weights} weights of 2 bytes, which stay in the file");
        }
    }
}

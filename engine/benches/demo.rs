//! End to end on the demo model: tokens per second of prefill and decode, through engine, table and host.
//!
//! `cargo bench -p engine`; the machine should be idle. Ids: `demo/prefill/TOKENS`, `demo/decode/FILL`.

use std::path::Path;
use std::sync::Arc;

use compiler::{CompileOptions, Silent, compile};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::{Engine, EngineConfig, RopeConfig, TokenModel};
use genie_types::TokenId;
use qnn_api::{Backend, BackendOptions, Library};

fn engine(folder: &Path, backend: &Arc<Backend>) -> Engine {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let options = CompileOptions { cls: vec![256, 512], ..CompileOptions::new(model, folder.join("bundle")) };
    compile(&options, backend, &mut Silent).expect("the demo compiles");
    let rope = Some(RopeConfig::new(16, 10_000.0)); // half of the demo's head_dim, and its theta
    let config = EngineConfig { rope, ..EngineConfig::new([folder.join("bundle/model.bin")]) };
    Engine::open(&config, backend).expect("it opens")
}

fn demo(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = Library::linked(qnn_host::providers());
    let backend = Backend::new(&library.expect("the host has a table"), &BackendOptions::default()).expect("it starts");
    let mut engine = engine(folder.path(), &backend);
    let prompt: Vec<TokenId> = (0..500).map(|i| TokenId(i * 37 % 2048)).collect();

    let mut group = c.benchmark_group("demo");
    for n in [32, 128, 480] {
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("prefill", n), |b| {
            b.iter(|| {
                engine.reset().expect("a reset");
                engine.process(&prompt[..n]).expect("a prefill")[0]
            });
        });
    }
    for fill in [32, 480] {
        engine.reset().expect("a reset");
        engine.process(&prompt[..fill]).expect("a prefill");
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("decode", fill), |b| {
            b.iter(|| {
                let logit = engine.process(&prompt[..1]).expect("a step")[0];
                engine.rewind(fill).expect("a rewind");
                logit
            });
        });
    }
    group.finish();
}

criterion_group!(benches, demo);
criterion_main!(benches);

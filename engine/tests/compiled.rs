//! Bundles as the compiler makes them: cached generation against a graph of the same model that has no cache at all.

use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Precision, Silent, Splits, compile};
use engine::{Engine, EngineConfig, RopeConfig, TokenModel};
use genie_types::TokenId;
use qnn_api::{Backend, BackendOptions, Library};

fn backend() -> Arc<Backend> {
    let library = Library::linked(qnn_host::providers());
    Backend::new(&library.unwrap(), &BackendOptions::default()).unwrap()
}

struct Case {
    model: TestModel,
    splits: Splits,
    layers_per_split: Option<usize>,
    precision: Precision,
}

/// Compiles AR 1 and 8 for CL 32 and 64, and AR-64 CL-64, which sees everything at once.
fn bundle(case: &Case, backend: &Arc<Backend>, folder: &std::path::Path) -> EngineConfig {
    case.model.write(&folder.join("model")).unwrap();
    let options = CompileOptions {
        ars: vec![1, 8, 64],
        cls: vec![32, 64],
        splits: case.splits,
        layers_per_split: case.layers_per_split,
        // As the command line does by default.
        one_file: case.splits == Splits::DecoderLmhead,
        precision: case.precision,
        ..CompileOptions::new(folder.join("model"), folder.join("bundle"))
    };
    compile(&options, backend, &mut Silent).unwrap();
    let mut bins: Vec<_> = std::fs::read_dir(folder.join("bundle"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "bin"))
        .collect();
    bins.sort();
    let rope = RopeConfig::new(case.model.head_dim / 2, case.model.rope_theta).with_scaling(case.model.scaling.clone());
    EngineConfig { rope: Some(rope), n_threads: 1, ..EngineConfig::new(bins) }
}

#[test]
fn cached_generation_equals_a_graph_without_cache() {
    let backend = backend();
    let tiny = |family| TestModel::tiny(family);
    let scaled = TestModel { scaling: Some(TestModel::short_llama3_scaling()), tied: false, ..tiny(Family::Llama) };
    let cases = [
        Case { model: scaled, splits: Splits::Mono, layers_per_split: None, precision: Precision::F32 },
        Case {
            model: tiny(Family::Qwen2),
            splits: Splits::DecoderLmhead,
            layers_per_split: None,
            precision: Precision::F32,
        },
        Case {
            model: tiny(Family::Qwen3),
            splits: Splits::LutDecoderLmhead,
            layers_per_split: Some(1),
            precision: Precision::F32,
        },
        Case {
            model: tiny(Family::Llama),
            splits: Splits::LutDecoderLmhead,
            layers_per_split: None,
            precision: Precision::F16,
        },
    ];
    for case in cases {
        let folder = tempfile::tempdir().unwrap();
        let config = bundle(&case, &backend, folder.path());
        let mut naive = Engine::open(&config, &backend).unwrap();
        let names = naive.layout().splits.iter().flat_map(|s| &s.graphs).map(|g| g.info.name.clone());
        let select_graphs = Some(names.filter(|name| !name.starts_with("ar64_")).collect());
        let mut cached = Engine::open(&EngineConfig { select_graphs, ..config }, &backend).unwrap();
        let tolerance = if case.precision == Precision::F32 { 1e-4 } else { 2e-2 };
        for prompt in [1, 7, 8, 9, 19, 40] {
            let what = format!("{:?} {:?} {:?}, prompt {prompt}", case.model.family, case.splits, case.precision);
            cached.reset().unwrap();
            let mut tokens: Vec<TokenId> = (0..prompt).map(|i| TokenId(i * 37 % 320)).collect();
            let mut fresh = tokens.clone();
            while tokens.len() <= cached.context_size() {
                let found = cached.process(&fresh).unwrap().to_vec();
                let whole = naive.recompute(&tokens).unwrap();
                let top = whole.iter().fold(0.0f32, |top, x| top.max(x.abs()));
                let off = found.iter().zip(whole).fold(0.0f32, |off, (a, b)| off.max((a - b).abs())) / top;
                assert!(off < tolerance, "{what}: off by {off} at {}", tokens.len());
                let next = (0..found.len()).max_by(|&a, &b| found[a].total_cmp(&found[b])).unwrap();
                fresh = vec![TokenId(next as u32)];
                tokens.extend(&fresh);
            }
            // A head of its own runs for the last row only.
            let n = naive.layout().splits.len();
            let head = format!("_{n}_of_{n}");
            let whole = |name: &str| name.starts_with("ar64_cl64_") || (n > 1 && name.ends_with(&head));
            assert!(naive.steps().names().all(whole), "{what}");
            naive.clear_steps();
        }
        assert!(cached.steps().names().all(|name| !name.starts_with("ar64_")), "it was not selected");
    }
}

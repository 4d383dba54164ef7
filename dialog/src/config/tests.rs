//! What a config becomes for the sampler and the engine. The config's own checks are tested in `genie-bundle`.

use genie_types::{Dtype, Llama3Scaling, RopeConfig, RopeScaling};
use serde_json::{Value, json};

use super::*;

fn document(sampler: Value, model: Value, more: &[(&str, Value)]) -> Value {
    let mut dialog = json!({
        "version": 1,
        "type": "basic",
        "context": {"version": 1, "size": 128, "n-vocab": 512, "bos-token": 256, "eos-token": 257},
        "sampler": sampler,
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1,
            "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": 32, "execute-select-graphs": ["g"]
            }},
            "model": {
                "version": 1,
                "type": "binary",
                "binary": {"version": 1, "ctx-bins": ["model.bin"]},
                "positional-encoding": model
            }
        }
    });
    for (key, value) in more {
        match key.strip_prefix("engine/") {
            Some(key) => dialog["engine"][key] = value.clone(),
            None => dialog[*key] = value.clone(),
        }
    }
    json!({"dialog": dialog})
}

fn parse(document: &Value) -> DialogConfig {
    DialogConfig::from_json(&document.to_string(), "/bundle").unwrap()
}

#[test]
fn the_golden_config_becomes_sampler_and_engine_options() {
    let sampler = json!({"version": 1, "seed": 42, "temp": 0.8, "top-k": 40, "top-p": 0.95, "greedy": false});
    let c = parse(&document(sampler, json!({"type": "rope", "rope-dim": 16, "rope-theta": 10000}), &[]));
    assert_eq!((c.sampler().seed(), c.sampler().temp(), c.sampler().top_k()), (Some(42), 0.8, 40));
    assert_eq!(c.engine().ctx_bins, [Path::new("/bundle/model.bin")]);
    assert_eq!(c.engine().rope, Some(RopeConfig::new(16, 10_000.0)));
    assert_eq!((c.engine().context_size, c.engine().pad_token), (Some(128), TokenId(257)));
    let random = parse(&document(json!({"version": 1, "seed": -1}), json!({"type": "rope", "rope-dim": 16}), &[]));
    assert_eq!(random.sampler().seed(), None);
    let absent = parse(&document(json!({"version": 1}), json!({"type": "rope", "rope-dim": 16}), &[]));
    assert_eq!(*absent.sampler(), SamplerSettings::default());
}

#[test]
fn embeddings_groups_and_scaling_reach_the_engine() {
    let rope = json!({"type": "rope", "rope-dim": 16, "rope-scaling": {"rope-type": "llama3", "factor": 8,
        "low-freq-factor": 1, "high-freq-factor": 4, "original-max-position-embeddings": 8192}});
    let table = json!({"version": 1, "type": "lut", "size": 64, "lut-path": "e.raw",
        "datatype": "ufixed8", "quant-param": {"scale": 0.5, "offset": -128}});
    let groups = json!([{"version": 1, "prefix": "past_"},
        {"version": 1, "prefix": "swa_", "attention-mask-tensor-name": "m"}]);
    let c = parse(&document(json!({"version": 1}), rope, &[("embedding", table), ("engine/cache-groups", groups)]));
    let lut = c.engine().embedding.clone().unwrap();
    assert_eq!((lut.size, lut.path.as_path()), (64, Path::new("/bundle/e.raw")));
    assert_eq!(lut.dtype, LutDtype::Fixed { dtype: Dtype::UFixed8, scale: 0.5, offset: -128 });
    let group = |prefix: &str, mask: Option<&str>| GroupOptions {
        prefix: prefix.into(),
        mask: mask.map(str::to_owned),
        index: None,
    };
    assert_eq!(c.engine().cache_groups, [group("past_", None), group("swa_", Some("m"))]);
    assert_eq!(c.engine().select_graphs, Some(vec!["g".to_owned()]));
    assert_eq!(
        c.engine().rope.clone().unwrap().scaling,
        Some(RopeScaling::Llama3(Llama3Scaling {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position: 8192.0
        }))
    );
    assert!(c.engine().check().is_ok());
}

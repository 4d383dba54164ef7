//! A sound case in plain data, for tests to break: two quantised graphs in one HTP binary for SM8650, with libraries.

use genie_types::{Dtype, GraphInfo, Quant, TensorInfo};
use qnn_api::{BinaryInfo, HtpGraphBlob, Soc, Version};
use serde_json::{Value, json};

use crate::Case;
use crate::case::*;

pub(crate) const BUILD: &str = "v2.51.0.260929181845";
pub(crate) const HEAD_DIM: usize = 8;
pub(crate) const VOCAB: usize = 32;

fn fixed(name: &str, dims: &[usize], dtype: Dtype, scale: f32, offset: i32) -> TensorInfo {
    TensorInfo::new(name, dims, dtype).with_quant(Quant::PerTensor { scale, offset })
}

/// A whole model of one layer for AR-n CL-m.
pub(crate) fn graph(n: usize, m: usize) -> GraphInfo {
    let kv = |name: &str, dims: &[usize]| fixed(name, dims, Dtype::UFixed8, 0.5, -128);
    let rope = |name: &str| fixed(name, &[1, 1, n, HEAD_DIM / 2], Dtype::UFixed16, 2.0 / 65535.0, -32768);
    GraphInfo {
        name: format!("ar{n}_cl{m}_1_of_1"),
        inputs: vec![
            TensorInfo::new("input_ids", [1, n], Dtype::I32),
            fixed("attention_mask", &[1, 1, n, m], Dtype::UFixed16, 0.001, -65535),
            rope("position_ids_cos"),
            rope("position_ids_sin"),
            kv("past_key_0_in", &[2, 1, HEAD_DIM, m - n]),
            kv("past_value_0_in", &[2, 1, m - n, HEAD_DIM]),
        ],
        outputs: vec![
            kv("past_key_0_out", &[2, 1, HEAD_DIM, n]),
            kv("past_value_0_out", &[2, 1, n, HEAD_DIM]),
            fixed("logits", &[1, n, VOCAB], Dtype::UFixed16, 0.01, -32768),
        ],
    }
}

/// A binary that is there and could be read.
pub(crate) fn binary(name: &str, graphs: Vec<GraphInfo>) -> Binary {
    let htp_graphs = vec![Some(HtpGraphBlob { vtcm_bytes: 8 << 20, ..HtpGraphBlob::default() }); graphs.len()];
    let info = BinaryInfo {
        format: 3,
        backend_id: 6,
        build_id: BUILD.into(),
        core_version: Version { major: 2, minor: 40, patch: 0 },
        soc: Some(57),
        dsp_arch: Some(75),
        graphs,
        htp_graphs,
        ..BinaryInfo::default()
    };
    Binary {
        written: name.into(),
        path: format!("/bundle/{name}").into(),
        file: FileState::Present { bytes: 1_000_000 },
        content: Content::Described(Box::new(info)),
    }
}

/// A library in the runtime's folder.
pub(crate) fn library(name: &str) -> LibraryFile {
    LibraryFile {
        name: name.into(),
        path: format!("/qnn/{name}").into(),
        place: Place::Runtime,
        bytes: 1000,
        native: true,
        build: Build::parse(BUILD),
    }
}

pub(crate) fn config_json() -> Value {
    json!({"dialog": {
        "version": 1, "type": "basic",
        "context": {"version": 1, "size": 64, "n-vocab": VOCAB, "bos-token": 1, "eos-token": 2},
        "sampler": {"version": 1, "temp": 0.8},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "extensions": "htp_backend_ext_config.json", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": HEAD_DIM, "allow-async-init": false,
            }},
            "model": {
                "version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": ["model.bin"]},
                "positional-encoding": {"type": "rope", "rope-dim": HEAD_DIM / 2, "rope-theta": 10000},
            },
        },
    }})
}

/// Nothing is wrong with this one.
pub(crate) fn sound() -> Case {
    let file = FileState::Present { bytes: 100 };
    let entries = [(1, Some("<s>".to_owned())), (2, Some("</s>".to_owned()))].into();
    let devices = json!({"devices": [{"soc_model": 57, "dsp_arch": "v75"}], "graphs": [{"graph_names": ["ar1_cl64_1_of_1"], "vtcm_mb": 8}]});
    Case {
        machine: Machine {
            arch: "x86_64".into(),
            cwd: "/home".into(),
            libraries: ["libQnnHtp.so", "libQnnSystem.so", "libHtpPrepare.so"].map(library).into(),
            searched: vec!["/qnn".into()],
            htp: Some(Ok(Interfaces {
                core: Version { major: 2, minor: 40, patch: 0 },
                backend: Version { major: 5, minor: 51, patch: 0 },
            })),
            system: Some(Ok(Version { major: 1, minor: 15, patch: 0 })),
            ..Machine::default()
        },
        device: Some(Device { soc: Soc::by_name("sm8650").unwrap(), here: false }),
        genie_api: genie_bundle::config::GenieApi::parse("1.21"),
        bundle: Some(Bundle {
            path: "/bundle".into(),
            config: Some(ConfigFile {
                path: "/bundle/genie_config.json".into(),
                base: "/bundle".into(),
                document: Ok(config_json()),
            }),
            is_folder: true,
            binaries: vec![binary("model.bin", vec![graph(1, 64), graph(8, 64)])],
            tokenizer: Some(TokenizerFile {
                written: "tokenizer.json".into(),
                path: "/bundle/tokenizer.json".into(),
                file: file.clone(),
                vocabulary: Some(Ok(Vocabulary { n_entries: 30, entries })),
            }),
            extensions: vec![Extension {
                written: "htp_backend_ext_config.json".into(),
                path: "/bundle/htp_backend_ext_config.json".into(),
                file: file.clone(),
                document: Some(Ok(devices)),
            }],
            embedding: None,
            manifest: Some(Manifest {
                fault: None,
                build_id: Some(BUILD.into()),
                target: Some("sm8650".into()),
                shared_weights: false,
                files: vec![ManifestFile {
                    path: "model.bin".into(),
                    bytes: 1_000_000,
                    found_bytes: Some(1_000_000),
                    same_hash: Some(true),
                }],
            }),
        }),
    }
}

/// Short ways into a case, for breaking it.
impl Case {
    pub(crate) fn bundle_mut(&mut self) -> &mut Bundle {
        self.bundle.as_mut().expect("a sound case has a bundle")
    }

    pub(crate) fn info_mut(&mut self, binary: usize) -> &mut BinaryInfo {
        match &mut self.bundle_mut().binaries[binary].content {
            Content::Described(info) => info,
            other => panic!("not described: {other:?}"),
        }
    }

    pub(crate) fn tensor_mut(&mut self, graph: usize, name: &str) -> &mut TensorInfo {
        let graph = &mut self.info_mut(0).graphs[graph];
        let mut all = graph.inputs.iter_mut().chain(&mut graph.outputs);
        all.find(|t| t.name == name).expect("a tensor of that name")
    }

    /// Sets a value of the config, or takes it out with `null`.
    pub(crate) fn set(&mut self, pointer: &str, value: Value) {
        let document = self.bundle_mut().config.as_mut().and_then(|c| c.document.as_mut().ok()).expect("a config");
        let (block, key) = pointer.rsplit_once('/').expect("a pointer");
        let block = document.pointer_mut(block).and_then(Value::as_object_mut).expect("a block");
        match value {
            Value::Null => drop(block.remove(key)),
            value => drop(block.insert(key.to_owned(), value)),
        }
    }
}

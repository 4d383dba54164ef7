//! Sound facts in plain data, for tests to break: two quantised graphs in one HTP binary for SM8650, with libraries.

use genie_types::{GraphInfo, TensorInfo};
use qnn_api::{BinaryInfo, HtpGraphBlob, Soc, Version};
use serde_json::{Value, json};

use crate::Facts;
use crate::facts::*;

pub(crate) mod toy;

pub(crate) const BUILD: &str = "v2.51.0.260929181845";
pub(crate) const VOCAB: usize = 32;

/// The toy model for AR-n CL-m.
pub(crate) fn graph(n: usize, m: usize) -> GraphInfo {
    toy::graph(n, m, VOCAB)
}

/// A readable HTP binary.
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
        weights: Vec::new(),
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

/// Facts without a finding.
pub(crate) fn sound() -> Facts {
    let file = FileState::Present { bytes: 100 };
    let entries = [(1, Some("<s>".to_owned())), (2, Some("</s>".to_owned()))].into();
    let mut config = toy::config(&["model.bin"], VOCAB, 1, 2);
    toy::set(&mut config, "/dialog/engine/backend/extensions", json!("htp_backend_ext_config.json"));
    let devices = json!({"devices": [{"soc_model": 57, "dsp_arch": "v75"}], "graphs": [{"graph_names": ["ar1_cl64_1_of_1"], "vtcm_mb": 8}]});
    Facts {
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
            kind: None,
            path: "/bundle".into(),
            config: Some(ConfigFile {
                path: "/bundle/genie_config.json".into(),
                base: "/bundle".into(),
                document: Ok(config),
            }),
            is_folder: true,
            binaries: vec![binary("model.bin", vec![graph(1, 64), graph(8, 64)])],
            tokenizer: Some(TokenizerFile {
                written: "tokenizer.json".into(),
                path: "/bundle/tokenizer.json".into(),
                file: file.clone(),
                vocabulary: Some(Ok(Vocabulary { n_entries: 30, entries, unfit: None })),
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
                encoding: None,
                windows: Vec::new(),
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

/// Access to the parts that tests change.
impl Facts {
    pub(crate) fn bundle_mut(&mut self) -> &mut Bundle {
        self.bundle.as_mut().expect("sound facts have a bundle")
    }

    pub(crate) fn info_mut(&mut self, binary: usize) -> &mut BinaryInfo {
        match &mut self.bundle_mut().binaries[binary].content {
            Content::Described(info) => info,
            other => panic!("not described: {other:?}"),
        }
    }

    pub(crate) fn tensor_mut(&mut self, graph: usize, name: &str) -> &mut TensorInfo {
        toy::tensor(&mut self.info_mut(0).graphs[graph], name).expect("a tensor of that name")
    }

    /// Sets a value of the config, or removes it with `null`.
    pub(crate) fn set(&mut self, pointer: &str, value: Value) {
        let document = self.bundle_mut().config.as_mut().and_then(|c| c.document.as_mut().ok()).expect("a config");
        toy::set(document, pointer, value);
    }
}

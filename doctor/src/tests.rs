//! Every rule, broken in plain data: sound facts with one change give that rule's finding and no other.
//! A table of some 100 changes, hence its length.

use std::collections::BTreeSet;

use genie_types::{DataFormat, Dtype, GraphInfo, Quant, TensorInfo};
use qnn_api::library::BACKEND_ID_HOST;
use qnn_api::{Soc, Version};
use serde_json::json;

use crate::facts::*;
use crate::testing::{VOCAB, binary, graph, library, sound, toy};
use crate::{Facts, Fix, checks, examine};

/// A name, the change, and the ids of the expected findings.
type Change = (&'static str, fn(&mut Facts), &'static [&'static str]);

const ENGINE: &str = "/dialog/engine";
const HTP: &str = "/dialog/engine/backend/QnnHtp";
const ROPE: &str = "/dialog/engine/model/positional-encoding";

fn soc(name: &str) -> Option<Device> {
    Some(Device { soc: Soc::by_name(name).unwrap(), here: false })
}

fn build(text: &str) -> Option<Build> {
    Some(Build::parse(text).unwrap())
}

/// The facts of an SM8650 itself, with its stub and skel.
fn on_device(facts: &mut Facts) {
    facts.device = Some(Device { here: true, ..facts.device.unwrap() });
    facts.machine.arch = "aarch64".into();
    facts.machine.libraries.push(library("libQnnHtpV75Stub.so"));
    let folder = ("/dsp".into(), Some(vec!["libQnnHtpV75Skel.so".to_owned()]));
    facts.machine.adsp = Some(AdspPath { raw: "/dsp".into(), folders: vec![folder] });
}

/// A fused pair of one layer beside the graphs that are there.
fn fused(facts: &mut Facts) {
    let float = |name: &str, dims: &[usize]| TensorInfo::new(name, dims.to_vec(), Dtype::F16);
    let int = |name: &str, dims: &[usize]| TensorInfo::new(name, dims.to_vec(), Dtype::I32);
    for (name, n, slots) in [("model.0.pd.s8", 8, &["_prefill", "_decode"][..]), ("model.0.s1", 1, &[""])] {
        let (past, d) = (64 - n, toy::HEAD_DIM);
        let mut inputs =
            vec![int("input_ids", &[1, n]), int("position_ids", &[n]), float("attention_mask", &[1, 1, n, 64])];
        if n > 1 {
            inputs.push(int("fusion_ctrl", &[6]));
        }
        for slot in slots {
            inputs.push(float(&format!("past_key{slot}_0"), &[1, 1, d, past]));
            inputs.push(float(&format!("past_value{slot}_0"), &[1, 1, past, d]));
        }
        let outputs = vec![
            float("logits", &[1, 1, slots.len(), VOCAB]),
            float("present_key_0", &[1, 1, d, n]),
            float("present_value_0", &[1, 1, n, d]),
        ];
        facts.info_mut(0).graphs.push(GraphInfo { name: name.into(), inputs, outputs });
        facts.info_mut(0).htp_graphs.push(None);
    }
}

/// The layers and the LM head in two binaries.
fn split(facts: &mut Facts) {
    let (decoders, heads) = [1, 8].map(|n| toy::splits(n, 64, VOCAB, Dtype::F16)).into_iter().unzip();
    facts.bundle_mut().binaries = vec![binary("decoder.bin", decoders), binary("lmhead.bin", heads)];
    facts.bundle_mut().extensions.clear();
    facts.bundle_mut().manifest = None;
}

fn tensor(name: &str, dims: &[usize]) -> TensorInfo {
    TensorInfo::new(name, dims, Dtype::F16)
}

/// The LM head takes its weight as an input; its file has that many bytes.
fn head_weight(facts: &mut Facts, bytes: usize) {
    for g in 0..2 {
        facts.info_mut(0).graphs[g].inputs.push(tensor("lm_head_weight", &[VOCAB, 1]));
    }
    let file = FileState::Present { bytes: bytes as u64 };
    let (tensor, path) = ("lm_head_weight".into(), "/bundle/lm_head_weight.raw".into());
    facts.bundle_mut().binaries[0].weights.push(WeightFile { tensor, path, file });
}

fn rename(facts: &mut Facts, from: &str, to: &str) {
    for g in 0..2 {
        facts.tensor_mut(g, from).name = to.into();
    }
}

#[test]
fn sound_facts_have_no_finding() {
    for (name, change) in [
        ("unchanged", (|_: &mut Facts| {}) as fn(&mut Facts)),
        ("split", split),
        ("on the device", on_device),
        ("no device known", |c| c.device = None),
        ("no Genie known", |c| c.genie_api = None),
        ("a machine without a bundle", |c| *c = Facts { machine: Machine::default(), ..Facts::default() }),
        ("a lone binary", |c| {
            let bundle = c.bundle_mut();
            (bundle.config, bundle.is_folder, bundle.tokenizer, bundle.manifest) = (None, false, None, None);
            bundle.extensions.clear();
        }),
        ("a context size below CL", |c| c.set("/dialog/context/size", json!(20))),
        ("partial rotation", |c| {
            c.set(&format!("{ROPE}/rope-dim"), json!(2));
            for g in 0..2 {
                for name in ["position_ids_cos", "position_ids_sin"] {
                    *c.tensor_mut(g, name).dims.last_mut().unwrap() = 2;
                }
            }
        }),
        ("positions by the older keys", |c| {
            c.bundle_mut().manifest.as_mut().unwrap().encoding = Some(json!({"type": "rope"}));
            c.set(ROPE, json!(null));
            c.set(&format!("{HTP}/pos-id-dim"), json!(4));
        }),
        ("greedy as libGenie understands it", |c| {
            c.set("/dialog/sampler", json!({"version": 1, "greedy": true, "top-k": 1}))
        }),
        ("2 GB for the embedded backend", |c| {
            c.info_mut(0).backend_id = BACKEND_ID_HOST;
            c.bundle_mut().binaries[0].file = FileState::Present { bytes: 2 << 30 };
            c.set(&format!("{HTP}/use-mmap"), json!(false));
            c.bundle_mut().extensions.clear();
            c.bundle_mut().manifest = None;
        }),
        ("an older binary", |c| {
            c.info_mut(0).build_id = "v2.40.0.250101000000".into();
            c.bundle_mut().manifest = None;
        }),
    ] {
        let mut facts = sound();
        change(&mut facts);
        assert_eq!(examine(&facts), [], "{name}");
    }
}

#[rustfmt::skip]
const CHANGES: &[Change] = &[
    // The machine.
    ("no libraries", |c| { c.machine.libraries.clear(); c.machine.htp = None; }, &["library-missing"]),
    ("no system library", |c| c.machine.libraries.retain(|l| l.name != "libQnnSystem.so"), &["system-library-missing"]),
    ("too old an interface", |c| c.machine.htp = Some(Err("core API 2.14.0 found".into())), &["library-unusable"]),
    ("a system library that does not open", |c| c.machine.system = Some(Err("no such symbol".into())), &["library-unusable"]),
    ("vendor libraries first", |c| {
        for (i, place) in [Place::LoaderPath, Place::System].into_iter().enumerate() {
            let path = format!("/{i}/libQnnGpu.so").into();
            c.machine.libraries.push(LibraryFile { place, path, bytes: i as u64, ..library("libQnnGpu.so") });
        }
    }, &["library-copies"]),
    ("a preparer of another release", |c| c.machine.libraries[2].build = build("v2.50.0.260101000000"), &["libraries-mixed"]),
    ("a colon", |c| c.machine.adsp = Some(AdspPath {
        raw: "/a:/b".into(), folders: vec![("/a:/b".into(), None)],
    }), &["adsp-separator"]),
    ("no such folder", |c| c.machine.adsp = Some(AdspPath {
        raw: "/a".into(), folders: vec![("/a".into(), None)],
    }), &["adsp-folder"]),
    ("a relative folder", |c| c.machine.adsp = Some(AdspPath {
        raw: "lib".into(), folders: vec![("lib".into(), Some(vec![]))],
    }), &["adsp-folder"]),
    ("a device without its skel", |c| { on_device(c); c.machine.adsp = None; }, &["skel-missing"]),
    ("a device without its stub", |c| { on_device(c); c.machine.libraries.pop(); }, &["stub-missing"]),
    ("a folder for another device, without skel", |c| {
        c.machine.libraries.iter_mut().for_each(|l| l.native = false);
        c.machine.libraries.push(library("libQnnHtpV75Stub.so"));
    }, &["skel-missing"]),

    // The device.
    ("V66", |c| c.device = soc("sm8250"), &["dsp-too-old"]),
    ("another architecture", |c| { c.device = soc("sm8550"); c.bundle_mut().extensions.clear(); }, &["binary-arch"]),
    ("another chip", |c| {
        c.device = soc("sm8550");
        (c.info_mut(0).soc, c.info_mut(0).dsp_arch) = (Some(60), Some(73));
        c.bundle_mut().extensions.clear();
    }, &["binary-soc"]),
    ("a binary that names its SoC only", |c| {
        (c.info_mut(0).soc, c.info_mut(0).dsp_arch) = (Some(43), None);
    }, &["binary-arch"]),
    ("a bundle for another device that no library reads", |c| {
        c.device = soc("sm8550");
        c.bundle_mut().binaries[0].content = Content::Unexamined("no library".into());
        c.bundle_mut().extensions.clear();
    }, &["binary-arch", "binary-unexamined"]),
    ("too much VTCM", |c| {
        c.info_mut(0).htp_graphs[1].as_mut().unwrap().vtcm_bytes = 16 << 20;
    }, &["vtcm"]),
    ("too much VTCM in the extension config", |c| {
        c.bundle_mut().extensions[0].document = Some(Ok(json!({"graphs": [{"vtcm_mb": 16}]})));
    }, &["vtcm"]),
    ("an extension config that is no JSON", |c| {
        c.bundle_mut().extensions[0].document = Some(Err("line 1".into()));
    }, &["extension-syntax"]),
    ("an extension config for another chip", |c| {
        c.bundle_mut().extensions[0].document = Some(Ok(json!({"devices": [{"soc_model": 43, "dsp_arch": "v73"}]})));
    }, &["extension-device", "extension-device"]),
    ("an extension config for another chip than the binaries'", |c| {
        c.device = None;
        c.bundle_mut().extensions[0].document = Some(Ok(json!({"devices": [{"soc_model": 43}]})));
    }, &["extension-device"]),
    ("an extension config for other graphs", |c| {
        c.bundle_mut().extensions[0].document = Some(Ok(json!({"graphs": [{"graph_names": ["prefill"]}]})));
    }, &["extension-graphs"]),

    // Builds.
    ("an older library", |c| c.machine.libraries.iter_mut().for_each(|l| l.build = build("v2.40.0.250101000000")), &["library-older"]),
    ("an older interface", |c| {
        c.info_mut(0).core_version = Version { major: 2, minor: 41, patch: 0 };
    }, &["library-older"]),
    ("splits for two chips", |c| { split(c); c.device = None; c.info_mut(1).dsp_arch = Some(73); }, &["binaries-differ"]),
    ("splits of two releases", |c| { split(c); c.info_mut(1).build_id = "v2.50.0.260101000000".into(); }, &["builds-differ"]),
    ("a binary of another bundle", |c| c.info_mut(0).build_id = "v2.51.0.111111111111".into(), &["manifest-build"]),

    // Files.
    ("no binary", |c| {
        c.bundle_mut().binaries[0].file = FileState::Missing { in_cwd: false };
        c.bundle_mut().binaries[0].content = Content::Unexamined(String::new());
        c.bundle_mut().manifest = None;
        c.bundle_mut().extensions.clear();
    }, &["file-missing"]),
    ("no tokenizer", |c| {
        let tokenizer = c.bundle_mut().tokenizer.as_mut().unwrap();
        (tokenizer.file, tokenizer.vocabulary) = (FileState::Missing { in_cwd: false }, None);
    }, &["file-missing"]),
    ("a path from the current folder", |c| {
        c.bundle_mut().extensions[0].file = FileState::Missing { in_cwd: true };
        c.bundle_mut().extensions[0].document = None;
    }, &["path-base"]),
    ("a folder for a file", |c| {
        c.bundle_mut().extensions[0].file = FileState::Unusable("is a folder".into());
        c.bundle_mut().extensions[0].document = None;
    }, &["file-unusable"]),
    ("a torn file", |c| c.bundle_mut().manifest.as_mut().unwrap().files[0].found_bytes = Some(9), &["file-changed"]),
    ("an edited file", |c| c.bundle_mut().manifest.as_mut().unwrap().files[0].same_hash = Some(false), &["file-changed"]),
    ("a lost file that only the manifest knows", |c| {
        let files = &mut c.bundle_mut().manifest.as_mut().unwrap().files;
        files.push(ManifestFile { path: "LICENSE".into(), bytes: 3, ..ManifestFile::default() });
    }, &["file-changed"]),
    ("a torn manifest", |c| c.bundle_mut().manifest = Some(Manifest { fault: Some("EOF".into()), ..Manifest::default() }), &["manifest-syntax"]),
    ("2 GB", |c| c.bundle_mut().binaries[0].file = FileState::Present { bytes: 2 << 30 }, &["file-too-large"]),
    ("2 GB for a chip that no library reads", |c| {
        c.bundle_mut().binaries[0].file = FileState::Present { bytes: 2 << 30 };
        c.bundle_mut().binaries[0].content = Content::Unexamined("no library".into());
    }, &["file-too-large", "binary-unexamined"]),
    ("2 GB for the manifest's chip, damaged", |c| {
        c.bundle_mut().binaries[0].file = FileState::Present { bytes: 2 << 30 };
        c.bundle_mut().binaries[0].content = Content::Rejected(Vec::new());
        c.bundle_mut().extensions.clear();
    }, &["file-too-large", "binary-unreadable"]),
    ("a damaged binary", |c| {
        let rejection = Rejection { library: "/qnn/libQnnSystem.so".into(), reads_htp: true, message: "30010".into() };
        c.bundle_mut().binaries[0].content = Content::Rejected(vec![rejection]);
        c.bundle_mut().extensions.clear();
    }, &["binary-unreadable"]),
    ("a binary without graphs", |c| {
        c.info_mut(0).graphs.clear();
        c.bundle_mut().extensions.clear();
    }, &["binary-unreadable"]),
    ("a binary that no library reads", |c| {
        c.bundle_mut().binaries[0].content = Content::Unexamined("no library".into());
    }, &["binary-unexamined"]),
    ("shared weights on the emulator", |c| c.bundle_mut().manifest.as_mut().unwrap().shared_weights = true, &["shared-weights"]),
    ("more than a session maps", |c| {
        c.info_mut(0).htp_graphs[0].as_mut().unwrap().spill_fill_bytes = 4_000_000_000;
    }, &["session-memory"]),

    // The config.
    ("no config", |c| c.bundle_mut().config = None, &["config-missing"]),
    ("a config that is no JSON", |c| c.bundle_mut().config.as_mut().unwrap().document = Err("line 3".into()), &["config-syntax"]),
    ("an unknown key", |c| c.set("/dialog/sampler/temperature", json!(1)), &["config-schema"]),
    ("both ways to say positions", |c| c.set(&format!("{HTP}/pos-id-dim"), json!(4)), &["config-schema"]),
    ("an empty stop string", |c| c.set("/dialog/stop-sequence", json!([""])), &["config-schema"]),
    ("LoRA by files of weights", |c| {
        let lora = json!({"version": 1, "lora-version": 1, "adapters": [{"version": 1, "name": "a", "path": "a.bin"}]});
        c.set(&format!("{ENGINE}/model/binary/lora"), lora);
    }, &["config-unsupported"]),
    ("a LoRA strength that no graph takes", |c| {
        let lora = json!({"version": 1, "adapters": [{"version": 1, "name": "a", "alphas": ["x"]}]});
        c.set(&format!("{ENGINE}/model/binary/lora"), lora);
    }, &["lora-alpha"]),
    ("a LoRA strength that no adapter has", |c| {
        for graph in 0..c.info_mut(0).graphs.len() {
            let alpha = genie_types::TensorInfo::new("lora_alpha", [1], genie_types::Dtype::F16);
            c.info_mut(0).graphs[graph].inputs.push(alpha);
        }
    }, &["lora-unnamed"]),
    ("two LoRA sections for one binary", |c| {
        let lora = json!({"version": 1, "adapters": [{"version": 1, "name": "a", "bin-sections": ["a.bin", "b.bin"]}]});
        c.set(&format!("{ENGINE}/model/binary/lora"), lora);
    }, &["lora-sections"]),
    ("Genie 1.0", |c| c.genie_api = genie_bundle::config::GenieApi::parse("1.0"), &["config-api", "config-api"]),
    ("a list of EOS for Genie 1.1", |c| {
        c.genie_api = genie_bundle::config::GenieApi::parse("1.1");
        c.set("/dialog/context/eos-token", json!([2]));
    }, &["config-api", "config-api"]),
    ("no sampler", |c| c.set("/dialog/sampler", json!(null)), &["sampler-missing"]),
    ("half a penalty", |c| c.set("/dialog/sampler/token-penalty", json!({"penalize-last-n": 4})), &["repetition-penalty"]),
    ("greedy alone", |c| c.set("/dialog/sampler/greedy", json!(true)), &["greedy-ignored"]),
    #[cfg(target_os = "linux")]
    ("a large binary of the embedded backend, mapped", |c| {
        c.info_mut(0).backend_id = BACKEND_ID_HOST;
        c.bundle_mut().binaries[0].file = FileState::Present { bytes: 64 << 20 };
        c.bundle_mut().extensions.clear();
        c.bundle_mut().manifest = None;
    }, &["weights-mapped"]),
    ("no kv-dim", |c| c.set(&format!("{HTP}/kv-dim"), json!(null)), &["kv-dim-missing"]),
    ("another kv-dim", |c| c.set(&format!("{HTP}/kv-dim"), json!(64)), &["kv-dim"]),
    ("rope-dim of a whole head", |c| c.set(&format!("{ROPE}/rope-dim"), json!(8)), &["rope-dim"]),
    ("tables as wide as a head", |c| {
        c.set(&format!("{ROPE}/rope-dim"), json!(8));
        for g in 0..2 {
            for name in ["position_ids_cos", "position_ids_sin"] {
                *c.tensor_mut(g, name).dims.last_mut().unwrap() = 8;
            }
        }
    }, &["rope-dim"]),
    ("pos-id-dim of a whole head", |c| {
        c.set(ROPE, json!(null));
        c.set(&format!("{HTP}/pos-id-dim"), json!(8));
    }, &["rope-dim"]),
    ("scaling without its type", |c| c.set(&format!("{ROPE}/rope-scaling"), json!({"factor": 8})), &["rope-scaling-ignored"]),
    ("yarn over half of the angles", |c| {
        c.set(&format!("{ROPE}/rope-scaling"), json!({"rope-type": "yarnrope", "factor": 4, "dim": 4,
            "original-max-position-embeddings": 64}));
    }, &["yarn-dim"]),
    ("another base than the model's", |c| {
        c.bundle_mut().manifest.as_mut().unwrap().encoding = Some(json!({"type": "rope", "rope-theta": 12345}));
    }, &["position-numbers"]),
    ("a scaling that the model does not have", |c| {
        c.bundle_mut().manifest.as_mut().unwrap().encoding = Some(json!({"type": "rope"}));
        c.set(&format!("{ROPE}/rope-scaling"), json!({"rope-type": "linear", "factor": 2}));
    }, &["position-numbers"]),
    ("a scaling that is gone", |c| {
        let scaling = json!({"rope-type": "linear", "factor": 2});
        c.bundle_mut().manifest.as_mut().unwrap().encoding = Some(json!({"type": "rope", "rope-scaling": scaling}));
    }, &["position-numbers"]),
    ("a window that the config does not have", |c| {
        c.bundle_mut().manifest.as_mut().unwrap().windows = vec![("past_".into(), 20)];
    }, &["attention-window"]),
    ("another window than the model's", |c| {
        c.bundle_mut().manifest.as_mut().unwrap().windows = vec![("past_".into(), 4)];
        c.set("/dialog/engine/longcontext", json!({"version": 1, "type": "sliding-window", "reserved-tokens": 0,
            "sliding-window": {"version": 1, "window-size": 5}}));
    }, &["attention-window"]),
    ("no positions for graphs with rotary tables", |c| c.set(ROPE, json!(null)), &["position-inputs"]),
    ("no positions, but the model's in the manifest", |c| {
        c.bundle_mut().manifest.as_mut().unwrap().encoding = Some(json!({"type": "rope", "rope-dim": 4}));
        c.set(ROPE, json!(null));
    }, &["position-inputs", "position-numbers"]),
    ("absolute positions for graphs with rotary tables", |c| c.set(ROPE, json!({"type": "absolute"})), &["position-inputs", "position-inputs"]),
    ("alibi for graphs that take positions", |c| {
        c.set(ROPE, json!({"type": "alibi"}));
        for (g, n) in [1, 8].into_iter().enumerate() {
            *c.tensor_mut(g, "position_ids_cos") = TensorInfo::new("position_ids", [1, n], Dtype::I32);
            *c.tensor_mut(g, "position_ids_sin") = TensorInfo::new("unread", [1], Dtype::I32);
        }
    }, &["position-inputs", "split-wiring"]),
    ("a table without an encoding of its prefix", |c| {
        for g in 0..2 {
            for name in ["position_ids_cos", "position_ids_sin"] {
                c.tensor_mut(g, name).name = format!("swa_{name}");
            }
        }
    }, &["position-inputs", "position-inputs"]),
    ("a longer context than compiled", |c| c.set("/dialog/context/size", json!(65)), &["context-size"]),
    ("embeddings without a table", |c| {
        for (g, n) in [1, 8].into_iter().enumerate() {
            *c.tensor_mut(g, "input_ids") = TensorInfo::new("inputs_embeds", [1, n, 16], Dtype::F16);
        }
    }, &["embedding-missing"]),
    ("a table that is too short", |c| {
        for (g, n) in [1, 8].into_iter().enumerate() {
            *c.tensor_mut(g, "input_ids") = TensorInfo::new("inputs_embeds", [1, n, 16], Dtype::F16);
        }
        c.set("/dialog/embedding", json!({"version": 1, "type": "lut", "size": 16, "lut-path": "lut.raw", "datatype": "float32"}));
        let file = FileState::Present { bytes: 31 * 64 };
        c.bundle_mut().embedding = Some(EmbeddingFile { written: "lut.raw".into(), path: "/bundle/lut.raw".into(), file });
    }, &["embedding-size"]),
    ("a table of another width", |c| {
        for (g, n) in [1, 8].into_iter().enumerate() {
            *c.tensor_mut(g, "input_ids") = TensorInfo::new("inputs_embeds", [1, n, 16], Dtype::F16);
        }
        c.set("/dialog/embedding", json!({"version": 1, "type": "lut", "size": 12, "lut-path": "lut.raw", "datatype": "float32"}));
    }, &["embedding-size"]),

    // Tokens.
    ("a torn tokenizer", |c| c.bundle_mut().tokenizer.as_mut().unwrap().vocabulary = Some(Err("EOF".into())), &["tokenizer-unreadable"]),
    ("another model's EOS", |c| {
        c.set("/dialog/context/eos-token", json!([2, 31]));
        let vocabulary = c.bundle_mut().tokenizer.as_mut().unwrap().vocabulary.as_mut().unwrap();
        vocabulary.as_mut().unwrap().entries.insert(31, None);
    }, &["eos-token"]),
    ("an EOS beyond the logits", |c| c.set("/dialog/context/eos-token", json!(128_009)), &["eos-token"]),
    ("no EOS", |c| c.set("/dialog/context/eos-token", json!(-1)), &["eos-unset"]),
    ("a padding token beyond the logits", |c| c.set("/dialog/context/pad-token", json!(32)), &["special-token"]),
    ("another n-vocab", |c| c.set("/dialog/context/n-vocab", json!(64)), &["n-vocab"]),
    ("a larger tokenizer", |c| {
        let vocabulary = c.bundle_mut().tokenizer.as_mut().unwrap().vocabulary.as_mut().unwrap();
        vocabulary.as_mut().unwrap().n_entries = 33;
    }, &["tokenizer-vocab"]),
    ("a tokenizer of another model", |c| {
        let vocabulary = c.bundle_mut().tokenizer.as_mut().unwrap().vocabulary.as_mut().unwrap();
        vocabulary.as_mut().unwrap().unfit = Some("it has 4 entries for a model of 32 rows".into());
    }, &["tokenizer-unfit"]),

    // The graphs.
    ("a mask around zero", |c| for g in 0..2 {
        c.tensor_mut(g, "attention_mask").quant = Quant::PerTensor { scale: 0.001, offset: -32768 };
    }, &["mask-encoding"]),
    ("a mask without encoding", |c| c.tensor_mut(1, "attention_mask").quant = Quant::None, &["mask-encoding"]),
    ("KV in and out", |c| c.tensor_mut(1, "past_key_0_out").quant = Quant::PerTensor { scale: 0.25, offset: -128 }, &["kv-encoding"]),
    ("KV in two graphs", |c| for name in ["past_value_0_in", "past_value_0_out"] {
        c.tensor_mut(1, name).quant = Quant::PerTensor { scale: 0.5, offset: -127 };
    }, &["kv-encoding"]),
    ("sin of its own", |c| for g in 0..2 {
        c.tensor_mut(g, "position_ids_sin").quant = Quant::PerTensor { scale: 1.0 / 65535.0, offset: -32768 };
    }, &["position-encoding"]),
    ("positions in two graphs", |c| for name in ["position_ids_cos", "position_ids_sin"] {
        c.tensor_mut(1, name).quant = Quant::PerTensor { scale: 1.0 / 65535.0, offset: -32768 };
    }, &["position-encoding"]),
    ("AR by CL", |c| c.info_mut(0).graphs.push(graph(1, 128)), &["ar-sets"]),
    ("a prefix of its own", |c| for (from, to) in [
        ("attention_mask", "my_attention_mask"), ("past_key_0_in", "my_key_0_in"), ("past_value_0_in", "my_value_0_in"),
        ("past_key_0_out", "my_key_0_out"), ("past_value_0_out", "my_value_0_out"),
    ] { rename(c, from, to); }, &["cache-group"]),
    ("concat beside scatter", |c| {
        for (g, n) in [1, 8].into_iter().enumerate() {
            let mut other = graph(n, 64);
            for t in other.inputs.iter_mut().chain(&mut other.outputs) {
                t.name = t.name.replace("past_", "swa_").replace("attention_mask", "swa_attention_mask");
            }
            other.inputs.retain(|t| t.name.starts_with("swa_"));
            other.outputs.retain(|t| t.name.starts_with("swa_"));
            other.inputs[1].dims[3] = 64;
            other.inputs[2].dims[2] = 64;
            let own = &mut c.info_mut(0).graphs[g];
            own.inputs.extend(other.inputs);
            own.inputs.push(TensorInfo::new("swa_cache_index", [1], Dtype::I32));
            own.outputs.extend(other.outputs);
        }
        c.set(&format!("{ENGINE}/cache-groups"), json!([{"version": 1, "prefix": "past_"}, {"version": 1, "prefix": "swa_"}]));
    }, &["cache-forms"]),
    ("a tensor of another shape", |c| c.tensor_mut(1, "attention_mask").dims = vec![2, 1, 8, 64], &["graph-contract"]),
    ("no mask", |c| rename(c, "attention_mask", "mask"), &["input-missing"]),
    ("cos without sin", |c| rename(c, "position_ids_sin", "sin"), &["input-missing"]),
    ("a key without its value", |c| for g in 0..2 {
        c.info_mut(0).graphs[g].outputs.retain(|t| t.name != "past_value_0_out");
        c.info_mut(0).graphs[g].inputs.retain(|t| t.name != "past_value_0_in");
    }, &["kv-tensors"]),
    ("a past of another length", |c| c.tensor_mut(1, "past_key_0_in").dims[3] = 60, &["kv-tensors"]),
    ("no logits", |c| rename(c, "logits", "scores"), &["split-ends"]),
    ("a lost split", |c| { split(c); c.bundle_mut().binaries.pop(); }, &["split-missing"]),
    ("splits that do not meet", |c| {
        split(c);
        for g in 0..2 { c.info_mut(1).graphs[g].inputs[0].name = "hidden_states".into(); }
    }, &["split-wiring"]),
    ("splits of other types", |c| {
        split(c);
        for g in 0..2 { c.info_mut(1).graphs[g].inputs[0].dtype = Dtype::F32; }
    }, &["split-wiring"]),
    ("a head for AR-8 only", |c| { split(c); c.info_mut(1).graphs.remove(0); }, &["variant-missing"]),
    ("cache rows only", |c| c.info_mut(0).graphs[1].outputs.retain(|t| t.name != "logits"), &["without-logits"]),
    ("a cache in tiles", |c| for g in 0..2 {
        let graph = &mut c.info_mut(0).graphs[g];
        let tensors = graph.inputs.iter_mut().chain(&mut graph.outputs);
        tensors.filter(|t| t.name.starts_with("past_")).for_each(|t| t.format = DataFormat::HmxWeight);
    }, &["native-kv"]),
    ("fused graphs beside the others", |c| fused(c), &["fused-graphs"]),
    ("fused graphs that are not to run, alone", |c| {
        fused(c);
        c.info_mut(0).graphs.drain(..2);
        c.info_mut(0).htp_graphs.drain(..2);
        c.set("/dialog/engine/pd_fusion", json!({"enable": false}));
        c.set("/dialog/context/size", json!(63));
    }, &["fused-off", "extension-graphs", "fused-graphs"]),
    ("fused graphs alone, and a context of one token too many", |c| {
        fused(c);
        c.info_mut(0).graphs.drain(..2);
        c.info_mut(0).htp_graphs.drain(..2);
        c.set("/dialog/context/size", json!(64));
    }, &["context-size", "extension-graphs", "fused-graphs"]),
    ("half of a fused pair", |c| {
        fused(c);
        c.info_mut(0).graphs.pop();
        c.info_mut(0).htp_graphs.pop();
    }, &["graph-contract"]),
    ("fused graphs that are to run, and none", |c| {
        c.set("/dialog/engine/pd_fusion", json!({"enable": true}));
    }, &["fused-missing"]),
    ("an image encoder", |c| {
        let (inputs, outputs) = (vec![tensor("pixel_values", &[1, 48])], vec![tensor("image_features", &[3, 8])]);
        c.info_mut(0).graphs.push(GraphInfo { name: "vision".into(), inputs, outputs });
        c.info_mut(0).htp_graphs.push(None);
    }, &["image-encoder"]),
    ("a weight as an input", |c| head_weight(c, VOCAB * 2), &["head-weight-input"]),
    ("a weight's file cut short", |c| head_weight(c, 7), &["head-weight-file", "head-weight-input"]),
    ("a head for AR-1 only", |c| { split(c); c.info_mut(1).graphs.pop(); }, &["narrow-head"]),
    ("a binary twice", |c| {
        c.bundle_mut().binaries.push(binary("copy.bin", vec![graph(1, 64)]));
    }, &["graph-twice", "manifest-incomplete"]),
    ("a graph that is not there", |c| c.set(&format!("{HTP}/execute-select-graphs"), json!(["ar2_cl64"])), &["graph-selection"]),
    ("logits of two widths", |c| c.tensor_mut(1, "logits").dims[2] = 33, &["tensor-differs"]),
];

#[test]
fn each_change_gives_its_finding_and_no_other() {
    let mut wrong = Vec::new();
    for (name, change, want) in CHANGES {
        let mut facts = sound();
        change(&mut facts);
        let found = examine(&facts);
        let ids: Vec<&str> = found.iter().map(|finding| finding.rule.id).collect();
        if ids != *want {
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            wrong.push(format!("{name}: expected {want:?}, found {}", found.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_rule_has_a_change_that_breaks_it() {
    let broken: BTreeSet<&str> = CHANGES.iter().flat_map(|(.., want)| *want).copied().collect();
    let rules: BTreeSet<&str> = checks::rules().map(|rule| rule.id).collect();
    assert_eq!(broken, rules);
    assert_eq!(checks::rules().count(), rules.len(), "an id is used twice");
}

#[test]
fn every_rule_is_in_the_documentation() {
    let page = include_str!("../../docs/doctor.md");
    let rows: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for rule in checks::rules() {
        let row = format!("| `{}` | {} | {} |", rule.id, rule.severity, rule.title);
        assert!(page.lines().any(|line| line == row), "docs/doctor.md lacks the line\n{row}");
    }
    let rules: BTreeSet<&str> = checks::rules().map(|rule| rule.id).collect();
    assert_eq!(rows, rules, "docs/doctor.md has lines without a rule");
}

#[test]
fn a_laptop_that_looks_at_a_phones_bundle_is_only_warned() {
    use crate::Severity;
    let mut facts = sound();
    (facts.machine.libraries, facts.machine.htp) = (Vec::new(), None);
    assert_eq!(examine(&facts)[0].severity, Severity::Warning);
    on_device(&mut facts);
    facts.machine.libraries.clear();
    assert_eq!(examine(&facts)[0].severity, Severity::Error);
}

#[test]
fn fixes_name_the_files_and_values_at_hand() {
    let fix = |change: fn(&mut Facts)| {
        let mut facts = sound();
        change(&mut facts);
        examine(&facts)[0].fix.to_string()
    };
    assert_eq!(
        fix(|c| c.machine.adsp = Some(AdspPath { raw: "/a:/b".into(), folders: vec![] })),
        "export ADSP_LIBRARY_PATH=\"/a;/b\""
    );
    assert_eq!(
        fix(|c| {
            on_device(c);
            c.machine.libraries.push(library("libQnnHtpV75Skel.so"));
            c.machine.adsp.as_mut().unwrap().folders[0].1 = Some(vec![]);
        }),
        "it lies in `/qnn`: export ADSP_LIBRARY_PATH=\"/qnn\""
    );
    let mut facts = sound();
    facts.device = soc("sm8550");
    facts.bundle_mut().extensions.clear();
    assert_eq!(examine(&facts)[0].fix, Fix::CompileFor(Soc::by_name("sm8550").unwrap()));
    assert!(fix(|c| c.set(&format!("{HTP}/kv-dim"), json!(null))).starts_with("add `\"kv-dim\": 8`"));
}

#[test]
fn positions_and_windows_that_are_the_models_are_no_finding() {
    let mut facts = sound();
    let config = facts.config().unwrap().engine("/model/positional-encoding").unwrap().clone();
    let manifest = facts.bundle_mut().manifest.as_mut().unwrap();
    manifest.encoding = Some(config);
    manifest.windows = vec![("past_".into(), 4)];
    let rule = json!({"version": 1, "type": "sliding-window", "reserved-tokens": 0,
        "sliding-window": {"version": 1, "window-size": 4}});
    facts.set("/dialog/engine/longcontext", rule);
    let found = examine(&facts);
    let ids: Vec<&str> = found.iter().map(|finding| finding.rule.id).collect();
    assert!(!ids.contains(&"position-numbers") && !ids.contains(&"attention-window"), "{ids:?}");
}

//! Bundles on disk, each broken in one way that users meet: the findings name it and nothing else.

mod common;

use std::path::Path;

use common::toy::{fixed, tensor};
use common::{Bundle, decoder_and_head, graph, ids};
use genie_bundle::config::GenieApi;
use genie_types::{Dtype, GraphInfo, Quant, TensorInfo};
use qnn_api::Soc;
use serde_json::json;

/// A name, the bundle, and the ids of the expected findings.
type Broken = (&'static str, fn() -> Bundle, &'static [&'static str]);

const HTP: &str = "/dialog/engine/backend/QnnHtp";
const ROPE: &str = "/dialog/engine/model/positional-encoding";
const BINS: &str = "/dialog/engine/model/binary/ctx-bins";

fn check(cases: &[Broken]) {
    let mut wrong = Vec::new();
    for (name, make, want) in cases {
        let bundle = make();
        let found = bundle.examine();
        if ids(&found) != *want {
            wrong.push(format!("{name}: expected {want:?}, found {}", bundle.report()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The first binary that the config names.
fn binary(bundle: &Bundle) -> String {
    let config = std::fs::read_to_string(bundle.at("genie_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config.pointer(BINS).unwrap()[0].as_str().unwrap().to_owned()
}

/// A file with an ELF header for another processor, and a build id.
fn library(folder: &Path, name: &str, build: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let mut bytes = b"\x7fELF".to_vec();
    bytes.resize(18, 0);
    // Neither of the processors that tests run on, so that the library is not opened.
    bytes.extend(8_u16.to_le_bytes());
    bytes.extend(format!("\0{build}\0").bytes());
    std::fs::write(folder.join(name), bytes).unwrap();
}

#[test]
fn good_bundles_give_no_finding() {
    check(&[
        ("compiled", Bundle::compiled, &[]),
        ("toy", || Bundle::whole_toy(|_| {}), &[]),
        (
            "toy in two splits",
            || {
                Bundle::toy(&[
                    ("decoder.bin", vec![decoder_and_head(1).0, decoder_and_head(8).0]),
                    ("lmhead.bin", vec![decoder_and_head(1).1, decoder_and_head(8).1]),
                ])
            },
            &[],
        ),
        ("with the user's own sampler", || Bundle::compiled().set("/dialog/sampler/seed", json!(7)), &[]),
        (
            "its config",
            || {
                Bundle::compiled().with(|request, _| {
                    request.subject = request.subject.as_ref().map(|folder| folder.join("genie_config.json"));
                })
            },
            &[],
        ),
        (
            "a binary of it",
            || {
                let bundle = Bundle::compiled();
                let name = binary(&bundle);
                bundle.with(|request, _| request.subject = request.subject.as_ref().map(|folder| folder.join(&name)))
            },
            &[],
        ),
        ("a machine without a bundle", || Bundle::compiled().with(|request, _| request.subject = None), &[]),
    ]);
}

#[test]
#[rustfmt::skip]
fn broken_configs() {
    check(&[
        ("no sampler", || Bundle::compiled().set("/dialog/sampler", json!(null)), &["sampler-missing"]),
        ("no kv-dim", || Bundle::compiled().set(&format!("{HTP}/kv-dim"), json!(null)), &["kv-dim-missing"]),
        ("another kv-dim", || Bundle::compiled().set(&format!("{HTP}/kv-dim"), json!(128)), &["kv-dim"]),
        ("rope-dim of a whole head", || Bundle::compiled().set(&format!("{ROPE}/rope-dim"), json!(16)),
            &["rope-dim", "position-numbers"]),
        ("positions set twice", || Bundle::compiled().set(&format!("{HTP}/pos-id-dim"), json!(8)), &["config-schema"]),
        ("a misspelt key", || Bundle::compiled().set("/dialog/sampler/top_k", json!(4)), &["config-schema"]),
        ("a torn config", || Bundle::compiled().edit("genie_config.json", |b| b.truncate(40)), &["config-syntax"]),
        ("no config", || Bundle::compiled().without("genie_config.json"), &["config-missing"]),
        ("a longer context than compiled", || Bundle::compiled().set("/dialog/context/size", json!(4096)), &["context-size"]),
        ("a config for a newer Genie", || Bundle::compiled().with(|r, _| r.genie_api = GenieApi::parse("1.0")),
            &["config-api", "config-api"]),
        ("half a penalty", || Bundle::compiled().set("/dialog/sampler/token-penalty", json!({"penalize-last-n": 8})),
            &["repetition-penalty"]),
        ("greedy alone", || Bundle::whole_toy(|_| {}).set("/dialog/sampler/greedy", json!(true)), &["greedy-ignored"]),
        ("scaling without its type", || Bundle::compiled().set(&format!("{ROPE}/rope-scaling"), json!({"factor": 8})),
            &["rope-scaling-ignored", "position-numbers"]),
        ("a feature that is not there yet", || Bundle::compiled().set("/dialog/engine/backend", json!({"version": 1, "type": "QnnGpu"})),
            &["config-unsupported"]),
        ("another model's EOS", || Bundle::compiled().set("/dialog/context/eos-token", json!(128_009)), &["eos-token"]),
        ("no EOS", || Bundle::compiled().set("/dialog/context/eos-token", json!(-1)), &["eos-unset"]),
        ("another model's padding", || Bundle::compiled().set("/dialog/context/pad-token", json!(151_643)), &["special-token"]),
        ("another model's n-vocab", || Bundle::compiled().set("/dialog/context/n-vocab", json!(512)), &["n-vocab"]),
        // The tokenizer fits the logits.
        ("an n-vocab below the tokenizer's", || Bundle::compiled().set("/dialog/context/n-vocab", json!(10)), &["n-vocab"]),
        ("no positions", || Bundle::compiled().set(ROPE, json!(null)), &["position-inputs", "position-numbers"]),
    ]);
}

#[test]
#[rustfmt::skip]
fn broken_files() {
    check(&[
        ("a lost tokenizer", || Bundle::compiled().without("tokenizer.json"), &["file-missing"]),
        ("a lost binary", || { let b = Bundle::compiled(); let name = binary(&b); b.without(&name) }, &["file-missing"]),
        ("a torn tokenizer", || Bundle::compiled().edit("tokenizer.json", |b| b.truncate(999)),
            &["file-changed", "tokenizer-unreadable"]),
        ("a torn binary", || {
            let b = Bundle::compiled();
            let name = binary(&b);
            b.edit(&name, |bytes| bytes.truncate(bytes.len() / 2))
        }, &["file-changed", "binary-unreadable"]),
        ("a weight that was changed", || {
            let b = Bundle::compiled();
            let name = binary(&b);
            b.edit(&name, |bytes| *bytes.last_mut().unwrap() ^= 1)
        }, &["file-changed", "binary-unreadable"]),
        ("a tokenizer that was saved again", || Bundle::compiled().edit("tokenizer.json", |b| b.push(b'\n')), &["file-changed"]),
        ("an empty binary", || { let b = Bundle::compiled(); let name = binary(&b); b.edit(&name, Vec::clear) },
            &["file-unusable", "file-changed"]),
        ("a binary that is something else", || {
            let b = Bundle::compiled().without("manifest.json");
            let name = binary(&b);
            b.edit(&name, |bytes| bytes.fill(b'x'))
        }, &["binary-unreadable"]),
        // Too large for a chip, but it is for the embedded backend.
        ("a binary that grew beyond 2 GB", || {
            let b = Bundle::compiled().without("manifest.json");
            let file = std::fs::File::options().write(true).open(b.at(&binary(&b))).unwrap();
            file.set_len((2 << 30) + 4096).unwrap(); // sparse: takes no space
            b
        }, &["binary-unreadable"]),
        ("a torn manifest", || Bundle::compiled().edit("manifest.json", |b| b.truncate(10)), &["manifest-syntax"]),
        ("a folder for a tokenizer", || {
            let b = Bundle::compiled().without("manifest.json").set("/dialog/tokenizer/path", json!("sub"));
            std::fs::create_dir(b.at("sub")).unwrap();
            b
        }, &["file-unusable"]),
        ("a path from the current folder", || {
            let b = Bundle::compiled().set("/dialog/tokenizer/path", json!("bundle/tokenizer.json"));
            let cwd = b.at("cwd");
            std::fs::create_dir_all(cwd.join("bundle")).unwrap();
            std::fs::copy(b.at("tokenizer.json"), cwd.join("bundle/tokenizer.json")).unwrap();
            b.with(|_, environment| environment.cwd = Some(cwd.clone()))
        }, &["path-base"]),
        ("a lost extension config", || Bundle::compiled().set("/dialog/engine/backend/extensions", json!("ext.json")),
            &["file-missing"]),
        ("an extension config that is no JSON", || {
            Bundle::compiled().set("/dialog/engine/backend/extensions", json!("ext.json")).edit("ext.json", |b| b.push(b'{'))
        }, &["extension-syntax"]),
        ("an extension config for another chip", || {
            Bundle::compiled()
                .set("/dialog/engine/backend/extensions", json!("ext.json"))
                .edit("ext.json", |b| b.extend(br#"{"devices": [{"soc_model": 43}]}"#))
                .with(|request, _| request.soc = Soc::by_name("sm8650"))
        }, &["extension-device"]),
        ("an extension config for other graphs", || {
            Bundle::compiled()
                .set("/dialog/engine/backend/extensions", json!("ext.json"))
                .edit("ext.json", |b| b.extend(br#"{"graphs": [{"graph_names": ["prefill"], "vtcm_mb": 8}]}"#))
        }, &["extension-graphs"]),
    ]);
}

/// The change in both graphs of the toy.
fn both(name: &str, change: impl Fn(&mut TensorInfo)) -> Bundle {
    Bundle::whole_toy(|graph| change(tensor(graph, name).unwrap()))
}

fn split(heads: &[usize], change: impl Fn(&mut GraphInfo)) -> Bundle {
    let mut tails: Vec<GraphInfo> = heads.iter().map(|&n| decoder_and_head(n).1).collect();
    tails.iter_mut().for_each(change);
    Bundle::toy(&[("decoder.bin", vec![decoder_and_head(1).0, decoder_and_head(8).0]), ("lmhead.bin", tails)])
}

#[test]
#[rustfmt::skip]
fn broken_graphs() {
    check(&[
        ("a mask around zero", || both("attention_mask", |t| t.quant = Quant::PerTensor { scale: 0.001, offset: -32768 }),
            &["mask-encoding"]),
        ("KV of other scales in and out", || both("past_key_0_out", |t| t.quant = Quant::PerTensor { scale: 0.25, offset: -128 }),
            &["kv-encoding"]),
        ("sin of its own", || both("position_ids_sin", |t| t.quant = Quant::PerTensor { scale: 1.0 / 65535.0, offset: 0 }),
            &["position-encoding"]),
        ("AR-8 for one CL only", || Bundle::toy(&[("model.bin", vec![graph(1, 64), graph(8, 64), graph(1, 128)])]), &["ar-sets"]),
        ("a prefix that no cache group names", || Bundle::whole_toy(|graph| {
            for t in graph.inputs.iter_mut().chain(&mut graph.outputs) {
                t.name = t.name.replace("past_", "cache_").replace("attention_mask", "cache_attention_mask");
            }
        }), &["cache-group"]),
        ("no mask", || both("attention_mask", |t| t.name = "mask".into()), &["input-missing"]),
        ("a key without its value", || Bundle::whole_toy(|graph| graph.outputs.retain(|t| t.name != "past_value_0_out")),
            &["kv-tensors"]),
        ("no logits", || both("logits", |t| t.name = "scores".into()), &["split-ends"]),
        ("a mask of another rank", || both("attention_mask", |t| t.dims.insert(0, 2)), &["graph-contract"]),
        ("a split that was not copied", || split(&[1, 8], |_| {}).set(BINS, json!(["decoder.bin"])), &["split-missing"]),
        ("splits that do not meet", || split(&[1, 8], |head| head.inputs[0].name = "hidden_states".into()), &["split-wiring"]),
        ("a head for AR-1 only", || split(&[1], |_| {}), &["narrow-head"]),
        ("a binary named twice", || Bundle::whole_toy(|_| {}).set(BINS, json!(["model.bin", "model.bin"])), &["graph-twice"]),
        ("a graph that is not there", || {
            Bundle::whole_toy(|_| {}).set(&format!("{HTP}/execute-select-graphs"), json!(["prefill"]))
        }, &["graph-selection"]),
        ("a smaller vocabulary", || both("logits", |t| t.dims[2] = 300).set("/dialog/context/n-vocab", json!(300)),
            &["tokenizer-vocab"]),
        ("logits of two widths", || Bundle::whole_toy(|graph| {
            let n = tensor(graph, "input_ids").unwrap().dims[1];
            tensor(graph, "logits").unwrap().dims[2] += n - 1;
        }), &["tensor-differs"]),
        ("embeddings without a table", || Bundle::whole_toy(|graph| {
            let ids = tensor(graph, "input_ids").unwrap();
            *ids = fixed("inputs_embeds", &[1, ids.dims[1], 16], Dtype::UFixed16, 0.001, -32768);
        }), &["embedding-missing"]),
    ]);
}

const NEW: &str = "v2.51.0.260929181845";
const OLD: &str = "v2.31.0.250101000000";

#[test]
#[rustfmt::skip]
fn broken_machines() {
    check(&[
        ("a colon in the DSP's path", || Bundle::compiled().with(|_, s| s.adsp_path = Some("/usr/lib/dsp:/dsp".into())),
            &["adsp-separator"]),
        ("a folder that is not there", || Bundle::compiled().with(|_, s| s.adsp_path = Some("/no/such;".into())), &["adsp-folder"]),
        ("a V66 phone", || Bundle::compiled().with(|r, _| r.soc = Soc::by_name("sm8250")), &["dsp-too-old"]),
        ("vendor libraries first", || {
            let b = Bundle::compiled();
            for (folder, build) in [("vendor", OLD), ("mine", NEW)] {
                for name in ["libQnnHtp.so", "libQnnSystem.so"] {
                    library(&b.at(folder), name, build);
                }
            }
            let path = format!("{}:{}", b.at("vendor").display(), b.at("mine").display());
            // The found release also sets the Genie API; that is another test.
            b.with(|r, s| (s.loader_path, r.genie_api) = (Some(path.clone()), Some(GenieApi::NEWEST)))
        }, &["library-copies", "library-copies"]),
        ("libraries of two releases", || {
            let b = Bundle::compiled();
            for (name, build) in [("libQnnHtp.so", NEW), ("libQnnSystem.so", NEW), ("libQnnHtpPrepare.so", OLD)] {
                library(&b.at("libs"), name, build);
            }
            let libs = b.at("libs");
            b.with(|r, _| r.libraries = Some(libs.clone()))
        }, &["libraries-mixed"]),
        ("a backend without its system library", || {
            let b = Bundle::compiled();
            library(&b.at("libs"), "libQnnHtp.so", NEW);
            let libs = b.at("libs");
            b.with(|r, _| r.libraries = Some(libs.clone()))
        }, &["system-library-missing"]),
        ("a folder for a phone without skel and stub", || {
            let b = Bundle::compiled();
            for name in ["libQnnHtp.so", "libQnnSystem.so", "libQnnHtpV73Skel.so", "libQnnHtpV73Stub.so"] {
                library(&b.at("libs"), name, NEW);
            }
            let libs = b.at("libs");
            b.with(|r, _| (r.libraries, r.soc) = (Some(libs.clone()), Soc::by_name("sm8650")))
        }, &["stub-missing", "skel-missing"]),
        ("an old release's Genie", || {
            let b = Bundle::compiled();
            for name in ["libQnnHtp.so", "libQnnSystem.so"] {
                library(&b.at("libs"), name, "v2.25.0.240801000000");
            }
            let libs = b.at("libs");
            b.with(|r, _| r.libraries = Some(libs.clone()))
        }, &["config-api", "config-api"]),
    ]);
}

#[test]
fn reports_match_their_snapshots() {
    let mixed = Bundle::compiled().set("/dialog/sampler", json!(null)).set(&format!("{HTP}/kv-dim"), json!(64));
    let mask = both("attention_mask", |t| t.quant = Quant::PerTensor { scale: 0.001, offset: -32768 });
    let phone = mask.with(|request, s| {
        (request.soc, s.adsp_path) = (Soc::by_name("sm8650"), Some("/usr/lib/dsp:/dsp".into()));
    });
    for (name, bundle) in [("good", Bundle::compiled()), ("config", mixed), ("phone", phone)] {
        insta::assert_snapshot!(name, bundle.report());
    }
}

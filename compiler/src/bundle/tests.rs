//! What a bundle holds: tokenizer, chat template, dialog configuration, files for a chip.

use super::*;
use crate::Hint;
use crate::compile::{compile_and_prove, compile_with};
use crate::family::{Family, ModelSpec};
use crate::lower::Windows;
use crate::lower::tests::recorder::FakeTarget;
use crate::testing::{Case, Place, compile, edit, names, place};
use crate::testmodel::TestModel;
use crate::{CompileOptions, GraphKinds, HtpOptions, KvCacheType, Manifest, Silent, Splits};
use genie_bundle::{CONFIG_FILE, HTP_CONFIG_FILE, TOKENIZER_FILE};
use genie_types::TokenId;
use serde_json::{Value, json};

#[test]
fn unfit_tokenizers_are_refused() {
    let cases = [
        Case {
            name: "no tokenizer",
            damage: |dir| std::fs::remove_file(dir.join(TOKENIZER_FILE)).unwrap(),
            message: "`{dir}` has no tokenizer.json",
            hint: Some(Hint::ConvertTokenizer { from: None }),
            ..Case::DEFAULT
        },
        Case {
            name: "no JSON",
            damage: |dir| std::fs::write(dir.join(TOKENIZER_FILE), "version https://git-lfs").unwrap(),
            message: "`{dir}/tokenizer.json` is not a tokenizer that can be used: it is a pointer of Git LFS, not the file itself, expected \
                      JSON",
            ..Case::DEFAULT
        },
        Case {
            name: "no vocabulary",
            damage: |dir| std::fs::write(dir.join(TOKENIZER_FILE), r#"{"model":{}}"#).unwrap(),
            message: "`{dir}/tokenizer.json` is not a tokenizer that can be used: `/model`: `vocab` is missing",
            ..Case::DEFAULT
        },
        Case {
            name: "a larger vocabulary",
            damage: |dir| edit(dir, TOKENIZER_FILE, |t| t["model"]["vocab"]["more"] = json!(320)),
            message: "`{dir}/tokenizer.json` is not a tokenizer that can be used: tokenizer entry `more` has id 320, but the \
                      model's vocabulary has 320 entries",
            ..Case::DEFAULT
        },
        Case {
            name: "an added token whose id is not kept",
            damage: |dir| edit(dir, TOKENIZER_FILE, |t| t["added_tokens"][1]["id"] = json!(319)),
            message: "`{dir}/tokenizer.json` is not a tokenizer that can be used: `/added_tokens/1/id`: found id 319 for \
                      `<|end|>`, expected 257: its id in the vocabulary, or the next free one in the order of the list",
            ..Case::DEFAULT
        },
        Case {
            name: "a list",
            damage: |dir| edit(dir, TOKENIZER_FILE, |t| t["model"]["vocab"] = json!([["t", -1.0]])),
            message: "`{dir}/tokenizer.json` is not a tokenizer that can be used: `/model/vocab`: found a list, expected texts \
                      with ids",
            ..Case::DEFAULT
        },
        Case {
            name: "row 13: a tokenizer of another model",
            damage: |dir| {
                edit(dir, TOKENIZER_FILE, |t| {
                    t["model"] =
                        json!({"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "unk_token": "a"});
                    t["added_tokens"] = json!([]);
                });
            },
            message: "`{dir}/tokenizer.json` is not a tokenizer that can be used: it has 4 entries for a model of 320 rows, \
                      expected at least half as many",
            ..Case::DEFAULT
        },
    ];
    cases.iter().for_each(Case::check);
}

#[test]
fn a_bundle_that_is_not_proved_is_not_kept() {
    let Place { dir, model, out } = place();
    let mut options = CompileOptions::new(&model, &out);
    (options.ars, options.cls) = (vec![1], vec![16]);
    let mut seen = Vec::new();
    let mut prove = |folder: &std::path::Path, _: &mut dyn crate::Progress| {
        seen = names(folder);
        Manifest::read(folder)?.verify_files(folder)?;
        Err("logits are NaN".into())
    };
    let error = compile_and_prove(&options, &mut FakeTarget::default(), &mut Silent, &mut prove).unwrap_err();
    assert_eq!(error.to_string(), "the bundle was compiled but does not run: nothing of it was kept");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "logits are NaN");
    let whole = ["genie_config.json", "manifest.json", "model.bin", "tokenizer.json"];
    assert_eq!(seen, whole, "the proof sees the whole bundle");
    assert_eq!(names(dir.path()), ["model"]);
}

#[test]
fn chat_templates_come_along() {
    let Place { dir: _dir, model, out } = place();
    std::fs::write(model.join("tokenizer_config.json"), r#"{"chat_template":"{{ x }}"}"#).unwrap();
    std::fs::write(model.join("chat_template.jinja"), "{{ x }}").unwrap();
    let manifest = compile(&model, &out, |_| {}).unwrap();
    let listed: Vec<&str> = manifest.files.iter().map(|f| f.path.as_str()).collect();
    let expected = ["model.bin", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "genie_config.json"];
    assert_eq!(listed, expected);
    manifest.verify_files(&out).unwrap();
}

fn spec() -> ModelSpec {
    let (low_freq_factor, high_freq_factor) = (1.0, 4.0);
    let llama3 =
        genie_types::Llama3Scaling { factor: 8.0, low_freq_factor, high_freq_factor, original_max_position: 8192.0 };
    let mut spec =
        TestModel { scaling: Some(llama3.into()), rope_theta: 500_000.0, ..TestModel::tiny(Family::Llama) }.spec();
    spec.tokens.eos = vec![TokenId(257), TokenId(300)];
    spec.tokens.pad = Some(TokenId(2));
    spec
}

#[test]
fn the_dialog_configuration_is_this() {
    let config = genie_config(
        &spec(),
        Windows::Unused,
        2048,
        &["lut.bin".into(), "decoder.bin".into()],
        false,
        &[],
        &GraphKinds::default(),
    );
    let expected = r#"{
  "dialog": {
    "version": 1,
    "type": "basic",
    "context": {
      "version": 1,
      "size": 2048,
      "n-vocab": 320,
      "bos-token": 256,
      "eos-token": [
        257,
        300
      ],
      "pad-token": 2
    },
    "sampler": {
      "version": 1,
      "seed": 42,
      "temp": 0.8,
      "top-k": 40,
      "top-p": 0.95,
      "greedy": false
    },
    "tokenizer": {
      "version": 1,
      "path": "tokenizer.json"
    },
    "engine": {
      "version": 1,
      "n-threads": 0,
      "backend": {
        "version": 1,
        "type": "QnnHtp",
        "QnnHtp": {
          "version": 1,
          "use-mmap": false,
          "spill-fill-bufsize": 0,
          "mmap-budget": 0,
          "poll": false,
          "cpu-mask": "0xe0",
          "kv-dim": 16,
          "allow-async-init": false
        }
      },
      "model": {
        "version": 1,
        "type": "binary",
        "binary": {
          "version": 1,
          "ctx-bins": [
            "lut.bin",
            "decoder.bin"
          ]
        },
        "positional-encoding": {
          "type": "rope",
          "rope-dim": 8,
          "rope-theta": 500000,
          "rope-scaling": {
            "rope-type": "llama3",
            "factor": 8,
            "low-freq-factor": 1,
            "high-freq-factor": 4,
            "original-max-position-embeddings": 8192
          }
        }
      }
    }
  }
}"#;
    assert_eq!(format!("{config:#}"), expected);
}

/// The keys of each object, required first after a `!`, as in libGenie 1.21. A key that is not listed here, its
/// schema rejects.
const SCHEMA: &[(&str, &str, &str)] = &[
    ("", "dialog", ""),
    ("/dialog", "version type context tokenizer engine", "sampler stop-sequence max-num-tokens embedding debug"),
    ("/dialog/context", "version bos-token eos-token size n-vocab", "eot-token img-token pad-token n-embd"),
    ("/dialog/sampler", "version", "type seed temp top-k top-p greedy token-penalty"),
    ("/dialog/tokenizer", "version path", ""),
    ("/dialog/engine", "version backend model n-threads", "role type longcontext cache-groups batching"),
    ("/dialog/engine/backend", "version type QnnHtp", "extensions device"),
    (
        "/dialog/engine/backend/QnnHtp",
        "version spill-fill-bufsize mmap-budget use-mmap cpu-mask poll kv-dim",
        "pos-id-dim rope-theta allow-async-init",
    ),
    ("/dialog/engine/model", "version type binary positional-encoding", ""),
    ("/dialog/engine/model/binary", "version ctx-bins", ""),
    ("/dialog/engine/model/positional-encoding", "type rope-dim rope-theta", "rope-scaling"),
];

#[test]
fn no_key_is_missing_or_unknown() {
    let config = genie_config(&spec(), Windows::Unused, 128, &["model.bin".into()], true, &[], &GraphKinds::default());
    for (at, required, optional) in SCHEMA {
        let object = config.pointer(at).and_then(Value::as_object).unwrap_or_else(|| panic!("{at} is no object"));
        for key in required.split_whitespace() {
            assert!(object.contains_key(key), "{at} lacks {key}");
        }
        for key in object.keys() {
            assert!(required.split_whitespace().chain(optional.split_whitespace()).any(|k| k == key), "{at} has {key}");
        }
        if required.starts_with("version") {
            assert_eq!(object["version"], 1, "{at}");
        }
    }
}

#[test]
fn absent_ids_are_written_as_unset() {
    let mut spec = spec();
    (spec.tokens.bos, spec.tokens.eos, spec.tokens.pad, spec.rope.scaling) = (None, vec![], None, None);
    spec.sampler.temperature = 0.0;
    let config = genie_config(&spec, Windows::Unused, 128, &["model.bin".into()], false, &[], &GraphKinds::default());
    let context = &config["dialog"]["context"];
    assert_eq!(
        (&context["bos-token"], &context["eos-token"], context.get("pad-token")),
        (&json!(-1), &json!(-1), None)
    );
    assert_eq!(config["dialog"]["sampler"]["greedy"], true);
    let rope = &config["dialog"]["engine"]["model"]["positional-encoding"];
    assert_eq!(rope, &json!({ "type": "rope", "rope-dim": 8, "rope-theta": 500_000 }));
}

#[test]
fn bundles_for_a_chip_have_a_backend_config() {
    let Place { dir: _dir, model, out } = place();
    let manifest = compile(&model, &out, |o| {
        let mut htp = HtpOptions::for_target("x-elite").unwrap();
        htp.performance = qnn_api::PerfPolicy::Balanced;
        (o.htp, o.splits) = (Some(htp), Splits::DecoderLmhead);
    })
    .unwrap();
    assert_eq!(manifest.files.last().unwrap().path, HTP_CONFIG_FILE);
    assert_eq!(manifest.options.target.as_deref(), Some("x-elite"));
    let read = |name| serde_json::from_slice::<Value>(&std::fs::read(out.join(name)).unwrap()).unwrap();
    assert_eq!(read(CONFIG_FILE)["dialog"]["engine"]["backend"]["extensions"], HTP_CONFIG_FILE);
    let expected = json!({
        "devices": [{
            "soc_model": 60,
            "dsp_arch": "v73",
            "cores": [{ "core_id": 0, "perf_profile": "balanced", "rpc_control_latency": 100 }],
        }],
        "graphs": [{
            "graph_names": ["ar1_cl16_1_of_2", "ar4_cl16_1_of_2", "ar1_cl16_2_of_2", "ar4_cl16_2_of_2"],
            "vtcm_mb": 8,
            "fp16_relaxed_precision": 1,
        }],
        "context": { "weight_sharing_enabled": false },
        "memory": { "mem_type": "shared_buffer" },
    });
    assert_eq!(read(HTP_CONFIG_FILE), expected);
}

#[test]
fn a_file_may_not_pass_the_limit_neither_planned_nor_made() {
    let Place { dir, model, out } = place();
    let limited = |limit, splits, cut_to_fit| {
        compile(&model, &out, |o| {
            let htp = HtpOptions::for_target("sm8650").unwrap();
            (o.htp, o.splits) = (Some(HtpOptions { file_limit: limit, cut_to_fit, ..htp }), splits);
        })
    };
    // Two graphs, each with 270 kB of weights, 41 kB of them the embedding and as much its LM head.
    let error = limited(600_000, Splits::Mono, false).unwrap_err();
    let message = "`model.bin` needs about 817 kB for its 2 graphs, the limit of a context binary is 600 kB";
    assert_eq!(error.to_string(), message);
    let finer = Hint::FinerSplits { splits: Splits::DecoderLmhead, layers_per_split: Some(1) };
    assert_eq!(error.hint(), Some(finer));
    let cut = limited(600_000, Splits::Mono, true).unwrap();
    assert_eq!((cut.options.splits, cut.options.layers_per_split), (Splits::DecoderLmhead, Some(1)));
    assert_eq!(names(dir.path()), ["bundle", "model"]);

    // What the library wrote is checked too: the recorder's files have a few bytes each.
    let mut htp = HtpOptions::for_target("sm8650").unwrap();
    std::fs::write(dir.path().join("long.bin"), [0; 100]).unwrap();
    htp.file_limit = 99;
    let error = htp.check_file("model.bin", &dir.path().join("long.bin")).unwrap_err();
    assert_eq!(error.to_string(), "`model.bin` is 1 kB long, the limit of a context binary is 1 kB");
}

#[test]
fn splits_may_lie_in_one_file() {
    let Place { dir: _dir, model, out } = place();
    let apart = compile(&model, &out, |o| o.splits = Splits::DecoderLmhead).unwrap();
    let together =
        compile(&model, &out, |o| (o.splits, o.one_file, o.force) = (Splits::DecoderLmhead, true, true)).unwrap();
    assert!(out.join("model.bin").is_file() && !out.join("lmhead.bin").exists());
    let graphs = |m: &Manifest| m.graphs.iter().map(|g| (g.name.clone(), g.split)).collect::<Vec<_>>();
    assert_eq!(graphs(&together), graphs(&apart));
    assert!(together.graphs.iter().all(|g| g.file == "model.bin"), "{:?}", together.graphs);
    assert_eq!(together.model_mark(), apart.model_mark());
    let config: Value = serde_json::from_slice(&std::fs::read(out.join(CONFIG_FILE)).unwrap()).unwrap();
    assert_eq!(config["dialog"]["engine"]["model"]["binary"]["ctx-bins"], json!(["model.bin"]));

    let htp = HtpOptions::for_target("sm8650").unwrap();
    let error = compile(&model, &out, |o| (o.htp, o.one_file) = (Some(htp), true)).unwrap_err();
    assert_eq!(error.to_string(), "all splits in one file is for the embedded backend, but the target is `sm8650`");
}

#[test]
fn keys_by_row_need_a_graph_that_tells_them_from_columns() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("model");
    let model = TestModel::tiny(Family::Llama);
    model.write(&dir).unwrap();
    let width = model.head_dim as u32;
    let compiled = |ars: &[u32], cls: &[u32]| {
        let mut options = CompileOptions::new(&dir, place.path().join("bundle"));
        (options.ars, options.cls, options.kinds.kv_cache) = (ars.to_vec(), cls.to_vec(), KvCacheType::Rows);
        options.force = true;
        compile_with(&options, &mut FakeTarget::default(), &mut Silent).map(drop).map_err(|error| error.to_string())
    };
    let error = compiled(&[width], &[2 * width]).unwrap_err();
    assert!(
        error.contains("keys by row cannot be distinguished") && error.contains(&format!("a head, {width}")),
        "{error}"
    );
    assert!(compiled(&[width], &[width, 2 * width]).is_err(), "a graph without a past tells nothing");
}

#[test]
fn manifests_list_files_of_the_bundle_alone() {
    let place = tempfile::tempdir().unwrap();
    let (dir, out) = (place.path().join("model"), place.path().join("bundle"));
    TestModel::tiny(Family::Llama).write(&dir).unwrap();
    let mut options = CompileOptions::new(&dir, &out);
    (options.ars, options.cls) = (vec![1], vec![16]);
    compile_with(&options, &mut FakeTarget::default(), &mut Silent).unwrap();
    assert!(!Manifest::read(&out).unwrap().files.is_empty());
    for path in ["/dev/zero", "../x", ""] {
        edit(&out, "manifest.json", |manifest| manifest["files"][0]["path"] = json!(path));
        let error = Manifest::read(&out).unwrap_err().to_string();
        assert!(error.ends_with(&format!("lists `{path}`, expected the path of a file within the bundle")), "{error}");
    }
}

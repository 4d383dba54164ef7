//! Configs that are fine, and many that are not, each with the words it must be answered with. One row a case, hence so many lines.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use engine::{GroupOptions, LutDtype, RopeConfig, RopeScaling};
use genie_types::{Dtype, TokenId};

fn base() -> Value {
    json!({"dialog": {
        "version": 1,
        "type": "basic",
        "context": {"version": 1, "size": 128, "n-vocab": 512, "bos-token": 256, "eos-token": 257},
        "sampler": {"version": 1, "seed": 42, "temp": 0.8, "top-k": 40, "top-p": 0.95, "greedy": false},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1,
            "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {
                "version": 1, "use-mmap": true, "spill-fill-bufsize": 0, "mmap-budget": 0, "poll": false,
                "cpu-mask": "0xe0", "kv-dim": 32, "allow-async-init": false
            }},
            "model": {
                "version": 1,
                "type": "binary",
                "binary": {"version": 1, "ctx-bins": ["model.bin"]},
                "positional-encoding": {"type": "rope", "rope-dim": 16, "rope-theta": 10000}
            }
        }
    }})
}

/// The value at `pointer`, made if its parent is there; `null` removes it.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap_or_else(|| panic!("no parent for {pointer}"));
    match (parent, value) {
        (Value::Object(o), Value::Null) => {
            o.remove(key).unwrap_or_else(|| panic!("nothing to remove at {pointer}"));
        }
        (Value::Object(o), value) => {
            o.insert(key.into(), value);
        }
        (Value::Array(a), value) => a[key.parse::<usize>().unwrap()] = value,
        _ => panic!("no container at {pointer}"),
    }
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut document = base();
    for (pointer, value) in changes {
        set(&mut document, pointer, value.clone());
    }
    document
}

fn parse(document: &Value) -> Result<DialogConfig, ConfigError> {
    DialogConfig::from_json(&document.to_string(), "/bundle")
}

#[test]
fn the_golden_config_becomes_values() {
    let c = parse(&base()).unwrap();
    assert_eq!(c.context().bos, Some(TokenId(256)));
    assert_eq!(c.context().eos, [TokenId(257)]);
    assert_eq!((c.context().eot, c.context().pad), (None, None));
    assert_eq!((c.context().size, c.context().n_vocab), (128, 512));
    assert_eq!((c.sampler().seed(), c.sampler().temp(), c.sampler().top_k()), (Some(42), 0.8, 40));
    assert_eq!(c.tokenizer(), Path::new("/bundle/tokenizer.json"));
    assert_eq!(c.engine().ctx_bins, [Path::new("/bundle/model.bin")]);
    assert_eq!(c.engine().rope, Some(RopeConfig::new(16, 10_000.0)));
    assert_eq!((c.engine().context_size, c.engine().pad_token), (Some(128), TokenId(257)));
    assert_eq!((c.backend().cpu_mask, c.backend().kv_dim), (0xe0, Some(32)));
    assert!(c.warnings().is_empty() && c.stop_sequences().is_empty() && c.max_num_tokens().is_none());
}

#[test]
fn variations_that_genie_accepts_are_accepted() {
    let cases: Vec<(&str, Value)> = vec![
        ("/dialog/context/eos-token", json!([257, 414])),
        ("/dialog/context/bos-token", json!(-1)),
        ("/dialog/context/eot-token", json!(414)),
        ("/dialog/stop-sequence", json!(["\n\n", "###"])),
        ("/dialog/max-num-tokens", json!(0)),
        ("/dialog/sampler/seed", json!(-1)),
        ("/dialog/sampler/token-penalty", json!({"penalize-last-n": 64, "presence-penalty": -0.5})),
        ("/dialog/engine/backend/extensions", json!("htp_ext.json")),
        ("/dialog/engine/backend/extensions", json!(["htp_ext.json"])),
        ("/dialog/engine/model/binary", json!({"fcb": [" a.bin ", "/abs/b.bin"]})),
        ("/dialog/engine/model/positional-encoding", json!([{"type": "rope", "rope-dim": 16}])),
        (
            "/dialog/engine/model/positional-encoding/rope-scaling",
            json!({"rope-type": "llama3", "factor": 8,
            "low-freq-factor": 1, "high-freq-factor": 4, "original-max-position-embeddings": 8192}),
        ),
        ("/dialog/debug", json!({"path": "dbg", "dump-tensors": true, "dump-end": 1000})),
    ];
    for (pointer, value) in cases {
        let document = with(&[(pointer, value)]);
        assert!(parse(&document).is_ok(), "{pointer}: {}", parse(&document).unwrap_err());
    }
}

#[test]
fn unset_and_listed_values_arrive() {
    let c = parse(&with(&[
        ("/dialog/context/bos-token", json!(-1)),
        ("/dialog/context/eos-token", json!([257, 414])),
        ("/dialog/sampler/seed", json!(-1)),
        ("/dialog/engine/model/binary", json!({"fcb": [" a.bin ", "/abs/b.bin"]})),
        ("/dialog/engine/model/positional-encoding", Value::Null),
        ("/dialog/engine/backend/QnnHtp/pos-id-dim", json!(24)),
        ("/dialog/engine/backend/QnnHtp/rope-theta", json!(500_000)),
    ]))
    .unwrap();
    assert_eq!((c.context().bos, c.sampler().seed()), (None, None));
    assert_eq!(c.context().eos, [TokenId(257), TokenId(414)]);
    assert_eq!(c.engine().ctx_bins, [Path::new("/bundle/a.bin"), Path::new("/abs/b.bin")]);
    assert_eq!(c.engine().rope, Some(RopeConfig::new(24, 500_000.0)));
}

#[test]
fn embeddings_groups_and_scaling_reach_the_engine() {
    let c = parse(&with(&[
        (
            "/dialog/embedding",
            json!({"version": 1, "type": "lut", "size": 64, "lut-path": "e.raw",
                                     "datatype": "ufixed8", "quant-param": {"scale": 0.5, "offset": -128}}),
        ),
        (
            "/dialog/engine/cache-groups",
            json!([{"version": 1, "prefix": "past_"},
                                               {"version": 1, "prefix": "swa_", "attention-mask-tensor-name": "m"}]),
        ),
        ("/dialog/engine/backend/QnnHtp/execute-select-graphs", json!(["g"])),
        (
            "/dialog/engine/model/positional-encoding/rope-scaling",
            json!({"rope-type": "llama3", "factor": 8,
            "low-freq-factor": 1, "high-freq-factor": 4, "original-max-position-embeddings": 8192}),
        ),
    ]))
    .unwrap();
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
        c.engine().rope.unwrap().scaling,
        RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192.0 }
    );
    assert!(c.engine().check().is_ok());
}

/// Each case changes the good config and expects exactly these findings.
#[test]
fn bad_configs_are_told_what_is_wrong_and_where() {
    struct Case(&'static [(&'static str, &'static str)], &'static [&'static str]);
    let cases = [
        // Kinds of JSON values.
        Case(
            &[("/dialog/engine/backend/QnnHtp/kv-dim", "\"32\"")],
            &["/dialog/engine/backend/QnnHtp/kv-dim: expected integer, found string"],
        ),
        Case(&[("/dialog/context/size", "1.5")], &["/dialog/context/size: expected integer, found number"]),
        Case(
            &[("/dialog/context/eos-token", "\"257\"")],
            &["/dialog/context/eos-token: expected integer or array, found string"],
        ),
        Case(&[("/dialog/tokenizer", "\"t.json\"")], &["/dialog/tokenizer: expected object, found string"]),
        Case(&[("/dialog/sampler/greedy", "1")], &["/dialog/sampler/greedy: expected boolean, found integer"]),
        Case(&[("/dialog/stop-sequence", "[\"a\", 3]")], &["/dialog/stop-sequence/1: expected string, found integer"]),
        // Unknown and missing keys.
        Case(&[("/dialog/sampler/top_k", "3")], &["/dialog/sampler/top_k: unknown key (did you mean `top-k`?)"]),
        Case(&[("/dialog/smapler", "{}")], &["/dialog/smapler: unknown key (did you mean `sampler`?)"]),
        Case(&[("/dialog/temp", "0.5")], &["/dialog/temp: unknown key (`temp` belongs in `/dialog/sampler`)"]),
        Case(
            &[("/dialog/engine/kv-dim", "32")],
            &["/dialog/engine/kv-dim: unknown key (`kv-dim` belongs in `/dialog/engine/backend/QnnHtp`)"],
        ),
        Case(&[("/dialog/a~1b", "1")], &["/dialog/a~01b: unknown key"]),
        Case(&[("/dialog/tokenizer/path", "null")], &["/dialog/tokenizer/path: required key is missing"]),
        Case(
            &[("/dialog/context/size", "null"), ("/dialog/context/n-vocab", "null")],
            &["/dialog/context/size: required key is missing", "/dialog/context/n-vocab: required key is missing"],
        ),
        // Ranges and choices.
        Case(&[("/dialog/version", "2")], &["/dialog/version: expected version 1, found 2"]),
        Case(
            &[("/dialog/type", "\"basik\"")],
            &["/dialog/type: expected one of `basic`, `ssd-q1`, `lade`, `spd`, `multistream`, `eaglet`, `kv-share`, \
               found `basik` (did you mean `basic`?)"],
        ),
        Case(&[("/dialog/sampler/top-p", "1.5")], &["/dialog/sampler/top-p: expected a number from 0 to 1, found 1.5"]),
        Case(
            &[("/dialog/sampler/temp", "-0.1")],
            &["/dialog/sampler/temp: expected a number of at least 0, found -0.1"],
        ),
        Case(
            &[("/dialog/sampler/seed", "3000000000")],
            &["/dialog/sampler/seed: expected an integer from -2147483648 to 2147483647, found 3000000000"],
        ),
        Case(
            &[("/dialog/max-num-tokens", "-1")],
            &["/dialog/max-num-tokens: expected an integer of at least 0, found -1"],
        ),
        Case(
            &[("/dialog/sampler/token-penalty", "{\"repetition-penalty\": 0}")],
            &["/dialog/sampler/token-penalty/repetition-penalty: expected a number above 0, found 0"],
        ),
        Case(
            &[("/dialog/context/eos-token", "[]")],
            &["/dialog/context/eos-token: expected at least 1 item(s), found 0"],
        ),
        Case(
            &[("/dialog/engine/backend/QnnHtp/cpu-mask", "\"e0h\"")],
            &["/dialog/engine/backend/QnnHtp/cpu-mask: expected a hexadecimal mask of up to 64 bits, found `e0h` \
               (for example `0xe0`)"],
        ),
        // Rules between keys.
        Case(
            &[("/dialog/type", "\"spd\"")],
            &[
                "/dialog/spd: required when the dialog type is `spd`",
                "/dialog/engine: expected an array of two engines with roles `draft` and `target` for dialog type `spd`, \
             found one object",
            ],
        ),
        Case(
            &[("/dialog/spd", "{\"version\": 1, \"draft-len\": 4}")],
            &["/dialog/spd: only allowed when the dialog type is `spd`, which is `basic` here"],
        ),
        Case(
            &[("/dialog/engine/role", "\"target\"")],
            &["/dialog/engine/role: not allowed for dialog type `basic`, which has one engine"],
        ),
        Case(
            &[("/dialog/engine/backend/type", "\"QnnGenAiTransformer\"")],
            &[
                "/dialog/engine/backend/QnnHtp: only allowed when the backend type is `QnnHtp`, which is \
               `QnnGenAiTransformer` here",
                "/dialog/engine/backend/QnnGenAiTransformer: required when the backend type is `QnnGenAiTransformer`",
            ],
        ),
        Case(
            &[("/dialog/engine/backend/QnnHtp/pos-id-dim", "16")],
            &[
                "/dialog/engine/backend/QnnHtp/pos-id-dim: not allowed together with `positional-encoding` of the model \
             (remove `pos-id-dim`; `positional-encoding` says the same)",
            ],
        ),
        Case(
            &[("/dialog/engine/backend/QnnHtp/shared-engine", "true")],
            &["/dialog/engine/backend/QnnHtp/allow-async-init: must be true when `shared-engine` is true"],
        ),
        Case(
            &[("/dialog/engine/backend/QnnHtp/graph-retention-order", "[]")],
            &["/dialog/engine/backend/QnnHtp/graph-retention-order: needs `enable-graph-switching` to be true"],
        ),
        Case(
            &[("/dialog/engine/backend/extensions", "[\"a\", \"b\"]")],
            &["/dialog/engine/backend/extensions: expected one path without `multi-nsp-prefill`, found 2"],
        ),
        Case(
            &[("/dialog/engine/backend/QnnHtp/multi-nsp-prefill", "true")],
            &[
                "/dialog/engine/backend/QnnHtp/multi-nsp-prefill: needs at least 2 extension configs, found 0",
                "/dialog/engine/backend/QnnHtp/multi-nsp-prefill: needs at least 2 binaries, found 1",
            ],
        ),
        Case(
            &[("/dialog/engine/model/binary/fcb", "[\"m.bin\"]")],
            &["/dialog/engine/model/binary/fcb: `ctx-bins` and `fcb` name the same thing: give one of them"],
        ),
        Case(
            &[("/dialog/engine/model/binary/ctx-bins", "null")],
            &["/dialog/engine/model/binary/ctx-bins: required key is missing"],
        ),
        Case(
            &[("/dialog/engine/model/library", "{\"version\": 1, \"model-bin\": \"m\"}")],
            &["/dialog/engine/model/library: only allowed when the model type is `library`, which is `binary` here"],
        ),
        Case(
            &[("/dialog/engine/longcontext", "{\"version\": 1, \"type\": \"sliding-window\"}")],
            &["/dialog/engine/longcontext/sliding-window: required when the long context type is `sliding-window`"],
        ),
        Case(
            &[(
                "/dialog/engine/longcontext",
                "{\"version\": 1, \"type\": \"keydiff\", \"keydiff\": {\"scoring-network\": \"s\", \"extra\": 1, \
                 \"update-frequency\": 8, \"anchor-alpha\": 1.0}}",
            )],
            &["/dialog/engine/longcontext/keydiff/anchor-alpha: expected a number above 0 and below 1, found 1.0"],
        ),
        Case(
            &[(
                "/dialog/engine/cache-groups",
                "[{\"version\": 1, \"prefix\": \"past_\"}, {\"version\": 1, \"prefix\": \"past_\"}]",
            )],
            &["/dialog/engine/cache-groups/1/prefix: prefix `past_` is already taken by an earlier cache group"],
        ),
        Case(
            &[(
                "/dialog/engine/model/binary/lora",
                "{\"version\": 1, \"adapters\": [{\"name\": \"a\", \"path\": \"x\"}]}",
            )],
            &[
                "/dialog/engine/model/binary/lora/adapters/0/path: not allowed for LoRA version 2",
                "/dialog/engine/model/binary/lora/adapters/0: needs `alphas` or `bin-sections` for LoRA version 2",
            ],
        ),
        Case(
            &[
                ("/dialog/sampler/type", "\"custom\""),
                ("/dialog/sampler/callback-name", "\"f\""),
                ("/dialog/sampler/greedy", "null"),
                ("/dialog/sampler/temp", "null"),
                ("/dialog/sampler/seed", "null"),
            ],
            &[
                "/dialog/sampler/top-k: not allowed when the sampler type is `custom`",
                "/dialog/sampler/top-p: not allowed when the sampler type is `custom`",
            ],
        ),
        Case(
            &[("/dialog/context/grammar", "{\"backend\": \"xgrammar\"}")],
            &["/dialog/context/grammar/file: must name a file when a grammar `backend` is set"],
        ),
        Case(
            &[("/dialog/harmony", "{\"type\": \"gpt-oss\"}")],
            &["/dialog/harmony/tokenizer-vocab-path: required when the harmony type is `gpt-oss`"],
        ),
        Case(
            &[("/dialog/embedding", "{\"version\": 1, \"size\": 64, \"type\": \"lut\"}")],
            &["/dialog/embedding/lut-path: required when the type is `lut`"],
        ),
        Case(
            &[(
                "/dialog/embedding",
                "{\"version\": 1, \"size\": 0, \"type\": \"lut\", \"lut-path\": \"e\", \"datatype\": \"sfixed16\"}",
            )],
            &[
                "/dialog/embedding/size: expected at least 1, found 0",
                "/dialog/embedding/quant-param: required for a table of fixed-point codes",
            ],
        ),
        // What the schema lets through but nobody can use.
        Case(&[("/dialog/context/size", "0")], &["/dialog/context/size: expected at least 1 token, found 0"]),
        Case(
            &[("/dialog/context/bos-token", "-7")],
            &["/dialog/context/bos-token: expected a token id, or -1 for unset, found -7"],
        ),
        Case(
            &[("/dialog/context/eos-token", "[257, -2]")],
            &["/dialog/context/eos-token/1: expected a token id, or -1 for unset, found -2"],
        ),
        Case(&[("/dialog/stop-sequence", "[\"\"]")], &["/dialog/stop-sequence/0: expected a non-empty string"]),
        Case(
            &[(
                "/dialog/engine/model/positional-encoding/rope-scaling",
                "{\"rope-type\": \"llama3\", \"factor\": 8, \
               \"low-freq-factor\": 4, \"high-freq-factor\": 4}",
            )],
            &[
                "/dialog/engine/model/positional-encoding/rope-scaling/original-max-position-embeddings: required when \
               the rope type is `llama3`",
                "/dialog/engine/model/positional-encoding/rope-scaling/high-freq-factor: expected more than \
               `low-freq-factor`, 4, found 4",
            ],
        ),
        Case(
            &[("/dialog/engine/model/positional-encoding/rope-theta", "0")],
            &["/dialog/engine/model/positional-encoding/rope-theta: expected a number above 0, found 0"],
        ),
    ];
    assert!(cases.len() >= 40);
    for Case(changes, expected) in cases {
        let changes: Vec<(&str, Value)> = changes.iter().map(|(p, v)| (*p, serde_json::from_str(v).unwrap())).collect();
        let err = parse(&with(&changes)).expect_err(expected[0]);
        assert!(matches!(err, ConfigError::Invalid { .. }), "{err}");
        let found: Vec<String> = err.problems().iter().map(Problem::to_string).collect();
        assert_eq!(found, expected);
    }
}

/// Valid for Genie, so the answer is another one: not yet, by name.
#[test]
fn what_this_build_cannot_do_is_refused_by_name() {
    let mut two = base();
    let engine = two["dialog"]["engine"].clone();
    let engines = |a: &str, b: &str| {
        let (mut x, mut y) = (engine.clone(), engine.clone());
        (x["role"], y["role"]) = (json!(a), json!(b));
        json!([x, y])
    };
    set(&mut two, "/dialog/engine", engines("target", "draft"));
    set(&mut two, "/dialog/type", json!("spd"));
    set(&mut two, "/dialog/spd", json!({"version": 1, "draft-len": 4}));
    let ssd = json!({"version": 1, "ssd-version": 1, "forecast-token-count": 4, "branches": [3, 2],
                     "forecast-prefix": 16, "forecast-prefix-name": "kv-cache"});
    let eaglet = json!({"version": 1, "eaglet-version": 1, "draft-len": 4, "n-branches": 2,
                        "max-tokens-target-can-evaluate": 8, "draft-kv-cache": true});
    let gpu = json!({"version": 1, "type": "QnnGpu"});
    let cpu = json!({"version": 1, "type": "QnnGenAiTransformer", "QnnGenAiTransformer": {"version": 1}});
    let pe = "/dialog/engine/model/positional-encoding";
    let cases = [
        (two, "/dialog/type: dialog type `spd` is not yet supported (this build runs `basic` dialogs)"),
        (
            with(&[("/dialog/type", json!("ssd-q1")), ("/dialog/ssd-q1", ssd)]),
            "/dialog/type: dialog type `ssd-q1` is not yet supported (this build runs `basic` dialogs)",
        ),
        (
            with(&[("/dialog/type", json!("lade"))]),
            "/dialog/type: dialog type `lade` is not yet supported (this build runs `basic` dialogs)",
        ),
        (
            with(&[
                ("/dialog/type", json!("multistream")),
                ("/dialog/multistream", json!({"version": 1, "n-streams": 2})),
            ]),
            "/dialog/type: dialog type `multistream` is not yet supported (this build runs `basic` dialogs)",
        ),
        (
            with(&[
                ("/dialog/type", json!("eaglet")),
                ("/dialog/eaglet", eaglet),
                ("/dialog/engine", engines("draft", "target")),
            ]),
            "/dialog/type: dialog type `eaglet` is not yet supported (this build runs `basic` dialogs)",
        ),
        (
            with(&[("/dialog/type", json!("kv-share")), ("/dialog/engine", engines("primary", "secondary"))]),
            "/dialog/type: dialog type `kv-share` is not yet supported (this build runs `basic` dialogs)",
        ),
        (
            with(&[("/dialog/engine/backend", gpu)]),
            "/dialog/engine/backend/type: backend `QnnGpu` is not yet supported \
             (`QnnHtp` configs run on the embedded backend and on libQnnHtp)",
        ),
        (
            with(&[("/dialog/engine/backend", cpu)]),
            "/dialog/engine/backend/type: backend `QnnGenAiTransformer` is not yet supported \
             (`QnnHtp` configs run on the embedded backend and on libQnnHtp)",
        ),
        (
            with(&[(pe, json!({"type": "alibi"}))]),
            "/dialog/engine/model/positional-encoding/type: positional encoding `alibi` is not yet supported",
        ),
        (
            with(&[(pe, json!({"type": "rope", "rope-scaling": {"rope-type": "yarnrope"}}))]),
            "/dialog/engine/model/positional-encoding/rope-scaling/rope-type: rope scaling `yarnrope` is not yet supported",
        ),
        (
            with(&[("/dialog/sampler", json!({"version": 1, "type": "custom", "callback-name": "f"}))]),
            "/dialog/sampler: sampler type `custom` is not yet supported",
        ),
        (
            with(&[(
                "/dialog/engine/longcontext",
                json!({"version": 1, "type": "sliding-window", "sliding-window": {"window-size": 64}}),
            )]),
            "/dialog/engine/longcontext: long context `sliding-window` is not yet supported",
        ),
        (
            with(&[("/dialog/embedding", json!({"version": 1, "size": 8, "type": "callback"}))]),
            "/dialog/embedding/type: embedding input by callback is not yet supported",
        ),
        (
            with(&[("/dialog/engine/model/binary/ctx-bins", json!(["record://model"]))]),
            "/dialog/engine/model/binary/ctx-bins/0: reading binaries out of a DLC (`record://`) is not yet supported",
        ),
        (
            with(&[(
                "/dialog/engine/model/binary/lora",
                json!({"version": 1, "adapters": [{"name": "a", "alphas": ["x"]}]}),
            )]),
            "/dialog/engine/model/binary/lora: LoRA is not yet supported",
        ),
    ];
    for (document, expected) in cases {
        let err = parse(&document).expect_err(expected);
        assert!(matches!(err, ConfigError::Unsupported { .. }), "{err}");
        assert_eq!(err.problems().iter().map(Problem::to_string).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn keys_without_effect_are_mentioned() {
    let c = parse(&with(&[
        ("/dialog/sampler", Value::Null),
        ("/dialog/engine/backend/QnnHtp/kv-update-method", json!("SHIFT_CONCAT")),
        ("/dialog/engine/model/positional-encoding/rope-scaling", json!({"factor": 8})),
    ]))
    .unwrap();
    assert_eq!(*c.sampler(), SamplerSettings::default());
    let at: Vec<&str> = c.warnings().iter().map(|p| p.pointer.as_str()).collect();
    assert_eq!(
        at,
        [
            "/dialog/sampler",
            "/dialog/engine/backend/QnnHtp/kv-update-method",
            "/dialog/engine/model/positional-encoding/rope-scaling",
        ]
    );
}

#[test]
fn text_that_is_no_dialog_config_is_refused() {
    let cases = [
        ("", "the config is not valid JSON"),
        ("{\"dialog\": {", "the config is not valid JSON"),
        ("[]", "the config is not a valid dialog config: /: expected object, found array"),
        ("{}", "the config is not a valid dialog config: /dialog: required key is missing"),
        (
            "{\"embedding\": {}}",
            "the config is not a valid dialog config: /: this is a config for `embedding`, expected one for `dialog`",
        ),
        (
            "{\"dialog\": {\"version\": 1}}",
            "the config is not a valid dialog config: 4 problems\n  /dialog/type: required key is missing\n  \
             /dialog/context: required key is missing\n  /dialog/tokenizer: required key is missing\n  \
             /dialog/engine: required key is missing",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(DialogConfig::from_json(text, "/").unwrap_err().to_string(), expected);
    }
}

#[test]
fn missing_files_are_named_with_the_path_that_was_tried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("genie_config.json");
    assert!(matches!(DialogConfig::from_file(&path).unwrap_err(), ConfigError::Read { .. }));
    let document = with(&[("/dialog/engine/model/binary/ctx-bins", json!(["model.bin", "/no/such.bin"]))]);
    std::fs::write(&path, document.to_string()).unwrap();
    std::fs::create_dir(dir.path().join("model.bin")).unwrap();
    let err = DialogConfig::from_file(&path).unwrap_err();
    let base = dir.path().display();
    assert_eq!(
        err.to_string(),
        format!(
            "`{}` names files that cannot be used: 3 problems\n  \
             /dialog/tokenizer/path: file not found: `{base}/tokenizer.json` \
             (relative paths start at the config's folder)\n  \
             /dialog/engine/model/binary/ctx-bins/0: expected a file, found a directory at `{base}/model.bin` \
             (relative paths start at the config's folder)\n  \
             /dialog/engine/model/binary/ctx-bins/1: file not found: `/no/such.bin`",
            path.display()
        )
    );
    std::fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    std::fs::write(dir.path().join("m.bin"), "").unwrap();
    std::fs::write(&path, with(&[("/dialog/engine/model/binary/ctx-bins", json!(["m.bin"]))]).to_string()).unwrap();
    assert_eq!(DialogConfig::from_file(&path).unwrap().base(), dir.path());
}

/// JSON of any shape, with keys that often are Genie's.
fn any_json() -> impl Strategy<Value = Value> {
    let key = prop::sample::select(vec![
        "version",
        "type",
        "context",
        "engine",
        "backend",
        "QnnHtp",
        "model",
        "binary",
        "ctx-bins",
        "sampler",
        "lora",
        "adapters",
        "longcontext",
        "cache-groups",
        "positional-encoding",
        "rope-scaling",
        "eos-token",
        "spd",
        "x",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["basic", "spd", "QnnHtp", "QnnGpu", "binary", "rope", "llama3", ""])
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|kvs| Value::from(
                kvs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<serde_json::Map<_, _>>()
            )),
        ]
    })
}

/// Pointers of all values in a document.
fn places(v: &Value, at: String, out: &mut Vec<String>) {
    match v {
        Value::Object(o) => o.iter().for_each(|(k, v)| places(v, schema::join(&at, k), out)),
        Value::Array(a) => a.iter().enumerate().for_each(|(i, v)| places(v, format!("{at}/{i}"), out)),
        _ => {}
    }
    out.push(at);
}

proptest! {
    #[test]
    fn no_document_makes_it_panic(inner in any_json(), junk in any_json(), pick: prop::sample::Index) {
        let _ = parse(&json!({"dialog": inner}));
        // One value of the good config replaced by anything.
        let mut document = base();
        let mut all = Vec::new();
        places(&document, String::new(), &mut all);
        *document.pointer_mut(&all[pick.index(all.len())]).unwrap() = junk;
        let _ = parse(&document);
    }

    #[test]
    fn no_text_makes_it_panic(cut: prop::sample::Index, flip: prop::sample::Index, bit in 0u8..8) {
        let mut bytes = base().to_string().into_bytes();
        let at = flip.index(bytes.len());
        bytes[at] ^= 1 << bit;
        bytes.truncate(cut.index(bytes.len() + 1));
        let _ = DialogConfig::from_json(&String::from_utf8_lossy(&bytes), "/");
    }
}

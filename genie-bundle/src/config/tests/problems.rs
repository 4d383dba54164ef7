//! Configs that are wrong, each with the exact findings.

use super::*;

/// Each case changes the good config and expects exactly these findings.
#[test]
fn bad_configs_name_each_problem_and_its_place() {
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
        // D8: a misspelt name of another program.
        Case(
            &[("/dialog/sampler/temprature", "3")],
            &["/dialog/sampler/temprature: unknown key (did you mean `temp`?)"],
        ),
        Case(
            &[("/dialog/context/max-tokens", "3")],
            &["/dialog/context/max-tokens: unknown key (did you mean `max-num-tokens` in `/dialog`?)"],
        ),
        // R14: numbers that size something.
        Case(
            &[("/dialog/engine/n-threads", "2147483647")],
            &["/dialog/engine/n-threads: expected an integer from 0 to 1024, found 2147483647"],
        ),
        Case(
            &[("/dialog/context/size", "2147483648")],
            &["/dialog/context/size: expected an integer from 0 to 2147483647, found 2147483648"],
        ),
        Case(
            &[("/dialog/context/n-vocab", "9223372036854775807")],
            &["/dialog/context/n-vocab: expected an integer from 0 to 2147483647, found 9223372036854775807"],
        ),
        Case(
            &[("/dialog/max-num-tokens", "4294967296")],
            &["/dialog/max-num-tokens: expected an integer from 0 to 4294967295, found 4294967296"],
        ),
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
            &["/dialog/max-num-tokens: expected an integer from 0 to 4294967295, found -1"],
        ),
        Case(
            &[("/dialog/sampler/token-penalty", "{\"repetition-penalty\": 0}")],
            &["/dialog/sampler/token-penalty/repetition-penalty: expected a number above 0, found 0"],
        ),
        Case(
            &[("/dialog/sampler/token-penalty", "{\"repetition-penalty\": 1e-60}")],
            &["/dialog/sampler/token-penalty/repetition-penalty: expected a finite number above 0, found 0"],
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
            &[
                "/dialog/context/grammar/file: must name a file when a grammar `backend` is set",
                "/dialog/context/grammar/type: must be `json-schema`, `regex` or `ebnf` when a grammar `backend` is set",
            ],
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
        // What the schema accepts but nothing can use.
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
            &["/dialog/engine/model/positional-encoding/rope-theta: expected a finite number above 0, found 0"],
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
        assert_eq!(GenieConfig::from_json(text, "/").unwrap_err().to_string(), expected);
    }
}

/// R14: a list of any key is bounded, and a long list of problems is cut.
#[test]
fn lists_and_lists_of_problems_are_bounded() {
    for (pointer, at) in [
        ("/dialog/engine/model/binary/ctx-bins", "ctx-bins"),
        ("/dialog/stop-sequence", "stop-sequence"),
        ("/dialog/context/eos-token", "eos-token"),
    ] {
        let mut config = base();
        let item = if at == "eos-token" { json!(1) } else { json!("x") };
        set(&mut config, pointer, Value::Array(vec![item; 800_000]));
        let found = validate(&config);
        assert_eq!(found.len(), 1, "{at}");
        assert_eq!(found[0].to_string(), format!("{pointer}: expected at most 4096 items, found 800000"));
    }
    let mut config = base();
    set(&mut config, "/dialog/stop-sequence", json!(vec![0; 4000]));
    assert_eq!(validate(&config).len(), 64);
}

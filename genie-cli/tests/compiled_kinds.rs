//! Kinds of graphs that `genie compile` makes: each bundle runs, on the graphs it is meant to, with the plain bundle's tokens.

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::{done, genie};

/// A model whose heads fill a tile.
fn model(folder: &Path, family: Family) {
    let model = TestModel { head_dim: 32, ..TestModel::tiny(family) };
    model.write(&folder.join("model")).unwrap();
}

fn compile<'a>(bundle: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let plain = ["compile", "model", "-o", bundle, "--ar", "1,8", "--cl", "64", "--precision", "f32", "-q"];
    [&plain, flags].concat()
}

fn run(folder: &Path, bundle: &str) -> Value {
    let ids = (0..21).map(|i| (i * 7 % 50 + 3).to_string()).collect::<Vec<_>>().join(",");
    let args = ["run", "-c", bundle, "--prompt-tokens", &ids, "-n", "6", "--greedy", "--json"];
    serde_json::from_slice(&done(folder, &args).stdout).unwrap()
}

fn manifest(folder: &Path, bundle: &str) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(bundle).join("manifest.json")).unwrap()).unwrap()
}

#[test]
fn each_kind_gives_the_plain_bundles_tokens() {
    for family in [Family::Llama, Family::Qwen3, Family::Gemma2] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        model(folder, family);
        done(folder, &compile("plain", &[]));
        let plain = run(folder, "plain");
        assert!(manifest(folder, "plain")["options"].get("kinds").is_none());
        let cases: [(&str, &[&str], Value); 9] = [
            ("by_row", &["--kv-cache", "rows"], json!({"kv-cache": "rows"})),
            ("rows", &["--rows-only", "8", "--splits", "mono"], json!({"rows-only": [8]})),
            ("rows_cut", &["--rows-only", "8", "--layers-per-split", "1"], json!({"rows-only": [8]})),
            ("head", &["--lmhead-ar", "1"], json!({"head": [1]})),
            ("from", &["--cache-update", "scatter-from"], json!({"cache": "scatter-from"})),
            (
                "each",
                &["--cache-update", "scatter-each", "--rows-only", "8"],
                json!({"rows-only": [8], "cache": "scatter-each"}),
            ),
            ("weight", &["--lmhead-weight-input"], json!({"head-weight-input": true})),
            ("embeds", &["--inputs-embeds", "--splits", "decoder-lmhead"], json!({"embeddings-input": true})),
            ("tiles", &["--native-kv", "--splits", "lut-decoder-lmhead"], json!({"native-kv": true})),
        ];
        for (bundle, flags, kinds) in cases {
            done(folder, &compile(bundle, flags));
            let reply = run(folder, bundle);
            assert_eq!(reply["tokens"], plain["tokens"], "{family:?} {bundle}");
            assert_eq!(manifest(folder, bundle)["options"]["kinds"], kinds, "{bundle}");
        }
        let executed = |bundle: &str| run(folder, bundle)["executed"].to_string();
        // All but the last token on rows alone; the head of one row behind the wide decoder.
        assert_eq!(executed("rows"), r#"[["ar8_cl64_1_of_1",3],["ar1_cl64_1_of_1",6]]"#);
        assert!(!executed("head").contains("ar8_cl64_2_of_2") && executed("head").contains("ar8_cl64_1_of_2"));
        let inputs = |bundle: &str| String::from_utf8(done(folder, &["inspect", bundle, "--tensors"]).stdout).unwrap();
        assert!(inputs("each").contains("cache_index"), "{}", inputs("each"));
        assert!(inputs("weight").contains("lm_head_weight"), "{}", inputs("weight"));
        assert!(inputs("embeds").contains("inputs_embeds") && !inputs("embeds").contains("input_ids"));
        // The doctor reads each of them without an error.
        for (bundle, ..) in [("by_row", ()), ("rows", ()), ("each", ()), ("weight", ()), ("embeds", ()), ("tiles", ())]
        {
            done(folder, &["doctor", bundle]);
        }
    }
}

#[test]
fn a_cache_in_blocks_compiles_and_runs_and_what_does_not_go_with_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    model(folder, Family::Qwen3);
    for (bundle, flags) in [("f16", [].as_slice()), ("blocks", &["--kv-cache", "q8_0", "--layers-per-split", "1"])] {
        let shared = ["compile", "model", "-o", bundle, "--ar", "1,8", "--cl", "64", "-q"];
        done(folder, &[&shared, flags].concat());
        run(folder, bundle);
        done(folder, &["doctor", bundle]);
    }
    assert_eq!(manifest(folder, "blocks")["options"]["kinds"], json!({"kv-cache": "q8_0"}));
    let tensors = String::from_utf8(done(folder, &["inspect", "blocks", "--tensors"]).stdout).unwrap();
    assert!(tensors.contains("past_key_scale_0_in") && tensors.contains("past_value_scale_1_out"), "{tensors}");
    // Narrow heads, and what keeps rows otherwise.
    TestModel::tiny(Family::Llama).write(&folder.join("model")).unwrap();
    for (flags, words) in [
        ([].as_slice(), "heads of whole blocks of 32 numbers"),
        (&["--native-kv"], "does not go together with a cache in tiles"),
        (&["--cache-update", "scatter-from"], "graphs that write new rows into the past"),
        (&["--pd-total-lens", "4"], "does not go together with fused graphs"),
        (&["--soc", "sm8650"], "embedded backend"),
    ] {
        // Keys by row are of any width.
        for cache in ["q8_0", "rows"].iter().filter(|&&cache| cache == "q8_0" || !flags.is_empty()) {
            let refused = genie(folder, &[&["compile", "model", "-o", "x", "--kv-cache", cache], flags].concat());
            let error = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success() && error.contains(words) && error.contains(cache), "{flags:?}: {error}");
        }
    }
}

#[test]
fn new_rows_of_a_cache_in_blocks_are_one_step_each_in_what_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    model(folder, Family::Qwen3);
    for flags in [["--precision", "f32"].as_slice(), &["--precision", "f16"], &["--rows-only", "8"]] {
        let shared =
            ["compile", "model", "-o", "blocks", "--ar", "1,8", "--cl", "64", "--kv-cache", "q8_0", "-q", "--force"];
        done(folder, &[&shared, flags].concat());
        let args = ["bench", "-c", "blocks", "--pp", "16", "--tg", "2", "--reps", "1", "--profile", "--json"];
        let lines = String::from_utf8(done(folder, &args).stdout).unwrap();
        let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let ops = |of: &str| -> Vec<(String, f64)> {
            let rows = rows.iter().filter(|row| row["test"] == "profile" && row["of"] == of);
            rows.map(|row| (row["op"].as_str().unwrap().to_owned(), row["count"].as_f64().unwrap())).collect()
        };
        // Keys and values of two layers; a prompt of 16 tokens takes two graphs at least.
        for (of, least) in [("tg2", 4.0), ("pp16", 8.0)] {
            let ops = ops(of);
            let count = |op: &str| ops.iter().find(|(name, _)| name == op).map_or(0.0, |(_, count)| *count);
            assert!(count("QuantiseBlocks") >= least, "{flags:?} {of}: {ops:?}");
            assert!(
                ["Abs", "ReduceMax", "Divide", "Maximum"].iter().all(|op| count(op) == 0.0),
                "{flags:?} {of}: {ops:?}"
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_flag() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    model(folder, Family::Llama);
    let cases: [(&[&str], &str); 5] = [
        (
            &["--rows-only", "4"],
            "AR-4 for graphs of cache rows only: expected one of the widths that are compiled, 1, 8",
        ),
        (&["--rows-only", "1,8"], "no graph gives logits"),
        (&["--lmhead-ar", "1", "--splits", "mono"], "layout `mono` has no split for it"),
        (&["--lmhead-ar", "8"], "the LM head's widths 8 leave steps of AR-1 without logits"),
        (&["--inputs-embeds", "--splits", "lut-decoder-lmhead"], "no split with the embedding table"),
    ];
    for (flags, want) in cases {
        let output = genie(folder, &compile("refused", flags));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(want), "{flags:?}: {text}");
        assert!(!folder.join("refused").exists());
    }
    // A file of the bundle that has gone is named.
    done(folder, &compile("weight", &["--lmhead-weight-input"]));
    std::fs::remove_file(folder.join("weight/lm_head_weight.raw")).unwrap();
    let text = String::from_utf8_lossy(&genie(folder, &["run", "-c", "weight", "-p", "a"]).stderr).into_owned();
    assert!(text.contains("lm_head_weight.raw") && text.contains("does not exist"), "{text}");
}

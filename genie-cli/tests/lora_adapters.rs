//! LoRA adapters from the command line: compiled into a bundle, applied by name, kept apart in saved sessions and prefix caches.

use std::path::{Path, PathBuf};
use std::process::Output;

use compiler::Family;
use compiler::testmodel::{TestAdapter, TestModel};
use serde_json::{Value, json};

use crate::program::{genie, stderr};

/// A model with two adapters, and what is made of them.
struct Place {
    folder: tempfile::TempDir,
    model: TestModel,
}

impl Place {
    fn new() -> Self {
        let (folder, model) = (tempfile::tempdir().unwrap(), TestModel::tiny(Family::Llama));
        let place = Self { folder, model };
        place.model.write(&place.at("model")).unwrap();
        let poet = TestAdapter::tiny(&place.model);
        poet.write(&place.model, &place.at("poet")).unwrap();
        TestAdapter { rank: 2, seed: 5, ..poet }.write(&place.model, &place.at("second")).unwrap();
        place
    }

    fn at(&self, part: &str) -> PathBuf {
        self.folder.path().join(part)
    }

    fn path(&self, part: &str) -> String {
        self.at(part).to_str().unwrap().to_owned()
    }

    fn genie(&self, args: &[&str]) -> Output {
        genie(self.folder.path(), args)
    }

    fn done(&self, args: &[&str]) -> Output {
        let output = self.genie(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        output
    }

    fn compile(&self, to: &str, flags: &[&str]) {
        let (model, out) = (self.path("model"), self.path(to));
        let args = ["compile", &model, "-o", &out, "--ar", "1,8", "--cl", "64", "--precision", "f32"];
        self.done(&[&args[..], flags].concat());
    }

    /// A bundle with both adapters.
    fn bundle(&self) {
        let (poet, second) = (self.path("poet"), format!("lawyer={}", self.path("second")));
        self.compile("bundle", &["--lora", &poet, "--lora", &second]);
    }

    fn run(&self, bundle: &str, flags: &[&str]) -> Value {
        let bundle = self.path(bundle);
        let args = ["run", "-c", &bundle, "--prompt-tokens", PROMPT, "-n", "12", "--greedy", "--json"];
        let output = self.done(&[&args[..], flags].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn tokens(&self, bundle: &str, flags: &[&str]) -> Value {
        self.run(bundle, flags)["tokens"].clone()
    }
}

const PROMPT: &str = "11,48,85,122,159,196,233,20,57,94";

fn refused(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
    stderr(output)
}

#[test]
fn one_bundle_is_the_model_and_each_of_its_merged_forms() {
    let place = Place::new();
    place.bundle();
    place.compile("plain", &[]);
    for merged in ["poet", "second"] {
        place.compile(&format!("merged_{merged}"), &["--lora-merge", &place.path(merged)]);
    }
    place.compile("both", &["--lora-merge", &place.path("poet"), "--lora-merge", &place.path("second")]);
    let plain = place.tokens("plain", &[]);
    assert_eq!(place.tokens("bundle", &[]), plain);
    assert_eq!(place.tokens("bundle", &["--lora", "poet:0"]), plain);
    let poet = place.tokens("merged_poet", &[]);
    let lawyer = place.tokens("merged_second", &[]);
    assert!(poet != plain && lawyer != plain && poet != lawyer);
    assert_eq!(place.tokens("bundle", &["--lora", "poet"]), poet);
    assert_eq!(place.tokens("bundle", &["--lora", "lawyer:1"]), lawyer);
    assert_eq!(place.tokens("bundle", &["--lora", "poet", "--lora", "lawyer"]), place.tokens("both", &[]));

    let listed = place.done(&["inspect", &place.path("bundle")]);
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains("  adapter poet: strength `lora_alpha_poet`\n"), "{listed}");
    assert!(listed.contains("  adapter lawyer: strength `lora_alpha_lawyer`\n"), "{listed}");
    let record = place.done(&["inspect", &place.path("bundle"), "--json"]);
    let record: Value = serde_json::from_slice(&record.stdout).unwrap();
    assert_eq!(record["adapters"][1], json!({"name": "lawyer", "alphas": ["lora_alpha_lawyer"], "bin_sections": []}));
    let manifest: Value = serde_json::from_slice(&std::fs::read(place.at("bundle/manifest.json")).unwrap()).unwrap();
    let adapter = &manifest["options"]["adapters"][0];
    assert_eq!(
        (&adapter["name"], &adapter["rank"], &adapter["alpha"]),
        (&json!("poet"), &json!(4), &json!("lora_alpha_poet"))
    );
    let manifest: Value = serde_json::from_slice(&std::fs::read(place.at("both/manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["options"]["merged"][1]["name"], "second");
    place.done(&["doctor", &place.path("bundle")]);
}

#[test]
fn names_that_the_bundle_does_not_have_are_refused() {
    let place = Place::new();
    place.bundle();
    place.compile("plain", &[]);
    let (bundle, plain) = (place.path("bundle"), place.path("plain"));
    let output = place.genie(&["run", "-c", &bundle, "-p", "a", "--lora", "painter"]);
    assert!(
        refused(&output).contains("no LoRA adapter `painter`: the bundle has `poet`, `lawyer`"),
        "{}",
        stderr(&output)
    );
    let output = place.genie(&["run", "-c", &plain, "-p", "a", "--lora", "poet", "--json"]);
    assert!(refused(&output).is_empty() || stderr(&output).contains("no adapters"), "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["error"]["code"], "invalid-argument", "{record}");
    let output = place.genie(&["run", "-c", &bundle, "-p", "a", "--lora", "poet:much"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("`poet:much` is no LoRA adapter"), "{}", stderr(&output));
}

#[test]
fn a_session_is_restored_under_its_own_adapters_only() {
    let place = Place::new();
    place.bundle();
    let saved = place.path("saved");
    let first = place.tokens("bundle", &["--lora", "poet:0.5", "--save", &saved]);
    let bundle = place.path("bundle");
    let next = ["run", "-c", &bundle, "--prompt-tokens", "3,4", "-n", "4", "--greedy", "--json", "--restore", &saved];
    let cases: [(&[&str], &str); 3] = [
        (&[], "saved with LoRA adapter `poet:0.5`, but none is applied"),
        (&["--lora", "lawyer"], "saved with LoRA adapter `poet:0.5`, but `lawyer:1` is applied"),
        (&["--lora", "poet"], "saved with LoRA adapter `poet:0.5`, but `poet:1` is applied"),
    ];
    for (flags, expected) in cases {
        let output = place.genie(&[&next[..], flags].concat());
        let said = format!("{}{}", stderr(&output), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.code() == Some(1) && said.contains(expected), "{flags:?}: {said}");
        assert!(said.contains("other-model"), "{said}");
    }
    let reply = place.done(&[&next[..], &["--lora", "poet:0.5"]].concat());
    let reply: Value = serde_json::from_slice(&reply.stdout).unwrap();
    assert_eq!(reply["input"][0], first.as_array().unwrap()[11]);

    // And the other way round.
    place.tokens("bundle", &["--save", &saved]);
    let output = place.genie(&[&next[..], &["--lora", "poet"]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("saved with no LoRA adapter, but `poet:1` is applied"), "{said}{}", stderr(&output));
}

#[test]
fn stored_prefixes_belong_to_their_adapters() {
    let place = Place::new();
    place.bundle();
    let prefixes = place.path("prefixes");
    let kept = ["--prefix-cache", &prefixes, "--prefix-min-tokens", "4"];
    for flags in [&[][..], &["--lora", "poet"], &["--lora", "poet:0.5"], &["--lora", "lawyer"]] {
        let plain = place.run("bundle", flags);
        let first = place.run("bundle", &[flags, &kept].concat());
        let second = place.run("bundle", &[flags, &kept].concat());
        assert_eq!((&first["tokens"], &second["tokens"]), (&plain["tokens"], &plain["tokens"]), "{flags:?}");
        assert_eq!(first["kpis"]["num-restored-tokens"], 0, "{flags:?}: other rows than its own were restored");
        assert_eq!(second["kpis"]["num-restored-tokens"], 10, "{flags:?}");
    }
}

#[test]
fn the_profile_has_the_switching_time() {
    let place = Place::new();
    place.bundle();
    let profile = place.path("profile.json");
    place.tokens("bundle", &["--lora", "poet", "--profile", &profile]);
    let profile: Value = serde_json::from_slice(&std::fs::read(profile).unwrap()).unwrap();
    let events = profile["components"][0]["events"].as_array().unwrap();
    let event = events.iter().find(|event| event["type"] == "GenieDialog_applyLora").unwrap();
    assert_eq!(event["lora-adapter-switching-time"]["unit"], "us");
    assert!(event["lora-adapter-switching-time"]["value"].is_u64(), "{event}");
}

/// Changes the configuration of an adapter.
fn edit(dir: &Path, change: impl FnOnce(&mut Value)) {
    let path = dir.join("adapter_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut config);
    std::fs::write(&path, config.to_string()).unwrap();
}

/// Replaces a text in the header of a safetensors file by one of the same length.
fn rename(dir: &Path, from: &str, to: &str) {
    assert_eq!(from.len(), to.len());
    let path = dir.join("adapter_model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let places: Vec<usize> =
        (0..bytes.len() - from.len()).filter(|&at| bytes[at..].starts_with(from.as_bytes())).collect();
    assert!(!places.is_empty(), "no `{from}` in the header");
    places.iter().for_each(|&at| bytes[at..at + to.len()].copy_from_slice(to.as_bytes()));
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn adapters_that_are_more_than_low_rank_matrices_are_refused_by_name() {
    type Case = (fn(&Path), &'static [&'static str]);
    let cases: &[Case] = &[
        (|d| edit(d, |c| c["use_dora"] = json!(true)), &["unsupported `use_dora`", "found true"]),
        (|d| edit(d, |c| c["modules_to_save"] = json!(["lm_head"])), &["unsupported `modules_to_save`", "lm_head"]),
        (|d| edit(d, |c| c["bias"] = json!("all")), &["unsupported `bias`", "`all`", "`none`"]),
        (|d| edit(d, |c| c["peft_type"] = json!("LOHA")), &["unsupported `peft_type`", "`LOHA`"]),
        (|d| edit(d, |c| c["fan_in_fan_out"] = json!(true)), &["unsupported `fan_in_fan_out`"]),
        (|d| edit(d, |c| c["init_lora_weights"] = json!("pissa")), &["unsupported `init_lora_weights`", "pissa"]),
        (|d| edit(d, |c| c["alora_invocation_tokens"] = json!([1, 2])), &["unsupported `alora_invocation_tokens`"]),
        (
            |d| edit(d, |c| c["rank_pattern"] = json!({"^model.*q_proj": 8})),
            &["unsupported `rank_pattern`", "no patterns"],
        ),
        (|d| edit(d, |c| c["r"] = json!(8)), &["lora_A", "found shape [4, ", "expected [8, "]),
        (|d| edit(d, |c| c["r"] = json!("4")), &["bad `r`", "\"4\""]),
        (|d| edit(d, |c| c["lora_alpha"] = json!(-1)), &["bad `lora_alpha`"]),
        (|d| edit(d, |c| c["target_modules"] = json!(["q_proj"])), &["its module is not in `target_modules`"]),
        (|d| rename(d, "q_proj", "x_proj"), &["tensor `base_model.model.model.layers.", "expected a projection"]),
        (|d| rename(d, "layers.1.", "layers.7."), &["expected a projection of one of 2 decoder layers"]),
        (|d| rename(d, "layers.1.mlp.up_proj.lora_B", "layers.1.mlp.up_proj.lora_C"), &["lora_"]),
        (|d| rename(d, "layers.1.mlp.up_proj.lora_B.weight", "layers.1.mlp.up_proj.lora_A.wxight"), &["lora_"]),
        (|d| rename(d, "\"F32\"", "\"F64\""), &["safetensors"]),
        (|d| std::fs::write(d.join("adapter_config.json"), "{").unwrap(), &["cannot be read as JSON"]),
        (|d| std::fs::remove_file(d.join("adapter_model.safetensors")).unwrap(), &["has no adapter_model.safetensors"]),
    ];
    for (i, (damage, expected)) in cases.iter().enumerate() {
        let place = Place::new();
        damage(&place.at("poet"));
        for flag in ["--lora", "--lora-merge"] {
            let (model, out, adapter) = (place.path("model"), place.path("out"), place.path("poet"));
            let output = place.genie(&["compile", &model, "-o", &out, flag, &adapter]);
            let said = refused(&output);
            assert!(expected.iter().all(|text| said.contains(text)), "case {i}, {flag}: {said}");
            assert!(!place.at("out").exists(), "case {i}, {flag}");
        }
    }
}

#[test]
fn ranks_and_strengths_of_single_modules_are_used() {
    let place = Place::new();
    place.compile("out_a", &["--lora-merge", &place.path("poet")]);
    // Twice the scaling of one module, and half of it by a pattern on it.
    edit(&place.at("poet"), |c| {
        c["lora_alpha"] = json!(16);
        c["alpha_pattern"] = json!({"q_proj": 8, "k_proj": 8, "v_proj": 8, "o_proj": 8, "gate_proj": 8, "mlp.up_proj": 8,
            "model.layers.0.mlp.down_proj": 8, "model.layers.1.mlp.down_proj": 8});
        c["rank_pattern"] = json!({"q_proj": 4});
    });
    place.compile("out_b", &["--lora-merge", &place.path("poet")]);
    let logits = |bundle: &str| place.tokens(bundle, &[]);
    assert_eq!(logits("out_a"), logits("out_b"));
    let hash = |bundle: &str| {
        let manifest: Value =
            serde_json::from_slice(&std::fs::read(place.at(bundle).join("manifest.json")).unwrap()).unwrap();
        let files = manifest["files"].as_array().unwrap().clone();
        files.into_iter().find(|file| file["path"] == "model.bin").unwrap()["sha256"].clone()
    };
    assert_eq!(hash("out_a"), hash("out_b"), "the same weights bit for bit");
}

/// Fused graphs have no inputs for strengths: an adapter for good is all they can have.
#[test]
fn fused_graphs_take_merged_adapters_alone() {
    let place = Place::new();
    let (model, poet) = (place.path("model"), place.path("poet"));
    let fused = ["--pd-total-lens", "4,8", "--pd-only"];
    let args = ["compile", &model, "-o", "x", "--cl", "64", "--lora", &poet];
    let output = place.genie(&[&args[..], &fused].concat());
    let text = refused(&output);
    assert!(text.contains("fused graphs") && text.contains("LoRA adapters that switch at run time"), "{text}");
    assert!(text.contains("hint:") && !place.at("x").exists(), "{text}");

    place.compile("merged", &["--lora-merge", &poet]);
    place.compile("fused", &[&fused[..], &["--lora-merge", &poet]].concat());
    assert_eq!(place.tokens("fused", &[]), place.tokens("merged", &[]));
    let bundle = place.path("fused");
    let output = place.genie(&["run", "-c", &bundle, "--prompt-tokens", PROMPT, "-n", "2", "--lora", "poet"]);
    let text = refused(&output);
    assert!(
        text.contains("the bundle has no adapters") && text.contains("hint:") && text.contains("`--lora-merge`"),
        "{text}"
    );
}

#[test]
fn adapters_need_names_of_their_own() {
    let place = Place::new();
    let (model, out, poet) = (place.path("model"), place.path("out"), place.path("poet"));
    let named = |name: &str| format!("{name}={poet}");
    let cases: &[(&[String], &str)] = &[
        (&[poet.clone(), poet.clone()], "LoRA adapters `poet` and `poet`: their names are too alike"),
        (&[named("a-b"), named("a_b")], "LoRA adapters `a-b` and `a_b`: their names are too alike"),
        (&[named("a:b")], "`a:b` cannot be the name of a LoRA adapter"),
        (&[place.path("nowhere")], "nowhere` has no adapter_config.json"),
    ];
    for (adapters, expected) in cases {
        let flags: Vec<&str> = adapters.iter().flat_map(|adapter| ["--lora", adapter.as_str()]).collect();
        let output = place.genie(&[&["compile", &model, "-o", &out][..], &flags].concat());
        assert!(refused(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn perplexity_and_verify_are_those_of_the_model_with_its_adapters() {
    let place = Place::new();
    place.bundle();
    place.compile("merged_poet", &["--lora-merge", &place.path("poet")]);
    place.compile("plain", &[]);
    std::fs::write(place.at("text.txt"), "the sea is deep and the sky is wide; who sails it sees no end. ".repeat(4))
        .unwrap();
    let perplexity = |bundle: &str, flags: &[&str]| {
        let (text, bundle) = (place.path("text.txt"), place.path(bundle));
        let args = ["perplexity", &text, "-c", &bundle, "--window", "48", "--json"];
        let output = place.done(&[&args[..], flags].concat());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["nats_per_token"].as_f64().unwrap()
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-4 * b.abs();
    let (plain, poet) = (perplexity("plain", &[]), perplexity("merged_poet", &[]));
    assert!((plain - poet).abs() > 0.01, "the adapter changes something: {plain}, {poet}");
    assert!(near(perplexity("bundle", &["--lora", "poet"]), poet));
    assert!(near(perplexity("bundle", &[]), plain));
    assert!(near(perplexity("bundle", &["--lora", "poet:0"]), plain));
    let bundle = place.path("bundle");
    let verified = place.done(&["verify", &bundle, "-n", "5", "--lengths", "3,9", "--lora", "poet:0.5", "--json"]);
    let lines: Vec<Value> =
        String::from_utf8(verified.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line["ok"] == true), "{lines:?}");
    for command in [["perplexity", "text.txt", "-c", &bundle], ["verify", &bundle, "-n", "2"]] {
        let output = place.genie(&[&command[..], &["--lora", "painter"]].concat());
        assert!(refused(&output).contains("no LoRA adapter `painter`"), "{}", stderr(&output));
    }
}

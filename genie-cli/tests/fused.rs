//! Bundles with fused graphs at the command line: every command on one that has no others, and what the config's `pd_fusion.enable` chooses.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::{genie, stderr as said};

fn printed(folder: &Path, args: &[&str]) -> String {
    let output = genie(folder, args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// What it says on standard error when it refuses.
fn refused(folder: &Path, args: &[&str]) -> String {
    let output = genie(folder, args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
    said(&output).to_owned()
}

const PLAIN: &[&str] = &["--ar", "1,8", "--cl", "64", "--precision", "f32", "-q"];

/// A folder with `plain`, `fused` (no others) and `both`.
fn bundles() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(&folder.path().join("model")).unwrap();
    let compile = |bundle, flags: &[&str]| {
        printed(folder.path(), &[&["compile", "model", "-o", bundle], PLAIN, flags].concat());
    };
    compile("plain", &[]);
    compile("fused", &["--pd-total-lens", "4,8", "--pd-only"]);
    compile("both", &["--pd-total-lens", "4,8"]);
    folder
}

/// Caches of 8 bits, with the scales of a run in floats: whoever writes their rows, a bundle has the tokens of plain graphs with such caches.
#[test]
fn caches_of_8_bits_are_updated_in_three_ways() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    TestModel::tiny(Family::Llama).write(&folder.join("model")).unwrap();
    let compile = |bundle: &str, flags: &[&str]| {
        let flags = [&["compile", "model", "-o", bundle, "--kv-cache", "u8"], PLAIN, flags].concat();
        printed(folder, &flags);
    };
    std::fs::write(folder.join("text"), "To be, or not to be, that is the question.").unwrap();
    compile("plain", &["--kv-text", "text"]);
    let wanted = reply(folder, "plain")["tokens"].clone();
    for update in ["host", "graph", "op"] {
        let flags = ["--kv-text", "text", "--pd-total-lens", "4,8", "--pd-only", "--pd-kv-update", update];
        compile(update, &flags);
        assert_eq!(reply(folder, update)["tokens"], wanted, "{update}");
        for line in printed(folder, &["verify", update, "-n", "6", "--json"]).lines() {
            assert_eq!(serde_json::from_str::<Value>(line).unwrap()["ok"], true, "{update}: {line}");
        }
        // Where input and output cannot be one buffer, whole caches are written aside: the same tokens, and it is said.
        let config = folder.join(update).join("genie_config.json");
        let mut aside: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
        aside["dialog"]["engine"]["pd_fusion"]["in_place"] = false.into();
        std::fs::write(folder.join(update).join("aside.json"), aside.to_string()).unwrap();
        let aside = format!("{update}/aside.json");
        assert_eq!(reply(folder, &aside)["tokens"], wanted, "{aside}");
        let bytes = |bundle: &str| {
            let inspected = printed(folder, &["inspect", bundle, "--json"]);
            serde_json::from_str::<Value>(&inspected).unwrap()["fused"]["bytes_written_aside"].as_u64().unwrap()
        };
        assert_eq!((bytes(update), bytes(&aside) > 0), (0, update != "host"), "{update}");
        let words = printed(folder, &["inspect", &aside]);
        assert_eq!(words.contains("of caches aside in each step"), update != "host", "{words}");
    }
    // The bundle of floats that gave the scales is gone.
    let mut left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    // Stamps of files are kept once their times are settled, which takes until the next tick of the file system.
    left.retain(|name| name != "cache");
    left.sort();
    assert_eq!(left, ["graph", "host", "model", "op", "plain", "text"]);
}

#[test]
fn caches_that_fused_graphs_cannot_have_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    TestModel { head_dim: 32, ..TestModel::tiny(Family::Llama) }.write(&folder.join("model")).unwrap();
    std::fs::write(folder.join("empty"), " \n").unwrap();
    for (flags, what) in [
        (
            &["--kv-cache", "q8_0", "--pd-total-lens", "8"][..],
            "does not go together with fused graphs: they take type u8",
        ),
        (&["--kv-cache", "u8", "--native-kv"], "a cache of type u8 does not go together with a cache in tiles"),
        (&["--kv-text", "text"], "`--kv-text` is for `--kv-cache u8`"),
        (&["--kv-cache", "u8", "--kv-text", "none"], "cannot read the text `none`"),
        (&["--kv-cache", "u8", "--kv-text", "empty"], "the file of `--kv-text` has no text"),
    ] {
        let said = refused(folder, &[&["compile", "model", "-o", "bundle"], PLAIN, flags].concat());
        assert!(said.contains(what), "{flags:?}: {said}");
    }
    assert!(!folder.join("bundle").exists());
}

fn set_enable(folder: &Path, bundle: &str, enable: Option<bool>) {
    let path = folder.join(bundle).join("genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let block = config["dialog"]["engine"]
        .as_object_mut()
        .unwrap()
        .entry("pd_fusion")
        .or_insert_with(|| Value::Object(Default::default()));
    match enable {
        Some(enable) => block["enable"] = enable.into(),
        None => drop(block.as_object_mut().unwrap().remove("enable")),
    }
    std::fs::write(&path, config.to_string()).unwrap();
}

fn reply(folder: &Path, bundle: &str) -> Value {
    let args =
        ["run", "-c", bundle, "--prompt-tokens", "3,5,7,11,13,17,19,23,29", "-n", "6", "--greedy", "--json", "--raw"];
    serde_json::from_str(&printed(folder, &args)).unwrap()
}

fn graphs(reply: &Value) -> Vec<String> {
    reply["executed"].as_array().unwrap().iter().map(|run| run[0].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_command_takes_fused_graphs_or_says_why_not() {
    let folder = bundles();
    let folder = folder.path();
    assert_eq!(reply(folder, "fused")["tokens"], reply(folder, "plain")["tokens"]);

    let report = genie(folder, &["doctor", "fused"]);
    let text = String::from_utf8_lossy(&report.stdout).into_owned() + said(&report);
    assert!(report.status.success() && text.contains("fused-graphs") && text.contains("model.0.pd.s8"), "{text}");

    let inspected: Value = serde_json::from_str(&printed(folder, &["inspect", "fused", "--json"])).unwrap();
    assert_eq!(inspected["fused"]["graphs"][1], serde_json::json!({"graph": "model.0.pd.s8", "rows": 8, "past": 56}));
    let inspected = printed(folder, &["inspect", "fused"]);
    assert!(inspected.contains("up to 7 rows of a prompt and a decode row, past 56"), "{inspected}");

    let verified = printed(folder, &["verify", "fused", "-n", "12", "--json"]);
    for line in verified.lines() {
        let outcome: Value = serde_json::from_str(line).unwrap();
        assert_eq!(outcome["ok"], true, "{outcome}");
        // Where there is a decode row, it has run beside a chunk.
        let executed = outcome["executed"].to_string();
        assert!(outcome["generated"].as_u64() < Some(5) || executed.contains("model.0.pd.s4"), "{outcome}");
    }
    assert!(verified.lines().count() > 4);

    std::fs::write(folder.join("text"), "a b c d e f g h i j k l m n o p q r s t").unwrap();
    let perplexity = |bundle| -> Value {
        serde_json::from_str(&printed(folder, &["perplexity", bundle, "text", "--window", "16", "--json"])).unwrap()
    };
    let (fused, plain) = (perplexity("fused"), perplexity("plain"));
    assert_eq!(fused["tokens"], plain["tokens"]);
    let nats = |report: &Value| report["nats_per_token"].as_f64().unwrap();
    assert!((nats(&fused) - nats(&plain)).abs() < 1e-4, "{fused} beside {plain}");

    let benched = printed(folder, &["bench", "fused", "--pp", "9", "--tg", "3", "--reps", "1", "--json", "--profile"]);
    let tests: Vec<Value> = benched.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(tests.iter().any(|test| test["policy"] == "fused"), "{benched}");
    assert!(tests.iter().any(|test| test["test"] == "profile"), "{benched}");

    let flags = ["--serve", "--requests", "3", "--clients", "3", "--policies", "one,batched", "--reps", "1", "--json"];
    let served = printed(folder, &[&["bench", "fused"], &flags[..]].concat());
    let lines: Vec<Value> = served.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let widths: Vec<_> = lines.iter().filter_map(|line| line["width"].as_u64()).collect();
    assert_eq!(widths, [1, 4, 8], "{served}");
    let policies: Vec<_> = lines.iter().filter(|line| line["test"] == "serve").collect();
    assert!(policies.len() == 2 && policies.iter().all(|line| line["failed"] == 0), "{served}");

    let planned = printed(folder, &["plan", "-c", "fused", "9", "1", "--json"]);
    let plans: Vec<Value> = planned.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(plans[0]["steps"][0]["graph"], "model.0.pd.s8");
    assert_eq!(plans[0]["steps"].as_array().unwrap().len(), 2);
    assert_eq!(plans[1]["steps"][0]["graph"], "model.0.s1");
    let too_long = refused(folder, &["plan", "-c", "fused", "64"]);
    assert!(too_long.contains("the fused graphs hold 63"), "{too_long}");
}

/// `--context-size` counts, not the config's: up to what the graphs hold.
#[test]
fn a_longer_context_than_the_configs_is_used() {
    let folder = bundles();
    let folder = folder.path();
    let path = folder.join("fused/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["dialog"]["context"]["size"] = 12.into();
    std::fs::write(&path, config.to_string()).unwrap();
    let generated = |bundle: &str, more: &[&str]| {
        let prompt = ["run", "-c", bundle, "--prompt-tokens", "3,5,7,11,13,17,19,23,29", "-n", "9"];
        let args = [&prompt[..], &["--greedy", "--json", "--raw", "--ignore-eos"], more].concat();
        serde_json::from_str::<Value>(&printed(folder, &args)).unwrap()["tokens"].clone()
    };
    let (short, long) = (generated("fused", &[]), generated("fused", &["--context-size", "32"]));
    assert!(short.as_array().unwrap().len() < 9, "{short}");
    assert_eq!(long, generated("plain", &[]));
    assert_eq!(long.as_array().unwrap().len(), 9, "{long}");
}

#[test]
fn what_fused_graphs_cannot_do_is_refused_by_name_with_a_hint() {
    let folder = bundles();
    let folder = folder.path();
    for (args, what) in [
        (&["bench", "fused", "--calibrate"][..], "a calibration takes plain ones"),
        (&["make-prefix", "-c", "fused", "--tokens", "5,6"], "there is no plain one"),
        (&["bench", "fused", "--policy", "genie"], "no form with a planner policy"),
        (&["plan", "-c", "fused", "9", "--policy", "genie"], "no form with a planner policy"),
        (&["run", "-c", "fused", "-p", "a", "--long-context", "shift"], "no form with a longer context"),
        (&["verify", "fused", "--lora", "x"], "no form with LoRA adapters"),
    ] {
        let said = refused(folder, args);
        assert!(said.contains(what) && said.contains("hint:"), "{args:?}: {said}");
    }
}

#[test]
fn the_config_chooses_between_plain_and_fused_graphs() {
    let folder = bundles();
    let folder = folder.path();
    let fused = |reply: &Value| graphs(reply).iter().all(|name| name.starts_with("model.0."));
    let plain = |reply: &Value| graphs(reply).iter().all(|name| name.starts_with("ar"));
    let absent = reply(folder, "both");
    assert!(plain(&absent), "{absent}");
    let bytes = |path: &str| std::fs::metadata(folder.join(path)).unwrap().len();
    let (with, without, weights) =
        (bytes("both/model.bin"), bytes("plain/model.bin"), bytes("model/model.safetensors"));
    assert!(with < without + weights / 2, "{with} beside {without}: the weights of both are there once, {weights}");
    set_enable(folder, "both", Some(true));
    let on = reply(folder, "both");
    assert!(fused(&on), "{on}");
    assert_eq!(on["tokens"], absent["tokens"]);
    set_enable(folder, "both", Some(false));
    assert!(plain(&reply(folder, "both")));

    set_enable(folder, "fused", None);
    assert!(fused(&reply(folder, "fused")));
    set_enable(folder, "fused", Some(false));
    let said = refused(folder, &["run", "-c", "fused", "-p", "a"]);
    assert!(said.contains("`pd_fusion.enable` is false") && said.contains("hint:"), "{said}");
    let report = genie(folder, &["doctor", "fused"]);
    assert_eq!(report.status.code(), Some(1), "{}", said_all(&report));
    assert!(said_all(&report).contains("fused-off"), "{}", said_all(&report));

    set_enable(folder, "plain", Some(true));
    let said = refused(folder, &["run", "-c", "plain", "-p", "a"]);
    assert!(said.contains("has no fused graphs") && said.contains("hint:"), "{said}");
    assert!(said_all(&genie(folder, &["doctor", "plain"])).contains("fused-missing"));
}

/// Where the plain graphs are in several files, the fused ones have their own.
#[test]
fn fused_graphs_beside_splits_run_from_a_file_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    TestModel::tiny(Family::Llama).write(&folder.join("model")).unwrap();
    let flags = ["--splits", "decoder-lmhead", "--pd-total-lens", "4,8"];
    printed(folder, &[&["compile", "model", "-o", "split"], PLAIN, &flags].concat());
    assert!(folder.join("split/pd.bin").exists());
    let plain = reply(folder, "split");
    set_enable(folder, "split", Some(true));
    let fused = reply(folder, "split");
    assert!(graphs(&fused).iter().all(|name| name.starts_with("model.0.")), "{fused}");
    assert_eq!(fused["tokens"], plain["tokens"]);
}

fn said_all(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + said(output)
}

/// Fault 3: an end token as a prompt's first token was not seen, and the request decoded on.
#[test]
fn an_end_token_as_the_first_token_ends_the_request() {
    let folder = bundles();
    let folder = folder.path();
    let first = reply(folder, "fused")["tokens"][0].clone();
    let path = folder.join("fused/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["dialog"]["context"]["eos-token"] = first;
    std::fs::write(&path, config.to_string()).unwrap();
    let ended = reply(folder, "fused");
    let ran = graphs(&ended);
    assert!(ran.iter().all(|name| name.contains(".pd.")), "no decode row ran: {ended}");
    assert!(ended["tokens"].as_array().unwrap().len() <= 1, "{ended}");
}

/// Fault 9: only greedy. The sampler is the dialog's: the same seed draws the same tokens on both forms of graphs.
#[test]
fn sampled_tokens_are_those_of_the_plain_graphs() {
    let folder = bundles();
    let folder = folder.path();
    let sampled = |bundle| {
        let flags = ["--prompt-tokens", "3,5,7,11,13", "-n", "16", "--temp", "0.9", "--seed", "7", "--json", "--raw"];
        let text = printed(folder, &[&["run", "-c", bundle], &flags[..]].concat());
        serde_json::from_str::<Value>(&text).unwrap()["tokens"].clone()
    };
    assert_eq!(sampled("fused"), sampled("plain"));
}

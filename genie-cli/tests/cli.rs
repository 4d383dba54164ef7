//! The program as a user runs it: stdout, stderr and exit codes.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::{stderr, stdout, with_cache as run, with_own_cache};

/// `genie` with its own cache folder, so that tests do not share one.
fn genie(cache: &Path) -> Command {
    with_own_cache(cache, &[])
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {}", stderr(output)))
}

#[test]
fn the_demo_compiles_once_then_runs() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["run", "-p", "ROMEO:", "-n", "20", "--seed", "7"];
    let first = run(cache.path(), &args);
    assert_eq!(code(&first), 0, "{}", stderr(&first));
    assert!(stderr(&first).contains("compiling the demo model"), "{}", stderr(&first));
    let second = run(cache.path(), &args);
    assert_eq!(stderr(&second), "");
    assert_eq!(stdout(&second), stdout(&first), "the same seed generates the same text");
    assert!(stdout(&second).len() > 20, "{}", stdout(&second));
}

#[test]
fn json_is_one_line_with_everything() {
    let cache = tempfile::tempdir().unwrap();
    let output = run(cache.path(), &["run", "--prompt-tokens", "12,7,9", "-n", "5", "--greedy", "--json", "--stats"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let lines: Vec<&str> = stdout(&output).lines().collect();
    assert_eq!(lines.len(), 1, "{}", stdout(&output));
    let record: Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(record["tokens"].as_array().unwrap().len(), 5);
    assert_eq!(record["stop"], "max-num-tokens");
    assert_eq!(record["input"], serde_json::json!([0, 12, 7, 9]), "BOS goes first");
    // A step of 32 rows takes longer than four of one.
    let step = |n: usize| [("ar1_cl256_1_of_2".to_owned(), n), ("ar1_cl256_2_of_2".to_owned(), 1)];
    let executed: Vec<_> = [4, 1, 1, 1, 1].into_iter().flat_map(step).collect();
    assert_eq!(record["executed"], serde_json::json!(executed));
    assert!(record["kpis"]["time-to-first-token"].as_u64().unwrap() > 0);
    assert!(stderr(&output).contains("first token"));
}

#[test]
fn a_log_filter_that_is_none_is_named_and_ignored() {
    let cache = tempfile::tempdir().unwrap();
    let plan = |filter: &str| {
        let output =
            genie(cache.path()).env("GENIE_LOG", filter).args(["plan", "5", "--ar", "1,8", "--cl", "64"]).output();
        output.unwrap()
    };
    let plain = plan("");
    assert_eq!((code(&plain), stderr(&plain)), (0, ""));
    for filter in ["engine=loud", "a=b=c"] {
        let output = plan(filter);
        assert_eq!((code(&output), stdout(&output)), (0, stdout(&plain)), "{filter}");
        let warning = format!("warning: `GENIE_LOG={filter}` is no filter (");
        assert!(stderr(&output).starts_with(&warning), "{filter}: {}", stderr(&output));
    }
    assert_eq!(stderr(&plan("engine=warn,kvmanager=trace")), "", "a filter is not warned of");
}

#[test]
fn variables_of_flags_that_have_none_are_named() {
    let cache = tempfile::tempdir().unwrap();
    let said = |name: &str, flags: &[&str]| {
        let args = [&["plan", "5", "--ar", "1,8", "--cl", "64"], flags].concat();
        let output = genie(cache.path()).env(name, "3").args(args).output().unwrap();
        assert_eq!(code(&output), 0, "{name}: {}", stderr(&output));
        stderr(&output).to_owned()
    };
    let said_of = |name: &str| said(name, &[]);
    assert_eq!(said_of("GENIE_CONTEXT_TOKENS"), "", "no flag of that name");
    let warning = "warning: `GENIE_N_PAST` is not read: `--n-past` is set on the command line alone\n";
    assert_eq!(said_of("GENIE_N_PAST"), warning);
    assert_eq!(said("GENIE_N_PAST", &["-q"]), "");
    for name in ["GENIE_PORT", "GENIE_MODELS", "GENIE_THREADS"] {
        assert_eq!(said_of(name), "", "no flag of `plan`, or read");
    }
}

/// Linux takes any bytes as a file's name: outputs that name it stay text, and what is made there is found again.
#[cfg(unix)]
#[test]
fn a_folder_whose_name_is_no_text_is_one_like_others() {
    use std::os::unix::ffi::OsStrExt;
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    TestModel::tiny(Family::Llama).write(&folder.join("model")).unwrap();
    let in_folder = |args: &[&str], paths: &[&str]| {
        let output = genie(&place.path().join("cache"))
            .args(args)
            .args(paths.iter().map(|path| folder.join(path)))
            .output()
            .unwrap();
        let record: Value = serde_json::from_str(stdout(&output).lines().last().unwrap_or_default())
            .unwrap_or_else(|e| panic!("{args:?}: {e}: {}, {}", stdout(&output), stderr(&output)));
        (code(&output), record)
    };
    let compile = ["compile", "--json", "--ar", "1,8", "--cl", "32", "-o"];
    let (made, record) = in_folder(&compile, &["bundle", "model"]);
    assert_eq!(made, 0, "{record}");
    assert!(record["config"].as_str().unwrap().ends_with("genie_config.json"), "{record}");
    let (ran, record) = in_folder(&["run", "--json", "--prompt-tokens", "1,2,3", "-n", "4", "-c"], &["bundle"]);
    assert_eq!((ran, record["tokens"].as_array().map(Vec::len)), (0, Some(4)), "{record}");
    let (inspected, record) = in_folder(&["inspect", "--json"], &["bundle"]);
    assert_eq!(inspected, 0, "{record}");
    let (missing, record) = in_folder(&["run", "--json", "-p", "x", "-c"], &["nowhere"]);
    assert_eq!((missing, &record["error"]["code"]), (1, &serde_json::json!("not-found")), "{record}");
}

#[test]
fn a_prompt_comes_from_a_file_or_from_stdin() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("prompt.txt");
    std::fs::write(&file, "JULIET:").unwrap();
    let by_file = run(cache.path(), &["run", "-f", file.to_str().unwrap(), "-n", "8", "--greedy"]);
    let by_flag = run(cache.path(), &["run", "-p", "JULIET:", "-n", "8", "--greedy"]);
    let mut child = genie(cache.path());
    let mut child = child
        .args(["run", "-f", "-", "-n", "8", "--greedy"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"JULIET:").unwrap();
    let by_stdin = child.wait_with_output().unwrap();
    assert_eq!(stdout(&by_file), stdout(&by_flag));
    assert_eq!(stdout(&by_stdin), stdout(&by_flag));
}

#[test]
fn a_reader_that_goes_away_is_success() {
    let cache = tempfile::tempdir().unwrap();
    let mut child = genie(cache.path());
    let mut child = child.args(["run", "-p", "ROMEO:", "-n", "300", "-q"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn plans_are_tables_or_json() {
    let cache = tempfile::tempdir().unwrap();
    let output =
        run(cache.path(), &["plan", "50", "200", "--ar", "1,8,64", "--cl", "512", "--policy", "genie", "--json"]);
    let steps: Vec<Vec<(String, u64)>> = stdout(&output)
        .lines()
        .map(|line| {
            let plan: Value = serde_json::from_str(line).unwrap();
            let steps = plan["steps"].as_array().unwrap().clone();
            steps.iter().map(|s| (s["graph"].as_str().unwrap().to_owned(), s["n_process"].as_u64().unwrap())).collect()
        })
        .collect();
    let step = |graph: &str, n| (graph.to_owned(), n);
    assert_eq!(steps[0], [step("ar64_cl512", 50)]);
    assert_eq!(
        steps[1],
        [step("ar64_cl512", 64), step("ar64_cl512", 64), step("ar64_cl512", 64), step("ar8_cl512", 8)]
    );
    let table = run(cache.path(), &["plan", "1", "--n-past", "50", "--ar", "1,8,64", "--cl", "512"]);
    assert_eq!(stdout(&table).lines().filter(|l| l.contains("1 token, policy")).count(), 4, "{}", stdout(&table));
    let too_long = run(cache.path(), &["plan", "513", "--ar", "1,8,64", "--cl", "512", "--policy", "genie"]);
    assert_eq!(code(&too_long), 1);
    assert!(stderr(&too_long).contains("0 past + 513 new tokens > 512"), "{}", stderr(&too_long));
}

#[test]
fn perplexity_knows_a_likely_text_from_an_unlikely_one() {
    let cache = tempfile::tempdir().unwrap();
    let output_of = |text: &str, extra: &[&str]| {
        let file = cache.path().join("text.txt");
        std::fs::write(&file, text).unwrap();
        let output = run(cache.path(), &[&["perplexity", file.to_str().unwrap(), "-q"], extra].concat());
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        stdout(&output).to_owned()
    };
    let measure = |text: &str, extra: &[&str]| -> Value {
        serde_json::from_str(&output_of(text, &[extra, &["--json"]].concat())).unwrap()
    };
    let verse = "ROMEO:\nO, she doth teach the torches to burn bright!\n";
    let likely = measure(verse, &[]);
    let (nats, tokens) = (likely["nats_per_token"].as_f64().unwrap(), likely["tokens"].as_u64().unwrap());
    assert!((1.0..5.5).contains(&nats), "{likely}");
    assert!((nats.exp() / likely["perplexity"].as_f64().unwrap() - 1.0).abs() < 1e-9, "{likely}");
    assert_eq!((&likely["window"], &likely["windows"]), (&Value::from(512), &Value::from(1)));
    let unlikely: String = verse.chars().rev().collect();
    assert!(measure(&unlikely, &[])["nats_per_token"].as_f64().unwrap() > nats + 1.0);

    // Shorter windows have less context; all tokens are predicted, as this model has a BOS token.
    let short = measure(verse, &["--window", "4"]);
    assert_eq!((short["tokens"].as_u64(), short["windows"].as_u64()), (Some(tokens), Some(tokens.div_ceil(4))));
    assert!(short["nats_per_token"].as_f64().unwrap() > nats, "{short}");
    assert_eq!(measure(verse, &["--window", "4", "--max-windows", "2"])["tokens"], 8);
    assert!(output_of(verse, &[]).ends_with(&format!("perplexity  {:.3}\n", nats.exp())));

    let empty = cache.path().join("empty.txt");
    std::fs::write(&empty, "").unwrap();
    let (empty, missing) = (empty.to_str().unwrap(), cache.path().join("missing.txt"));
    // Of one token, with BOS before it, llama.cpp's chunks predict none.
    let one = cache.path().join("one.txt");
    std::fs::write(&one, "a").unwrap();
    for (args, want) in [
        (&["perplexity", empty][..], "error: nothing to predict in 0 tokens"),
        (&["perplexity", one.to_str().unwrap(), "--chunks", "4"], "error: nothing to predict in 2 tokens"),
        (&["perplexity", empty, "--window", "513"], "the context holds 512 tokens"),
        (&["perplexity", empty, "--window", "0"], "hint: choose 1 to 512 tokens"),
        (&["perplexity", missing.to_str().unwrap()], "error: cannot read the text `"),
    ] {
        let output = run(cache.path(), args);
        assert_eq!((code(&output), stdout(&output)), (1, ""));
        assert!(stderr(&output).contains(want), "{}", stderr(&output));
    }
}

#[test]
fn mistakes_end_in_one_error_and_a_hint() {
    let cache = tempfile::tempdir().unwrap();
    let none = run(cache.path(), &["run"]);
    assert_eq!((code(&none), stdout(&none)), (1, ""));
    assert!(stderr(&none).starts_with("error: no prompt\n") && stderr(&none).contains("\nhint: "), "{}", stderr(&none));
    let missing = run(cache.path(), &["run", "-p", "x", "-c", "/no/such/bundle"]);
    assert_eq!(code(&missing), 1);
    assert!(stderr(&missing).contains("`/no/such/bundle` does not exist"), "{}", stderr(&missing));
    let backend = run(cache.path(), &["run", "-p", "x", "--backend", "gpu"]);
    assert!(stderr(&backend).contains("unknown backend `gpu`"), "{}", stderr(&backend));
    let library = run(cache.path(), &["run", "-p", "x", "--backend", "/no/libQnnHtp.so"]);
    assert!(stderr(&library).contains("/no/libQnnHtp.so"), "{}", stderr(&library));
    assert_eq!(code(&run(cache.path(), &["run", "--no-such-flag"])), 2);
    assert_eq!(code(&run(cache.path(), &["inspect", "Cargo.toml"])), 1);
}

/// Compiles a random model and verifies it at the default prompt lengths.
fn verify(family: Family, splits: &str, extra: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    TestModel::tiny(family).write(&model).unwrap();
    let (model, bundle) = (model.to_str().unwrap(), bundle.to_str().unwrap());
    let mut args = vec![
        "compile",
        model,
        "-o",
        bundle,
        "--ar",
        "1,8,32",
        "--cl",
        "64,256",
        "--precision",
        "f32",
        "--splits",
        splits,
    ];
    args.extend(extra);
    let compiled = run(place.path(), &args);
    assert_eq!(code(&compiled), 0, "{}", stderr(&compiled));

    let output = run(place.path(), &["verify", bundle, "-n", "200", "--json"]);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let records: Vec<Value> = stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lengths: Vec<u64> = records.iter().map(|r| r["prompt_tokens"].as_u64().unwrap()).collect();
    assert_eq!(lengths, [1, 31, 32, 33, 67, 236, 255, 256]);
    for record in &records {
        assert_eq!((&record["wrong_tokens"], &record["ties"]), (&Value::from(0), &Value::from(0)), "{record}");
    }
    assert_eq!(records[0]["generated"], 200);
    let executed = records[0]["executed"].to_string();
    assert!(executed.contains("cl64") && executed.contains("cl256"), "the context is promoted: {executed}");
}

#[test]
fn verify_llama_in_one_piece() {
    verify(Family::Llama, "mono", &[]);
}

#[test]
fn verify_qwen2_in_two_pieces() {
    verify(Family::Qwen2, "decoder-lmhead", &[]);
}

#[test]
fn verify_qwen3_in_many_pieces() {
    verify(Family::Qwen3, "lut-decoder-lmhead", &["--layers-per-split", "1"]);
}

#[test]
fn inspect_lists_graphs_and_tensors() {
    let cache = tempfile::tempdir().unwrap();
    assert_eq!(code(&run(cache.path(), &["run", "-p", "x", "-n", "1", "-q"])), 0);
    let mut folders = std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
    let bundle = folders.find(|path| path.join("genie_config.json").exists()).unwrap();
    let text = run(cache.path(), &["inspect", bundle.to_str().unwrap(), "--tensors"]);
    assert_eq!(code(&text), 0, "{}", stderr(&text));
    assert!(
        stdout(&text).contains("ar128_cl512_1_of_2") && stdout(&text).contains("past_key_0_in"),
        "{}",
        stdout(&text)
    );
    let json = run(cache.path(), &["inspect", bundle.to_str().unwrap(), "--json"]);
    let record: Value = serde_json::from_str(stdout(&json)).unwrap();
    assert_eq!(record["variants"].as_array().unwrap().len(), 6);
    assert_eq!(record["vocab_size"], 2048);
}

#[test]
fn socs_that_cannot_be_compiled_for_are_rejected_with_a_hint() {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    let (model, bundle) = (model.to_str().unwrap(), place.path().join("bundle"));
    let host = place.path().join("libQnnHtp.so");
    std::fs::write(&host, "no library").unwrap();
    for (flags, want) in [
        (&["--soc", "sm9999"][..], "error: unknown target `sm9999`: expected one of `sm8550`, `sm8650`"),
        (&["--soc", "sm8350"], "error: target `sm8350` cannot run these graphs: its HTP is a V68"),
        (&["--soc", "sm8350"], "hint: V73 and later have it"),
        (&["--soc", "sm8650", "--precision", "f32"], "error: precision f32 for target `sm8650`"),
        (&["--soc", "sm8650", "--perf", "warp"], "error: unknown performance policy `warp`"),
        (&["--soc", "sm8650"], "error: no `libQnnHtp.so` on this machine"),
        (&["--soc", "sm8650"], "hint: `genie runtime fetch` gets it"),
        (&["--soc", "x-elite", "--backend-lib", host.to_str().unwrap()], "cannot load library"),
        (&["--share-weights"], "--soc"),
    ] {
        let mut command = genie(place.path());
        // An empty folder in its place: what `cargo xtask qnn-runtime` fetched must not be found.
        command.env("QNN_RUNTIME_DIR", place.path().join("nothing"));
        let args = ["compile", model, "-o", bundle.to_str().unwrap()];
        let output = command.args(args).args(flags).output().unwrap();
        assert_ne!(code(&output), 0, "{flags:?}");
        assert!(stderr(&output).contains(want), "{flags:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert!(!bundle.exists(), "{flags:?}");
    }
}

#[test]
fn quantised_weights_run_on_the_embedded_backend() {
    let place = tempfile::tempdir().unwrap();
    let (model, bundle) = (place.path().join("model"), place.path().join("bundle"));
    TestModel::tiny(Family::Qwen2).write(&model).unwrap();
    let (model, out) = (model.to_str().unwrap(), bundle.to_str().unwrap());
    let output = run(place.path(), &["compile", model, "-o", out, "--ar", "1,8", "--cl", "64", "--weights", "w8"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(!stderr(&output).contains("finalized"), "compile times of the host are not printed: {}", stderr(&output));
    let manifest: Value = serde_json::from_slice(&std::fs::read(bundle.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["options"]["weights"], "w8");
    assert_eq!(manifest["options"]["target"], Value::Null);
    let output = run(place.path(), &["run", "-c", out, "--prompt-tokens", "1,2,3", "-n", "5", "--greedy", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_missing_library_is_reported_with_every_place_searched() {
    let cache = tempfile::tempdir().unwrap();
    let empty = tempfile::tempdir().unwrap();
    let mut command = genie(cache.path());
    let output =
        command.args(["run", "-p", "x", "--backend", "htp"]).env("QNN_RUNTIME_DIR", empty.path()).output().unwrap();
    assert_eq!(code(&output), 1);
    for part in [
        &format!("no `libQnnHtp.so` found; looked for `{}/libQnnHtp.so`", empty.path().display()),
        "QNN_RUNTIME_DIR is set, so no other place counts",
        "hint: `genie runtime fetch` gets Qualcomm's libraries",
    ] {
        assert!(stderr(&output).contains(part), "{part}: {}", stderr(&output));
    }
    let output = run(cache.path(), &["run", "-p", "x", "--backend-lib", "/nowhere/libQnnHtp.so"]);
    assert!(stderr(&output).contains("cannot load library `/nowhere/libQnnHtp.so`"), "{}", stderr(&output));
    let output = run(cache.path(), &["run", "-p", "x", "--perf", "burst"]);
    assert!(stderr(&output).contains("has no clocks to vote for"), "{}", stderr(&output));
}

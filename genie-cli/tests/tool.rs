//! Sampling flags, ends of replies, defaults, completions, manual pages, tokens: what the command line has beside its models.

use std::process::{Command, Output};

use serde_json::Value;

use crate::program::{stderr, with_users_cache as genie};

fn run(args: &[&str]) -> Output {
    genie(args).output().unwrap()
}

fn done(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn record(args: &[&str]) -> Value {
    let args = [&["run", "-p", "ROMEO:", "-n", "24", "--json", "--threads", "1"], args].concat();
    serde_json::from_str(&done(&args)).unwrap()
}

fn tokens(record: &Value) -> Vec<u64> {
    record["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect()
}

/// Each flag changes what is drawn, and the names of llama.cpp mean the same as ours.
#[test]
fn sampling_flags_act() {
    let hot = ["--temp", "1.5", "--top-p", "1", "--seed", "7"];
    let plain = tokens(&record(&hot));
    for flags in [
        &["--min-p", "0.3"][..],
        &["--typical", "0.3"],
        &["--top-nsigma", "0.5"],
        &["--xtc-probability", "1", "--xtc-threshold", "0.01"],
        &["--dynatemp-range", "1.4"],
        &["--mirostat", "2", "--mirostat-ent", "0.5"],
        &["--mirostat", "1", "--mirostat-ent", "0.5"],
        &["--samplers", "top_k"],
        &["--presence-penalty", "8"],
        &["--dry-multiplier", "30", "--dry-allowed-length", "0", "--dry-sequence-breaker", "none"],
    ] {
        assert_ne!(tokens(&record(&[&hot[..], flags].concat())), plain, "{flags:?} changes nothing");
    }
    let renamed =
        ["--temperature", "1.5", "--top-p", "1", "--seed", "7", "--repeat-penalty", "1.4", "--repeat-last-n", "9"];
    let ours =
        ["--temp", "1.5", "--top-p", "1", "--seed", "7", "--repetition-penalty", "1.4", "--penalize-last-n", "9"];
    assert_eq!(tokens(&record(&renamed)), tokens(&record(&ours)));
    // A forbidden token does not come, though it is the most likely one.
    let first = tokens(&record(&["--greedy"]))[0];
    let biased = tokens(&record(&["--greedy", "--logit-bias", &format!("{first}-inf")]));
    assert!(!biased.contains(&first), "{first} in {biased:?}");
}

#[test]
fn the_seed_is_shown_and_repeats_a_run() {
    let random = record(&["--temp", "2", "--top-p", "1", "--seed", "-1"]);
    let seed = (random["seed"].as_u64().unwrap() as u32).cast_signed();
    if seed != -1 {
        let again = record(&["--temp", "2", "--top-p", "1", "--seed", &seed.to_string()]);
        assert_eq!(tokens(&again), tokens(&random));
    }
    let output = run(&["run", "-p", "ROMEO:", "-n", "2", "--stats", "--seed", "77", "--temp", "1"]);
    let shown = stderr(&output);
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["seed", "77"])), "{shown}");
}

#[test]
fn logarithms_stand_in_the_record() {
    let found = record(&["--greedy", "--logprobs", "3"]);
    let list = found["logprobs"].as_array().unwrap();
    assert_eq!(list.len(), tokens(&found).len());
    for (one, token) in list.iter().zip(tokens(&found)) {
        let top = one["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), top[0]["token"].as_u64(), one["token"].as_u64()), (3, Some(token), Some(token)));
        assert_eq!(one["logprob"], top[0]["logprob"], "the most likely one is taken");
        assert!(one["logprob"].as_f64().unwrap() <= 0.0);
    }
    assert!(record(&["--greedy"]).get("logprobs").is_none());
}

#[test]
fn replies_end_where_flags_say() {
    let text = record(&["--greedy"])["text"].as_str().unwrap().to_owned();
    let word = text.split_whitespace().nth(2).expect("a few words").to_owned();
    let stopped = record(&["--greedy", "--stop", &word]);
    assert_eq!(stopped["stop"], "stop-sequence", "{stopped}");
    assert!(!stopped["text"].as_str().unwrap().contains(&word));
    // Without a limit the context is filled.
    let whole: Value =
        serde_json::from_str(&done(&["run", "-p", "ROMEO:", "-n", "-1", "--ignore-eos", "--json"])).unwrap();
    assert_eq!(whole["stop"], "context-limit", "{}", whole["stop"]);
    let wrong = run(&["run", "-p", "x", "-n", "-2"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("expected a whole number from 0 to 2147483647, or -1"), "{}", stderr(&wrong));
}

#[test]
fn defaults_come_from_a_file_and_from_variables() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("genie.toml");
    std::fs::write(&file, "[run]\nmax-tokens = 3\n").unwrap();
    let n = |variables: &[(&str, &str)], more: &[&str]| {
        let args = [&["run", "-p", "ROMEO:", "--json", "--greedy"], more].concat();
        let mut command = genie(&args);
        let output = command.current_dir(folder.path()).envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        tokens(&serde_json::from_slice(&output.stdout).unwrap()).len()
    };
    assert_eq!(n(&[], &[]), 3);
    assert_eq!(n(&[("GENIE_MAX_TOKENS", "4")], &[]), 4);
    assert_eq!(n(&[("GENIE_MAX_TOKENS", "4")], &["-n", "5"]), 5);
    std::fs::write(&file, "[run]\ntmep = 3\n").unwrap();
    let refused = genie(&["run", "-p", "x"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("did you mean `temp`?"), "{}", stderr(&refused));
}

#[test]
fn shells_and_manuals_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(&["completions", shell]);
        assert!(["perplexity", "min-p", "tokenize"].iter().all(|word| script.contains(word)), "{shell}");
    }
    let page = done(&["man", "run"]);
    assert!(page.contains(".TH GENIE-RUN 1") && page.contains("min"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    let written = done(&["man", "-o", folder.path().to_str().unwrap()]);
    assert!(written.lines().count() > 15 && folder.path().join("genie-chat.1").is_file(), "{written}");
    assert_eq!(run(&["man", "rnu"]).status.code(), Some(1));
    // The shell itself reads its script.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("genie.bash");
    std::fs::write(&script, done(&["completions", "bash"])).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&script).status().unwrap().success());
}

#[test]
fn tokens_of_a_text_are_those_that_a_run_processes() {
    let of_run: Vec<u64> =
        record(&["--greedy"])["input"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect();
    let shown: Value = serde_json::from_str(&done(&["tokenize", "demo", "ROMEO:", "--json"])).unwrap();
    let ids: Vec<u64> = shown["tokens"].as_array().unwrap().iter().map(|t| t["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, of_run);
    assert_eq!(done(&["tokenize", "demo", "ROMEO:", "--ids"]).trim(), format!("{ids:?}"));
    let list: Vec<String> = ids.iter().skip(1).map(u64::to_string).collect();
    assert_eq!(done(&["tokenize", "demo", "--decode", &list.join(",")]).trim(), "ROMEO:");
}

/// A BOS token that is typed comes twice, as with libGenie; it is said.
#[test]
fn a_bos_token_that_is_typed_is_warned_of() {
    let shown: Value = serde_json::from_str(&done(&["tokenize", "demo", "x", "--json"])).unwrap();
    let bos = shown["tokens"][0]["piece"].as_str().unwrap().to_owned();
    let said = |prompt: &str| stderr(&run(&["run", "--raw", "-n", "1", "-p", prompt])).to_owned();
    let twice = said(&format!("{bos}ROMEO:"));
    assert!(twice.contains("warning: the prompt begins with the BOS token twice") && twice.contains(&bos), "{twice}");
    assert!(!said("ROMEO:").contains("BOS"));
}

#[test]
fn bench_prints_rows_for_other_programs() {
    for (format, begin) in [("md", "| bundle |"), ("csv", "bundle,backend,"), ("sql", "CREATE TABLE"), ("json", "[{")] {
        let text = done(&["bench", "demo", "--pp", "8", "--tg", "2", "--reps", "1", "-q", "-o", format]);
        assert!(text.starts_with(begin), "{format}: {text}");
    }
}

#[test]
fn the_version_names_commit_and_target_and_what_executes_graphs() {
    let short = done(&["-V"]);
    assert!(short.starts_with("genie ") && short.contains('(') && short.trim().ends_with(')'), "{short}");
    let whole = done(&["--version"]);
    let rest = whole.strip_prefix(short.trim()).expect("the first line is the same");
    let record: Vec<&str> = rest.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(record, ["cpu", "htp", "features"], "{whole}");
    let isa: Value = serde_json::from_str(
        done(&["bench", "demo", "--pp", "8", "--tg", "2", "--reps", "1", "-q", "--json"]).lines().next().unwrap(),
    )
    .unwrap();
    let isa = isa["machine"]["isa"].as_str().unwrap();
    assert!(rest.contains(&format!("cpu       {isa}, ")), "{whole}");
    let empty = tempfile::tempdir().unwrap();
    let output = genie(&["--version"]).env("QNN_RUNTIME_DIR", empty.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("htp       no `libQnnHtp.so` found"));
}

/// As llama.cpp counts: whole chunks, the second half of each.
#[test]
fn perplexity_by_chunks_counts_second_halves() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    std::fs::write(&file, "ROMEO: But soft, what light through yonder window breaks?\n".repeat(12)).unwrap();
    let args = ["perplexity", "demo", file.to_str().unwrap(), "--chunks", "2", "--window", "64", "-q"];
    let shown = done(&args);
    assert!(shown.contains("Final estimate: PPL = "), "{shown}");
    let report: Value = serde_json::from_str(&done(&[&args[..], &["--json"]].concat())).unwrap();
    // 64 tokens, of which those behind the 33rd are predicted.
    assert_eq!((report["windows"].as_u64(), report["tokens"].as_u64()), (Some(2), Some(2 * 31)));
}

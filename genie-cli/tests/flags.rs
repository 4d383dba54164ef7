//! Numbers that size something are bounded before memory is taken, and every flag has an effect or is refused. R is a row's
//! number in the list of failures, S3 its section of small ones, D a defect of the users' list.

#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Output};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::under;

/// `genie` in that folder with at most 2 GiB of address space, so that a number that is not bounded fails at once; killed
/// after a minute, since some of these once ran on.
fn genie(folder: &Path, args: &[&str]) -> Output {
    under(&["timeout", "60", "prlimit", "--as=2147483648"], folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command that ends with that code says on stderr.
fn said(folder: &Path, code: i32, args: &[&str]) -> String {
    let output = genie(folder, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stderr)
}

/// A folder with the bundle `base`, of a model that was trained for 40 positions.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = TestModel { max_positions: 40, ..TestModel::tiny(Family::Llama) };
    model.write(&folder.path().join("model")).unwrap();
    said(folder.path(), 0, &["compile", "model", "-o", "base", "--ar", "1,8", "--cl", "32,64", "-q"]);
    folder
}

fn config(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("base/genie_config.json")).unwrap()).unwrap()
}

/// What `run` says about `base` with one value of its config changed.
fn changed(folder: &Path, pointer: &str, value: Value) -> String {
    let mut config = config(folder);
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    config.pointer_mut(parent).unwrap()[key] = value;
    std::fs::write(folder.join("base/changed.json"), config.to_string()).unwrap();
    said(folder, 1, &["run", "-c", "base/changed.json", "-p", "x", "-n", "1"])
}

/// R14: each number of a config that sizes something is compared with its bound, or with the graphs, before memory is taken.
#[test]
fn numbers_of_the_config_are_bounded_before_memory_is() {
    let folder = folder();
    let rope = "/dialog/engine/model/positional-encoding/rope-dim";
    for dim in [2147483647, 1 << 24, 9999] {
        let said = changed(folder.path(), rope, dim.into());
        assert!(said.contains(&format!("wide, but `rope-dim` is {dim}")), "{said}");
    }
    for (pointer, value, want) in [
        ("/dialog/engine/n-threads", json!(2147483647), "expected an integer from 0 to 1024, found 2147483647"),
        ("/dialog/engine/n-threads", json!(1000000), "expected an integer from 0 to 1024, found 1000000"),
        ("/dialog/engine/n-threads", json!(1025), "expected an integer from 0 to 1024, found 1025"),
        ("/dialog/context/size", json!(1u64 << 40), "expected an integer from 0 to 2147483647, found 1099511627776"),
        ("/dialog/context/n-vocab", json!(i64::MAX), "expected an integer from 0 to 2147483647, found"),
        ("/dialog/context/n-embd", json!(1u64 << 33), "expected an integer from 0 to 2147483647, found"),
        ("/dialog/max-num-tokens", json!(i64::MAX), "expected an integer from 0 to 4294967295, found"),
        ("/dialog/stop-sequence", json!(vec!["x"; 9000]), "expected at most 4096 items, found 9000"),
        ("/dialog/context/eos-token", json!(vec![1; 9000]), "expected at most 4096 items, found 9000"),
        (
            "/dialog/engine/model/binary/ctx-bins",
            json!(vec!["model.bin"; 100_000]),
            "expected at most 4096 items, found 100000",
        ),
    ] {
        let said = changed(folder.path(), pointer, value);
        assert!(said.contains(&format!("{pointer}: {want}")), "{said}");
    }
    let size = changed(folder.path(), "/dialog/context/size", json!(2147483647));
    assert!(size.contains("2147483647") && size.contains("expected 1 to 64"), "compared with the graphs: {size}");
}

/// R14: 800,000 paths are a file of 9 MB, which is not even parsed. S3: a key twice, a byte order mark, a huge file.
#[test]
fn the_text_of_a_config_is_bounded_and_no_key_comes_twice() {
    let folder = folder();
    let path = folder.path().join("base/changed.json");
    let run = |code| said(folder.path(), code, &["run", "-c", "base/changed.json", "-p", "x", "-n", "1"]);
    let good = config(folder.path()).to_string();

    std::fs::write(&path, good.replacen("\"type\":\"basic\"", "\"type\":\"basic\",\"type\":\"basic\"", 1)).unwrap();
    let twice = run(1);
    assert!(
        twice.contains("changed.json` is not valid JSON") && twice.contains("key `type` comes twice at line 1"),
        "{twice}"
    );
    let doctor = genie(folder.path(), &["doctor", "base/changed.json"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(text(&doctor.stdout).contains("key `type` comes twice"), "{}", text(&doctor.stdout));

    std::fs::write(&path, format!("\u{feff}{good}")).unwrap();
    run(0);

    std::fs::write(&path, &good).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 30).unwrap();
    let huge = run(1);
    assert!(huge.contains("expected at most 4194304 bytes, found 8589934592"), "{huge}");
    let doctor = genie(folder.path(), &["doctor", "base/changed.json"]);
    assert_eq!(doctor.status.code(), Some(1), "{}", text(&doctor.stderr));
}

/// D8: an unknown key that is near a name of another program.
#[test]
fn an_unknown_key_gets_a_suggestion() {
    let folder = folder();
    let said = changed(folder.path(), "/dialog/sampler/temprature", json!(0.5));
    assert!(said.contains("/dialog/sampler/temprature: unknown key (did you mean `temp`?)"), "{said}");
}

/// R18: a prompt that cannot fit is refused from its size, before the tokenizer sees it.
#[test]
fn a_prompt_that_cannot_fit_is_refused_from_its_size() {
    let folder = folder();
    std::fs::write(folder.path().join("long.txt"), "a b ".repeat(5 << 20)).unwrap();
    let want = "error: the prompt has 20971520 bytes, but the context of 64 tokens holds at most ";
    let long = said(folder.path(), 1, &["run", "-c", "base", "-f", "long.txt"]);
    assert!(long.starts_with(want), "{long}");
    let plain = said(folder.path(), 1, &["run", "-c", "base", "-f", "long.txt", "--no-parse-special"]);
    assert!(plain.starts_with(want), "{plain}");
    let json = genie(folder.path(), &["run", "-c", "base", "-f", "long.txt", "--json"]);
    assert!(text(&json.stdout).contains("\"code\":\"context-exceeded\""), "{}", text(&json.stdout));
    // A short one is still counted in tokens.
    std::fs::write(folder.path().join("short.txt"), "a b ".repeat(400)).unwrap();
    let short = said(folder.path(), 1, &["run", "-c", "base", "-f", "short.txt"]);
    assert!(short.contains("context limit exceeded: 0 past + "), "{short}");
}

/// R18, S3: what has no end is read up to a bound; a pipe is a prompt file like another.
#[test]
fn reading_a_prompt_has_an_end() {
    let folder = folder();
    for args in [&["run", "-c", "base", "-f", "/dev/zero"][..], &["perplexity", "-c", "base", "/dev/zero"]] {
        let said = said(folder.path(), 1, args);
        assert!(said.contains("is too long: the file `/dev/zero` has more than 64 MiB"), "{said}");
    }
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let writer = std::thread::spawn(move || std::fs::write(fifo, "a b"));
    said(folder.path(), 0, &["run", "-c", "base", "-f", "fifo", "-n", "1"]);
    writer.join().unwrap().unwrap();
}

/// R19: a prompt may begin with a hyphen, and a negative number is out of range, not an unexpected argument.
#[test]
fn values_may_begin_with_a_hyphen() {
    let folder = folder();
    for prompt in ["-1 + 1 =", "-x", "--help me", "- a"] {
        said(folder.path(), 0, &["run", "-c", "base", "-p", prompt, "-n", "1", "-q"]);
    }
    said(folder.path(), 0, &["run", "-c", "base", "-p", "x", "--top-p", "-0.0", "-n", "1"]);
    let range = |args: &[&str], code, want: &str| {
        let said = said(folder.path(), code, &[&["run", "-c", "base", "-p", "x"], args].concat());
        assert!(said.contains(want) && !said.contains("unexpected argument"), "{args:?}: {said}");
    };
    range(&["--temp", "-1"], 1, "temp");
    range(&["--top-p", "-0.5"], 1, "top-p");
    range(&["-n", "-1"], 0, "the context is full");
    range(&["--top-k", "-1"], 2, "'-1' for '--top-k <K>': expected a whole number from 0 to 4294967295");
    range(&["--threads", "-1"], 2, "'-1' for '--threads <N>': expected a number from 1 to 1024");
    for (args, want) in [
        (&["run", "--prompt-tokens", "-1"][..], "'-1' for '--prompt-tokens <IDS>': expected a whole number from 0 to"),
        (&["verify", "base", "-n", "-1"], "'-1' for '--tokens <TOKENS>': expected a whole number from 1 to 2147483647"),
        (&["verify", "base", "--lengths", "4,-1"], "'-1' for '--lengths <N,N>': expected a whole number from 0 to"),
        (&["bench", "--reps", "-3"], "'-3' for '--reps <REPS>': expected a whole number from 0 to"),
        (&["bench", "--pp", "-8"], "'-8' for '--pp <N,N>': expected a whole number from 0 to"),
        (&["perplexity", "x", "--window", "-8"], "'-8' for '--window <TOKENS>': expected a whole number from 0 to"),
        (&["plan", "-5"], "'-5' for '<TOKENS>...': expected a number of tokens from 0 to 1048576"),
        (&["plan", "5", "--ar", "-1"], "'-1' for '--ar <N,N>': expected at least 1 token per step, at most 1048576"),
    ] {
        let said = said(folder.path(), 2, args);
        assert!(said.contains(want), "{args:?}: {said}");
    }
}

/// D8: a suggestion only where it is near, and what other programs' flags are here.
#[test]
fn unknown_flags_get_good_advice_or_none() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, wanted, unwanted) in [
        ("--ctx-shift", "tip: use `--long-context`", "similar"),
        ("--no-conversation", "tip: use `--raw`", "--no-parse"),
        ("--log=x", "tip: use `-v`", "similar"),
        ("--priority", "unexpected argument '--priority' found", "tip: a similar"),
        ("--promt", "tip: a similar argument exists: '--prompt'", "stop-sequence"),
        ("--promt-file", "tip: a similar argument exists: '--prompt-file'", "stop-sequence"),
        ("-ngl", "tip: the backend follows from the bundle", "--max-tokens"),
        ("-s", "tip: llama.cpp's is `--seed N`, genie-t2t-run's `--save DIR`", "value"),
        ("-md", "tip: use `--spec draft:BUNDLE`", "similar"),
        ("--engine_role", "tip: roles stand in the config", "similar"),
    ] {
        let said = said(folder.path(), 2, &["run", flag, "x"]);
        assert!(said.contains(wanted) && !said.contains(unwanted), "{flag}: {said}");
    }
}

/// Flags as genie-t2t-run and llama.cpp write them, where we have what they do.
#[test]
fn other_programs_spellings_work() {
    let folder = folder();
    std::fs::write(folder.path().join("ids.txt"), "3, 5\n7 9\n").unwrap();
    std::fs::write(folder.path().join("prompt.txt"), "a prompt").unwrap();
    std::fs::write(folder.path().join("bad.txt"), "3, x").unwrap();
    let run = |flags: &[&str]| {
        let output = genie(folder.path(), &[&["run", "-c", "base", "-n", "3", "--greedy"], flags].concat());
        assert!(output.status.success(), "{flags:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let ids = run(&["--prompt-tokens", "3,5,7,9"]);
    for flag in ["-tok", "--tokens_file", "--tokens-file"] {
        assert_eq!(run(&[flag, "ids.txt"]), ids, "{flag}");
    }
    assert_eq!(run(&["--prompt_file", "prompt.txt"]), run(&["-p", "a prompt"]));
    run(&["--prompt-tokens", "3,5", "--save", "kept"]);
    let rewound = ["--prompt-tokens", "3,5", "-w"];
    assert_eq!(run(&[&rewound[..], &["-r", "kept"]].concat()), run(&[&rewound[..], &["--restore", "kept"]].concat()));
    // The base has no template to put it into: both are refused alike.
    let system = |flag| said(folder.path(), 1, &["run", "-c", "base", "-p", "x", flag, "be short"]);
    assert_eq!(system("-sys"), system("--system"));
    let bad = said(folder.path(), 1, &["run", "-c", "base", "-tok", "bad.txt"]);
    assert!(bad.contains("expected a token id as number 2, found `x`"), "{bad}");
}

/// S3: `--system-lib` on host and others like it were ignored without a word.
#[test]
fn flags_without_effect_are_refused() {
    let folder = folder();
    let run = |flags: &[&str]| said(folder.path(), 1, &[&["run", "-c", "base", "-p", "x"], flags].concat());
    let system = run(&["--system-lib", "/no/such.so"]);
    assert!(
        system.contains("the embedded backend reads context binaries itself, but the system library `/no/such.so`"),
        "{system}"
    );
    assert!(system.contains("\nhint: remove `--system-lib`"), "{system}");
    assert!(run(&["--backend", "host", "--system-lib", "x"]).contains("reads context binaries itself"));
    let soc = run(&["--soc", "sm8650"]);
    assert!(soc.contains("runs on this machine's CPU, but SoC `sm8650` was given"), "{soc}");
    for flag in [&["--pp", "8"][..], &["--tg", "8"], &["--fill", "8"], &["--limits"], &["--profile"], &["--trace", "t"]]
    {
        let args = [&["bench", "-c", "base", "--calibrate"], flag].concat();
        assert!(said(folder.path(), 2, &args).contains("cannot be used with"), "{flag:?}");
    }
}

/// Combinations that would be ignored in part, or would do less than they say.
#[test]
fn combinations_without_effect_are_refused() {
    let folder = folder();
    let path = folder.path();
    std::fs::write(path.join("lines"), "a\\nb\n").unwrap();
    std::fs::write(path.join("keys"), "\n  \n").unwrap();
    std::fs::write(path.join("trace"), "{\"prompt\":16777217,\"reply\":1}\n").unwrap();
    let run = ["run", "-c", "base"];
    for flags in [
        &["--prompts", "lines", "--no-parse-special"][..],
        &["--prompt-tokens", "1,2", "-e"],
        &["--embedding-file", "x", "-e"],
        &["--embedding-file", "x", "--no-parse-special"],
    ] {
        assert!(said(path, 2, &[&run[..], flags].concat()).contains("cannot be used with"), "{flags:?}");
    }
    for flags in [&["--pp", "8"][..], &["--fill", "8"], &["--plot", "p.svg"]] {
        let args = [&["bench", "-c", "base", "--spec-accept", "0.5"], flags].concat();
        assert!(said(path, 2, &args).contains("cannot be used with"), "{flags:?}");
    }
    let lengths = said(path, 1, &["bench", "-c", "base", "--spec-accept", "0.5", "--tg", "4,8"]);
    assert!(lengths.contains("`--tg`: expected one number with `--spec-accept`, found 2"), "{lengths}");
    let keys = said(path, 1, &["serve", "-c", "base", "--api-key-file", "keys"]);
    assert!(keys.contains("`--api-key-file keys`: expected one key a line, found none"), "{keys}");
    let trace = said(path, 1, &["bench", "-c", "base", "--serve", "--replay", "trace"]);
    assert!(trace.contains("line 1 of the trace `trace`") && trace.contains("found 16777217"), "{trace}");
    let soc = said(path, 1, &["compile", "model", "-o", "out", "--soc", "sm8650", "--backend", "host"]);
    assert!(soc.contains("`--backend host`: SoC"), "{soc}");
    // What has an effect: each line of the file is unescaped.
    let batch = genie(path, &[&run[..], &["--greedy", "-n", "4", "--prompts", "lines", "-e"]].concat());
    let alone = genie(path, &[&run[..], &["--greedy", "-n", "4", "-p", "a\\nb", "-e"]].concat());
    assert_eq!(text(&batch.stdout).trim_end(), format!("1| {}", text(&alone.stdout).trim_end()));
}

/// S3: the arguments of `plan` are bounded. D14: all policies are shown, and steps that are alike are one line.
#[test]
fn plan_is_bounded_folded_and_shows_every_policy() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["plan", "10000000", "--ar", "1", "--cl", "100000000"][..],
        &["plan", "10000000"],
        &["plan", "5", "--n-past", "99999999"],
        &["plan", "5", "--cl", "4294967295"],
    ] {
        assert!(said(folder.path(), 2, args).contains("1048576"), "{args:?}");
    }
    let readme = genie(folder.path(), &["plan", "50", "200", "4000", "--ar", "1,8,64", "--cl", "4096"]);
    let table = text(&readme.stdout);
    for policy in ["lenient", "genie", "fixed-variant", "cost"] {
        assert_eq!(table.matches(&format!("tokens, policy {policy}: ")).count(), 3, "{policy}: {table}");
    }
    assert!(table.lines().count() < 90, "{}: {table}", table.lines().count());
    assert!(table.contains("    ... 60 more of AR-64 CL-4096, 64 tokens each\n"), "{table}");
    // The longest plan there is.
    let longest = genie(folder.path(), &["plan", "1048576", "--ar", "1", "--cl", "1048576", "--policy", "lenient"]);
    assert_eq!(longest.status.code(), Some(0), "{}", text(&longest.stderr));
    assert!(text(&longest.stdout).lines().count() < 10);
    // Each step is a record.
    let json = genie(folder.path(), &["plan", "40", "--ar", "1", "--cl", "64", "--policy", "genie", "--json"]);
    let record: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(record["steps"].as_array().map(Vec::len), Some(40));
}

/// D6: the default window is what the model was trained for, and the command says so.
#[test]
fn perplexity_keeps_to_the_trained_length() {
    let folder = folder();
    std::fs::write(folder.path().join("text"), "a b c d ".repeat(60)).unwrap();
    let run = |bundle: &str, flags: &[&str]| {
        let output = genie(folder.path(), &[&["perplexity", "-c", bundle, "text", "--json"], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let window = serde_json::from_slice::<Value>(&output.stdout).unwrap()["window"].clone();
        (window, text(&output.stderr))
    };
    let (window, said) = run("base", &[]);
    assert_eq!((window, said.as_str()), (json!(40), "window: 40 tokens, the length the model was trained for\n"));
    let (window, said) = run("base", &["--window", "64"]);
    assert_eq!((window, said.as_str()), (json!(64), ""));
    // A bundle that does not know: one of Genie's own.
    std::fs::remove_file(folder.path().join("base/manifest.json")).unwrap();
    let (window, said) = run("base", &[]);
    assert_eq!((window, said.as_str()), (json!(64), "window: 64 tokens, the context length\n"));
}

/// D12: a calibration whose times contradict each other is used with a warning.
#[test]
fn a_calibration_of_a_busy_machine_is_doubted() {
    let folder = folder();
    said(folder.path(), 0, &["bench", "-c", "base", "--calibrate", "--reps", "3"]);
    let path = folder.path().join("base/calibration.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let run = |file: &Value| {
        std::fs::write(&path, file.to_string()).unwrap();
        said(folder.path(), 0, &["run", "-c", "base", "-p", "x", "-n", "1", "--policy", "cost"])
    };
    for (i, step) in file["steps"].as_array_mut().unwrap().iter_mut().enumerate() {
        let us = 100.0 + i as f64;
        (step["median-us"], step["min-us"], step["max-us"]) = (us.into(), us.into(), us.into());
    }
    assert_eq!(run(&file), "");
    file["steps"][0]["median-us"] = 44461.0.into();
    let said = run(&file);
    assert!(said.contains("warning: the step times were measured on a busy machine: ar1_cl32 took"), "{said}");
    assert!(said.contains("hint: `genie bench --calibrate` measures again"), "{said}");
}

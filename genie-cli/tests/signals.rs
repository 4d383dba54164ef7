//! Signals and pipes: what a run keeps when it is ended early, and how it exits. Rows 10 and 11, D2, D3, D4 of the list of
//! failures; real signals to real processes, sent once the process has shown that it is where they should meet it.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::program::{self, command, stderr};

/// The longest wait for anything; reached by a failure only.
const PATIENCE: Duration = Duration::from_secs(240);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// A bundle of the demo model that takes long: one token per step, a long context. Compiled once for this program.
fn slow() -> &'static Path {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    compiled(&PLACE, "8192")
}

/// The same with a context for prompts that are processed more than once.
fn shorter() -> &'static Path {
    static PLACE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    compiled(&PLACE, "2048")
}

fn compiled(place: &'static OnceLock<(tempfile::TempDir, PathBuf)>, cl: &str) -> &'static Path {
    let (_, bundle) = place.get_or_init(|| {
        let place = tempfile::tempdir().unwrap();
        let mut made = genie(place.path());
        made.arg("compile").arg(root().join("models/demo")).args(["--ar", "1", "--cl", cl, "-o", "bundle"]);
        let made = made.output().unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        let bundle = place.path().join("bundle");
        (place, bundle)
    });
    bundle
}

fn genie(folder: &Path) -> Command {
    command(folder, &[])
}

fn run(folder: &Path, args: &[&str]) -> Output {
    genie(folder).args(args).output().unwrap()
}

/// `genie run` on the slow bundle, with pipes.
fn start(folder: &Path, args: &[&str]) -> Child {
    let mut command = genie(folder);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn send(child: &Child, signals: &[&str]) {
    let kills: Vec<String> = signals.iter().map(|signal| format!("kill -{signal} {}", child.id())).collect();
    assert!(Command::new("sh").args(["-c", &kills.join(" && ")]).status().unwrap().success());
}

/// Reads from a pipe until it holds `n` lines with `text`.
fn wait_for(pipe: impl Read, text: &str, n: usize) -> impl Read {
    let mut lines = BufReader::new(pipe);
    for _ in 0..n {
        loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended without `{text}`");
            if line.contains(text) {
                break;
            }
        }
    }
    lines
}

/// Waits for the first bytes on stdout.
fn wait_for_text(child: &mut Child) {
    let mut first = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
}

/// Ends, with what is still in the pipes.
fn end(mut child: Child) -> (ExitStatus, String, String) {
    let text = |pipe: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = Vec::new();
            pipe.map(|mut pipe| pipe.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        })
    };
    let out = text(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let err = text(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                child.kill().unwrap();
                panic!("it does not end");
            }
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    (status, out.join().unwrap(), err.join().unwrap())
}

/// What lies in a folder, except the cache folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "cache");
    names.sort();
    names
}

fn last_line(text: &str) -> Value {
    let line = text.lines().last().unwrap_or_else(|| panic!("nothing on stdout"));
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Row 10, D3: a reply that a signal ends is saved and goes on.
#[test]
fn a_signal_ends_the_reply_and_keeps_what_was_to_be_kept() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        if signal == "HUP" && hangup_is_ignored() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let bundle = slow().to_str().unwrap();
        let kept = ["--save", "session", "--profile", "profile.json", "--stats"];
        let mut child =
            start(folder.path(), &[&["run", "-c", bundle, "-p", "ROMEO:", "-n", "8000"][..], &kept].concat());
        wait_for_text(&mut child);
        send(&child, &[signal]);
        let (status, out, err) = end(child);
        assert_eq!(status.code(), Some(code), "{err}");
        assert!(out.ends_with('\n'), "{out:?}");
        assert!(err.contains(&format!("interrupted by SIG{signal}: ")), "{err}");
        assert!(err.contains("tokens are generated; the dialog is saved in `session`"), "{err}");
        assert!(err.contains("stopped by     aborted"), "the statistics: {err}");
        let profile = std::fs::read_to_string(folder.path().join("profile.json")).unwrap();
        assert!(profile.contains("num-generated-tokens"), "{profile}");
        let next =
            run(folder.path(), &["run", "-c", bundle, "-p", "more", "-n", "3", "--restore", "session", "--json"]);
        assert_eq!(next.status.code(), Some(0), "{}", stderr(&next));
        assert_eq!(names(folder.path()), ["profile.json", "session"], "nothing else is left");
    }
}

/// Issue, part 5: an abort is seen inside a long prompt, and the part that was processed is used.
#[test]
fn a_signal_ends_a_long_prompt_between_two_steps() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = shorter().to_str().unwrap();
    let n = 1900;
    let prompt: Vec<String> = (0..n).map(|i| (i * 7 % 500 + 4).to_string()).collect();
    let prompt = prompt.join(",");
    let base = ["run", "-c", bundle, "-n", "4", "--greedy", "--json", "--prompt-tokens"];
    let mut command = genie(folder.path());
    command.env("GENIE_LOG", "engine=trace").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(base).arg(&prompt).args([
        "--save",
        "session",
        "--prefix-cache",
        "prefixes",
        "--prefix-min-tokens",
        "64",
    ]);
    let mut child = command.spawn().unwrap();
    let err = wait_for(child.stderr.take().unwrap(), "step=", 150);
    send(&child, &["INT"]);
    let drained = thread::spawn(move || std::io::copy(&mut { err }, &mut std::io::sink()));
    let (status, out, _) = end(child);
    drained.join().unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
    let record = last_line(&out);
    assert_eq!(out.lines().count(), 1, "the record and the error are one line");
    assert_eq!((&record["error"]["code"], &record["stop"]), (&"interrupted".into(), &"aborted".into()));
    assert_eq!(record["tokens"].as_array().unwrap().len(), 0);
    let done = record["input"].as_array().unwrap().len();
    assert!((100..n).contains(&done), "{done} tokens of the prompt");
    let message = record["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("{done} tokens of the prompt are processed; the dialog is saved")), "{message}");

    // With the whole prompt again only the rest is processed, and the reply is that of a run without a signal.
    let whole = format!("0,{prompt}");
    let rewind = [&base[..], &[&whole, "--restore", "session", "--rewind"]].concat();
    let output = run(folder.path(), &rewind);
    assert!(output.status.success(), "{}", stderr(&output));
    let rest = last_line(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(rest["input"].as_array().unwrap().len(), n + 1 - done);
    let kept = names(&folder.path().join("prefixes"));
    let longest = kept.iter().filter_map(|name| name.split('-').nth(1)?.parse::<usize>().ok()).max();
    assert_eq!(longest, Some(done), "the prefix cache has what was processed: {kept:?}");
    let cached = [&base[..], &[&prompt, "--prefix-cache", "prefixes", "--prefix-min-tokens", "64"]].concat();
    let cached = last_line(&String::from_utf8_lossy(&run(folder.path(), &cached).stdout));
    assert_eq!(cached["tokens"], rest["tokens"]);
}

/// Issue, part 5: a second signal ends the program at once, as if it had no handler.
#[test]
fn a_second_signal_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = slow().to_str().unwrap();
    let mut child = start(folder.path(), &["run", "-c", bundle, "-p", "A", "-n", "8000", "--save", "session"]);
    wait_for_text(&mut child);
    // Both arrive before anything else can happen.
    send(&child, &["STOP", "INT", "TERM", "CONT"]);
    let (status, ..) = end(child);
    assert!(matches!(status.signal(), Some(2 | 15)), "{status:?}");
}

/// Before there is anything to lose a signal ends the program at once; `--json` says so.
#[test]
fn a_signal_before_the_reply_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for json in [false, true] {
        let mut command = genie(folder.path());
        command.args(["run", "-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = if json { command.arg("--json") } else { &mut command }.spawn().unwrap();
        // It waits for its prompt once it handles signals: 2, 15 and 1 stand in its mask.
        let began = Instant::now();
        let heeded = if hangup_is_ignored() { 0x4002 } else { 0x4003 };
        while caught(&child) & heeded != heeded {
            assert!(began.elapsed() < PATIENCE, "it handles no signals");
            thread::sleep(Duration::from_millis(5));
        }
        send(&child, &["TERM"]);
        let (status, out, err) = end(child);
        assert_eq!((status.code(), err.as_str()), (Some(143), "interrupted by SIGTERM\n"));
        match json {
            true => assert_eq!(last_line(&out)["error"]["code"], "interrupted"),
            false => assert_eq!(out, ""),
        }
    }
}

/// The signals that a process has handlers for.
fn caught(child: &Child) -> u64 {
    signals(&child.id().to_string(), "SigCgt:")
}

/// Under `nohup`, whose children inherit it.
fn hangup_is_ignored() -> bool {
    signals("self", "SigIgn:") & 1 == 1
}

fn signals(process: &str, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or(0)
}

/// `nohup` and background jobs of scripts: what is ignored at the start stays ignored.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = slow().to_str().unwrap();
    let program = program::path();
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).env("GENIE_CACHE", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(["-c", "trap '' HUP INT; exec \"$@\"", "sh"]).arg(program);
    let mut child = command.args(["run", "-c", bundle, "-p", "A", "-n", "8000"]).spawn().unwrap();
    wait_for_text(&mut child);
    send(&child, &["HUP", "INT", "TERM"]);
    let (status, _, err) = end(child);
    assert_eq!(status.code(), Some(143), "only SIGTERM counts: {err}");
}

/// Row 10, D4: `compile` leaves nothing of an interrupted bundle, and the one before stays.
#[test]
fn a_signal_removes_an_unfinished_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let model = root().join("models/demo");
    let model = model.to_str().unwrap();
    let many = ["--ar", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16", "--cl", "64,128,192,256,320,384,448,512"];
    let partial = |name: &String| name.starts_with('.');
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let args = [&["compile", model, "-o", "bundle", "--json"][..], &many].concat();
        let mut child = start(folder.path(), &args);
        let began = Instant::now();
        while !names(folder.path()).iter().any(partial) {
            assert!(child.try_wait().unwrap().is_none(), "it ended before the signal");
            assert!(began.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(2));
        }
        send(&child, &[signal]);
        let (status, out, err) = end(child);
        assert_eq!(status.code(), Some(code), "{err}");
        assert!(err.contains(&format!("interrupted by SIG{signal}: ")), "{err}");
        assert_eq!(last_line(&out)["error"]["code"], "interrupted");
        assert!(names(folder.path()).is_empty(), "{:?}", names(folder.path()));
    }
}

/// Row 10: the same for the demo's compilation in the first run.
#[test]
fn a_signal_in_the_first_run_leaves_no_half_demo() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = start(folder.path(), &["run", "-p", "ROMEO:", "-n", "3"]);
    let err = wait_for(child.stderr.take().unwrap(), "compiling the demo model", 1);
    send(&child, &["INT"]);
    let (status, ..) = end(child);
    drop(err);
    assert_eq!(status.code(), Some(130));
    let cache = folder.path().join("cache");
    // The signal may come before the folder of the cache is made.
    let there = if cache.exists() { names(&cache) } else { Vec::new() };
    let left: Vec<_> = there.into_iter().filter(|name| name.contains("partial") || name.contains("model")).collect();
    assert!(left.is_empty(), "{left:?}");
    let again = run(folder.path(), &["run", "-p", "ROMEO:", "-n", "3"]);
    assert!(again.status.success(), "{}", stderr(&again));
}

/// Issue, part 5: `perplexity` prints the windows that are done; `bench` draws the tests that are done, calibrates nothing.
#[test]
fn a_signal_keeps_the_measurements_that_are_done() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = slow().to_str().unwrap();
    let text = "ROMEO:\nO, she doth teach the torches to burn bright!\n".repeat(400);
    std::fs::write(folder.path().join("text.txt"), text).unwrap();
    let mut command = genie(folder.path());
    command.env("GENIE_LOG", "engine=trace").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.args(["perplexity", "text.txt", "-c", bundle, "--window", "16", "--json"]);
    let mut child = command.spawn().unwrap();
    let err = wait_for(child.stderr.take().unwrap(), "step=", 100);
    send(&child, &["INT"]);
    let drained = thread::spawn(move || std::io::copy(&mut { err }, &mut std::io::sink()));
    let (status, out, _) = end(child);
    drained.join().unwrap().unwrap();
    assert_eq!(status.code(), Some(130));
    let record = last_line(&out);
    assert_eq!(record["error"]["code"], "interrupted");
    assert!(record["windows"].as_u64().unwrap() >= 5 && record["perplexity"].is_f64(), "{record}");

    let tests = ["--pp", "16,8000", "--tg", "8000", "--reps", "20", "--json", "--plot", "plot.svg"];
    let mut child = start(folder.path(), &[&["bench", "-c", bundle][..], &tests].concat());
    let out = wait_for(child.stdout.take().unwrap(), "pp16", 1);
    send(&child, &["INT"]);
    let out = thread::spawn(move || std::io::read_to_string(out));
    let (status, _, err) = end(child);
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.ends_with("interrupted by SIGINT: 1 of 3 tests are done\n"), "{err}");
    assert_eq!(last_line(&out.join().unwrap().unwrap())["error"]["code"], "interrupted");
    assert!(std::fs::read_to_string(folder.path().join("plot.svg")).unwrap().contains("</svg>"));
    assert_eq!(names(folder.path()), ["plot.svg", "text.txt"]);
}

/// Row 11, D3: a reader that leaves ends the reply, not the work; the exit code is 0.
#[test]
fn a_reader_that_leaves_ends_the_reply_and_the_rest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = slow().to_str().unwrap();
    let kept = ["--save", "session", "--profile", "profile.json"];
    let mut child = start(folder.path(), &[&["run", "-c", bundle, "-p", "ROMEO:", "-n", "8000"][..], &kept].concat());
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let (status, _, err) = end(child);
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
    let profile: Value = serde_json::from_slice(&std::fs::read(folder.path().join("profile.json")).unwrap()).unwrap();
    let query = &profile["components"][0]["events"][1];
    assert!(query["num-generated-tokens"]["value"].as_u64().unwrap() < 8000, "it stopped early: {query}");
    let next = run(folder.path(), &["run", "-c", bundle, "-p", "more", "-n", "3", "--restore", "session"]);
    assert!(next.status.success(), "{}", stderr(&next));
}

/// Row 11: verdicts do not depend on the reader.
#[test]
fn a_verdict_does_not_depend_on_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let compile = |model: &Path, to: &str, width: &str| {
        let made =
            genie(folder.path()).arg("compile").arg(model).args(["-o", to, "--ar", width, "--cl", "128"]).output();
        assert!(made.unwrap().status.success());
    };
    let model = root().join("models/demo");
    compile(&model, "bundle", "1");
    // The wide graph is another model's, so that the two differ.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(model.join(name), other.join(name)).unwrap();
    }
    let weights = other.join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    let middle = bytes.len() / 4 * 2;
    bytes[middle..middle + 4000].fill(0);
    std::fs::write(&weights, bytes).unwrap();
    compile(&other, "wide", "32");
    std::fs::rename(folder.path().join("wide/model.bin"), bundle.join("wide.bin")).unwrap();
    std::fs::remove_file(bundle.join("manifest.json")).unwrap();
    let config = bundle.join("genie_config.json");
    let broken = std::fs::read_to_string(&config).unwrap().replacen("\"size\": 128", "\"size\": 4096", 1);
    let verify = ["verify", "bundle", "-n", "4", "--lengths", "33", "--tolerance", "1e-5"];
    let both = std::fs::read_to_string(&config).unwrap().replacen("\"model.bin\"", "\"model.bin\", \"wide.bin\"", 1);
    std::fs::write(&config, both).unwrap();
    for args in [&verify[..], &["doctor", "bundle"], &["doctor", "bundle", "--json"]] {
        if args[0] == "doctor" {
            std::fs::write(&config, &broken).unwrap();
        }
        assert_eq!(run(folder.path(), args).status.code(), Some(1), "{args:?} alone");
        for _ in 0..3 {
            let mut child = start(folder.path(), args);
            drop(child.stdout.take());
            let (status, _, err) = end(child);
            assert_eq!(status.code(), Some(1), "{args:?}: {err}");
        }
    }
}

/// A full disk on stdout is an error, after the dialog was saved; a closed one is `/dev/null`; stderr may be gone.
#[test]
fn other_ends_of_stdout_and_stderr() {
    let folder = tempfile::tempdir().unwrap();
    let shell = |line: &str| {
        let program = program::path();
        let mut command = Command::new("sh");
        command.current_dir(folder.path()).env("GENIE_CACHE", folder.path().join("cache")).env("GENIE", program);
        command.args(["-c", line]).stdin(Stdio::null()).output().unwrap()
    };
    assert!(run(folder.path(), &["run", "-p", "A", "-n", "1"]).status.success(), "the demo is compiled");
    for (args, saved) in [("run -p A -n 5 --save s1", Some("s1")), ("run -p A -n 5 --json --save s2", Some("s2"))] {
        let full = shell(&format!("\"$GENIE\" {args} > /dev/full"));
        assert_eq!(full.status.code(), Some(1), "{args}");
        let message = stderr(&full);
        assert!(message.contains("error: cannot write to stdout\n  caused by: No space left on device"), "{message}");
        saved.into_iter().for_each(|saved| assert!(folder.path().join(saved).join("open-genie.kvs").exists()));
    }
    for args in ["plan 5", "doctor", "--help", "run --help", "--version"] {
        assert_eq!(shell(&format!("\"$GENIE\" {args} > /dev/full")).status.code(), Some(1), "{args}");
        assert_eq!(shell(&format!("\"$GENIE\" {args} | true; exit 0")).status.code(), Some(0), "{args}");
    }
    let closed = shell("\"$GENIE\" run -p A -n 5 --save s3 >&-");
    assert_eq!((closed.status.code(), stderr(&closed)), (Some(0), ""));
    assert!(folder.path().join("s3/open-genie.kvs").exists());
    for line in
        ["run -p A -n 5 -vv 2>&1 >/dev/null | true", "run -p A -n 5 -vvv 2>&-", "run -p A -n 5 -vvv 2>/dev/full"]
    {
        let output = shell(&format!(
            "(\"$GENIE\" {}; echo $? > code) {}",
            &line[..line.find('2').unwrap()],
            &line[line.find('2').unwrap()..]
        ));
        assert!(output.status.success());
        assert_eq!(std::fs::read_to_string(folder.path().join("code")).unwrap(), "0\n", "{line}");
    }
}

/// D2: the README's session lines, as they are printed.
#[test]
fn the_readmes_session_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let lines: Vec<&str> = readme.lines().filter(|line| line.starts_with("genie ")).collect();
    let line = |part: &str| {
        let found = lines.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("README has no `{part}`"));
        found.split(" #").next().unwrap().trim().to_owned()
    };
    let compile =
        line("compile MODEL_DIR -o bundle ").replace("MODEL_DIR", root().join("models/demo").to_str().unwrap());
    for line in [compile, line("--save session"), line("--restore session")] {
        let args: Vec<String> = split(&line);
        let args: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
        let output = run(folder.path(), &args);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    }
    // Where the usual number of tokens would fill the context, half of it is left.
    let demo = root().join("models/demo");
    let compile = ["compile", demo.to_str().unwrap(), "-o", "small", "--ar", "1,32", "--cl", "256", "-q"];
    assert_eq!(run(folder.path(), &compile).status.code(), Some(0));
    let output = run(folder.path(), &["run", "-c", "small", "-p", "and", "--save", "small-session"]);
    assert!(stderr(&output).contains("so that `--restore` can go on"), "{}", stderr(&output));
    // And once more: each turn leaves half of what is left.
    let again = ["run", "-c", "bundle", "-p", "and", "--restore", "session", "--save", "session"];
    let output = run(folder.path(), &again);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

/// Words of a command line; double quotes hold one together.
fn split(line: &str) -> Vec<String> {
    line.split('"')
        .enumerate()
        .flat_map(|(i, part)| match i % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        })
        .collect()
}

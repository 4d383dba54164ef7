//! Weights that are checked, prefix caches that are locked, sessions that do not fit: what `genie` says and how it exits.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::{self, stderr, with_cache as run, with_own_cache};

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {}", stderr(output)))
}

fn done(output: Output) -> Output {
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    output
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Row 16: the run hung, before the first token, without a word.
#[test]
fn a_prefix_cache_whose_lock_is_held_is_left_aside_with_one_warning() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("prefixes");
    let tokens: Vec<String> = (0..90).map(|i| (i * 5 % 60 + 4).to_string()).collect();
    let plain = ["run", "--prompt-tokens", &tokens.join(","), "-n", "4", "--greedy"];
    let plain_output = done(run(cache.path(), &plain)); // compiles the demo as well
    fs::create_dir(&folder).unwrap();
    let lock = File::create(folder.join(".lock")).unwrap();
    lock.lock().unwrap();
    // Three prefixes would be stored: 32, 64 and all.
    let args = [&plain[..], &["--prefix-cache", text(&folder), "--prefix-min-tokens", "32"]].concat();
    let began = Instant::now();
    let output = done(run(cache.path(), &args));
    assert!(began.elapsed() < Duration::from_secs(60), "it went on");
    assert_eq!(output.stdout, plain_output.stdout);
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("warning: the prompt's prefixes cannot be stored in the prefix cache: "), "{said}");
    assert!(said.contains(".lock` for 1 s; the run goes on without it"), "{said}");
    drop(lock);
    assert_eq!(stderr(&done(run(cache.path(), &args))), "");
    assert!(fs::read_dir(&folder).unwrap().count() > 1, "stored once the lock is free");
}

/// Section 3: a changed token left the snapshot silently; a damaged snapshot had no hint. Section 4: other weights by number.
#[test]
fn a_session_that_was_damaged_or_is_of_other_weights_is_named_in_words() {
    let cache = tempfile::tempdir().unwrap();
    let there = cache.path().join("session");
    let first = ["run", "--prompt-tokens", "12,7,9", "-n", "5", "--greedy", "--json"];
    done(run(cache.path(), &[&first[..], &["--save", text(&there)]].concat()));
    let again = ["run", "--prompt-tokens", "3,4", "-n", "5", "--greedy", "--json", "--restore", text(&there)];
    let tokens = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap()["tokens"].clone();
    let expected = tokens(&done(run(cache.path(), &again)));

    let history = there.join("token-history-slot-0");
    let mut bytes = fs::read(&history).unwrap();
    bytes[8] ^= 1;
    fs::write(&history, &bytes).unwrap();
    let output = done(run(cache.path(), &again));
    assert_eq!(tokens(&output), expected);
    let said = stderr(&output);
    assert!(said.starts_with("warning: `token-history-slot-0` is damaged and left aside: it has token"), "{said}");
    assert!(said.ends_with("restored 9 tokens from the snapshot\n"), "{said}");
    bytes[8] ^= 1;
    fs::write(&history, &bytes).unwrap();

    let snapshot = there.join("open-genie.kvs");
    let good = fs::read(&snapshot).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&snapshot, &bad).unwrap();
    let output = run(cache.path(), &again);
    assert_eq!(code(&output), 1);
    let said = stderr(&output);
    assert!(said.contains("corrupt snapshot: checksum of section"), "{said}");
    let hint = format!("have no checksums: remove `{}` to continue from them", snapshot.display());
    assert!(said.contains(&hint), "{said}");
    fs::remove_file(&snapshot).unwrap();
    let output = done(run(cache.path(), &again));
    assert!(stderr(&output).contains("restored 9 tokens from Genie's files"), "{}", stderr(&output));
    fs::write(&snapshot, &good).unwrap();

    // Another model of the same shape: the demo's bundle with another source in its manifest.
    let demo = fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().path());
    let demo = demo.into_iter().find(|p| p.join("manifest.json").exists()).unwrap();
    let name = demo.file_name().unwrap().to_str().unwrap().to_owned();
    let other = cache.path().join("other");
    fs::create_dir(&other).unwrap();
    for file in fs::read_dir(&demo).unwrap().map(|e| e.unwrap().path()) {
        fs::copy(&file, other.join(file.file_name().unwrap())).unwrap();
    }
    let mut manifest: Value = serde_json::from_slice(&fs::read(other.join("manifest.json")).unwrap()).unwrap();
    manifest["source"]["sha256"] = "00".repeat(32).into();
    fs::write(other.join("manifest.json"), manifest.to_string()).unwrap();
    let output = run(cache.path(), &[&again[..], &["-c", text(&other)]].concat());
    assert_eq!(code(&output), 1);
    let said = stderr(&output);
    assert!(said.contains(&format!("saved with other weights or another type of cache (bundle `{name}`)")), "{said}");
    assert!(said.contains(&format!("hint: restore with bundle `{name}`")), "{said}");
}

/// Section 3: `verify -n 0`, `--tolerance inf` and `nan` passed or blamed the cache; flags without what they work on.
#[test]
fn numbers_that_prove_nothing_and_flags_without_effect_are_bad_usage() {
    let cache = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["verify", "b", "-n", "0"], "a whole number from 1"),
        (&["verify", "b", "--tolerance", "inf"], "a finite number of at least 0"),
        (&["verify", "b", "--tolerance", "nan"], "a finite number of at least 0"),
        (&["verify", "b", "--tolerance", "-0.5"], "a finite number of at least 0"),
        (&["verify", "b", "--tolerance", "1e99"], "a finite number of at least 0"),
        (&["run", "-p", "x", "--rewind"], "--restore"),
        (&["run", "-p", "x", "--prefix-min-tokens", "4"], "--prefix-cache"),
        (&["run", "-p", "x", "--prefix-min", "4"], "--prefix-cache"),
        (&["run", "-p", "x", "--prefix-cache-mib", "4"], "--prefix-cache"),
    ];
    for (args, wanted) in cases {
        let output = run(cache.path(), args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
    }
}

/// D11: "prompt 570 tokens, 477508.5 tokens/s" after a hit.
#[test]
fn restored_tokens_are_named_and_are_no_speed() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("prefixes");
    let tokens: Vec<String> = (0..90).map(|i| (i * 5 % 60 + 4).to_string()).collect();
    let prompt = tokens.join(",");
    let args = ["run", "--prompt-tokens", &prompt, "-n", "3", "--greedy", "--json", "--stats"];
    let args = [&args[..], &["--prefix-cache", text(&folder), "--prefix-min-tokens", "16"]].concat();
    let kpis = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap()["kpis"].clone();
    let first = done(run(cache.path(), &args));
    assert_eq!((&kpis(&first)["num-prompt-tokens"], &kpis(&first)["num-restored-tokens"]), (&91.into(), &0.into()));
    assert!(!stderr(&first).contains("restored"), "{}", stderr(&first));
    let second = done(run(cache.path(), &args));
    let found = kpis(&second);
    assert_eq!((&found["num-prompt-tokens"], &found["num-restored-tokens"]), (&91.into(), &90.into()));
    let rate = found["prompt-processing-rate"].as_f64().unwrap();
    let us = found["time-to-first-token"].as_f64().unwrap();
    assert!((rate * us / 1e6 - 1.0).abs() < 0.01, "one token was processed: {found}");
    let said = stderr(&second);
    assert!(said.contains("restored           90 tokens of 91 from the prefix cache, not processed"), "{said}");
    assert!(said.contains("prompt              1 tokens"), "{said}");
}

/// A bundle with more than 64 MiB of weights, which are not compared while it is loaded; and its binary.
fn large_bundle(home: &Path) -> (PathBuf, PathBuf) {
    let (model, bundle) = (home.join("model"), home.join("large"));
    TestModel::large(Family::Llama).write(&model).unwrap();
    done(run(home, &["compile", text(&model), "-o", text(&bundle), "--ar", "1,8", "--cl", "64", "--splits", "mono"]));
    fs::remove_dir_all(&model).unwrap();
    let binary = fs::read_dir(&bundle).unwrap().map(|e| e.unwrap().path());
    let binary = binary.into_iter().find(|p| p.extension().is_some_and(|e| e == "bin")).unwrap();
    assert!(fs::metadata(&binary).unwrap().len() > 65 << 20, "too large to be compared while it is loaded");
    (bundle, binary)
}

fn flip(binary: &Path, at: u64) {
    let mut file = File::options().read(true).write(true).open(binary).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(&[byte[0] ^ 0x08]).unwrap();
}

/// Row 5: a flipped bit in a large file gave other tokens with exit code 0, and `verify` passed.
#[test]
fn a_flipped_bit_in_a_large_file_is_an_error_of_every_command_that_computes() {
    let home = tempfile::tempdir().unwrap();
    let (cache, prefixes, saved) = (home.path(), home.path().join("prefixes"), home.path().join("saved"));
    let (bundle, binary) = large_bundle(cache);
    std::thread::sleep(Duration::from_millis(120)); // a file that has just changed gets no stamp
    let bundle = text(&bundle);
    let plain = ["run", "-c", bundle, "--prompt-tokens", "5,6,7", "-n", "3", "--greedy"];
    let stamps = || fs::read_dir(cache.join("weights-1")).map_or(0, |entries| entries.count());
    assert_eq!(stamps(), 0);
    // Two at once, then one that knows.
    let children: Vec<_> = (0..2)
        .map(|_| with_own_cache(cache, &plain).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let outputs: Vec<_> = children.into_iter().map(|child| done(child.wait_with_output().unwrap())).collect();
    assert_eq!((outputs[0].stdout == outputs[1].stdout, stamps()), (true, 1));
    let log = |output: &Output| stderr(output).matches("as they were written").count();
    let verbose = [&plain[..], &["-vv"]].concat();
    assert_eq!(log(&done(run(cache, &verbose))), 0, "known by its stamp");
    // A cache folder that cannot be written costs time only.
    let nowhere = cache.join("a file");
    fs::write(&nowhere, "").unwrap();
    let elsewhere = done(run(&nowhere, &verbose));
    assert_eq!((log(&elsewhere), &elsewhere.stdout), (1, &outputs[0].stdout));

    let n_bytes = fs::metadata(&binary).unwrap().len();
    for at in [n_bytes / 5, n_bytes / 2 + 1, n_bytes * 9 / 10] {
        flip(&binary, at);
        let output = run(cache, &plain);
        assert_eq!(code(&output), 1, "byte {at}: {}", stderr(&output));
        let said = stderr(&output);
        assert!(said.contains(&format!("the weights in `{}` are damaged", binary.display())), "{said}");
        assert!(said.contains("hint: copy the bundle again, or compile it again"), "{said}");
        flip(&binary, at);
    }
    flip(&binary, n_bytes / 3);
    let commands: [&[&str]; 5] = [
        &["verify", bundle, "-n", "1", "--lengths", "2"],
        &["bench", "-c", bundle, "--pp", "2", "--tg", "2", "--reps", "1"],
        &["bench", "-c", bundle, "--calibrate", "--reps", "1"],
        &["run", "-c", bundle, "--prompt-tokens", "5,6,7", "-n", "3", "--prefix-cache", text(&prefixes)],
        &["run", "-c", bundle, "--prompt-tokens", "5,6,7", "-n", "3", "--save", text(&saved)],
    ];
    for args in commands {
        let output = run(cache, args);
        assert_eq!(code(&output), 1, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("are damaged: what is computed with them means nothing"), "{args:?}");
        assert!(output.stdout.is_empty() || args[0] == "run", "{args:?} measured first");
    }
    assert!(!saved.exists() && !Path::new(bundle).join("calibration.json").exists());
    assert!(fs::read_dir(&prefixes).map_or(0, |e| e.count()) == 0, "nothing was stored");
    assert_eq!(code(&run(cache, &["doctor", bundle])), 1);
    assert_eq!(code(&run(cache, &["doctor", bundle, "--skip-hashes"])), 0);
    // The good file again: the stamp of before is not its stamp, and it is checked and fine.
    flip(&binary, n_bytes / 3);
    std::thread::sleep(Duration::from_millis(120));
    let again = done(run(cache, &verbose));
    assert_eq!((log(&again), &again.stdout), (1, &outputs[0].stdout));
    done(run(cache, commands[0]));
    done(run(cache, commands[1]));
}

/// A whole `model.bin` of another model of the same shape ran with exit code 0. A small one is refused before anything is
/// printed, a large one with the reply that it gave, and nothing is kept.
#[test]
fn a_binary_of_another_model_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    let place = |name: &str| home.path().join(name);
    for (name, seed) in [("first", 1), ("second", 2)] {
        let model = place(&format!("{name}-model"));
        TestModel { seed, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
        let out = place(name);
        done(run(home.path(), &["compile", text(&model), "-o", text(&out), "--ar", "1,8", "--cl", "32"]));
    }
    let (bundle, binary, saved) = (place("first"), place("first").join("model.bin"), place("saved"));
    let kept = ["--save", text(&saved), "--profile", text(&place("profile.json"))].map(String::from);
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let args = [&["run", "-c", text(&bundle), "-p", "ab", "-n", "3", "--greedy"], &kept[..]].concat();
    fs::copy(place("second").join("model.bin"), &binary).unwrap();
    let output = run(home.path(), &args);
    let said = stderr(&output);
    assert_eq!((code(&output), output.stdout.len()), (1, 0), "{said}");
    let wanted = format!("error: `{}` is another file than the one that this bundle was made with", binary.display());
    assert!(said.starts_with(&wanted), "{said}");
    assert!(said.contains("differs from its manifest: found ") && said.contains(" bytes, sha256 "), "{said}");
    assert!(said.contains("hint: copy the bundle again, or compile it again"), "{said}");
    assert!(!saved.exists() && !place("profile.json").exists());
    let text_file = place("text.txt");
    fs::write(&text_file, "some text").unwrap();
    let output = run(home.path(), &["perplexity", "-c", text(&bundle), text(&text_file), "--json"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(record["error"]["code"], "invalid-bundle", "{record}");

    let (large, binary) = large_bundle(home.path());
    let manifest = large.join("manifest.json");
    let mut listed: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let mut files = listed["files"].as_array_mut().unwrap().iter_mut();
    let entry = files.find(|file| file["path"] == "model.bin").unwrap();
    entry["sha256"] = "0".repeat(64).into();
    fs::write(&manifest, listed.to_string()).unwrap();
    let plain = ["run", "-c", text(&large), "--prompt-tokens", "5,6,7", "-n", "3", "--greedy"];
    std::thread::sleep(Duration::from_millis(120)); // a file that has just changed gets no stamp
    for printed in [true, false] {
        // The stamp of the first run has its hash.
        let output = run(home.path(), &plain);
        let said = stderr(&output);
        assert_eq!((code(&output), !output.stdout.is_empty()), (1, printed), "{said}");
        let wanted = format!("error: `{}` is another file than the one", binary.display());
        assert!(said.starts_with(&wanted) && said.contains("hint: copy the bundle again"), "{said}");
    }
    let output = run(home.path(), &[&plain[..], &["--save", text(&saved)]].concat());
    assert!(code(&output) == 1 && !saved.exists(), "{}", stderr(&output));
}

/// A full disk named a hidden folder beside the bundle, and `--restore` of a file said that there is no such folder.
#[cfg(unix)]
#[test]
fn files_are_named_as_the_user_gave_them() {
    let home = tempfile::tempdir().unwrap();
    let (model, out) = (home.path().join("model"), home.path().join("bundle"));
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    let genie = program::path();
    let limited = Command::new("bash")
        .args([
            "-c",
            "ulimit -f 8; exec \"$0\" compile \"$1\" -o \"$2\" --ar 1 --cl 16",
            text(&genie),
            text(&model),
            text(&out),
        ])
        .env("GENIE_CACHE", home.path())
        .output()
        .unwrap();
    let said = stderr(&limited);
    assert_eq!(code(&limited), 1, "{said}");
    let wanted = format!("error: cannot write `{}`: it needs ", out.join("model.bin").display());
    assert!(said.starts_with(&wanted) && !said.contains(".partial"), "{said}");

    let gguf = home.path().join("x.gguf");
    fs::write(&gguf, b"GGUF\x03\0\0\0").unwrap();
    done(run(home.path(), &["compile", text(&model), "-o", text(&out), "--ar", "1", "--cl", "16"]));
    let cases = [
        (gguf, "it is a GGUF file, expected the folder of a saved dialog"),
        (out.join("model.bin"), "it is a context binary of the host backend, expected the folder of a saved dialog"),
        ("/dev/null".into(), "it is a device, expected the folder of a saved dialog"),
        (home.path().join("none"), "there is no such folder"),
        (out.clone(), "it has neither `open-genie.kvs` nor `dialog.json`"),
    ];
    for (place, wanted) in cases {
        let output = run(home.path(), &["run", "-c", text(&out), "-p", "ab", "-n", "2", "--restore", text(&place)]);
        let said = stderr(&output);
        assert_eq!(code(&output), 1, "{said}");
        assert!(said.contains(&format!("cannot restore from `{}`: {wanted}", place.display())), "{said}");
    }
}

/// Numbers of flags answered in Rust's words ("invalid digit found in string").
#[test]
fn flags_say_which_number_they_expect() {
    let cache = tempfile::tempdir().unwrap();
    let cases = [
        ("--temp", "abc", "expected a number such as 0.5"),
        ("--top-p", "0x10", "expected a number such as 0.5"),
        ("--repetition-penalty", "1,1", "expected a number such as 0.5"),
        ("--seed", "1.5", "expected a whole number from -2147483648 to 2147483647"),
        ("--seed", "99999999999999999999", "expected a whole number from -2147483648 to 2147483647"),
        ("--prefix-cache-mib", "abc", "expected a whole number from 0 to 17592186044415"),
        ("--prefix-cache-mib", "-1", "expected a whole number from 0 to 17592186044415"),
    ];
    for (flag, value, expected) in cases {
        let joined = format!("{flag}={value}");
        let output = run(cache.path(), &["run", "-p", "x", "--prefix-cache", "p", &joined]);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{joined}: {said}");
        let wanted = format!("error: invalid value '{value}' for '{flag} ");
        assert!(said.starts_with(&wanted) && said.contains(expected), "{joined}: {said}");
    }
}

//! `genie train`, with the cargo feature `train`: a text becomes a model that runs; what cannot be trained is refused.
#![cfg(feature = "train")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

fn genie(place: &Path, args: &[&str]) -> Output {
    let mut genie = Command::cargo_bin("genie").unwrap();
    genie.env("GENIE_CACHE", place.join("cache")).env_remove("GENIE_LOG").current_dir(place).stdin(Stdio::null());
    genie.args(args).output().unwrap()
}

#[test]
fn a_text_becomes_a_model_that_runs_and_a_refusal_says_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("text.txt"), "One fox. Two foxes. Three foxes and one more fox.\n".repeat(12)).unwrap();
    let small = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--epochs", "8", "--batch", "2"];
    for family in ["gpt2", "llama"] {
        let train = |more: &[&str]| {
            let args = [&["train", "text.txt", "-o", family, "--family", family], &small[..], more].concat();
            genie(place.path(), &args)
        };
        let done = train(&["--json"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let result: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(result["steps"].as_u64().unwrap() >= 8 && result["held_out_loss"].is_number(), "{result}");
        let reply = genie(place.path(), &["run", family, "-p", "One", "-n", "8", "--greedy"]);
        assert!(reply.status.success(), "{}", String::from_utf8_lossy(&reply.stderr));

        let again = train(&[]);
        let said = String::from_utf8(again.stderr).unwrap();
        assert_eq!(again.status.code(), Some(1));
        assert!(
            said.contains(&format!("error: `{family}` exists\n")) && said.contains("hint: choose another folder"),
            "{said}"
        );
    }
    let refused = genie(place.path(), &["train", "text.txt", "-o", "none", "--context", "4000", "--json"]);
    let error: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(error["error"]["code"], "invalid-argument", "{error}");
    assert!(!place.path().join("none").exists());
}

/// Killed as an operator kills: whatever the program did at that moment, what it left resumes.
#[cfg(unix)]
#[test]
fn a_run_that_is_killed_at_any_moment_resumes_to_the_same_weights() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("text.txt"), "One fox. Two foxes. Three foxes and one more fox.\n".repeat(12)).unwrap();
    let train = |folder: &str, more: &[&str]| {
        let args =
            ["train", "text.txt", "-o", folder, "--layers", "1", "--width", "32", "--heads", "2", "--context", "32"];
        [&args[..], &["--epochs", "40", "--batch", "2", "--save-every", "3", "-q"], more]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let run = |args: Vec<String>| genie(place.path(), &args.iter().map(String::as_str).collect::<Vec<_>>());
    let whole = run(train("whole", &[]));
    assert!(whole.status.success(), "{}", String::from_utf8_lossy(&whole.stderr));

    let state = place.path().join("killed/training/state.safetensors");
    let (mut kills, mut more) = (0, &[][..]);
    for millis in [1, 5, 2, 40, 9, 17, 3, 120] {
        let args: Vec<String> = train("killed", more);
        let mut child = Command::cargo_bin("genie").unwrap();
        child.current_dir(place.path()).args(&args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        // From the first saved state on, at another moment each time; a run that is done before has no state any more.
        while !state.exists() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        std::thread::sleep(std::time::Duration::from_millis(millis));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        (kills, more) = (kills + 1, &["--resume"][..]);
        assert!(state.exists(), "what was saved is there, whole");
    }
    assert!(kills > 0, "the run was over before it could be killed");
    if !place.path().join("killed/model.safetensors").exists() {
        let last = run(train("killed", more));
        assert!(last.status.success(), "after {kills} kills: {}", String::from_utf8_lossy(&last.stderr));
    }
    for file in ["model.safetensors", "loss.csv", "tokenizer.json"] {
        let [a, b] = ["whole", "killed"].map(|folder| fs::read(place.path().join(folder).join(file)).unwrap());
        assert!(a == b, "`{file}` differs after {kills} kills");
    }
}

/// A disk with room for the text and the beginning of a state.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_a_run_with_its_name_and_what_was_saved_resumes() {
    let disk = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=96k", "tmpfs"]).arg(disk.path()).stderr(Stdio::null());
    if !mount.status().is_ok_and(|status| status.success()) {
        eprintln!("a_full_disk_ends_a_run: not tried, only root may mount a small disk");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("text.txt"), "One fox. Two foxes.\n".repeat(40)).unwrap();
    let out = disk.path().join("out");
    let args = [
        "train",
        "text.txt",
        "--layers",
        "1",
        "--width",
        "64",
        "--heads",
        "2",
        "--context",
        "32",
        "--epochs",
        "2",
        "-o",
    ];
    let refused = genie(place.path(), &[&args[..], &[out.to_str().unwrap()]].concat());
    let left: Vec<_> = fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let unmounted = Command::new("umount").arg(disk.path()).status();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("error: ") && said.contains(out.to_str().unwrap()), "{said}");
    assert!(said.to_lowercase().contains("no space left") || said.contains("are free"), "{said}");
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("tmp")), "{left:?}");
    assert!(unmounted.is_ok_and(|status| status.success()));
}

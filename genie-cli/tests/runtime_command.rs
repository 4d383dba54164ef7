//! `genie runtime`: where Qualcomm's libraries are looked for, and what a failing fetch says. Fetching itself is in `.ci/run`.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::command;

fn genie(place: &Path, args: &[&str], variables: &[(&str, &Path)]) -> Output {
    let mut genie = command(place, args);
    for name in ["QNN_RUNTIME_DIR", "QNN_SDK_ROOT", "QAIRT_HOME"] {
        genie.env_remove(name);
    }
    genie.envs(variables.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_installed_sdk_is_among_the_places() {
    let folder = tempfile::tempdir().unwrap();
    let sdk = folder.path().join("sdk");
    let arch = std::env::consts::ARCH;
    for variable in ["QNN_SDK_ROOT", "QAIRT_HOME"] {
        let output = genie(folder.path(), &["runtime", "find", "--json"], &[(variable, &sdk)]);
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        let places = record["libraries"][0]["places"].as_array().unwrap();
        let at = |part: &Path| {
            places.iter().position(|place| place.as_str().is_some_and(|p| p.starts_with(part.to_str().unwrap())))
        };
        let (in_sdk, in_cache) = (at(&sdk.join("lib")), at(&folder.path().join("cache/qnn-runtime").join(arch)));
        assert!(in_sdk.is_some() && in_sdk < in_cache, "{variable}: {places:?}");
    }
    // A folder that is named alone is the only one.
    let output = genie(folder.path(), &["runtime", "find"], &[("QNN_RUNTIME_DIR", &sdk), ("QNN_SDK_ROOT", &sdk)]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    assert!(shown.contains("libQnnHtp.so  not found in any of") && !shown.contains("x86_64-linux-clang"), "{shown}");
}

/// A `python3` that behaves as pip does: it leaves a wheel, and unpacks it.
fn python(folder: &Path, script: &str) -> std::path::PathBuf {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let file = bin.join("python3");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let old = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(bin).chain(std::env::split_paths(&old))).unwrap().into()
}

#[test]
fn what_is_fetched_is_kept_found_and_not_fetched_twice() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let script = r#"
case "$2" in
pip)
    while [ $# -gt 0 ]; do
        case "$1" in --requirement) list=$2 ;; --dest) dest=$2 ;; esac
        shift
    done
    grep -q 'sha256:' "$list" || exit 1
    echo fetched >> "$dest/../log"
    echo wheel > "$dest/a.whl" ;;
zipfile)
    mkdir -p "$5/onnxruntime_qnn"
    for name in libQnnHtp.so libQnnSystem.so; do printf 'v2.51.0.260929181845' > "$5/onnxruntime_qnn/$name"; done ;;
esac"#;
    let path = python(place, script);
    let fetch = |more: &[&str]| {
        let args = [&["runtime", "fetch", "--json", "--target", "x86_64"], more].concat();
        let output = genie(place, &args, &[("PATH", &path)]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let first = fetch(&[]);
    let kept = place.join("cache/qnn-runtime/x86_64/onnxruntime_qnn");
    assert_eq!(first["folder"], kept.to_str().unwrap());
    assert_eq!(first["libraries"][0]["build"], "v2.51.0.260929181845", "{first}");
    assert_eq!(fetch(&[]), first);
    let log = || std::fs::read_to_string(place.join("cache/qnn-runtime/log")).unwrap().lines().count();
    assert_eq!(log(), 1, "fetched once");
    fetch(&["--force"]);
    assert_eq!(log(), 2);
    let own = place.join("elsewhere/x86_64");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("mine"), "kept").unwrap();
    let elsewhere = place.join("elsewhere");
    let args = ["runtime", "fetch", "--target", "x86_64", "--folder", elsewhere.to_str().unwrap()];
    let refused = genie(place, &args, &[("PATH", &path)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("holds other files than a fetched runtime"), "{}", text(&refused.stderr));
    assert!(own.join("mine").is_file());
}

#[test]
fn a_fetch_that_fails_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = python(folder.path(), "echo 'ERROR: no such package' >&2; exit 1");
    let output = genie(folder.path(), &["runtime", "fetch"], &[("PATH", &path)]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("`python3 -m pip download` failed: ERROR: no such package") && said.contains("hint: "),
        "{said}"
    );
    assert!(!folder.path().join("cache/qnn-runtime/x86_64/version.txt").exists());
}

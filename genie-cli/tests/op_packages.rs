//! `--op-package` and the folders of op packages at the command line: a package written in C, as somebody else would, updates the cache of
//! fused graphs; bad ones are refused by number, cause and hint.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::{Command, Output};

use compiler::Family;
use compiler::testmodel::TestModel;
use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, BackendOptions, Context, ContextOptions, Library, TensorKind};
use serde_json::Value;

use crate::program::{command, stderr as said};

/// The folder of `cpu_op_package.h`.
const INCLUDE: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/../testkit/c");
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/op_package/package.c");

fn genie(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    command(folder, args).envs(env.iter().copied()).output().unwrap()
}

fn done(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Value {
    let output = genie(folder, args, env);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn refused(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> String {
    let output = genie(folder, args, env);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", said(&output));
    said(&output).to_owned()
}

/// The package, built with these definitions.
fn build(folder: &Path, name: &str, defines: &[&str]) {
    let to = folder.join(name);
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(to).args(defines).args([INCLUDE, SOURCE]);
    assert!(cc.status().expect("the C compiler that Rust links with").success());
}

const FLAGS: [&str; 6] = ["--prompt-tokens", "3,5,7,11,13,17,19,23,29", "-n", "6", "--greedy", "--json"];

/// A folder with a bundle whose graphs update the cache by `LLaMAPackage::PDKVCacheUpdate`.
fn bundle() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(&folder.path().join("model")).unwrap();
    let args = ["compile", "model", "-o", "op", "--cl", "32", "--precision", "f32", "-q"];
    done(folder.path(), &[&args[..], &["--pd-total-lens", "4,8", "--pd-only", "--pd-kv-update", "op"]].concat(), &[]);
    folder
}

fn run(folder: &Path, flags: &[&str], env: &[(&str, &str)]) -> Value {
    done(folder, &[&["run", "-c", "op", "--raw"], &FLAGS[..], flags].concat(), env)["tokens"].clone()
}

/// How often the package was asked for each thing.
fn count(folder: &Path, what: &str) -> usize {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    log.lines().filter(|line| *line == what).count()
}

#[test]
fn a_package_updates_the_cache_and_gets_back_every_op_it_made() {
    let folder = bundle();
    let folder = folder.path();
    build(folder, "own.so", &[]);
    let log = folder.join("log");
    let env = [("OP_LOG", log.to_str().unwrap())];
    let without = run(folder, &[], &env);
    assert_eq!(count(folder, "init"), 0, "no package is loaded that was not asked for");
    assert_eq!(run(folder, &["--op-package", "own.so"], &env), without);
    // Two layers in three graphs, two caches in two of them.
    assert_eq!((count(folder, "create"), count(folder, "free")), (10, 10));
    assert_eq!((count(folder, "init"), count(folder, "terminate")), (1, 1));
    assert!(count(folder, "run") > 0);
    let log = std::fs::read_to_string(&log).unwrap();
    assert!(log.starts_with("init\n") && log.ends_with("free\nterminate\n"), "{log}");
}

#[test]
fn a_folder_of_packages_is_named_by_a_variable() {
    let folder = bundle();
    let folder = folder.path();
    build(folder, "packages/libQnnLLaMAPackage_CPU.so", &[]);
    // For another backend: it would not load here.
    std::fs::write(folder.join("packages/libQnnLLaMAPackage_HTP.so"), "no library").unwrap();
    let log = folder.join("log");
    let plain = run(folder, &[], &[]);
    for (i, variable) in ["GENIE_OP_PACKAGE_DIR", "MLLM_QNN_OP_PACKAGE_DIR"].into_iter().enumerate() {
        let env = [("OP_LOG", log.to_str().unwrap()), (variable, "packages")];
        assert_eq!(run(folder, &[], &env), plain);
        assert_eq!(count(folder, "init"), i + 1, "{variable}");
    }
    let args = [
        "compile",
        "model",
        "-o",
        "op",
        "--ar",
        "1,8",
        "--cl",
        "32",
        "--pd-total-lens",
        "4",
        "--pd-kv-update",
        "op",
        "-q",
        "--force",
    ];
    let output = genie(folder, &args, &[("OP_LOG", log.to_str().unwrap()), ("GENIE_OP_PACKAGE_DIR", "packages")]);
    assert!(count(folder, "init") > 2, "compile registers it too: {}", said(&output));
    std::fs::create_dir(folder.join("empty")).unwrap();
    for empty in ["empty", "no-such-folder"] {
        let said = refused(folder, &["run", "-c", "op", "-p", "a"], &[("GENIE_OP_PACKAGE_DIR", empty)]);
        assert!(said.contains("expected op packages like") && said.contains(empty), "{said}");
    }
}

#[test]
fn bad_packages_are_refused_by_number_cause_and_hint() {
    let folder = bundle();
    let folder = folder.path();
    build(folder, "own.so", &[]);
    for (name, define) in [
        ("version.so", "-DVERSION=3"),
        ("init.so", "-DFAIL_INIT"),
        ("slot.so", "-DNO_CREATE"),
        ("create.so", "-DFAIL_CREATE"),
        ("run.so", "-DFAIL_RUN=0"),
    ] {
        build(folder, name, &[define]);
    }
    std::fs::write(folder.join("text.so"), "no library").unwrap();
    for (packages, code, cause, hint) in [
        (&["none.so"][..], "4005", "cannot be loaded", "give the path of a library"),
        (&["text.so"], "4005", "cannot be loaded", "give the path of a library"),
        (&["own.so:NoSuch"], "4006", "has no function `NoSuch`", "--op-package FILE:PROVIDER"),
        (&["own.so:OtherProvider:HTP"], "4003", "found target `HTP`", "takes `CPU`"),
        (&["version.so"], "4008", "interface version 3.0.0, expected 1.4 or 2.0", "docs/op-packages.md"),
        (&["init.so"], "4007", "`init` failed with 3100", "docs/op-packages.md"),
        (&["slot.so"], "4007", "`createOpImpl`, found null", "docs/op-packages.md"),
        (&["own.so", "own.so:OtherProvider"], "4009", "found `LLaMAPackage` again", "give each package once"),
    ] {
        let flags: Vec<&str> = packages.iter().flat_map(|package| ["--op-package", package]).collect();
        let said = refused(folder, &[&["run", "-c", "op", "-p", "a"], &flags[..]].concat(), &[]);
        assert!(
            said.contains("cannot be registered")
                && said.contains(packages[packages.len() - 1].split(':').next().unwrap())
        );
        assert!(said.contains(code) && said.contains(cause) && said.contains("hint:") && said.contains(hint), "{said}");
    }
    for package in ["./none.so", ""] {
        let said = refused(folder, &["run", "-c", "op", "-p", "a", "--op-package", package], &[]);
        assert!(said.contains(&format!("`--op-package`: there is no file `{package}`")), "{said}");
    }
    for (package, code, cause) in [("create.so", "1000", "`createOpImpl`"), ("run.so", "3200", "`opImplFn`")] {
        let said = refused(folder, &["run", "-c", "op", "-p", "a", "--op-package", package], &[]);
        assert!(said.contains(code) && said.contains(cause), "{said}");
        assert!(
            said.contains("hint: the package itself is at fault") && said.contains("docs/op-packages.md"),
            "{said}"
        );
    }
}

/// Rows that were printed before a step fails are still read as one document.
#[test]
fn a_bench_that_fails_in_the_middle_ends_its_json() {
    let folder = bundle();
    let folder = folder.path();
    build(folder, "own.so", &[]);
    let bench = |package, tests: &[&str], env: &[(&str, &str)]| {
        let common = ["bench", "op", "--reps", "1", "--threads", "1", "-o", "json", "--op-package", package];
        genie(folder, &[&common[..], tests].concat(), env)
    };
    let names = |output: &Output| -> Vec<String> {
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
        rows.as_array().unwrap().iter().map(|row| row["test"].as_str().unwrap().to_owned()).collect()
    };
    let log = folder.join("log");
    let whole = bench("own.so", &["--pp", "4", "--tg", "8"], &[("OP_LOG", log.to_str().unwrap())]);
    assert!(whole.status.success(), "{}", said(&whole));
    assert_eq!(names(&whole), ["pp4", "tg8"]);
    // The last run of an op in the last step.
    build(folder, "last.so", &[&format!("-DFAIL_RUN={}", count(folder, "run") - 1)]);
    let failed = bench("last.so", &["--pp", "4", "--tg", "8"], &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    assert!(said(&failed).contains("3200") && said(&failed).contains("`opImplFn`"), "{}", said(&failed));
    assert_eq!(names(&failed), ["pp4"]);
}

#[test]
fn a_bundle_that_names_an_unknown_op_is_refused_until_its_package_is_given() {
    let folder = bundle();
    let folder = folder.path();
    build(folder, "twice.so", &["-DPACKAGE=\"Theirs\"", "-DOP=\"Twice\""]);
    let library = Library::linked(qnn_host::providers()).unwrap();
    let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
    backend.register_op_package(&folder.join("twice.so"), "OtherProvider", None).unwrap();
    let context = Context::create(&backend, &ContextOptions::default()).unwrap();
    let mut graph = context.compose("twice", &Default::default()).unwrap();
    let x = graph.tensor(&TensorInfo::new("x", [4], Dtype::F32), TensorKind::Input).unwrap();
    let y = graph.tensor(&TensorInfo::new("y", [4], Dtype::F32), TensorKind::Output).unwrap();
    graph.node("n", "Theirs::Twice", &[], &[x], &[y]).unwrap();
    graph.finalize().unwrap();
    std::fs::write(folder.join("op/theirs.bin"), context.to_bytes().unwrap()).unwrap();
    let path = folder.join("op/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let bins = config["dialog"]["engine"]["model"]["binary"]["ctx-bins"].as_array_mut().unwrap();
    bins.push("theirs.bin".into());
    std::fs::write(&path, config.to_string()).unwrap();
    std::fs::remove_file(folder.join("op/manifest.json")).unwrap();

    let said = refused(folder, &["run", "-c", "op", "-p", "a"], &[]);
    assert!(said.contains("op package") && said.contains("found `Theirs`"), "{said}");
    assert!(said.contains("hint: give the package's library with `--op-package FILE`"), "{said}");
    // The graph of no model is left alone once it loads.
    assert_ne!(run(folder, &["--op-package", "twice.so"], &[]), Value::Null);
}

//! `--shared-memory`: cache and tensors in memory that the NPU would see, bound by handle. A library in C stands in for the
//! Snapdragon's; the host backend maps its descriptors, so a graph that runs reads what the engine wrote through another mapping.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::{self, stderr as said, without_qnn};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake_rpcmem/fake_rpcmem.c");

/// A folder with the bundle `base` in two splits and the stand-in library in `lib`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lib = folder.path().join("lib");
    std::fs::create_dir(&lib).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(lib.join("libcdsprpc.so")).arg(SOURCE);
    assert!(cc.status().expect("the C compiler that Rust links with").success());
    TestModel::tiny(Family::Llama).write(&folder.path().join("model")).unwrap();
    let args = ["compile", "model", "-o", "base", "--ar", "1,8", "--cl", "32,64", "--splits", "decoder-lmhead", "-q"];
    let output = genie(folder.path(), &args, &[]);
    assert!(output.status.success(), "{}", said(&output));
    folder
}

fn genie(folder: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    without_qnn(folder, args).envs(env.iter().copied()).output().unwrap()
}

/// What a run did.
struct Run {
    tokens: Value,
    said: String,
    /// Lines of the stand-in library.
    memory: Vec<String>,
    /// Lines of the host backend, by call.
    calls: Vec<String>,
}

impl Run {
    fn of(folder: &Path, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let (memory, calls) = (folder.join("memory.log"), folder.join("calls.log"));
        for file in [&memory, &calls] {
            let _ = std::fs::remove_file(file);
        }
        let lib = folder.join("lib");
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let (memory_log, calls_log, lib) = (text(&memory), text(&calls), text(&lib));
        let mut all =
            vec![("FAKE_RPCMEM_LOG", memory_log.as_str()), ("QNN_HOST_TRACE", &calls_log), ("LD_LIBRARY_PATH", &lib)];
        all.extend(env);
        let mut args =
            vec!["run", "-c", "base", "--greedy", "--json", "--prompt-tokens", "3,9,27,5,8,1,2,11,40,7", "-n", "20"];
        args.extend(flags);
        let output = genie(folder, &args, &all);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lines = |path: &PathBuf| -> Vec<String> {
            std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
        };
        Self {
            tokens: record["tokens"].clone(),
            said: said(&output).to_owned(),
            memory: lines(&memory),
            calls: lines(&calls),
        }
    }

    fn calls_of(&self, name: &str) -> usize {
        self.calls.iter().filter(|line| line.starts_with(name)).count()
    }

    fn memory_of(&self, name: &str) -> usize {
        self.memory.iter().filter(|line| line.starts_with(&format!("{name} "))).count()
    }

    /// For each run of a graph: its tensors, and how many of them were bound by handle.
    fn bound(&self) -> Vec<(usize, usize)> {
        let runs = self.calls.iter().filter(|line| line.starts_with("QnnGraph_execute"));
        runs.map(|line| {
            let number = |before: &str| {
                let rest = line.split_once(before).unwrap_or_else(|| panic!("{before}: {line}")).1;
                rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap()
            };
            (number(" in ") + number(" out "), number("by handle "))
        })
        .collect()
    }
}

#[test]
fn everything_is_bound_by_handle_and_given_back() {
    let folder = folder();
    let plain = Run::of(folder.path(), &["--shared-memory", "off"], &[]);
    assert_eq!((plain.memory.len(), plain.calls_of("QnnMem_register")), (0, 0));
    assert!(plain.bound().iter().all(|(_, by_handle)| *by_handle == 0));
    for extra in [&[][..], &["--dynamic-load"], &["--kv-mode", "shift-concat"]] {
        let mut flags = vec!["--shared-memory", "on"];
        flags.extend(extra);
        let shared = Run::of(folder.path(), &flags, &[]);
        assert_eq!(shared.tokens, plain.tokens, "{extra:?}");
        assert!(!shared.bound().is_empty());
        for (n_tensors, by_handle) in shared.bound() {
            assert_eq!(by_handle, n_tensors, "{extra:?}: {:?}", shared.calls);
        }
        assert!(shared.memory_of("alloc") > 4, "{:?}", shared.memory);
        assert_eq!(shared.memory_of("free"), shared.memory_of("alloc"), "{:?}", shared.memory);
        assert_eq!(shared.memory_of("free of nothing"), 0);
        let (made, gone) = (shared.calls_of("QnnMem_register"), shared.calls_of("QnnMem_deRegister"));
        assert!(made > 0 && made == gone, "{made} registered, {gone} taken back");
        // A step of decode registers nothing: 20 tokens are more steps than graphs with places.
        if extra.is_empty() {
            let half = shared.calls.len() / 2;
            let late = shared.calls[half..].iter().filter(|line| line.starts_with("QnnMem_register")).count();
            assert_eq!(late, 0, "{:#?}", shared.calls);
        }
    }
}

/// Its windows move through memory by a row in each step.
#[test]
fn a_window_that_moves_is_bound_by_address() {
    let folder = folder();
    let plain = Run::of(folder.path(), &["--shared-memory", "off"], &[]);
    let shared = Run::of(folder.path(), &["--shared-memory", "on", "--kv-mode", "pointer-shift"], &[]);
    assert_eq!(shared.tokens, plain.tokens);
    assert!(shared.bound().iter().any(|(n, by_handle)| *by_handle > 0 && by_handle < n), "{:?}", shared.bound());
    assert!(shared.calls_of("QnnMem_register") < 200, "not one for each row");
    assert_eq!(shared.memory_of("free"), shared.memory_of("alloc"));
}

#[test]
fn memory_that_runs_out_is_plain_memory_with_a_warning() {
    let folder = folder();
    let plain = Run::of(folder.path(), &["--shared-memory", "off"], &[]);
    let short = Run::of(folder.path(), &["--shared-memory", "on"], &[("FAKE_RPCMEM_MOST", "700")]);
    assert_eq!(short.tokens, plain.tokens);
    assert!(short.said.contains("bytes are not shared with the NPU: "), "{}", short.said);
    assert!(short.bound().iter().any(|(n, by_handle)| by_handle < n));
    assert_eq!(short.memory_of("free"), short.memory_of("alloc"));
}

#[test]
fn by_default_only_a_chip_has_it() {
    let folder = folder();
    let run = Run::of(folder.path(), &[], &[]);
    assert_eq!(run.memory.len(), 0);
    let args = ["run", "-c", "base", "--prompt-tokens", "1", "--shared-memory", "on"];
    let output = genie(folder.path(), &args, &[]);
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    for part in ["no memory to share with an NPU", "libcdsprpc.so", "hint: remove `--shared-memory`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Compiling says so before the model is looked at, which would be refused behind that.
    std::fs::write(folder.path().join("model/config.json"), "{}").unwrap();
    let output = genie(folder.path(), &["compile", "model", "-o", "other", "--shared-memory", "on"], &[]);
    let said = program::stderr(&output);
    assert!(said.contains("no memory to share with an NPU"), "{said}");
    let output = genie(folder.path(), &["run", "-c", "base", "--prompt-tokens", "1", "--shared-memory", "yes"], &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("expected `auto`, `on` or `off`"));
}

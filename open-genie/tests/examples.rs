//! Each program of `examples/` runs to its end on the demo model.

use std::path::{Path, PathBuf};
use std::process::Command;

use open_genie::{Options, demo};

/// `cargo test` builds the examples into `examples/` beside the tests' folder.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION)
}

fn run(name: &str, bundle: &Path) -> String {
    let output = Command::new(program(name)).arg(bundle).output().unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// One test, so that the demo is compiled once.
#[test]
fn every_example_runs() {
    let cache = tempfile::tempdir().unwrap();
    let bundle = cache.path().join("demo");
    demo::compile(&bundle, &Options::new(), &mut compiler::Silent).unwrap();
    let generated = run("01_generate", &bundle);
    assert!(generated.ends_with("\n40 tokens, stopped by max-num-tokens\n"), "{generated}");
    assert!(run("02_chat", &bundle).contains("> It is the east."));
    assert!(run("03_save_and_restore", &bundle).starts_with("restored "));
    let stopped = run("04_stop_from_another_thread", &bundle);
    assert!(stopped.ends_with("tokens, stopped by aborted\n"), "{stopped}");
    let several = run("05_several_sequences", &bundle);
    assert_eq!(several.lines().filter(|line| line.starts_with("> ")).count(), 3, "{several}");
}

//! The program `genie` as tests start it: with a cache of its own, without the caller's log level, and with nothing to read.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use compiler::Family;
use compiler::testmodel::TestModel;

/// In a folder, with its cache below it.
pub fn genie(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("genie").unwrap();
    command.current_dir(folder).env("GENIE_CACHE", folder.join("cache")).env_remove("GENIE_LOG");
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// As `genie`, which must succeed.
pub fn done(folder: &Path, args: &[&str]) -> Output {
    let output = genie(folder, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    output
}

/// A folder with `model`, a tiny Llama, and `bundle`, compiled from it with these flags.
pub fn compiled(flags: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    TestModel::tiny(Family::Llama).write(&folder.path().join("model")).unwrap();
    done(folder.path(), &[&["compile", "model", "-o", "bundle", "-q"], flags].concat());
    folder
}

/// With its cache in this folder, wherever the test runs.
pub fn with_cache(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("genie").unwrap();
    command.env("GENIE_CACHE", cache).env_remove("GENIE_LOG").args(args).stdin(Stdio::null()).output().unwrap()
}

/// What it wrote for its user; all of it is text.
pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// What it wrote as its result; all of it is text.
pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

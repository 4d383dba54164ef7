//! The program `genie` as tests start it: with a cache of its own, without the caller's log level, and with nothing to read.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::{CommandCargoExt, cargo_bin};
use compiler::Family;
use compiler::testmodel::TestModel;

/// Variables of the caller that would change what the program does, or says.
const OF_CALLER: [&str; 9] = [
    "GENIE_LOG",
    "GENIE_MODEL",
    "GENIE_MODELS",
    "GENIE_OP_PACKAGE_DIR",
    "GENIE_TEMP",
    "GENIE_TOML",
    "LD_LIBRARY_PATH",
    "MLLM_QNN_OP_PACKAGE_DIR",
    "RUST_BACKTRACE",
];

/// To be started in a folder, with its cache below it.
pub fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = with_own_cache(&folder.join("cache"), args);
    command.current_dir(folder);
    command
}

/// As `command`, where Qualcomm's libraries are nowhere.
pub fn without_qnn(folder: &Path, args: &[&str]) -> Command {
    let mut command = command(folder, args);
    command.env("QNN_RUNTIME_DIR", "/no/such/folder").env_remove("ADSP_LIBRARY_PATH");
    command
}

/// As `without_qnn`, by way of another program that sets a limit for it: `timeout`, `prlimit`.
pub fn under(limit: &[&str], folder: &Path, args: &[&str]) -> Command {
    let genie = without_qnn(folder, args);
    let mut command = Command::new(limit[0]);
    command.args(&limit[1..]).arg(genie.get_program()).args(genie.get_args()).current_dir(folder).stdin(Stdio::null());
    for (name, value) in genie.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// To be started wherever the test runs, with its cache in this folder.
pub fn with_own_cache(cache: &Path, args: &[&str]) -> Command {
    let mut command = with_users_cache(args);
    command.env("GENIE_CACHE", cache);
    command
}

/// To be started wherever the test runs, with the cache of whoever runs it.
pub fn with_users_cache(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("genie").unwrap();
    for name in OF_CALLER {
        command.env_remove(name);
    }
    command.args(args).stdin(Stdio::null());
    command
}

/// Where it is, for a shell that starts it.
pub fn path() -> PathBuf {
    cargo_bin("genie")
}

/// In a folder, with its cache below it.
pub fn genie(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
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
    with_own_cache(cache, args).output().unwrap()
}

/// What it wrote for its user; all of it is text.
pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// What it wrote as its result; all of it is text.
pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

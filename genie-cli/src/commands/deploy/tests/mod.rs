//! Deployment for real: a bundle of the demo model, the program of this checkout, and a far side on this machine.

mod adb;
mod broken_bundles;
mod sshd;
mod wire;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use clap::Parser;

use super::{Args, Report, deploy};
use crate::args::Verbosity;
use crate::printer::Printer;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies one level below the root").to_owned()
}

/// Runs the command as a command line would.
fn run(args: &[&str]) -> anyhow::Result<Report> {
    let line = ["deploy"].iter().chain(args).copied();
    let line = Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}"));
    deploy(&line.args, &Printer::new(Verbosity { quiet: true, verbose: 0 }, false))
}

/// The whole of an error, as `main` prints it.
fn error(args: &[&str]) -> String {
    match run(args) {
        Ok(report) => panic!("{args:?} went through: {report:?}"),
        Err(error) => format!("{error:#}"),
    }
}

/// First bytes that were sent, file by file.
fn sent_from(report: &Report, file: &str) -> Option<u64> {
    let found = report.files.iter().find(|sent| sent.file == file);
    found.unwrap_or_else(|| panic!("`{file}` is not among {:?}", report.files)).sent_from
}

/// This checkout's program: what `GENIE_PROGRAM` names, else it is built.
fn genie() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(program) = std::env::var_os("GENIE_PROGRAM") {
                return root().join(program);
            }
            let mut cargo = Command::new("cargo");
            cargo.args(["build", "--quiet", "--workspace", "--tests", "--bin", "genie"]).current_dir(root());
            assert!(cargo.status().unwrap().success());
            root().join("target").join("debug").join("genie")
        })
        .clone()
}

/// A bundle for the host backend, compiled into the folder.
fn bundle(folder: &Path) -> PathBuf {
    let bundle = folder.join("my bundle");
    let mut command = Command::new(genie());
    command.current_dir(root()).args(["--quiet", "compile", "models/demo", "--ar", "1,32", "--cl", "128", "-o"]);
    assert!(command.arg(&bundle).status().unwrap().success());
    bundle
}

/// A bundle that holds what deployment looks at, and no model.
fn hollow(folder: &Path, config: &str, binaries: &[(&str, &[u8])]) -> PathBuf {
    let bundle = folder.join("hollow");
    fs::create_dir(&bundle).unwrap();
    fs::write(bundle.join("genie_config.json"), config).unwrap();
    for (name, bytes) in binaries {
        fs::write(bundle.join(name), bytes).unwrap();
    }
    bundle
}

/// The part of a config that names binaries.
fn config(binaries: &[&str]) -> String {
    serde_json::json!({"dialog": {"engine": {"model": {"binary": {"ctx-bins": binaries}}}}}).to_string()
}

/// A file that the kernel takes for a program of another machine.
fn foreign_program(folder: &Path) -> PathBuf {
    let (path, machine) = (folder.join("foreign"), if cfg!(target_arch = "aarch64") { 62_u16 } else { 183 });
    let mut bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    path
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

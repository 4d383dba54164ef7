//! Compiler, linker and emulator for another machine, as environment variables for cargo.
//!
//! The standard library comes from rustup where it has the target, else from Debian's packages; linker and emulator are
//! Debian's. What is missing is installed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use super::debian;
use crate::workspace::root;

/// The one foreign target that is built, tested and run here.
pub const AARCH64: &str = "aarch64-unknown-linux-gnu";
/// Where Debian's cross packages put the target's C library.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";
/// Emulator of user programs.
pub const EMULATOR: &str = "qemu-aarch64";

/// Where the target's standard library comes from.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StdFrom {
    /// rustup where it has the target, else Debian.
    Auto,
    /// The toolchain in use; `rustup target add` fetches what is missing.
    Rustup,
    /// Debian's `rustc-web`, unpacked below target/debian-rustc.
    Debian,
}

/// What cargo needs to know.
pub struct Toolchain {
    env: Vec<(String, String)>,
}

impl Toolchain {
    /// Finds or installs everything for the target; this machine's own needs nothing.
    pub fn prepare(target: &str, std: StdFrom) -> Result<Self> {
        if target == host_target()? {
            return Ok(Self { env: Vec::new() });
        }
        ensure!(
            target == AARCH64,
            "no toolchain is known for target `{target}`: expected `{AARCH64}`, or this machine's own"
        );
        debian::ensure_program("aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"])?;
        let mut env = Vec::new();
        let variable = |name: &str| format!("CARGO_TARGET_{}_{name}", target.replace('-', "_").to_uppercase());
        env.push((variable("LINKER"), "aarch64-linux-gnu-gcc".to_owned()));
        // C code of build scripts, the oniguruma kind.
        env.push((format!("CC_{}", target.replace('-', "_")), "aarch64-linux-gnu-gcc".to_owned()));
        env.push((variable("RUNNER"), EMULATOR.to_owned()));
        let rustup = std != StdFrom::Debian && rustup_has(target, std)?;
        if !rustup {
            let rustc = debian::rustc_with_std("arm64")?;
            env.push(("RUSTC".to_owned(), rustc.display().to_string()));
            // Other compiler, other artefacts: the two must not rebuild each other's.
            env.push(("CARGO_TARGET_DIR".to_owned(), root().join("target/debian").display().to_string()));
        }
        eprintln!("{target}: standard library from {}", if rustup { "rustup" } else { "Debian" });
        Ok(Self { env })
    }

    /// Adds the emulator of a CPU, which cargo then starts programs with; tests that start themselves again do so too.
    pub fn emulate(&self, cpu: &str) -> Result<Vec<(String, String)>> {
        let mut env = self.env.clone();
        if !env.is_empty() {
            debian::ensure_program(EMULATOR, &["qemu-user"])?;
            for (name, value) in [("QEMU_LD_PREFIX", SYSROOT), ("QEMU_CPU", cpu), ("TEST_RUNNER", EMULATOR)] {
                env.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(env)
    }

    /// The variables.
    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// The folder that cargo builds into, below the profile's name.
    pub fn out_dir(&self, target: &str) -> Result<std::path::PathBuf> {
        let base = self.env.iter().find(|(name, _)| name == "CARGO_TARGET_DIR").map(|(_, value)| value.clone());
        let base = base.map_or_else(|| root().join("target"), Into::into);
        Ok(if self.env.is_empty() && target == host_target()? { base } else { base.join(target) })
    }
}

/// The target of this machine's own compiler.
pub fn host_target() -> Result<String> {
    let out = Command::new("rustc").arg("-vV").output().context("cannot start `rustc`")?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

/// Whether everything to build for a target is there without installing anything; what is missing, in words.
pub fn is_at_hand(target: &str) -> Result<(), String> {
    let host = host_target().map_err(|error| error.to_string())?;
    if target == host {
        return Ok(());
    }
    if target != AARCH64 {
        return Err(format!("this machine is {host}, and a compiler for it is known for `{AARCH64}` alone"));
    }
    if debian::on_path("aarch64-linux-gnu-gcc").is_none() {
        return Err("no `aarch64-linux-gnu-gcc` is on the path; Debian has it as `gcc-aarch64-linux-gnu`".to_owned());
    }
    let out = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    let folder = out.map_err(|error| format!("cannot start `rustc`: {error}"))?.stdout;
    if Path::new(String::from_utf8_lossy(&folder).trim()).is_dir() {
        return Ok(());
    }
    Err(format!("the standard library is missing; `rustup target add {target}` fetches it"))
}

/// Whether the toolchain in use has the target's standard library, or rustup can fetch it: one try.
fn rustup_has(target: &str, std: StdFrom) -> Result<bool> {
    let out = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    let folder = String::from_utf8_lossy(&out.context("cannot start `rustc`")?.stdout).trim().to_owned();
    if Path::new(&folder).is_dir() {
        return Ok(true);
    }
    eprintln!("$ rustup target add {target}");
    let added = Command::new("rustup").args(["target", "add", target]).status().is_ok_and(|status| status.success());
    ensure!(added || std != StdFrom::Rustup, "rustup has no standard library for `{target}`; try `--std debian`");
    Ok(added)
}

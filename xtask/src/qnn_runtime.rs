//! `cargo xtask qnn-runtime`: Qualcomm's own libraries under `target/qnn-runtime/`, by `genie runtime fetch` of this checkout.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::workspace::{genie, root};

/// What to fetch.
#[derive(Args)]
pub struct QnnRuntimeArgs {
    /// The machine whose libraries are fetched.
    #[arg(long, value_enum, default_value_t = Machine::host())]
    target: Machine,
    /// Fetch and unpack again, even if it is there.
    #[arg(long)]
    force: bool,
}

/// Machines that have such libraries.
#[derive(Clone, Copy, ValueEnum)]
pub enum Machine {
    /// The HTP emulator on a Linux host.
    #[value(name = "x86_64")]
    X86_64,
    /// Linux on a Snapdragon.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Machine {
    /// The one that this program runs on.
    pub fn host() -> Self {
        if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// Fetches what is missing, and prints what is there.
pub fn run(args: &QnnRuntimeArgs) -> Result<()> {
    let more: &[&str] = if args.force { &["--force"] } else { &[] };
    fetch(args.target, more)
}

/// The folder of a machine's libraries; fetches them if they are not there.
pub fn fetched(machine: Machine) -> Result<PathBuf> {
    fetch(machine, &[])?;
    Ok(folder().join(machine.name()).join("onnxruntime_qnn"))
}

fn fetch(machine: Machine, more: &[&str]) -> Result<()> {
    let folder = folder().display().to_string();
    genie(&[&["runtime", "fetch", "--target", machine.name(), "--folder", &folder], more].concat())
}

fn folder() -> PathBuf {
    root().join("target/qnn-runtime")
}

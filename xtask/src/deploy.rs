//! `cargo xtask deploy`: builds the program for a device's machine, and has `genie deploy` of this checkout send it.

use anyhow::{Context, Result};
use clap::Args;

use crate::cross::compile;
use crate::cross::toolchain::{AARCH64, StdFrom, Toolchain};
use crate::workspace::genie;

/// For whom, and the flags for `genie deploy`.
#[derive(Args)]
pub struct DeployArgs {
    /// The device's machine, as rustc calls it; not built where `--genie` names a program.
    #[arg(long, default_value = AARCH64)]
    target: String,
    /// Flags of `genie deploy`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "ARGS")]
    args: Vec<String>,
}

/// Builds and sends.
pub fn run(args: &DeployArgs) -> Result<()> {
    let mut line: Vec<&str> = vec!["deploy"];
    line.extend(args.args.iter().map(String::as_str));
    let built;
    if !args.args.iter().any(|arg| arg == "--genie" || arg.starts_with("--genie=")) {
        let toolchain = Toolchain::prepare(&args.target, StdFrom::Auto)?;
        let files = compile(&toolchain, &args.target, true, &["genie-cli".to_owned()])?;
        let program = files.into_iter().find(|path| path.ends_with("genie")).context("cargo built no `genie`")?;
        built = program.display().to_string();
        line.extend(["--genie", &built]);
    }
    genie(&line)
}

//! `cargo xtask ci`: formatting, lints, the rules of tidy, generated files, tests, documents.

use anyhow::Result;
use clap::Args;

use crate::workspace::sh;
use crate::{codegen, tidy};

/// What to leave out.
#[derive(Args)]
pub struct CiArgs {
    /// Leave the tests out: `.ci/run` has run them already, by the README's command.
    #[arg(long)]
    no_tests: bool,
}

/// Runs every check in order of cost and stops at the first that fails.
pub fn run(args: &CiArgs) -> Result<()> {
    sh("cargo", &["fmt", "--all", "--check"], &[])?;
    tidy::run(&tidy::TidyArgs::default())?;
    codegen::run(&codegen::CodegenArgs { check: true })?;
    if !args.no_tests {
        sh("cargo", &["test", "--workspace"], &[])?;
    }
    sh("cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])?;
    sh("cargo", &["doc", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

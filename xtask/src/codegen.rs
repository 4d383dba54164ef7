//! `cargo xtask codegen`: placeholder until the generator lands.

use anyhow::Result;
use clap::Args;

/// What to do with the generated files.
#[derive(Args)]
pub struct CodegenArgs {
    /// Compare only, and fail when a file differs.
    #[arg(long)]
    pub check: bool,
}

/// Generates or checks.
pub fn run(_args: &CodegenArgs) -> Result<()> {
    Ok(())
}

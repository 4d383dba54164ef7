//! `cargo xtask codegen`: writes the tables of `qnn-sys/src/generated` from the measured ABI in `qnn-sys/abi/qnn-abi.json`.
//!
//! `--check` compares instead, so that an edit of a generated file by hand is found.

mod ctype;
mod emit;
mod header;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::workspace::root;

/// What to do with the generated files.
#[derive(Args)]
pub struct CodegenArgs {
    /// Compare only, and fail when a file differs.
    #[arg(long)]
    pub check: bool,
}

/// Generates or checks.
pub fn run(args: &CodegenArgs) -> Result<()> {
    let crate_dir = root().join("qnn-sys");
    let json = crate_dir.join("abi/qnn-abi.json");
    let text = std::fs::read_to_string(&json).with_context(|| format!("cannot read `{}`", json.display()))?;
    let abi: Value = serde_json::from_str(&text).with_context(|| format!("`{}` is not JSON", json.display()))?;
    let files = [
        ("src/generated/mod.rs", emit::index()),
        ("src/generated/constants.rs", emit::constants(&abi)?),
        ("src/generated/types.rs", emit::types(&abi)?),
        ("src/generated/functions.rs", emit::functions(&abi)?),
        ("src/generated/tables.rs", emit::tables(&abi)?),
        ("src/generated/layout.rs", emit::layout(&abi)?),
        ("src/generated/errors.rs", emit::errors(&abi)?),
        ("generated/qnn-abi.h", header::header(&abi)?),
    ];
    for (name, body) in files {
        write_or_check(&crate_dir.join(name), &body, args.check)?;
    }
    Ok(())
}

fn write_or_check(path: &Path, body: &str, check: bool) -> Result<()> {
    let shown = path.display();
    if check {
        let found = std::fs::read_to_string(path).with_context(|| format!("cannot read `{shown}`"))?;
        ensure!(found == body, "`{shown}` is not what `cargo xtask codegen` writes; run it and commit the result");
    } else {
        std::fs::create_dir_all(path.parent().context("generated files lie in a folder")?)?;
        std::fs::write(path, body).with_context(|| format!("cannot write `{shown}`"))?;
    }
    Ok(())
}

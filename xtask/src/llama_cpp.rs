//! Programs of a llama.cpp build that some tasks compare with.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs `llama-quantize` of the folder: `from` in another type, as `to`.
pub fn quantise(folder: &Path, flags: &[&str], from: &Path, to: &Path, ty: &str) -> Result<()> {
    let done = Command::new(folder.join("llama-quantize")).args(flags).args([from, to]).arg(ty).output();
    let done = done.with_context(|| format!("no `llama-quantize` in `{}`", folder.display()))?;
    if !done.status.success() {
        bail!("llama-quantize {ty} of `{}`: {}", from.display(), String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}

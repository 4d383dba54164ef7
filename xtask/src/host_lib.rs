//! `cargo xtask host-lib`: the host backend as `libQnnHost.so`, the name under which QNN clients look for libraries.

use anyhow::{Context, Result};

use crate::workspace::{root, sh};

/// Builds the release library and copies it to QNN's name for it.
pub fn run() -> Result<()> {
    sh("cargo", &["build", "--release", "-p", "qnn-host"], &[])?;
    let folder = root().join("target/release");
    let (prefix, suffix) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let built = folder.join(format!("{prefix}qnn_host{suffix}"));
    let named = folder.join(format!("{prefix}QnnHost{suffix}"));
    std::fs::copy(&built, &named)
        .with_context(|| format!("cannot copy `{}` to `{}`", built.display(), named.display()))?;
    println!("{}", named.display());
    Ok(())
}

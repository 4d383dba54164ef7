//! `cargo xtask fleet`: two `genie serve` behind nginx and behind a LiteLLM proxy, on loopback. Hit rates of cached prompts with and
//! without sticky routing, a drain under load, a killed server (`xtask/clients/fleet.py`; docs/fleet.md).
//!
//! nginx is Debian's, installed if it is missing; LiteLLM's proxy goes into a venv of its own below `target/clients`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace::{program, root, sh};

/// The version that docs/fleet.md was measured with.
const LITELLM: &str = "litellm[proxy]==1.106.2";

/// What is run.
#[derive(clap::Args)]
pub struct FleetArgs {
    /// A built `genie` [default: builds one].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Fetches what is missing and runs the script.
pub fn run(args: &FleetArgs) -> Result<()> {
    let (nginx, proxy) = (Path::new("/usr/sbin/nginx"), root().join("target/clients/proxy"));
    if !nginx.is_file() {
        sh("apt-get", &["install", "-q", "-y", "--no-install-recommends", "nginx-light"], &[("RUNLEVEL", "1")])?;
    }
    let (litellm, mark) = (proxy.join("bin/litellm"), proxy.join("fetched"));
    if !fs::read_to_string(&mark).is_ok_and(|found| found == LITELLM) {
        sh("python3", &["-m", "venv", text(&proxy)?], &[])?;
        let (pip, python) = (proxy.join("bin/pip"), proxy.join("bin/python"));
        sh(text(&pip)?, &["install", "-q", "--disable-pip-version-check", crate::clients::UV], &[])?;
        sh(text(&proxy.join("bin/uv"))?, &["pip", "install", "-q", "--python", text(&python)?, LITELLM], &[])?;
        fs::write(&mark, LITELLM)?;
    }
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => program("genie")?,
    };
    let place = tempfile::tempdir().context("cannot make a temporary folder")?;
    let env = [
        ("GENIE", text(&program)?),
        ("FLEET", text(place.path())?),
        ("NGINX", text(nginx)?),
        ("LITELLM", text(&litellm)?),
    ];
    sh("python3", &["xtask/clients/fleet.py"], &env)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("`{}` is not UTF-8", path.display()))
}

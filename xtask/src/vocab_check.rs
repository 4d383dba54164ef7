//! `cargo xtask vocab-check`: the vocabularies and chat templates of llama.cpp, as they lie in the sdist of `llama_cpp_python`.
//!
//! Each vocabulary comes with strings and the ids that the model's own tokenizer has for them. The work is done by `vocab_check` of
//! `conformance`. The sdist has 70 MB and is kept below `target/sdist`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::{program, root, sh};

const PACKAGE: &str = "llama_cpp_python";
const VERSION: &str = "0.3.36";

/// Where the sdist is.
#[derive(Args)]
pub struct VocabCheckArgs {
    /// A folder with the unpacked sdist [default: fetched by pip into target/sdist].
    #[arg(long, value_name = "DIR")]
    sdist: Option<PathBuf>,
}

/// Fetches what is missing, and compares.
pub fn run(args: &VocabCheckArgs) -> Result<()> {
    let sdist = match &args.sdist {
        Some(folder) => folder.clone(),
        None => fetched(&root().join("target/sdist"))?,
    };
    let models = sdist.join("vendor/llama.cpp/models");
    fs::metadata(&models).with_context(|| format!("`{}` holds no vocabularies", models.display()))?;
    sh(&program("vocab_check")?.display().to_string(), &[&models.display().to_string()], &[])
}

fn fetched(folder: &Path) -> Result<PathBuf> {
    let name = format!("{PACKAGE}-{VERSION}");
    let unpacked = folder.join(&name);
    if unpacked.is_dir() {
        return Ok(unpacked);
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    let (package, to) = (format!("{PACKAGE}=={VERSION}"), folder.display().to_string());
    let pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", &package, "--dest", &to];
    sh("python3", &pip, &[])?;
    let archive = folder.join(format!("{name}.tar.gz")).display().to_string();
    // Into a folder of another name first: a run that was cut off leaves none that looks whole.
    let part = folder.join("part");
    if part.exists() {
        fs::remove_dir_all(&part).with_context(|| format!("cannot clear `{}`", part.display()))?;
    }
    fs::create_dir_all(&part)?;
    let models = format!("{name}/vendor/llama.cpp/models");
    sh("tar", &["-xzf", &archive, "-C", &part.display().to_string(), &models], &[])?;
    fs::rename(part.join(&name), &unpacked).with_context(|| format!("cannot rename to `{}`", unpacked.display()))?;
    fs::remove_dir_all(&part)?;
    Ok(unpacked)
}

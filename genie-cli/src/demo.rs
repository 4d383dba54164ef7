//! The built-in demo model: compiled into a cache folder on first use, run from there afterwards.
//!
//! The folder's name holds a hash of the model and of the versions that compiled it, so a new version compiles a new bundle.

use std::path::PathBuf;

use anyhow::{Context, Result};
use compiler::{CompileOptions, Precision, Splits};

use crate::args::BackendArgs;
use crate::commands::compile;
use crate::failure::UserError;
use crate::printer::Printer;

/// The LM head as a split of its own, as `genie compile` does by default: it then runs for single rows.
const SPLITS: Splits = Splits::DecoderLmhead;

/// The checkpoint, file by file.
const FILES: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../../models/demo/config.json")),
    ("generation_config.json", include_bytes!("../../models/demo/generation_config.json")),
    ("model.safetensors", include_bytes!("../../models/demo/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../models/demo/tokenizer.json")),
];

/// Default of `genie run --max-tokens` with the demo.
pub const MAX_TOKENS: u32 = 200;

/// The config of the compiled demo; compiles it if this version has not done so.
pub fn config(backend: &BackendArgs, printer: &Printer) -> Result<PathBuf> {
    let bundle = cache_dir()?.join(format!("demo-{}", key()));
    let config = bundle.join(genie_bundle::CONFIG_FILE);
    if config.exists() {
        return Ok(config);
    }
    printer.info(format_args!("compiling the demo model into {} (once)", bundle.display()));
    let parent = bundle.parent().context("the cache folder has a parent")?;
    std::fs::create_dir_all(parent)
        .with_context(|| format!("cannot create the cache folder `{}`", parent.display()))?;
    let model = tempfile::Builder::new()
        .prefix("demo-model-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot write to `{}`", parent.display()))?;
    for (name, bytes) in FILES {
        std::fs::write(model.path().join(name), bytes).with_context(|| format!("cannot write the demo's `{name}`"))?;
    }
    let options = CompileOptions {
        ars: vec![1, 32, 128],
        cls: vec![256, 512],
        splits: SPLITS,
        one_file: true,
        precision: Precision::F16,
        force: true,
        ..CompileOptions::new(model.path(), &bundle)
    };
    compile::into_bundle(&options, backend, printer)?;
    Ok(config)
}

/// `$GENIE_CACHE`, else the user's cache folder.
fn cache_dir() -> Result<PathBuf> {
    let home =
        |var: &str, below: &str| std::env::var_os(var).filter(|v| !v.is_empty()).map(|v| PathBuf::from(v).join(below));
    home("GENIE_CACHE", "")
        .or_else(|| home("XDG_CACHE_HOME", "open-genie"))
        .or_else(|| home("LOCALAPPDATA", "open-genie"))
        .or_else(|| home("HOME", ".cache/open-genie"))
        .ok_or_else(|| {
            UserError::error(
                "no cache folder: none of GENIE_CACHE, XDG_CACHE_HOME, HOME is set",
                "set GENIE_CACHE to a writable folder",
            )
        })
}

/// Changes with the model, its splits, this program's version and the host backend's binary format.
fn key() -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    FILES.hash(&mut hasher);
    SPLITS.to_string().hash(&mut hasher);
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    qnn_host::container::FORMAT_VERSION.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

//! The built-in demo model: compiled into a cache folder on first use, run from there afterwards.
//!
//! The folder's name holds a hash of the model and of the versions that compiled it, so a new version compiles a new bundle.
//! It needs feature `demo`: a program with models of its own embeds neither the weights nor the compiler.

use std::path::{Path, PathBuf};

use compiler::{CompileOptions, Precision, Progress, Silent, Splits};

use crate::Error;
use crate::backend::open_backend;
use crate::options::Options;

/// The LM head as a split of its own, as `genie compile` does by default: it then runs for single rows.
const SPLITS: Splits = Splits::DecoderLmhead;

/// The checkpoint, file by file.
const FILES: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../../models/demo/config.json")),
    ("generation_config.json", include_bytes!("../../models/demo/generation_config.json")),
    ("model.safetensors", include_bytes!("../../models/demo/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../models/demo/tokenizer.json")),
];

/// The demo's bundle, compiled with the embedded backend if this version has not done so.
///
/// # Errors
/// There is no cache folder, or it cannot be written.
pub fn bundle() -> Result<PathBuf, Error> {
    let folder = folder()?;
    if !is_compiled(&folder) {
        compile(&folder, &Options::new(), &mut Silent)?;
    }
    Ok(folder)
}

/// Where this version's bundle is or will be.
///
/// # Errors
/// [`Error::NoCacheFolder`].
pub fn folder() -> Result<PathBuf, Error> {
    Ok(cache_folder()?.join(format!("demo-{}", key())))
}

/// Whether the bundle is there.
pub fn is_compiled(folder: &Path) -> bool {
    folder.join(genie_bundle::CONFIG_FILE).exists()
}

/// Compiles the demo into that folder with the backend that the options select.
///
/// # Errors
/// The folder cannot be written, or the backend cannot be opened.
pub fn compile(folder: &Path, options: &Options, progress: &mut dyn Progress) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::DemoFile { path, source }
    };
    let parent = folder.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(failed(parent))?;
    let model = tempfile::Builder::new().prefix("demo-model-").tempdir_in(parent).map_err(failed(parent))?;
    for (name, bytes) in FILES {
        let path = model.path().join(name);
        std::fs::write(&path, bytes).map_err(failed(&path))?;
    }
    let compile = CompileOptions {
        ars: vec![1, 32, 128],
        cls: vec![256, 512],
        splits: SPLITS,
        one_file: true,
        precision: Precision::F16,
        force: true,
        ..CompileOptions::new(model.path(), folder)
    };
    compile.check()?;
    crate::compile(&compile, &open_backend(options)?, options, progress)?;
    Ok(())
}

/// `$GENIE_CACHE`, else the user's cache folder.
fn cache_folder() -> Result<PathBuf, Error> {
    let home =
        |var: &str, below: &str| std::env::var_os(var).filter(|v| !v.is_empty()).map(|v| PathBuf::from(v).join(below));
    home("GENIE_CACHE", "")
        .or_else(|| home("XDG_CACHE_HOME", "open-genie"))
        .or_else(|| home("LOCALAPPDATA", "open-genie"))
        .or_else(|| home("HOME", ".cache/open-genie"))
        .ok_or(Error::NoCacheFolder)
}

/// Changes with the model, its splits, this crate's version and the host backend's binary format.
fn key() -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    FILES.hash(&mut hasher);
    SPLITS.to_string().hash(&mut hasher);
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    qnn_host::container::FORMAT_VERSION.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

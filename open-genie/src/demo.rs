//! The built-in demo model: compiled into a cache folder on first use, run from there afterwards.
//!
//! The folder's name holds a hash of the model and of the versions that compiled it, so a new version compiles a new bundle.
//! Several first runs at once compile it each for itself; the first one that is done publishes its folder, the others use that.
//! It needs feature `demo`: a program with models of its own embeds neither the weights nor the compiler.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use compiler::{CompileError, CompileOptions, Precision, Progress, Silent, Splits};
use file_io::{FolderError, NewFolder};
use genie_bundle::files::OPTIONAL_FILES;
use genie_bundle::manifest::listed_files;
use genie_bundle::{CONFIG_FILE, MANIFEST_FILE, Manifest, TOKENIZER_FILE};

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
    Ok(genie_bundle::cache_folder().ok_or(Error::NoCacheFolder)?.join(format!("demo-{}", key())))
}

/// Whether the bundle is there, with every file that its manifest lists.
pub fn is_compiled(folder: &Path) -> bool {
    let is_whole = |manifest: Manifest| {
        manifest.files.iter().all(|file| folder.join(&file.path).metadata().is_ok_and(|meta| meta.len() == file.bytes))
    };
    folder.join(CONFIG_FILE).exists() && Manifest::read(folder).is_ok_and(is_whole)
}

/// Compiles the demo into that folder with the backend that the options select. If another process does so meanwhile, its
/// bundle stays.
///
/// # Errors
/// The folder cannot be written or holds something else, or the backend cannot be opened.
pub fn compile(folder: &Path, options: &Options, progress: &mut dyn Progress) -> Result<(), Error> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(|source| Error::DemoFile { path: parent.to_owned(), source })?;
    sweep_old_names(parent);
    let model = NewFolder::temporary(parent, "demo-model")?;
    write_checkpoint(model.path())?;
    remove_torn(folder)?;
    let compile = CompileOptions {
        ars: vec![1, 32, 128],
        cls: vec![256, 512],
        splits: SPLITS,
        one_file: true,
        precision: Precision::F16,
        // A bundle that lacks a file.
        force: folder.exists() && !is_compiled(folder),
        ..CompileOptions::new(model.path(), folder)
    };
    compile.check()?;
    match crate::compile(&compile, &open_backend(options)?, options, progress) {
        Err(Error::Compile(CompileError::OutputIsBundle { .. })) if is_compiled(folder) => Ok(()),
        Err(Error::Compile(error @ CompileError::OutputOccupied { .. })) => {
            Err(Error::DemoOccupied { folder: folder.to_owned(), source: Box::new(error) })
        }
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Writes the demo's checkpoint into a folder.
pub(crate) fn write_checkpoint(folder: &Path) -> Result<(), Error> {
    for (name, bytes) in FILES {
        file_io::write_bytes(&folder.join(name), bytes).map_err(FolderError::from)?;
    }
    Ok(())
}

/// Removes a folder in which only files of a bundle are, but no manifest that says so: the compiler would replace no such
/// folder. It is moved out of the way whole first.
fn remove_torn(folder: &Path) -> Result<(), Error> {
    const NAMES: [&str; 4] = ["model.bin", CONFIG_FILE, TOKENIZER_FILE, MANIFEST_FILE];
    let is_ours = |name: &OsStr| NAMES.iter().chain(&OPTIONAL_FILES).any(|ours| OsStr::new(ours) == name);
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    if names.is_empty() || listed_files(folder).is_ok() || !names.iter().all(|name| is_ours(name)) {
        return Ok(());
    }
    let parent = folder.parent().unwrap_or(Path::new("."));
    let torn = NewFolder::temporary(parent, "demo-torn")?;
    torn.move_in(folder)?;
    Ok(())
}

/// Removes what killed first runs of earlier releases left: folders named by their process, and models that are a day old.
fn sweep_old_names(cache: &Path) {
    const AGE: Duration = Duration::from_secs(24 * 60 * 60);
    let is_ours = |name: &str| name.strip_prefix("demo-").is_some_and(|key| key.len() == 16);
    file_io::sweep_old_names(cache, is_ours);
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        let is_model =
            entry.file_name().to_str().and_then(|name| name.strip_prefix("demo-model-")).map(str::len) == Some(6);
        let is_old =
            || entry.metadata().is_ok_and(|meta| meta.modified().is_ok_and(|t| t.elapsed().is_ok_and(|t| t > AGE)));
        if is_model && is_old() {
            // What cannot be removed does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
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

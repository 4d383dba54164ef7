//! `--config`, `--model` and the word MODEL: the bundle to use, compiled first where it is a checkpoint.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use indicatif::{DecimalBytes, HumanDuration};
use open_genie::models::{CompiledModels, ModelSource, ModelWord, find};
use open_genie::{Bundle, demo};

use super::BackendArgs;
use crate::commands::compile::Bars;
use crate::failure::UserError;
use crate::printer::Printer;

/// The bundle to use.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Model and prompt")]
pub struct BundleArgs {
    /// The model: a bundle, a GGUF file, a Hugging Face folder, or a name that `genie list` shows. What is no bundle is compiled
    /// for this machine once, into the cache [default: the built-in demo model].
    #[arg(long = "model", short = 'm', value_name = "MODEL", conflicts_with = "config")]
    pub named: Option<String>,
    /// A bundle's `genie_config.json`, or its folder.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The model where none is named, from `genie.toml` or `GENIE_MODEL`.
    #[arg(long, hide = true, value_name = "MODEL")]
    pub default_model: Option<String>,
}

impl BundleArgs {
    /// Whether a flag names the bundle.
    pub fn is_given(&self) -> bool {
        self.named.is_some() || self.config.is_some()
    }

    /// Reads the bundle of the flags, or the demo.
    pub fn read(&self, backend: &BackendArgs, printer: &Printer) -> Result<Bundle> {
        self.read_word(None, None, backend, printer)
    }

    /// Reads the bundle of the flags, else that of `word`, else the demo; prints its warnings. A checkpoint is compiled on first
    /// use, for at least `context` tokens.
    pub fn read_word(
        &self,
        word: Option<&str>,
        context: Option<usize>,
        backend: &BackendArgs,
        printer: &Printer,
    ) -> Result<Bundle> {
        if let Some(path) = &self.config {
            must_be_one(word)?;
            return read_bundle(path, backend, printer);
        }
        if self.named.is_some() {
            must_be_one(word)?;
        }
        let Some(word) = self.named.as_deref().or(word).or(self.default_model.as_deref()) else {
            return read_bundle(&demo_bundle(backend, printer)?, backend, printer);
        };
        read_bundle(&bundle_of(word, context, backend, printer)?, backend, printer)
    }

    /// Whether the demo is meant.
    pub fn is_demo(&self, word: Option<&str>) -> bool {
        self.config.is_none()
            && self
                .named
                .as_deref()
                .or(word)
                .or(self.default_model.as_deref())
                .is_none_or(|word| find(word, None).is_ok_and(|found| found == ModelWord::Demo))
    }
}

fn must_be_one(word: Option<&str>) -> Result<()> {
    word.map_or(Ok(()), |word| {
        let hint = "leave out one of them";
        Err(UserError::error(format!("two models are named: `{word}`, and one by `--model` or `--config`"), hint))
    })
}

/// Reads the bundle of a path, which may be a word.
pub fn read_path(path: &Path, backend: &BackendArgs, printer: &Printer) -> Result<Bundle> {
    read_path_for(path, None, backend, printer)
}

/// As [`read_path`]; a checkpoint is compiled for at least `context` tokens.
pub fn read_path_for(path: &Path, context: Option<usize>, backend: &BackendArgs, printer: &Printer) -> Result<Bundle> {
    // A name that is not UTF-8 is no word.
    match path.to_str() {
        Some(word) => read_bundle(&bundle_of(word, context, backend, printer)?, backend, printer),
        None => read_bundle(path, backend, printer),
    }
}

/// Fails where a word names no model.
pub fn check_word(word: &str) -> Result<()> {
    find(word, CompiledModels::open().ok().as_ref()).map_err(open_genie::Error::from)?;
    Ok(())
}

/// The bundle that a word stands for, compiled first if it has to be.
fn bundle_of(word: &str, context: Option<usize>, backend: &BackendArgs, printer: &Printer) -> Result<PathBuf> {
    let store = CompiledModels::open().ok();
    match find(word, store.as_ref()).map_err(open_genie::Error::from)? {
        ModelWord::Demo => demo_bundle(backend, printer),
        ModelWord::Bundle(path) => Ok(path),
        ModelWord::Source(path) => compiled(&path, context, backend, printer),
        other => unreachable!("`{other:?}` has no arm"),
    }
}

/// The bundle of a checkpoint, from the cache.
fn compiled(path: &Path, context: Option<usize>, backend: &BackendArgs, printer: &Printer) -> Result<PathBuf> {
    if backend.backend.as_deref().is_some_and(|name| name != "host") || backend.backend_lib.is_some() {
        let message = format!("`{}` is not compiled yet, and not for that backend", path.display());
        let hint = format!("`genie compile {} -o BUNDLE --soc SOC` compiles it for a chip", path.display());
        return Err(UserError::error(message, hint));
    }
    let store = CompiledModels::open().map_err(open_genie::Error::from)?;
    let source = ModelSource::of(path).map_err(open_genie::Error::from)?;
    if let Some(bundle) = store.bundle_of(&source, context) {
        return Ok(bundle);
    }
    printer.info(format_args!("compiling `{}` into {} (once)", source.name(), store.folder().display()));
    let began = Instant::now();
    // A signal cancels, so that nothing half written is left.
    let deferred = printer.interrupt().defer();
    let bundle = store.compile(&source, context, &backend.options()?, &mut Bars::new(printer, false))?;
    drop(deferred);
    let models = store.list().map_err(open_genie::Error::from)?;
    if let Some(model) = models.iter().find(|model| model.bundle() == bundle) {
        let (bytes, took) = (DecimalBytes(model.bytes()), HumanDuration(began.elapsed()));
        let context = model.context;
        printer.info(format_args!("compiled `{}` in {took}: {bytes}, contexts of up to {context} tokens", model.name));
    }
    Ok(bundle)
}

/// Reads a bundle's config and prints its warnings, also those of the backend that it will run on.
pub fn read_bundle(path: &Path, backend: &BackendArgs, printer: &Printer) -> Result<Bundle> {
    let bundle = Bundle::read(path)?;
    for warning in bundle.warnings_for(&backend.options()?) {
        printer.info(format_args!("warning: {warning}"));
    }
    Ok(bundle)
}

fn demo_bundle(backend: &BackendArgs, printer: &Printer) -> Result<PathBuf> {
    let folder = demo::folder()?;
    if !demo::is_compiled(&folder) {
        printer.info(format_args!("compiling the demo model into {} (once)", folder.display()));
        // A signal cancels, so that nothing half written is left.
        let _deferred = printer.interrupt().defer();
        demo::compile(&folder, &backend.options()?, &mut Bars::new(printer, false))?;
    }
    Ok(folder)
}

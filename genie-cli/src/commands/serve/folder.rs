//! `--models FOLDER`: its bundles, GGUF files and checkpoints, opened when a request names them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use open_genie::Bundle;
use open_genie::models::{CompiledModels, Listed, memory_bytes, models_in};
use server::{LoadLimits, ModelEntry, ModelSource, Models, OpenError, ServedModel};

use crate::args::{BackendArgs, read_path_for};
use crate::failure::UserError;
use crate::printer::Printer;

/// Part of the machine's memory that models may take where no flag says it.
const QUARTERS: u64 = 3;

/// Opens a bundle as the flags say.
pub type Start = dyn Fn(Bundle) -> Result<ServedModel> + Send + Sync;

struct Folder {
    path: PathBuf,
    /// Tokens that a checkpoint is compiled for at least.
    context: Option<usize>,
    backend: BackendArgs,
    printer: Printer,
    start: Box<Start>,
}

/// `--models-memory`, in MiB, and `--models-max`.
pub struct Limits {
    pub memory: Option<u64>,
    pub most: Option<usize>,
}

/// The models of the folder, loaded on demand.
pub fn models(
    folder: &Path,
    limits: &Limits,
    context: Option<usize>,
    backend: &BackendArgs,
    printer: &Printer,
    start: Box<Start>,
) -> Result<Models> {
    let found = found_in(folder)?;
    if found.is_empty() {
        let message =
            format!("`--models`: no model in `{}`: expected bundles, GGUF files or checkpoints", folder.display());
        return Err(UserError::error(message, "`genie list` shows what is found elsewhere"));
    }
    let names: Vec<String> = found.iter().map(|model| format!("`{}`", model.name)).collect();
    printer.info(format_args!("models, loaded when they are asked for: {}", names.join(", ")));
    let bytes = limits.memory.map(|mib| mib << 20).or_else(|| Some(memory_bytes()? / 4 * QUARTERS));
    let source = Folder { path: folder.to_owned(), context, backend: backend.clone(), printer: printer.clone(), start };
    Ok(Models::on_demand(source, LoadLimits { bytes, models: limits.most }))
}

/// Folders and GGUF files: a JSON file that lies about is no model of its own.
fn found_in(folder: &Path) -> Result<Vec<Listed>> {
    let mut found = models_in(folder).map_err(open_genie::Error::from)?;
    found.retain(|model| !model.is_bundle || model.path.is_dir());
    Ok(found)
}

impl Folder {
    fn found(&self) -> Result<Vec<Listed>> {
        let mut found = found_in(&self.path)?;
        // A bundle goes before a checkpoint of the same name: it is compiled.
        found.sort_by(|a, b| (&a.name, !a.is_bundle).cmp(&(&b.name, !b.is_bundle)));
        found.dedup_by(|next, kept| next.name == kept.name);
        Ok(found)
    }

    fn open_named(&self, name: &str) -> Result<ServedModel> {
        let found = self.found()?.into_iter().find(|model| model.name == name);
        let model = found.with_context(|| format!("no model `{name}` in `{}`", self.path.display()))?;
        (self.start)(read_path_for(&model.path, self.context, &self.backend, &self.printer)?)
    }
}

impl ModelSource for Folder {
    fn list(&self) -> Result<Vec<ModelEntry>, OpenError> {
        let store = CompiledModels::open().ok();
        let entry = |model: Listed| {
            let bytes = bytes_of(&model, store.as_ref());
            ModelEntry { name: model.name, bytes }
        };
        Ok(self.found()?.into_iter().map(entry).collect())
    }

    fn open(&self, name: &str) -> Result<ServedModel, OpenError> {
        Ok(self.open_named(name)?)
    }
}

/// Of the bundle, where there is one; weights are mapped, so the files are most of what a model takes.
fn bytes_of(model: &Listed, store: Option<&CompiledModels>) -> u64 {
    let compiled = || store?.bundle_of(&open_genie::models::ModelSource::of(&model.path).ok()?, None);
    match model.is_bundle {
        true => size(&model.path, DEPTH),
        false => size(&compiled().unwrap_or_else(|| model.path.clone()), DEPTH),
    }
}

/// Folders within folders that are looked into: links may lead round in a circle.
const DEPTH: usize = 3;

/// Bytes of a file, or of the files of a folder.
fn size(path: &Path, depth: usize) -> u64 {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() && depth == 0 => 0,
        Ok(meta) if meta.is_dir() => {
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path(), depth - 1)).sum()
        }
        Ok(meta) => meta.len(),
        Err(_) => 0,
    }
}

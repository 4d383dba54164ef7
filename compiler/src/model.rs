//! A model to compile: a Hugging Face directory, or one GGUF file.
//!
//! A GGUF file's configuration and tokenizer are turned into Hugging Face's form in memory, which the rest of the compiler
//! reads. Its weights are read from the file itself.

use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::gguf::Gguf;
use crate::model_files::ModelFiles;
use crate::{CompileError, Result};
use file_io::{FileKind, FolderKind};
use std::path::{Path, PathBuf};

/// An opened model.
#[derive(Debug)]
pub(crate) struct Model {
    /// The input of the lowering.
    pub(crate) spec: ModelSpec,
    /// The weights.
    pub(crate) checkpoint: Checkpoint,
    /// Configuration, tokenizer and the other small files.
    pub(crate) files: ModelFiles,
}

impl Model {
    /// Opens a directory or a GGUF file.
    ///
    /// # Errors
    /// Those of the configuration, the checkpoint or the GGUF file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        must_be_a_model(path)?;
        if !path.is_file() {
            let (spec, checkpoint) = (ModelSpec::load(path)?, Checkpoint::open(path)?);
            return Ok(Self { spec, checkpoint, files: ModelFiles::Folder(path.into()) });
        }
        let gguf = Gguf::open(path)?;
        let made = [
            ("config.json", gguf.config()?),
            ("tokenizer.json", gguf.tokenizer()?),
            ("tokenizer_config.json", gguf.tokenizer_config()),
        ];
        let contents = made.into_iter().map(|(name, value)| (name, value.to_string().into_bytes())).collect();
        let files = ModelFiles::Made { of: path.into(), contents };
        let spec = ModelSpec::of_files(&files).map_err(|error| in_gguf(error, path))?;
        let checkpoint = Checkpoint::of_gguf(&gguf, spec.head_dim)?;
        Ok(Self { spec, checkpoint, files })
    }

    /// All files that are read, for the hash: the small ones first.
    pub(crate) fn hashed_files(&self, small: impl Iterator<Item = &'static str>) -> Vec<PathBuf> {
        let in_folder = matches!(self.files, ModelFiles::Folder(_));
        let small = small.filter(|name| in_folder && self.files.has(name)).map(|name| self.files.path(name));
        small.chain(self.checkpoint.shards().iter().cloned()).collect()
    }
}

/// Refuses by its kind what holds no model. What a folder lacks is for those that read it.
fn must_be_a_model(path: &Path) -> Result<()> {
    let found = FileKind::of(path);
    let fine = match &found {
        FileKind::Missing => return Err(CompileError::NoModel { path: path.into() }),
        FileKind::Gguf { .. } | FileKind::Folder(FolderKind::Checkpoint | FolderKind::Other) => true,
        FileKind::Folder(FolderKind::Bundle) => path.join("config.json").exists(),
        _ => false,
    };
    if fine { Ok(()) } else { Err(CompileError::NotAModel { path: path.into(), found: Box::new(found) }) }
}

/// Reports missing keys as the GGUF file's, which has no `config.json`.
fn in_gguf(error: CompileError, path: &Path) -> CompileError {
    match error {
        CompileError::ConfigMissing { key } => CompileError::NotGguf {
            path: path.into(),
            detail: format!("its metadata has no value for the model's `{key}`"),
        },
        other => other,
    }
}

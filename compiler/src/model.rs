//! A model to compile: a Hugging Face directory, or one GGUF file.
//!
//! A GGUF file's configuration and tokenizer are turned into Hugging Face's form in memory, which the rest of the compiler
//! reads. Its weights are read from the file itself.

use crate::checkpoint::Checkpoint;
use crate::family::{CONFIG, Configuration, ModelSpec};
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
    /// What is worth a remark in the model's files.
    pub(crate) notes: Vec<String>,
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
        if !is_file(path)? {
            let files = ModelFiles::Folder(path.into());
            let configuration = Configuration::read(&files)?;
            return Ok(Self::new(configuration, Checkpoint::open(path)?, files));
        }
        let gguf = Gguf::open(path)?;
        let made = [
            ("config.json", gguf.config()?),
            ("tokenizer.json", gguf.tokenizer()?),
            ("tokenizer_config.json", gguf.tokenizer_config()),
        ];
        let contents = made.into_iter().map(|(name, value)| (name, value.to_string().into_bytes())).collect();
        let files = ModelFiles::Made { of: path.into(), contents };
        let configuration = Configuration::read(&files).map_err(|error| in_gguf(error, path))?;
        let checkpoint = Checkpoint::of_gguf(&gguf, configuration.spec.head_dim)?;
        Ok(Self::new(configuration, checkpoint, files))
    }

    fn new(mut configuration: Configuration, checkpoint: Checkpoint, files: ModelFiles) -> Self {
        configuration.take_biases(|name| checkpoint.tensors().contains_key(name));
        let Configuration { spec, mut notes, .. } = configuration;
        notes.extend_from_slice(checkpoint.notes());
        Self { spec, notes, checkpoint, files }
    }

    /// All files that are read, for the hash: the small ones first.
    pub(crate) fn hashed_files(&self, small: impl Iterator<Item = &'static str>) -> Vec<PathBuf> {
        let in_folder = matches!(self.files, ModelFiles::Folder(_));
        let small =
            small.filter(|name| in_folder && self.files.has(name).unwrap_or(true)).map(|name| self.files.path(name));
        small.chain(self.checkpoint.shards().iter().cloned()).collect()
    }
}

/// True for a file, false for a folder.
///
/// # Errors
/// Nothing there, or something that no model can be.
fn is_file(path: &Path) -> Result<bool> {
    let kind = FileKind::of(path);
    match &kind {
        FileKind::Missing => Err(CompileError::NoModel { path: path.into() }),
        FileKind::Folder(_) if path.join(CONFIG).symlink_metadata().is_ok() => Ok(false),
        // What is missing in it is an error of its own, with a hint.
        FileKind::Folder(FolderKind::Checkpoint | FolderKind::Empty | FolderKind::Other) => Ok(false),
        FileKind::Gguf { .. } | FileKind::Unreadable(_) | FileKind::Unknown { .. } | FileKind::Empty => Ok(true),
        _ => Err(CompileError::NotAModel { path: path.into(), found: kind.to_string() }),
    }
}

/// Reports missing keys as the GGUF file's, which has no `config.json`.
fn in_gguf(error: CompileError, path: &Path) -> CompileError {
    match error {
        CompileError::ConfigMissing { key, .. } => CompileError::NotGguf {
            path: path.into(),
            detail: format!("its metadata has no value for the model's `{key}`"),
        },
        other => other,
    }
}

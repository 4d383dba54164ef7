//! A model to compile: a Hugging Face directory, or one GGUF file.
//!
//! A GGUF file's configuration and tokenizer are unpacked into a temporary directory in Hugging Face's form, which the rest of
//! the compiler reads. Its weights are read from the file itself.

use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::gguf::Gguf;
use crate::{CompileError, Result, fs};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An opened model.
#[derive(Debug)]
pub(crate) struct Model {
    /// The input of the lowering.
    pub(crate) spec: ModelSpec,
    /// The weights.
    pub(crate) checkpoint: Checkpoint,
    dir: PathBuf,
    /// Keeps `dir` alive, if it was unpacked.
    unpacked: Option<TempDir>,
}

impl Model {
    /// Opens a directory or a GGUF file.
    ///
    /// # Errors
    /// Those of the configuration, the checkpoint or the GGUF file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if !path.is_file() {
            let (spec, checkpoint) = (ModelSpec::load(path)?, Checkpoint::open(path)?);
            return Ok(Self { spec, checkpoint, dir: path.into(), unpacked: None });
        }
        let gguf = Gguf::open(path)?;
        let unpacked = TempDir::new().map_err(fs::io_err("make a directory in", &std::env::temp_dir()))?;
        let files = [
            ("config.json", gguf.config()?),
            ("tokenizer.json", gguf.tokenizer()?),
            ("tokenizer_config.json", gguf.tokenizer_config()),
        ];
        for (name, value) in files {
            let to = unpacked.path().join(name);
            std::fs::write(&to, value.to_string()).map_err(fs::io_err("write", &to))?;
        }
        let spec = ModelSpec::load(unpacked.path()).map_err(|error| in_gguf(error, path))?;
        let checkpoint = Checkpoint::of_gguf(&gguf, spec.head_dim)?;
        Ok(Self { spec, checkpoint, dir: unpacked.path().into(), unpacked: Some(unpacked) })
    }

    /// The folder of `tokenizer.json` and the other small files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// All files that are read, for the hash: the small ones first.
    pub(crate) fn files(&self, small: impl Iterator<Item = &'static str>) -> Vec<PathBuf> {
        let small = small.map(|name| self.dir.join(name)).filter(|path| self.unpacked.is_none() && path.is_file());
        small.chain(self.checkpoint.shards().iter().cloned()).collect()
    }
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

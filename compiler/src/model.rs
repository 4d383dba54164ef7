//! A model to compile: a Hugging Face directory, or one GGUF file.
//!
//! A GGUF file's configuration and tokenizer are turned into Hugging Face's form in memory, which the rest of the compiler
//! reads. Its weights are read from the file itself.

use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use crate::gguf::{Gguf, in_stored_keys, in_stored_words};
use crate::model_files::ModelFiles;
use genie_bundle::TOKENIZER_FILE;
use serde_json::Value;
use std::collections::BTreeMap;
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
    /// What the user should know of the model.
    pub(crate) notes: Vec<String>,
}

impl Model {
    /// Opens a directory or a GGUF file.
    ///
    /// # Errors
    /// Those of the configuration, the checkpoint or the GGUF file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if !path.is_file() {
            let (spec, checkpoint) = (ModelSpec::load(path)?, Checkpoint::open(path)?);
            return Ok(Self { spec, checkpoint, files: ModelFiles::Folder(path.into()), notes: vec![] });
        }
        let gguf = Gguf::open(path)?;
        Self::of_gguf(&gguf).map_err(|error| in_stored_words(path, error))
    }

    fn of_gguf(gguf: &Gguf) -> Result<Self> {
        let family = gguf.family()?;
        let path = &gguf.path;
        let config = gguf.config()?;
        let json = |value: Value| value.to_string().into_bytes();
        let mut contents = BTreeMap::from([
            ("config.json", json(config)),
            ("generation_config.json", json(gguf.generation_config()?)),
            ("tokenizer_config.json", json(gguf.tokenizer_config()?)),
        ]);
        let files = ModelFiles::Made { of: path.clone(), contents: contents.clone() };
        let mut spec = ModelSpec::of_files(&files).map_err(|error| in_stored_keys(path, family, error))?;
        gguf.set_biases(&mut spec);
        contents.insert(TOKENIZER_FILE, json(gguf.tokenizer(spec.vocab)?));
        let notes = gguf.unread_note().into_iter().chain(gguf.tokenizer_note()?).collect();
        let checkpoint = Checkpoint::of_gguf(gguf, spec.head_dim)?;
        let files = ModelFiles::Made { of: path.clone(), contents };
        Ok(Self { spec, checkpoint, files, notes })
    }

    /// All files that are read, for the hash: the small ones first.
    pub(crate) fn hashed_files(&self, small: impl Iterator<Item = &'static str>) -> Vec<PathBuf> {
        let in_folder = matches!(self.files, ModelFiles::Folder(_));
        let small = small.filter(|name| in_folder && self.files.has(name)).map(|name| self.files.path(name));
        small.chain(self.checkpoint.shards().iter().cloned()).collect()
    }
}

//! A model to compile: a Hugging Face directory, or one GGUF file.
//!
//! A GGUF file's configuration and tokenizer are turned into Hugging Face's form in memory, which the rest of the compiler
//! reads. Its weights are read from the file itself.

use crate::checkpoint::Checkpoint;
use crate::family::{CONFIG, Configuration, Family, ModelSpec, NormKind};
use crate::gguf::{Gguf, in_stored_keys, in_stored_words};
use crate::model_files::ModelFiles;
use crate::{CompileError, Result};
use file_io::{FileKind, FolderKind};
use genie_bundle::TOKENIZER_FILE;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files of tokenizers in other forms: SentencePiece's, Mistral's, and the older one of byte-level BPE.
const OTHER_TOKENIZERS: [&str; 3] = ["tokenizer.model", "tekken.json", "vocab.json"];

/// An opened model.
#[derive(Debug)]
pub(crate) struct Model {
    /// The input of the lowering.
    pub(crate) spec: ModelSpec,
    /// The weights.
    pub(crate) checkpoint: Checkpoint,
    /// Configuration, tokenizer and the other small files.
    pub(crate) files: ModelFiles,
    /// Files beside those that were read too, of a model that is made of two.
    pub(crate) other_files: Vec<PathBuf>,
    /// What the user should know of the model.
    pub(crate) notes: Vec<String>,
}

impl Model {
    /// Opens a directory or a GGUF file.
    ///
    /// # Errors
    /// Those of the configuration, the checkpoint or the GGUF file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if is_file(path)? {
            let gguf = Gguf::open(path)?;
            let family = gguf.family()?;
            return Self::of_gguf(&gguf, family).map_err(|error| in_stored_words(path, family, error));
        }
        let files = ModelFiles::Folder(path.into());
        let mut configuration = Configuration::read(&files)?;
        let mut checkpoint = Checkpoint::open(path)?;
        if configuration.spec.family.info().learned_positions {
            checkpoint.turn_conv1d()?;
        }
        checkpoint.split_fused(&configuration.spec)?;
        configuration.take_biases(|name| checkpoint.tensors().contains_key(name));
        let Configuration { spec, mut notes, .. } = configuration;
        notes.extend_from_slice(checkpoint.notes());
        Ok(Self { spec, checkpoint, files, other_files: Vec::new(), notes })
    }

    fn of_gguf(gguf: &Gguf, family: Family) -> Result<Self> {
        let path = &gguf.path;
        let config = gguf.config()?;
        let json = |value: Value| value.to_string().into_bytes();
        let mut contents = BTreeMap::from([
            ("config.json", json(config)),
            ("generation_config.json", json(gguf.generation_config()?)),
            ("tokenizer_config.json", json(gguf.tokenizer_config()?)),
        ]);
        let files = ModelFiles::Made { of: path.clone(), contents: contents.clone() };
        let Configuration { mut spec, mut notes, .. } =
            Configuration::read(&files).map_err(|error| in_stored_keys(path, family, error))?;
        gguf.set_biases(&mut spec);
        if spec.norm == NormKind::RmsPlusOne {
            // llama.cpp's converter has added the one.
            spec.norm = NormKind::Rms;
        }
        contents.insert(TOKENIZER_FILE, json(gguf.tokenizer(spec.vocab)?));
        notes.extend(gguf.unread_note().into_iter().chain(gguf.tokenizer_notes()?));
        let mut checkpoint = Checkpoint::of_gguf(gguf, spec.head_dim)?;
        checkpoint.split_fused(&spec)?;
        let files = ModelFiles::Made { of: path.clone(), contents };
        Ok(Self { spec, checkpoint, files, other_files: Vec::new(), notes })
    }

    /// Checks that there is a tokenizer.
    ///
    /// # Errors
    /// A folder without one, with the file of another kind of tokenizer if there is one.
    pub(crate) fn check_has_tokenizer(&self) -> Result<()> {
        if self.files.has(TOKENIZER_FILE)? {
            return Ok(());
        }
        let dir = self.checkpoint.dir();
        let other = OTHER_TOKENIZERS.into_iter().find(|name| dir.join(name).exists());
        Err(CompileError::NoTokenizer { dir: dir.into(), other })
    }

    /// All files that are read, for the hash: the small ones first.
    pub(crate) fn hashed_files(&self, small: impl Iterator<Item = &'static str>) -> Vec<PathBuf> {
        let in_folder = matches!(self.files, ModelFiles::Folder(_));
        let small =
            small.filter(|name| in_folder && self.files.has(name).unwrap_or(true)).map(|name| self.files.path(name));
        small.chain(self.other_files.iter().chain(self.checkpoint.shards()).cloned()).collect()
    }
}

/// True for a file, false for a folder.
///
/// # Errors
/// Nothing there, or something that no model can be.
fn is_file(path: &Path) -> Result<bool> {
    let kind = FileKind::of(path);
    match kind {
        FileKind::Missing => Err(CompileError::NoModel { path: path.into() }),
        FileKind::Folder(_) if path.join(CONFIG).symlink_metadata().is_ok() => Ok(false),
        FileKind::Folder(FolderKind::Checkpoint | FolderKind::Empty | FolderKind::Other) => {
            Err(CompileError::NoConfig { dir: path.into(), gguf: gguf_in(path) })
        }
        FileKind::Gguf { .. } | FileKind::Unreadable(_) | FileKind::Unknown { .. } | FileKind::Empty => Ok(true),
        _ => Err(CompileError::NotAModel { path: path.into(), found: kind }),
    }
}

/// A GGUF file of a folder, the first by name.
fn gguf_in(dir: &Path) -> Option<String> {
    let names = std::fs::read_dir(dir).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".gguf")).min()
}

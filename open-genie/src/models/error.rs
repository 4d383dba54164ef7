//! Why a word names no model, or a compiled model cannot be kept.

use std::path::PathBuf;

use compiler::CompileError;
use file_io::{FileError, FileKind, FolderError};

/// The result of this module's functions.
pub type Result<T> = std::result::Result<T, ModelsError>;

/// Why a word names no model, or a compiled model cannot be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum ModelsError {
    #[error("no model `{word}`")]
    Unknown { word: String, folder: Option<PathBuf>, similar: Option<String> },
    #[error("`{}` does not exist", path.display())]
    NoFile { path: PathBuf },
    #[error("`{}` is {found}, expected a bundle, a GGUF file or a Hugging Face folder", path.display())]
    NoModel { path: PathBuf, found: Box<FileKind> },
    #[error("`{}` holds {} GGUF files: {}", folder.display(), names.len(), names.join(", "))]
    SeveralGguf { folder: PathBuf, names: Vec<String> },
    #[error("{} models are called `{word}`: {}", places.len(), shown(places))]
    Ambiguous { word: String, places: Vec<PathBuf> },
    #[error("no cache folder: none of GENIE_CACHE, XDG_CACHE_HOME, HOME is set")]
    NoCacheFolder,
    #[error("cannot read `{}`", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("cannot make `{}`", path.display())]
    Make { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Model(#[from] CompileError),
}

fn shown(places: &[PathBuf]) -> String {
    let shown: Vec<String> = places.iter().map(|place| format!("`{}`", place.display())).collect();
    shown.join(", ")
}

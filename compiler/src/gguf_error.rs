//! What is wrong with a GGUF file: each message names the file, the key or tensor as the file spells it, and what was expected.

use crate::hint::Hint;
use std::path::PathBuf;

/// A GGUF file that cannot be compiled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum GgufError {
    // Keys.
    #[error("`{key}` in `{}` is {found}, expected {expected}", path.display())]
    Key { path: PathBuf, key: String, found: String, expected: String },
    #[error("`{}` has no key `{key}`", path.display())]
    MissingKey { path: PathBuf, key: String },
    #[error("`{}` has the key `{key}`, which this compiler does not know and would leave out of the model", path.display())]
    UnknownKey { path: PathBuf, key: String },

    // What the file holds.
    #[error("`{}` holds {found}, expected a whole model", path.display())]
    NotAModel { path: PathBuf, found: String },
    #[error("`{}` is file {number} of {count} of a split model", path.display())]
    Shard { path: PathBuf, number: u64, count: u64 },

    // Tensors.
    #[error("`{}` has no tensor `{name}`", path.display())]
    MissingTensor { path: PathBuf, name: String },
    #[error("{} in `{}`, which no part of a {family} model reads", tensors(names, *n_others), path.display())]
    UnreadTensors { path: PathBuf, family: &'static str, names: Vec<String>, n_others: usize },
    #[error("`{key}` in `{}` is {configured}, but its tensors are those of {found} blocks", path.display())]
    Blocks { path: PathBuf, key: String, configured: usize, found: usize },
    #[error("tensor `{name}` in `{}` has shape {found:?}, expected {expected:?}", path.display())]
    Shape { path: PathBuf, name: String, expected: Vec<usize>, found: Vec<usize> },
    #[error("tensor `{name}` in `{}` is {found}, expected {expected}", path.display())]
    TensorType { path: PathBuf, name: String, found: String, expected: String },

    // Tokenizer.
    #[error("`{}` has no tokenizer", path.display())]
    NoTokenizer { path: PathBuf },
    #[error("the tokenizer in `{}` cannot be used: {detail}", path.display())]
    Tokenizer { path: PathBuf, detail: String },
}

impl GgufError {
    pub(crate) fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Shard { .. } => Hint::MergeShards,
            Self::TensorType { .. } => Hint::Requantise,
            Self::NotAModel { .. } => Hint::ModelNotPart,
            Self::NoTokenizer { .. } | Self::Tokenizer { .. } => Hint::ConvertWithTokenizer,
            Self::MissingKey { .. } | Self::MissingTensor { .. } | Self::Shape { .. } | Self::Blocks { .. } => {
                Hint::ConvertAgain
            }
            Self::UnknownKey { .. } | Self::UnreadTensors { .. } => Hint::NewerFormat,
            Self::Key { .. } => return None,
        })
    }
}

/// The first names, and how many there are beside them.
fn tensors(names: &[String], n_others: usize) -> String {
    let list = names.iter().map(|name| format!("`{}`", name.escape_debug())).collect::<Vec<_>>().join(", ");
    match (names.len(), n_others) {
        (1, 0) => format!("there is a tensor {list}"),
        (_, 0) => format!("there are tensors {list}"),
        (_, n) => format!("there are tensors {list} and {n} more"),
    }
}

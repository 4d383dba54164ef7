//! Folders by the names in them.

use std::fmt;
use std::io;
use std::path::Path;

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FolderKind {
    /// A bundle: it has a `genie_config.json`.
    Bundle,
    /// A Hugging Face model: it has a `config.json`, or weights in safetensors.
    Checkpoint,
    /// A saved session, of this program or of libGenie.
    Session,
    /// No file.
    Empty,
    /// Anything else.
    Other,
}

impl fmt::Display for FolderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bundle => "a bundle's folder",
            Self::Checkpoint => "a model's folder",
            Self::Session => "a saved session's folder",
            Self::Empty => "an empty folder",
            Self::Other => "a folder",
        })
    }
}

/// By which names each kind is recognised; the first that is there counts.
const NAMES: &[(&str, FolderKind)] = &[
    ("genie_config.json", FolderKind::Bundle),
    ("open-genie.kvs", FolderKind::Session),
    ("dialog.json", FolderKind::Session),
    ("config.json", FolderKind::Checkpoint),
    ("model.safetensors", FolderKind::Checkpoint),
    ("model.safetensors.index.json", FolderKind::Checkpoint),
];

pub(super) fn of(path: &Path) -> io::Result<FolderKind> {
    if let Some((_, kind)) = NAMES.iter().find(|(name, _)| path.join(name).exists()) {
        return Ok(*kind);
    }
    Ok(if std::fs::read_dir(path)?.next().is_none() { FolderKind::Empty } else { FolderKind::Other })
}

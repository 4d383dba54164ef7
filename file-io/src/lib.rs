//! Files: what a path leads to, and reading that never blocks.
#![forbid(unsafe_code)]

mod kind;
mod regular;

pub use kind::{FileKind, FolderKind, JsonKind};
pub use regular::{open_file, read_file, read_text};

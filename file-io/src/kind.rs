//! What a path leads to: its type, and the signature at a file's beginning.

mod file_kind;
mod folder;
mod head;
mod json;
#[cfg(test)]
mod tests;
mod text;

pub use file_kind::FileKind;
pub use folder::FolderKind;
pub use json::JsonKind;

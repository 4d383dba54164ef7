//! Files that appear whole or not at all, with space reserved first and leftovers of dead processes removed.
//!
//! ```
//! let folder = std::env::temp_dir().join(format!("file-io-{}", std::process::id()));
//! std::fs::create_dir_all(&folder)?;
//! let path = folder.join("report.json");
//! file_io::write_bytes(&path, b"{}")?;
//!
//! // A writer that fails leaves the old file as it was.
//! let failed = file_io::write(&path, |out| {
//!     out.write_all(b"half")?;
//!     Err(std::io::Error::other("no more"))
//! });
//! assert!(failed.is_err());
//! assert_eq!(std::fs::read(&path)?, b"{}");
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in here
//!
//! | item | what |
//! |---|---|
//! | [`write`](fn@write), [`write_bytes`] | one file, by a temporary and a rename; devices, pipes and the like in place |
//! | [`NewFile`] | the same in steps: for a mapped file, or for a stream |
//! | [`FileSet`] | files that belong together: the old ones stay until all new ones are on the disk |
//! | [`NewFolder`] | a folder that takes its place whole; [`FolderPlace`] says where it can, [`carry`] what of the old one stays |
//! | [`check_writable`], [`check_folder`] | whether an output path will do, before a long run |
//! | [`Maker`], [`sweep`] | who made a temporary, and what to do when it is dead |
//! | [`FileKind`] | what a path leads to, by its first bytes: "a GGUF file", "a device" |
//! | [`open_file`], [`read_file`], [`read_text`] | reading that refuses what would block or never end |
//! | [`read_file_up_to`], [`read_up_to`] | the same for what has a longest length |
//! | [`FileError`], [`Shortage`] | what was written where, and why not: bytes needed, bytes free, the limit that was hit |
//!
//! # What it must never know
//!
//! What is in the files, except for the signatures at their beginnings. No `unsafe`.

#![forbid(unsafe_code)]

mod cache_folder;
mod check;
mod error;
mod file_set;
mod folder;
mod in_place;
mod kind;
mod maker;
mod new_file;
mod regular;
mod space;
mod sweep;
mod target;
mod temporary;
mod write;

pub use cache_folder::cache_folder;
pub use check::{check_folder, check_writable};
pub use error::{FileError, Result, Shortage};
pub use file_set::FileSet;
pub use folder::{
    Content, FolderError, FolderPlace, NewFolder, UnfitPlace, carry, carry_changes, has_other_name, sweep_exchanged,
    sweep_folders, sweep_old_names,
};
pub use kind::{FileKind, FolderKind, JsonKind};
pub use maker::Maker;
pub use new_file::NewFile;
pub use regular::{open_file, read_file, read_file_up_to, read_text, read_up_to, utf8};
pub use space::free_bytes;
pub use sweep::{sweep, sweep_names};
pub use target::is_written_in_place;
pub use write::{write, write_bytes};

//! What a path leads to, recognised from the file's type and its first bytes, in words for a message.
//!
//! ```no_run
//! use file_io::FileKind;
//!
//! let kind = FileKind::of("model.gguf".as_ref());
//! eprintln!("expected a bundle's folder, found {kind}"); // found a GGUF file
//! ```
//!
//! Only regular files are opened, so a fifo or a device never blocks; at most 4 KiB of them are read, 64 KiB of JSON.
//! A kind is a guess from a signature: it says nothing of the rest of the file, which may be damaged.

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::folder::{self, FolderKind};
use super::head;
use super::json::{self, JsonKind};

/// Bytes that tell a kind.
const HEAD_BYTES: usize = 4 << 10;
/// Bytes of a JSON document whose keys are looked at.
const JSON_BYTES: usize = 64 << 10;

/// What a path leads to. `Display` is a noun with its article: "a GGUF file".
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileKind {
    /// There is nothing.
    Missing,
    /// A link to something that does not exist.
    BrokenLink {
        /// Where it leads.
        target: PathBuf,
    },
    /// It is there, but cannot be read, for this reason.
    Unreadable(String),
    /// A folder.
    Folder(FolderKind),
    /// A block or character device, such as `/dev/null`.
    Device,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A file of no bytes.
    Empty,
    /// A context binary of the host backend.
    HostBinary {
        /// Version of its format.
        format: u32,
    },
    /// A context binary of Qualcomm's HTP backend.
    HtpBinary,
    /// A GGUF file.
    Gguf {
        /// Version of its format.
        version: u32,
        /// Its numbers are big-endian.
        big_endian: bool,
        /// Its place among the files of a split model, as (number, count), by its name.
        part: Option<(u32, u32)>,
    },
    /// A safetensors file.
    Safetensors,
    /// A library or program in ELF.
    Elf {
        /// The processor, as Rust names it; `None` for one that QNN has no libraries for.
        machine: Option<&'static str>,
    },
    /// A JSON document, whole or torn.
    Json(JsonKind),
    /// A model of the SentencePiece tokenizer.
    SentencePiece,
    /// A snapshot of a saved session.
    Snapshot,
    /// libGenie's file of a saved cache.
    GenieCache,
    /// A checkpoint that PyTorch saved.
    PyTorch,
    /// A page that a server sent in place of a file.
    WebPage,
    /// The place holder that git-lfs leaves where it has not fetched a file.
    LfsPointer,
    /// Another kind that is only named, never used.
    Named(&'static str),
    /// A text.
    Text,
    /// Bytes of no known kind.
    Unknown {
        /// Its first bytes, at most eight.
        begins: Vec<u8>,
    },
}

impl FileKind {
    /// The kind of what a path leads to, through links. Never fails: what cannot be read is a kind, too.
    pub fn of(path: &Path) -> Self {
        match std::fs::metadata(path) {
            Ok(meta) => Self::of_existing(path, &meta),
            Err(error) if error.kind() == ErrorKind::NotFound => match std::fs::read_link(path) {
                Ok(target) => Self::BrokenLink { target },
                Err(_) => Self::Missing,
            },
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    fn of_existing(path: &Path, meta: &Metadata) -> Self {
        if meta.is_dir() {
            return match folder::of(path) {
                Ok(kind) => Self::Folder(kind),
                Err(error) => Self::Unreadable(error.to_string()),
            };
        }
        if !meta.is_file() {
            return special(meta);
        }
        if meta.len() == 0 {
            return Self::Empty;
        }
        match Self::of_file(path) {
            Ok(kind) => kind,
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut head = Vec::with_capacity(HEAD_BYTES);
        file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        let kind = head::of(&head);
        Ok(match kind {
            Self::Json(_) => {
                file.take((JSON_BYTES - HEAD_BYTES) as u64).read_to_end(&mut head)?;
                Self::Json(json::of(&head))
            }
            Self::Gguf { version, big_endian, .. } => Self::Gguf { version, big_endian, part: head::gguf_part(path) },
            Self::Named(head::ZIP) if path.extension().is_some_and(|e| e == "dlc") => Self::Named("a DLC file"),
            other => other,
        })
    }

    /// The kind of a file in memory: its first bytes, or all of them.
    pub fn of_bytes(head: &[u8]) -> Self {
        match head::of(head) {
            Self::Json(_) => Self::Json(json::of(&head[..head.len().min(JSON_BYTES)])),
            other => other,
        }
    }

    /// True for what can be opened and read as a file: no folder, device, pipe or socket, and not missing.
    pub fn is_file(&self) -> bool {
        !matches!(
            self,
            Self::Missing
                | Self::BrokenLink { .. }
                | Self::Unreadable(_)
                | Self::Folder(_)
                | Self::Device
                | Self::Fifo
                | Self::Socket
        )
    }

    /// True for nothing at all: no file, or a link to none.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Missing | Self::BrokenLink { .. })
    }

    /// True for compiled graphs, of whichever backend.
    pub fn is_context_binary(&self) -> bool {
        matches!(self, Self::HostBinary { .. } | Self::HtpBinary)
    }

    /// True if this is surely something else than a context binary. Qualcomm does not publish its formats, so a file of no
    /// known kind may be one.
    pub fn is_no_context_binary(&self) -> bool {
        !self.is_context_binary() && !matches!(self, Self::Unknown { .. })
    }

    /// True for what a model can be compiled from.
    pub fn is_checkpoint(&self) -> bool {
        matches!(self, Self::Gguf { .. } | Self::Folder(FolderKind::Checkpoint))
    }
}

#[cfg(unix)]
fn special(meta: &Metadata) -> FileKind {
    use std::os::unix::fs::FileTypeExt;
    let kind = meta.file_type();
    match (kind.is_fifo(), kind.is_socket()) {
        (true, _) => FileKind::Fifo,
        (_, true) => FileKind::Socket,
        _ => FileKind::Device,
    }
}

#[cfg(not(unix))]
fn special(_: &Metadata) -> FileKind {
    FileKind::Device
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "nothing",
            Self::BrokenLink { target } => return write!(f, "a link to `{}`, which does not exist", target.display()),
            Self::Unreadable(why) => return write!(f, "something that cannot be read ({why})"),
            Self::Folder(kind) => return kind.fmt(f),
            Self::Device => "a device",
            Self::Fifo => "a named pipe (fifo)",
            Self::Socket => "a socket",
            Self::Empty => "an empty file",
            Self::HostBinary { .. } => "a context binary of the host backend",
            Self::HtpBinary => "a context binary of Qualcomm's HTP backend",
            Self::Gguf { part: Some((number, count)), .. } => {
                return write!(f, "a GGUF file, part {number} of {count}");
            }
            Self::Gguf { big_endian: true, .. } => "a big-endian GGUF file",
            Self::Gguf { .. } => "a GGUF file",
            Self::Safetensors => "a safetensors file",
            Self::Elf { machine: Some(machine) } => return write!(f, "a library or program (ELF) for {machine}"),
            Self::Elf { machine: None } => "a library or program (ELF)",
            Self::Json(kind) => return kind.fmt(f),
            Self::SentencePiece => "a SentencePiece model",
            Self::Snapshot => "the snapshot of a saved session",
            Self::GenieCache => "Genie's file of a saved cache",
            Self::PyTorch => "a PyTorch checkpoint",
            Self::WebPage => "a web page (the error page of a download?)",
            Self::LfsPointer => "a Git LFS pointer (the file itself was not downloaded)",
            Self::Named(name) => name,
            Self::Text => "a text file",
            Self::Unknown { begins } => {
                let bytes: Vec<_> = begins.iter().map(|byte| format!("{byte:02x}")).collect();
                return write!(f, "a file of no known kind (it begins with {})", bytes.join(" "));
            }
        })
    }
}

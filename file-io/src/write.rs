//! Writes one file: whole or not at all where it is a regular one.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::in_place;
use crate::new_file::NewFile;
use crate::target::Target;
use crate::{FileError, Result};

/// Bytes that are collected before they go to the system.
const BUFFER: usize = 1 << 20;

/// Writes a file. A regular file, or none, is replaced when all is on the disk; a link is followed; a device, a pipe and
/// this process's own output are written in place.
///
/// # Errors
/// [`FileError`]; a regular file of that name stays as it was.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    match Target::of(path)? {
        Target::Regular { path: target, old } => {
            let mut file = NewFile::replacing(path, target, old.as_ref())?;
            fill(&mut file, write).map_err(|e| file.failed(e))?;
            file.publish()
        }
        Target::InPlace(meta) => {
            let mut file = in_place::open(path, &meta)?;
            fill(&mut file, write).map_err(FileError::io("write", path))
        }
    }
}

/// Writes these bytes to a file, as [`write`](fn@write) does, with their room reserved first.
///
/// # Errors
/// [`FileError`]; a regular file of that name stays as it was.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    match Target::of(path)? {
        Target::Regular { path: target, old } => {
            let mut file = NewFile::replacing(path, target, old.as_ref())?;
            put(&mut file, bytes)?;
            file.publish()
        }
        Target::InPlace(_) => write(path, |out| out.write_all(bytes)),
    }
}

/// Fills a new file with bytes whose number is known.
pub(crate) fn put(file: &mut NewFile, bytes: &[u8]) -> Result<()> {
    if !bytes.is_empty() {
        file.reserve(bytes.len() as u64)?;
    }
    file.write_all(bytes).map_err(|e| file.failed(e))
}

/// Fills a new file from a writer.
pub(crate) fn fill<W: Write>(file: &mut W, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, file);
    let written = write(&mut out).and_then(|()| out.flush());
    if written.is_err() {
        // The rest of the buffer goes nowhere.
        drop(out.into_parts());
    }
    written
}

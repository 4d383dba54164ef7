//! File helpers whose errors name the path.

use crate::{CompileError, Result};
use file_io::{FileKind, NewFile};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// Given how many more bytes were read or written, after each part of them; its error ends the work.
pub(crate) type OnBytes<'a> = dyn FnMut(u64) -> Result<()> + 'a;

/// Bytes that are hashed or written at a time.
const PART: usize = 1 << 20;

/// Wraps an I/O error with the operation and the path.
pub(crate) fn io_err<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> CompileError + 'a {
    move |source| CompileError::Io { doing, path: path.to_path_buf(), source }
}

/// Opens a regular file: a pipe would block, a device might never end.
pub(crate) fn open(path: &Path) -> Result<File> {
    is_there(path)?;
    File::open(path).map_err(io_err("open", path))
}

/// Reads a file that belongs in memory as a whole, of at most `limit` bytes.
///
/// # Errors
/// Something that is no file, a longer file, and those of reading.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    is_there(path)?;
    let file = File::open(path).map_err(io_err("read", path))?;
    if file.metadata().is_ok_and(|meta| meta.len() > limit) {
        return Err(CompileError::FileTooLong { path: path.into(), limit });
    }
    file.take(limit + 1).read_to_end(&mut bytes).map_err(io_err("read", path))?;
    if bytes.len() as u64 > limit {
        return Err(CompileError::FileTooLong { path: path.into(), limit });
    }
    Ok(bytes)
}

/// True for a file, false for nothing at all.
///
/// # Errors
/// Something else of that name, a link to nothing for example.
pub(crate) fn is_there(path: &Path) -> Result<bool> {
    if path.is_file() {
        return Ok(true);
    }
    match FileKind::of(path) {
        FileKind::Missing => Ok(false),
        kind if kind.is_file() || matches!(kind, FileKind::Unreadable(_)) => Ok(true),
        kind => Err(CompileError::NoFile { path: path.into(), found: kind.to_string() }),
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(file_io::write_bytes(path, bytes)?)
}

pub(crate) fn from_json<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|source| CompileError::Json { path: path.to_path_buf(), source })
}

/// Length of a file in bytes.
pub(crate) fn length(path: &Path) -> Result<u64> {
    Ok(path.metadata().map_err(io_err("inspect", path))?.len())
}

/// Writes a new file a megabyte at a time; `on_written` is given the length of each.
///
/// # Errors
/// Those of writing, and of `on_written`; either leaves no file.
pub(crate) fn write_in_parts(path: &Path, bytes: &[u8], on_written: &mut OnBytes<'_>) -> Result<()> {
    let mut file = NewFile::create(path)?;
    if !bytes.is_empty() {
        file.reserve(bytes.len() as u64)?;
    }
    for part in bytes.chunks(PART) {
        file.write_all(part).map_err(io_err("write", path))?;
        on_written(part.len() as u64)?;
    }
    Ok(file.publish()?)
}

/// Feeds a file's content to a hasher, a megabyte at a time; returns its length. `on_read` is given the length of each part.
///
/// # Errors
/// Those of reading, and of `on_read`.
pub(crate) fn hash_into(hasher: &mut Sha256, path: &Path, on_read: &mut OnBytes<'_>) -> Result<u64> {
    let mut file = open(path)?;
    let mut chunk = vec![0; PART];
    let mut total = 0;
    loop {
        let n = file.read(&mut chunk).map_err(io_err("read", path))?;
        on_read(n as u64)?;
        if n == 0 {
            return Ok(total);
        }
        hasher.update(&chunk[..n]);
        total += n as u64;
    }
}

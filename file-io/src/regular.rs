//! Reads regular files only: what would block (a fifo) or never end (`/dev/zero`) is refused before it is opened.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::FileKind;

/// Opens a regular file for reading.
///
/// # Errors
/// The system's; what is there is no file: "expected a file, found a device".
pub fn open_file(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    let found = FileKind::of(path);
    Err(io::Error::new(ErrorKind::InvalidInput, format!("expected a file, found {found}")))
}

/// The bytes of a regular file.
///
/// # Errors
/// Those of [`open_file`], and of reading.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The bytes of a regular file of up to `limit` bytes.
///
/// # Errors
/// Those of [`read_file`]; a longer one: "expected at most 100 bytes, found 101", before any is read.
pub fn read_file_up_to(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    let length = file.metadata()?.len();
    if length > limit {
        return Err(too_long(limit, length.to_string()));
    }
    // It may grow meanwhile.
    read_up_to(file, limit)
}

/// The bytes of a stream of up to `limit` bytes.
///
/// # Errors
/// Those of reading; more bytes: "expected at most 100 bytes, found more".
pub fn read_up_to(from: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(too_long(limit, "more".into()));
    }
    Ok(bytes)
}

fn too_long(limit: u64, found: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("expected at most {limit} bytes, found {found}"))
}

/// The text of a regular file.
///
/// # Errors
/// Those of [`read_file`]; bytes that are not UTF-8: "expected text in UTF-8, found a GGUF file".
pub fn read_text(path: &Path) -> io::Result<String> {
    utf8(read_file(path)?)
}

/// Bytes as text.
///
/// # Errors
/// Bytes that are not UTF-8: "expected text in UTF-8, found a GGUF file".
pub fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let found = match FileKind::of_bytes(error.as_bytes()) {
            FileKind::Text | FileKind::Json(_) | FileKind::Unknown { .. } => format!("other bytes at byte {at}"),
            kind => kind.to_string(),
        };
        io::Error::new(ErrorKind::InvalidData, format!("expected text in UTF-8, found {found}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_are_read_and_only_utf_8_is_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let text = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_text(&path).map_err(|e| e.to_string())
        };
        assert_eq!(text("gr\u{fc}n".as_bytes()).unwrap(), "gr\u{fc}n");
        assert_eq!(text(b"GGUF\x03\0\0\0\xff").unwrap_err(), "expected text in UTF-8, found a GGUF file");
        assert_eq!(text(b"{\"a\": \"\xff\"}").unwrap_err(), "expected text in UTF-8, found other bytes at byte 7");
        assert_eq!(read_file(dir.path()).unwrap_err().to_string(), "expected a file, found a folder");
        assert_eq!(read_file(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn longer_files_and_streams_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"abcd").unwrap();
        assert_eq!(read_file_up_to(&path, 4).unwrap(), b"abcd");
        let said = |error: io::Error| error.to_string();
        assert_eq!(said(read_file_up_to(&path, 3).unwrap_err()), "expected at most 3 bytes, found 4");
        assert_eq!(read_up_to(&b"abcd"[..], u64::MAX).unwrap(), b"abcd");
        assert_eq!(said(read_up_to(&b"abcd"[..], 3).unwrap_err()), "expected at most 3 bytes, found more");
        // Sparse: it takes no space, but would take memory.
        std::fs::File::options().write(true).open(&path).unwrap().set_len(3 << 40).unwrap();
        let found = said(read_file_up_to(&path, 4).unwrap_err());
        assert_eq!(found, "expected at most 4 bytes, found 3298534883328");
    }

    #[cfg(unix)]
    #[test]
    fn a_fifo_and_a_device_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert_eq!(read_file(&fifo).unwrap_err().to_string(), "expected a file, found a named pipe (fifo)");
        assert_eq!(read_file(Path::new("/dev/zero")).unwrap_err().to_string(), "expected a file, found a device");
    }
}

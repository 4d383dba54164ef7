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

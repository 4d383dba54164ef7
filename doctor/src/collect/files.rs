//! Single files: whether they are there, their JSON, the build id in them.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use file_io::FileKind;
use genie_bundle::config::text;
use serde_json::Value;

use crate::facts::{Build, FileState};

/// Bytes per read.
const CHUNK: usize = 1 << 20;
/// Longest build id; it can span two reads.
const OVERLAP: usize = 64;

/// The state of a file; `written` is the path as the config writes it.
pub(super) fn state(path: &Path, written: &str, cwd: &Path) -> FileState {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() => match File::open(path) {
            Ok(_) => FileState::Present { bytes: meta.len() },
            Err(error) => FileState::Unusable(error.to_string()),
        },
        Ok(_) => FileState::Unusable(format!("is {}, expected a file", FileKind::of(path))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let relative = Path::new(written.trim()).is_relative();
            FileState::Missing { in_cwd: relative && cwd.join(written.trim()).is_file() }
        }
        Err(error) => FileState::Unusable(error.to_string()),
    }
}

/// A file's JSON, or why it cannot be read.
pub(super) fn json(path: &Path) -> Result<Value, String> {
    let text = text::read(path).map_err(|error| error.to_string())?;
    text::parse(&text).map_err(|error| error.to_string())
}

/// The first build id in a file.
pub(super) fn build_in(path: &Path) -> Option<Build> {
    let mut tail: Vec<u8> = Vec::new();
    chunks(path, |chunk| {
        tail.extend_from_slice(chunk);
        let found = Build::find(&tail);
        tail.drain(..tail.len().saturating_sub(OVERLAP));
        found
    })
    .ok()
    .flatten()
}

/// Reads a file in chunks until `take` returns a value.
fn chunks<T>(path: &Path, mut take: impl FnMut(&[u8]) -> Option<T>) -> std::io::Result<Option<T>> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(None);
        }
        if let Some(found) = take(&buffer[..n]) {
            return Ok(Some(found));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_across_two_chunks_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lib.so");
        for before in [0, CHUNK - 7, CHUNK, 3 * CHUNK + 5] {
            let mut bytes = vec![b'.'; before];
            bytes.extend_from_slice(b"\0v2.51.0.260929181845\0");
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(build_in(&path).unwrap().release, (2, 51, 0), "{before}");
        }
        std::fs::write(&path, "nothing").unwrap();
        assert_eq!((build_in(&path), build_in(Path::new("/no/file"))), (None, None));
    }

    #[test]
    fn states_tell_what_is_there() {
        let (dir, cwd) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| state(&dir.path().join(name), name, cwd.path());
        std::fs::write(dir.path().join("here"), "12").unwrap();
        std::fs::write(cwd.path().join("there"), "").unwrap();
        assert_eq!(at("here"), FileState::Present { bytes: 2 });
        assert_eq!(at("there"), FileState::Missing { in_cwd: true });
        assert_eq!(at("nowhere"), FileState::Missing { in_cwd: false });
        assert!(matches!(at(""), FileState::Unusable(_)));
    }
}

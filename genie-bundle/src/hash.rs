//! Length and SHA-256 of files.

use core::fmt::Write;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::BundleError;

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// Length and hash of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHash {
    /// Length.
    pub bytes: u64,
    /// Lower-case hexadecimal.
    pub sha256: String,
}

/// Reads a file once for both.
///
/// # Errors
/// The file cannot be opened or read.
pub fn hash_file(path: &Path) -> Result<FileHash, BundleError> {
    hash_file_in_parts(path, |_| Ok(()))
}

/// As [`hash_file`]; `each` is given the length of each part that was read, in bytes, a mebibyte at most.
///
/// # Errors
/// An error of `each` ends it; those of [`hash_file`].
pub fn hash_file_in_parts<E: From<BundleError>>(
    path: &Path,
    mut each: impl FnMut(u64) -> Result<(), E>,
) -> Result<FileHash, E> {
    let mut hasher = Sha256::new();
    let mut file = file_io::open_file(path).map_err(BundleError::io("open", path))?;
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let n = file.read(&mut chunk).map_err(BundleError::io("read", path))?;
        if n == 0 {
            return Ok(FileHash { bytes, sha256: hex(&hasher.finalize()) });
        }
        hasher.update(&chunk[..n]);
        bytes += n as u64;
        each(n as u64)?;
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_sha256sum() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        let want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash_file(&path).unwrap(), FileHash { bytes: 3, sha256: want.into() });
        assert!(matches!(hash_file(dir.path()), Err(BundleError::Io { .. })));
    }
}

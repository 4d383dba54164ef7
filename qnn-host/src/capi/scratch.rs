//! A file for the weights of a context that is being composed, so that they take no memory: it has no name, and goes with
//! the context and what was made of it.
//!
//! *Layout*: pieces from front to back, each at a multiple of a page, as mappings begin there.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapOptions;

use crate::bytes::Bytes;
use crate::container::PAGE;

/// Pieces of fewer bytes stay in memory.
pub(super) const LEAST_BYTES: usize = 64 << 10;

/// The file.
#[derive(Debug)]
pub(super) struct Scratch {
    file: File,
    end: u64,
}

impl Scratch {
    /// Makes a file in `folder`, and takes its name away.
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!(".weights.{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(Self { file, end: 0 })
    }

    /// The piece of `len` bytes that `fill` writes, mapped.
    ///
    /// # Errors
    /// A disk that is full or fails, and errors of `fill`. What was written is written over by the next piece.
    pub(super) fn put(&mut self, len: usize, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Bytes> {
        let mut out = At { file: &self.file, at: self.end };
        fill(&mut out)?;
        if out.at - self.end != len as u64 {
            return Err(io::Error::other(format!("{} bytes were written, expected {len}", out.at - self.end)));
        }
        // SAFETY: the file has no name and its only handle is this one, which never writes below `end` again nor makes
        // it shorter: the mapped bytes stay as they are.
        let map = unsafe { MmapOptions::new().offset(self.end).len(len).map(&self.file) }?;
        self.end = out.at.next_multiple_of(PAGE as u64);
        Bytes::mapped(Arc::new(map), 0..len).ok_or_else(|| io::Error::other("a mapping that is too short"))
    }
}

/// Writes from a place on.
struct At<'a> {
    file: &'a File,
    at: u64,
}

impl Write for At<'_> {
    #[cfg(unix)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = std::os::unix::fs::FileExt::write_at(self.file, bytes, self.at)?;
        self.at += n as u64;
        Ok(n)
    }

    #[cfg(windows)]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = std::os::windows::fs::FileExt::seek_write(self.file, bytes, self.at)?;
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_and_the_folder_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let mut scratch = Scratch::create(folder.path()).unwrap();
        let pieces: Vec<Vec<u8>> =
            [1, 4096, 70_001].iter().map(|&n| (0..n).map(|i| (i * 7 + n) as u8).collect()).collect();
        let kept: Vec<Bytes> =
            pieces.iter().map(|piece| scratch.put(piece.len(), |out| out.write_all(piece)).unwrap()).collect();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let short = scratch.put(5, |out| out.write_all(&[1; 4])).unwrap_err();
        assert!(short.to_string().contains("4 bytes were written, expected 5"), "{short}");
        drop(scratch);
        for (piece, kept) in pieces.iter().zip(&kept) {
            assert_eq!(kept[..], piece[..]);
            kept.forget_pages();
            assert_eq!(kept[..], piece[..], "read again from the file");
        }
        assert!(Scratch::create(&folder.path().join("none")).is_err());
    }
}

//! Reads values from a file, never past its end.

use crate::{CompileError, Result, fs};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// A file that is read from front to back.
pub(super) struct Reader<'p> {
    path: &'p Path,
    file: BufReader<File>,
    at: u64,
    end: u64,
}

impl<'p> Reader<'p> {
    /// Begins at the start of a file of that length.
    pub(super) fn new(path: &'p Path, file: File, end: u64) -> Self {
        Self { path, file: BufReader::new(file), at: 0, end }
    }

    /// The file.
    pub(super) fn path(&self) -> &'p Path {
        self.path
    }

    /// Bytes read so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// An error: not a file of this format.
    pub(super) fn foreign(&self, detail: String) -> CompileError {
        CompileError::NotGguf { path: self.path.into(), detail }
    }

    /// An error: malformed at this byte.
    pub(super) fn malformed(&self, detail: String) -> CompileError {
        CompileError::NotGguf { path: self.path.into(), detail: format!("{detail} (before byte {})", self.at) }
    }

    /// The next `n` bytes.
    pub(super) fn bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        self.check(n)?;
        let mut bytes = vec![0; n as usize];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.check(N as u64)?;
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// A count of items of at least `least` bytes each, checked against the rest of the file.
    pub(super) fn count(&mut self, least: u64) -> Result<usize> {
        let n = self.u64()?;
        self.check(n.saturating_mul(least))?;
        Ok(n as usize)
    }

    /// A number.
    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number.
    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A string with its length before it.
    pub(super) fn text(&mut self) -> Result<String> {
        let n = self.u64()?;
        let bytes = self.bytes(n)?;
        String::from_utf8(bytes).map_err(|_| self.malformed("a string is not UTF-8".into()))
    }

    fn check(&self, n: u64) -> Result<()> {
        let left = self.end - self.at;
        if n <= left {
            return Ok(());
        }
        let detail = format!("{n} bytes expected at byte {}, {left} are left", self.at);
        Err(CompileError::DamagedFile { path: self.path.into(), detail })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(fs::io_err("read", self.path))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

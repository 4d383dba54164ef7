//! Reads values from a file, never past its end.

use crate::{CompileError, Result, fs};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

/// More bytes than a text, or all texts of a list, have.
const MAX_TEXT: u64 = 1 << 28;

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

    /// An error: cut short, or changed since it was written.
    pub(super) fn damaged(&self, detail: String) -> CompileError {
        CompileError::DamagedFile { path: self.path.into(), detail }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        self.end - self.at
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
        let mut bytes = Vec::new();
        self.append_text(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| self.malformed("a string is not UTF-8".into()))
    }

    /// Appends the bytes of a string, whose length is before it.
    pub(super) fn append_text(&mut self, to: &mut Vec<u8>) -> Result<()> {
        let n = self.u64()?;
        self.check(n)?;
        let start = to.len();
        if start as u64 + n > MAX_TEXT {
            return Err(
                self.malformed(format!("a text of {n} bytes, expected at most {MAX_TEXT} with those of its list"))
            );
        }
        to.resize(start + n as usize, 0);
        self.fill(&mut to[start..])
    }

    /// The next number, which stays the next one.
    pub(super) fn peek_u64(&mut self) -> Result<u64> {
        self.check(8)?;
        let number = self.u64()?;
        self.file.seek_relative(-8).map_err(fs::io_err("seek in", self.path))?;
        self.at -= 8;
        Ok(number)
    }

    /// Leaves out the next `n` bytes.
    pub(super) fn skip(&mut self, n: u64) -> Result<()> {
        self.check(n)?;
        // `check` has compared it with the length of a file, which is an `i64` for the system.
        self.file.seek_relative(n.cast_signed()).map_err(fs::io_err("seek in", self.path))?;
        self.at += n;
        Ok(())
    }

    fn check(&self, n: u64) -> Result<()> {
        let left = self.end - self.at;
        if n <= left {
            return Ok(());
        }
        Err(self.damaged(format!("{n} bytes expected at byte {}, {left} are left", self.at)))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact(bytes).map_err(fs::io_err("read", self.path))?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}

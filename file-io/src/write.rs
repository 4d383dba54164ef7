//! Writes one file: whole or not at all where it is a regular one.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::in_place;
use crate::new_file::NewFile;
use crate::target::Target;
use crate::{FileError, Result};

/// Bytes that go to the system at a time: a huge page. Where writes begin at its multiples, a file system with large folios (ext4 of
/// Linux 6.16 and later, XFS) keeps the file in huge pages, and a mapping of it has one entry for each.
const BUFFER: usize = 2 << 20;

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
    let mut out = Whole(BufWriter::with_capacity(BUFFER, file));
    let written = write(&mut out).and_then(|()| out.flush());
    if written.is_err() {
        // The rest of the buffer goes nowhere.
        drop(out.0.into_parts());
    }
    written
}

/// Fills the buffer before it is written, where `BufWriter` would write what it has and pass on what is larger than the buffer.
struct Whole<W: Write>(BufWriter<W>);

impl<W: Write> Write for Whole<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = match self.0.capacity() - self.0.buffer().len() {
            0 => {
                self.0.flush()?;
                self.0.capacity()
            }
            room => room,
        };
        // What is as large as an empty buffer is passed on as it is, which is as good.
        self.0.write(&bytes[..bytes.len().min(room)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was written, and how long each write was.
    #[derive(Default)]
    struct Log(Vec<u8>, Vec<usize>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.extend(bytes);
            self.1.push(bytes.len());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_writes_but_the_last_begin_and_end_at_huge_pages() {
        let bytes: Vec<u8> = (0..3 * BUFFER + 5).map(|i| (i % 251) as u8).collect();
        for sizes in [
            vec![1, BUFFER - 1, 2 * BUFFER],
            vec![4099],
            vec![BUFFER],
            vec![3 * BUFFER + 1],
            vec![BUFFER / 3, BUFFER + 9],
        ] {
            let mut log = Log::default();
            fill(&mut log, |out| {
                let mut rest = &bytes[..];
                for &size in sizes.iter().cycle() {
                    let (now, later) = rest.split_at(size.min(rest.len()));
                    out.write_all(now)?;
                    rest = later;
                    if rest.is_empty() {
                        break;
                    }
                }
                Ok(())
            })
            .unwrap();
            assert!(log.0 == bytes, "{sizes:?}");
            assert_eq!(log.1, [BUFFER, BUFFER, BUFFER, 5], "{sizes:?}");
        }
    }
}

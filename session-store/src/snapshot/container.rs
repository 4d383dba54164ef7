//! The container of a snapshot: numbered sections, each with a checksum, of any version.
//!
//! | offset | bytes | all little-endian |
//! |---|---|---|
//! | 0 | 8 | magic `GNKVSNAP` |
//! | 8 | 4 | version |
//! | 12 | 4 | number of sections |
//! | 16 | 8 | length of the file |
//! | 24 | 8 | xxh3 of the bytes before, and of the section table |
//! | 32 | 32 each | sections: kind u32, index u32, offset u64, length u64, xxh3 u64 |
//!
//! Sections follow each other without gaps.
//!
//! *Trap*: nothing read from the file is trusted before it is checked; lengths are compared with the bytes there are
//! before anything is allocated by them.

use std::io::{Read, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::StoreError;
use crate::error::{Corruption, NotASnapshot};
use crate::names::VERSION;

const MAGIC: [u8; 8] = *b"GNKVSNAP";
const HEADER: usize = 32;
const ENTRY: usize = 32;

/// What a section holds, and which of that kind it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) kind: u32,
    pub(super) index: u32,
}

impl Tag {
    pub(super) const fn new(kind: u32, index: u32) -> Self {
        Self { kind, index }
    }

    pub(super) fn out_of_order(self) -> Corruption {
        Corruption::SectionOrder { kind: self.kind, index: self.index }
    }
}

pub(super) fn write(version: u32, sections: &[(Tag, &[u8])], out: &mut dyn Write) -> std::io::Result<()> {
    let mut table = Vec::with_capacity(sections.len() * ENTRY);
    let mut offset = (HEADER + sections.len() * ENTRY) as u64;
    for (tag, bytes) in sections {
        table.extend(tag.kind.to_le_bytes());
        table.extend(tag.index.to_le_bytes());
        table.extend(offset.to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        table.extend(xxh3_64(bytes).to_le_bytes());
        offset += bytes.len() as u64;
    }
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC);
    header.extend(version.to_le_bytes());
    header.extend((sections.len() as u32).to_le_bytes());
    header.extend(offset.to_le_bytes());
    header.extend(checksum(&header, &table).to_le_bytes());
    out.write_all(&header)?;
    out.write_all(&table)?;
    sections.iter().try_for_each(|(_, bytes)| out.write_all(bytes))
}

/// Reads a container of `found` bytes and hands each checked section to `take`; returns the version. Each section is read
/// into its own memory, so that a cache of hundreds of megabytes is in memory once.
pub(super) fn read(
    source: &mut dyn Read,
    found: u64,
    take: &mut dyn FnMut(Tag, Vec<u8>) -> Result<(), StoreError>,
) -> Result<u32, ReadError> {
    let mut head = Vec::with_capacity(HEADER);
    fill(source, HEADER, &mut head)?;
    let (version, mut reader) = open(&head)?;
    let torn = |expected| Err(StoreError::Torn { expected, found }.into());
    if head.len() < HEADER {
        return torn(HEADER as u64);
    }
    let (n_sections, length, sum) = (reader.u32()? as usize, reader.u64()?, reader.u64()?);
    let table_len = n_sections.checked_mul(ENTRY).filter(|&n| (HEADER + n) as u64 <= found);
    let mut table = Vec::new();
    match table_len {
        Some(len) if fill(source, len, &mut table)? == len => {}
        _ => return torn(length),
    }
    if checksum(&head[..24], &table) != sum {
        return Err(Corruption::HeaderChecksum.into());
    }
    if length != found {
        return torn(length);
    }
    let mut table = Reader::new(&table, "section table");
    let mut at = (HEADER + n_sections * ENTRY) as u64;
    for _ in 0..n_sections {
        let tag = Tag::new(table.u32()?, table.u32()?);
        let (offset, len, sum) = (table.u64()?, table.u64()?, table.u64()?);
        if offset != at || len > found - at {
            return Err(Corruption::SectionPlace { kind: tag.kind, index: tag.index }.into());
        }
        at += len;
        let mut section = Vec::new();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if fill(source, len, &mut section)? != len {
            return torn(length);
        }
        if xxh3_64(&section) != sum {
            return Err(Corruption::SectionChecksum { kind: tag.kind, index: tag.index }.into());
        }
        take(tag, section)?;
    }
    if at != found {
        return Err(Corruption::TrailingBytes { n_bytes: found - at }.into());
    }
    Ok(version)
}

/// The version that a container says it has, whether or not this build reads it.
pub(super) fn version(source: &mut dyn Read) -> Result<u32, ReadError> {
    let mut head = Vec::with_capacity(HEADER);
    fill(source, HEADER, &mut head)?;
    match open(&head) {
        Ok((version, _)) | Err(StoreError::Newer { found: version }) => Ok(version),
        Err(error) => Err(error.into()),
    }
}

fn checksum(header: &[u8], table: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(header);
    hash.update(table);
    hash.digest()
}

/// The version, and the header's reader behind it.
fn open(head: &[u8]) -> Result<(u32, Reader<'_>), StoreError> {
    if head.len() < 12 {
        return Err(StoreError::NotASnapshot(NotASnapshot::TooShort { n_bytes: head.len() }));
    }
    if head[..8] != MAGIC {
        return Err(StoreError::NotASnapshot(NotASnapshot::Magic));
    }
    let mut reader = Reader::new(&head[8..], "header");
    match reader.u32()? {
        0 => Err(Corruption::VersionZero.into()),
        found if found > VERSION => Err(StoreError::Newer { found }),
        version => Ok((version, reader)),
    }
}

/// Reads `len` bytes, or as many as there are; returns how many. The length is from a checked table, the memory for it is
/// still asked for as the bytes come.
fn fill(source: &mut dyn Read, len: usize, out: &mut Vec<u8>) -> std::io::Result<usize> {
    out.reserve_exact(len.min(1 << 30));
    source.take(len as u64).read_to_end(out)
}

/// A source that fails, or bytes that are no snapshot.
pub(super) enum ReadError {
    Io(std::io::Error),
    Bad(StoreError),
}

impl From<std::io::Error> for ReadError {
    fn from(e: std::io::Error) -> Self {
        Self::Io(e)
    }
}

impl<E: Into<StoreError>> From<E> for ReadError {
    fn from(e: E) -> Self {
        Self::Bad(e.into())
    }
}

/// Numbers off a slice; running out of bytes is corruption.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, what }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Corruption> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(Corruption::EndsEarly { what: self.what })?;
        self.bytes = rest;
        Ok(*first)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Corruption> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Corruption> {
        self.take().map(u64::from_le_bytes)
    }

    /// A count or position; one beyond what any cache holds is corruption.
    pub(super) fn usize(&mut self) -> Result<usize, Corruption> {
        let found = self.u64()?;
        u32::try_from(found).map(|n| n as usize).map_err(|_| Corruption::Number { what: self.what, found })
    }

    /// The bytes that are left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Checks that nothing is left.
    pub(super) fn end(&self) -> Result<(), Corruption> {
        let n_bytes = self.bytes.len();
        if n_bytes == 0 { Ok(()) } else { Err(Corruption::Length { what: self.what, n_bytes }) }
    }
}

//! The bytes of a snapshot, out and in. The layout is in the module above.
//!
//! *Trap*: nothing read from the file is trusted before it is checked; lengths are compared with the bytes there are
//! before anything is allocated by them.

use super::{ModelHash, Snapshot, SnapshotError, VERSION};
use crate::cells::{Cell, SeqId};
use crate::geometry::{KvDtype, KvKind, KvLayout, KvTensor};
use crate::cache::{GroupImage, KvImage};
use genie_types::{LayerIdx, TokenId};
use std::io::{Read, Write};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

const MAGIC: [u8; 8] = *b"GNKVSNAP";
const HEADER: usize = 32;
const ENTRY: usize = 32;

const MODEL: u32 = 1;
const TOKENS: u32 = 2;
const GROUPS: u32 = 3;
const GEOMETRY: u32 = 4;
const ROWS: u32 = 5;
const EXTRA: u32 = 6;

pub(super) fn write(snapshot: &Snapshot, out: &mut dyn Write) -> std::io::Result<()> {
    let tokens: Vec<u8> = snapshot.tokens.iter().flat_map(|t| t.0.to_le_bytes()).collect();
    let (groups, geometry) = (write_groups(&snapshot.image), write_geometry(&snapshot.image.tensors));
    let mut sections: Vec<(u32, u32, &[u8])> =
        vec![(MODEL, 0, &snapshot.model.0), (TOKENS, 0, &tokens), (GROUPS, 0, &groups), (GEOMETRY, 0, &geometry)];
    sections.extend(snapshot.image.data.iter().enumerate().map(|(i, rows)| (ROWS, i as u32, rows.as_slice())));
    sections.push((EXTRA, 0, &snapshot.extra));

    let mut table = Vec::with_capacity(sections.len() * ENTRY);
    let mut offset = (HEADER + sections.len() * ENTRY) as u64;
    for &(kind, index, bytes) in &sections {
        table.extend(kind.to_le_bytes());
        table.extend(index.to_le_bytes());
        table.extend(offset.to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        table.extend(xxh3_64(bytes).to_le_bytes());
        offset += bytes.len() as u64;
    }
    let mut header = Vec::with_capacity(HEADER);
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.extend((sections.len() as u32).to_le_bytes());
    header.extend(offset.to_le_bytes());
    header.extend(checksum(&header, &table).to_le_bytes());
    out.write_all(&header)?;
    out.write_all(&table)?;
    sections.iter().try_for_each(|(_, _, bytes)| out.write_all(bytes))
}

fn checksum(header: &[u8], table: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(header);
    hash.update(table);
    hash.digest()
}

fn corrupt<T, E: From<SnapshotError>>(why: impl Into<String>) -> Result<T, E> {
    Err(SnapshotError::Corrupt { why: why.into() }.into())
}

/// Reads a snapshot of `found` bytes. Each section goes straight to where it will stay, so that a cache of hundreds of
/// megabytes is in memory once.
pub(super) fn read(source: &mut dyn Read, found: u64) -> Result<Snapshot, ReadError> {
    let mut head = Vec::with_capacity(HEADER);
    fill(source, HEADER, &mut head)?;
    let mut reader = open(&head)?;
    let torn = |expected| Err(SnapshotError::Torn { expected, found }.into());
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
        return corrupt("checksum of the header");
    }
    if length != found {
        return torn(length);
    }
    let mut snapshot = Snapshot::default();
    let (mut seen, mut rows) = ([false; 5], Vec::new());
    let mut table = Reader { bytes: &table, what: "section table" };
    let mut at = (HEADER + n_sections * ENTRY) as u64;
    for _ in 0..n_sections {
        let (kind, index, offset, len, sum) = (table.u32()?, table.u32()?, table.u64()?, table.u64()?, table.u64()?);
        if offset != at || len > found - at {
            return corrupt(format!("section {kind}.{index} lies outside the file, or not behind the one before it"));
        }
        at += len;
        let mut section = Vec::new();
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if fill(source, len, &mut section)? != len {
            return torn(length);
        }
        if xxh3_64(&section) != sum {
            return corrupt(format!("checksum of section {kind}.{index}"));
        }
        if let Some(seen) = seen.get_mut(kind as usize) {
            if *seen {
                return corrupt(format!("section {kind} twice"));
            }
            *seen = true;
        }
        match kind {
            MODEL => match section.as_slice().try_into() {
                Ok(hash) => snapshot.model = ModelHash(hash),
                Err(_) => return corrupt(format!("model hash of {} bytes", section.len())),
            },
            TOKENS => snapshot.tokens = read_tokens(&section)?,
            GROUPS => read_groups(&section, &mut snapshot.image)?,
            GEOMETRY => snapshot.image.tensors = read_geometry(&section)?,
            ROWS if index as usize == rows.len() => rows.push(section),
            ROWS => return corrupt(format!("rows of tensor {index} where {} was due", rows.len())),
            EXTRA => snapshot.extra = section,
            _ => {}
        }
    }
    if at != found {
        return corrupt(format!("{} bytes after the last section", found - at));
    }
    if let Some(kind) = (1..5).find(|&kind| !seen[kind]) {
        return corrupt(format!("section {kind} is missing"));
    }
    snapshot.image.data = rows;
    snapshot.image.check().map_err(SnapshotError::from)?;
    Ok(snapshot)
}

/// The header's reader, behind magic and version.
fn open(head: &[u8]) -> Result<Reader<'_>, SnapshotError> {
    let not = |why: String| Err(SnapshotError::NotASnapshot { why });
    if head.len() < 12 || head[..8] != MAGIC {
        return not(if head.len() < 12 { format!("only {} bytes", head.len()) } else { "another magic".to_owned() });
    }
    let mut reader = Reader { bytes: &head[8..], what: "header" };
    match reader.u32()? {
        0 => Err(SnapshotError::Corrupt { why: "version 0".to_owned() }),
        found if found > VERSION => Err(SnapshotError::Newer { found }),
        _ => Ok(reader),
    }
}

/// Reads `len` bytes, or as many as there are; says how many. The length is from a checked table, the memory for it is
/// still asked for as the bytes come.
fn fill(source: &mut dyn Read, len: usize, out: &mut Vec<u8>) -> std::io::Result<usize> {
    out.reserve_exact(len.min(1 << 30));
    source.take(len as u64).read_to_end(out)
}

/// A source that fails, or bytes that are no snapshot.
pub(super) enum ReadError {
    Io(std::io::Error),
    Bad(SnapshotError),
}

impl From<std::io::Error> for ReadError {
    fn from(e: std::io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<SnapshotError> for ReadError {
    fn from(e: SnapshotError) -> Self {
        Self::Bad(e)
    }
}

fn read_tokens(bytes: &[u8]) -> Result<Vec<TokenId>, SnapshotError> {
    if !bytes.len().is_multiple_of(4) {
        return corrupt(format!("tokens of {} bytes", bytes.len()));
    }
    Ok(bytes.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect())
}

fn write_groups(image: &KvImage) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((image.next.len() as u32).to_le_bytes());
    for (seq, next) in &image.next {
        out.extend(u32::from(seq.0).to_le_bytes());
        out.extend((*next as u64).to_le_bytes());
    }
    out.extend((image.groups.len() as u32).to_le_bytes());
    for group in &image.groups {
        out.extend(u32::from(group.mixed).to_le_bytes());
        out.extend((group.cells.len() as u64).to_le_bytes());
        for cell in &group.cells {
            out.extend((cell.pos as u64).to_le_bytes());
            out.extend(cell.seqs.to_le_bytes());
        }
    }
    out
}

fn read_groups(bytes: &[u8], image: &mut KvImage) -> Result<(), SnapshotError> {
    let mut reader = Reader { bytes, what: "groups" };
    for _ in 0..reader.u32()? {
        let (seq, next) = (reader.u32()?, reader.usize()?);
        let Ok(seq) = u8::try_from(seq) else { return corrupt(format!("sequence {seq}")) };
        image.next.push((SeqId(seq), next));
    }
    for _ in 0..reader.u32()? {
        let mixed = reader.u32()? != 0;
        let n = reader.usize()?;
        let mut cells = Vec::new();
        for _ in 0..n {
            let (pos, seqs) = (reader.usize()?, reader.u64()?);
            cells.push(Cell { pos, baked: pos, seqs });
        }
        image.groups.push(GroupImage { cells, mixed });
    }
    reader.end()
}

fn write_geometry(tensors: &[KvTensor]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((tensors.len() as u32).to_le_bytes());
    for t in tensors {
        let dtype = match t.dtype {
            KvDtype::U8 => 0u32,
            KvDtype::U16 => 1,
            KvDtype::F16 => 2,
            KvDtype::F32 => 3,
        };
        let head = t.head.map_or(u32::MAX, |h| h as u32);
        let kind = u32::from(t.kind == KvKind::Value);
        for n in [t.layer.0 as u32, head, kind, t.n_heads as u32, t.head_dim as u32, dtype, t.group as u32] {
            out.extend(n.to_le_bytes());
        }
        out.extend(t.scale.to_le_bytes());
        out.extend(t.offset.to_le_bytes());
    }
    out
}

fn read_geometry(bytes: &[u8]) -> Result<Vec<KvTensor>, SnapshotError> {
    let mut reader = Reader { bytes, what: "geometry" };
    let mut tensors = Vec::new();
    for _ in 0..reader.u32()? {
        let mut n = [0; 7];
        for n in &mut n {
            *n = reader.u32()?;
        }
        let [layer, head, kind, n_heads, head_dim, dtype, group] = n;
        let dtype = match dtype {
            0 => KvDtype::U8,
            1 => KvDtype::U16,
            2 => KvDtype::F16,
            3 => KvDtype::F32,
            _ => return corrupt(format!("element type {dtype}")),
        };
        // Extents that no model has would overflow sizes later on.
        if n_heads == 0 || head_dim == 0 || n_heads > 1 << 16 || head_dim > 1 << 16 || kind > 1 {
            return corrupt(format!("tensor of {n_heads} heads by {head_dim}, kind {kind}"));
        }
        let kind = if kind == 0 { KvKind::Key } else { KvKind::Value };
        tensors.push(KvTensor {
            layer: LayerIdx(layer as usize),
            head: (head != u32::MAX).then_some(head as usize),
            kind,
            layout: KvLayout::of(kind),
            n_heads: n_heads as usize,
            head_dim: head_dim as usize,
            dtype,
            scale: f32::from_bits(reader.u32()?),
            offset: reader.u32()? as i32,
            group: group as usize,
        });
    }
    reader.end()?;
    Ok(tensors)
}

/// Numbers off a slice; running out of bytes is corruption.
struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        match self.bytes.split_first_chunk() {
            Some((first, rest)) => {
                self.bytes = rest;
                Ok(*first)
            }
            None => corrupt(format!("the {} ends early", self.what)),
        }
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.take().map(u64::from_le_bytes)
    }

    /// A count or position; one beyond what any cache holds is corruption.
    fn usize(&mut self) -> Result<usize, SnapshotError> {
        let n = self.u64()?;
        if n <= u64::from(u32::MAX) { Ok(n as usize) } else { corrupt(format!("{} of {n}", self.what)) }
    }

    fn end(&self) -> Result<(), SnapshotError> {
        if self.bytes.is_empty() {
            Ok(())
        } else {
            corrupt(format!("{} bytes after the {}", self.bytes.len(), self.what))
        }
    }
}

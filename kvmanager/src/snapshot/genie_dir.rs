//! The cache part of the folder that the real Genie saves a dialog in, read and written.
//!
//! `kv-slot-N.ROLE.qnn-htp`, little-endian: u32 tensors, u32 magic `0xC0DE`, u8 type, u8 0, u16 heads, u16 head_dim,
//! u16 rows; then all keys by layer, `[head][dim][row]`, all values by layer, `[head][row][dim]`, in the cache's own
//! type; then an f64 scale for each tensor in the same order (0 for floats). `token-history-slot-N`: u32 tokens.
//!
//! *Trap*: the type byte is 0 for float16 and uint8 alike (measured), so the width comes from the model that reads.
//! *Not here*: `dialog.json`, the unprocessed tokens and the sampler's words belong to the dialog.
//! *Source*: files written by libGenie 1.21.

use super::{SnapshotError, write_atomically};
use crate::cells::Cell;
use crate::geometry::{KvDtype, KvTensor};
use crate::cache::{GroupImage, KvImage};
use crate::{KvCache, SeqId};
use genie_types::TokenId;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The magic number of the cache file.
pub const KV_MAGIC: u32 = 0xC0DE;

const HEADER: usize = 16;

/// One slot of a saved dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenieSlot<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// The slot's number; 0 for a dialog.
    pub slot: usize,
    /// The engine's role, `primary` for a basic dialog.
    pub role: &'a str,
}

impl<'a> GenieSlot<'a> {
    /// Slot 0 of the primary engine.
    pub const fn new(dir: &'a Path) -> Self {
        Self { dir, slot: 0, role: "primary" }
    }

    /// Writes the cache and the token history. `tokens` is all that was seen, with the last token not yet processed.
    ///
    /// # Errors
    /// [`SnapshotError::Io`], [`SnapshotError::Kv`], [`SnapshotError::NotASnapshot`] when this cache has no form in
    /// that file: several sequences, holes in the positions, groups; [`SnapshotError::Corrupt`] for fewer tokens than rows.
    pub fn write(&self, kv: &mut KvCache, tokens: &[TokenId]) -> Result<(), SnapshotError> {
        let image = kv.export()?;
        let bytes = to_bytes(&image)?;
        enough(tokens.len(), image.n_past())?;
        let history: Vec<u8> = tokens.iter().flat_map(|t| t.0.to_le_bytes()).collect();
        write_atomically(&self.kv_path(), |out| out.write_all(&bytes))?;
        write_atomically(&self.history_path(), |out| out.write_all(&history))
    }

    /// Reads the cache into `kv` and returns the token history.
    ///
    /// # Errors
    /// Any [`SnapshotError`]; the cache is then as it was.
    pub fn read(&self, kv: &mut KvCache) -> Result<Vec<TokenId>, SnapshotError> {
        let path = self.found_path();
        let history = read_file(&self.history_path())?;
        if !history.len().is_multiple_of(4) {
            let why = format!("a token history of {} bytes, four make a token", history.len());
            return Err(SnapshotError::Corrupt { why });
        }
        let image = from_bytes(&read_file(&path)?, &kv.geometry()?)?;
        enough(history.len() / 4, image.n_past())?;
        kv.import(&image)?;
        Ok(history.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect())
    }

    /// Rows in the saved cache, by its header alone.
    ///
    /// # Errors
    /// [`SnapshotError::Io`], [`SnapshotError::NotASnapshot`].
    pub fn n_rows(&self) -> Result<usize, SnapshotError> {
        let path = self.found_path();
        let mut header = Vec::with_capacity(HEADER);
        let io = |source| SnapshotError::Io { action: "read", path: path.clone(), source };
        fs::File::open(&path).map_err(io)?.take(HEADER as u64).read_to_end(&mut header).map_err(io)?;
        match header.as_slice() {
            [_, _, _, _, magic @ .., low, high] if magic.starts_with(&KV_MAGIC.to_le_bytes()) && magic.len() == 10 => {
                Ok(usize::from(u16::from_le_bytes([*low, *high])))
            }
            _ => unfit(format!("`{}` does not begin as Genie's cache file does", path.display())),
        }
    }

    /// The file under its name, or under that of older releases, which wrote one file for the only slot.
    fn found_path(&self) -> PathBuf {
        let named = self.kv_path();
        if named.exists() { named } else { self.dir.join(format!("kv-cache.{}.qnn-htp", self.role)) }
    }

    fn kv_path(&self) -> PathBuf {
        self.dir.join(format!("kv-slot-{}.{}.qnn-htp", self.slot, self.role))
    }

    fn history_path(&self) -> PathBuf {
        self.dir.join(format!("token-history-slot-{}", self.slot))
    }
}

/// Every row has its token; one more may wait to be processed.
fn enough(n_tokens: usize, n_rows: usize) -> Result<(), SnapshotError> {
    if n_tokens >= n_rows {
        return Ok(());
    }
    Err(SnapshotError::Corrupt { why: format!("a token history of {n_tokens} for {n_rows} rows of cache") })
}

fn read_file(path: &Path) -> Result<Vec<u8>, SnapshotError> {
    fs::read(path).map_err(|source| SnapshotError::Io { action: "read", path: path.to_owned(), source })
}

fn unfit<T>(why: String) -> Result<T, SnapshotError> {
    Err(SnapshotError::NotASnapshot { why })
}

/// Tensors in the file's order: keys by layer and head, then values; with the number of each in the image.
fn order(tensors: &[KvTensor]) -> Vec<usize> {
    let mut order: Vec<_> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (tensors[i].kind, tensors[i].layer, tensors[i].head));
    order
}

/// Heads of a layer, element width and the like, when all tensors agree as the file wants them to.
fn uniform(tensors: &[KvTensor]) -> Result<(usize, usize, KvDtype), SnapshotError> {
    let Some(first) = tensors.first() else { return unfit("a model without cache tensors".to_owned()) };
    let same = |t: &&KvTensor| (t.layer, t.kind) == (first.layer, first.kind);
    let heads: usize = tensors.iter().filter(same).map(|t| t.n_heads).sum();
    match tensors.iter().find(|t| (t.head_dim, t.dtype, t.group) != (first.head_dim, first.dtype, 0)) {
        Some(t) => unfit(format!("`{}` differs from `{}`; that file knows one form for all", t.name(), first.name())),
        None => Ok((heads, first.head_dim, first.dtype)),
    }
}

fn to_bytes(image: &KvImage) -> Result<Vec<u8>, SnapshotError> {
    let (heads, head_dim, _) = uniform(&image.tensors)?;
    let [group] = image.groups.as_slice() else { return unfit(format!("{} cache groups", image.groups.len())) };
    let n = group.cells.len();
    // Row `i` of the file is position `i`.
    let mut rows: Vec<usize> = (0..n).collect();
    rows.sort_by_key(|&row| group.cells[row].pos);
    if group.mixed || !rows.iter().enumerate().all(|(pos, &row)| group.cells[row] == cell(pos)) {
        return unfit("the cache is not one dialog from position 0 without gaps".to_owned());
    }
    let narrow = |what, n: usize| match u16::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => unfit(format!("{n} {what}; that file counts to 65535")),
    };
    let n_layers_tensors = image.tensors.iter().filter(|t| t.head.is_none_or(|h| h == 0)).count();
    let mut out = Vec::new();
    out.extend((n_layers_tensors as u32).to_le_bytes());
    out.extend(KV_MAGIC.to_le_bytes());
    out.extend([0, 0]);
    out.extend(narrow("heads", heads)?.to_le_bytes());
    out.extend(narrow("dimensions", head_dim)?.to_le_bytes());
    out.extend(narrow("rows", n)?.to_le_bytes());
    let mut scales = Vec::new();
    for i in order(&image.tensors) {
        let (tensor, data) = (&image.tensors[i], &image.data[i]);
        permute(tensor, data, &rows, &mut out);
        if tensor.head.is_none_or(|h| h == 0) {
            scales.extend(f64::from(tensor.scale).to_le_bytes());
        }
    }
    out.extend(scales);
    Ok(out)
}

fn cell(pos: usize) -> Cell {
    Cell { pos, baked: pos, seqs: 1 }
}

/// Appends a tensor's rows in another order.
fn permute(tensor: &KvTensor, data: &[u8], rows: &[usize], out: &mut Vec<u8>) {
    let unit = tensor.unit_bytes();
    for line in data.chunks_exact(unit * rows.len().max(1)) {
        rows.iter().for_each(|row| out.extend(&line[row * unit..(row + 1) * unit]));
    }
}

fn from_bytes(bytes: &[u8], tensors: &[KvTensor]) -> Result<KvImage, SnapshotError> {
    let (heads, head_dim, dtype) = uniform(tensors)?;
    let Some((header, body)) = bytes.split_at_checked(HEADER) else {
        return unfit(format!("only {} bytes, no header of Genie's cache file", bytes.len()));
    };
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if u32_at(4) != KV_MAGIC {
        return unfit(format!("magic {:#x}, Genie's cache file has {KV_MAGIC:#x}", u32_at(4)));
    }
    let n_files = tensors.iter().filter(|t| t.head.is_none_or(|h| h == 0)).count();
    let found = (u32_at(0) as usize, u16_at(10), u16_at(12));
    if found != (n_files, heads, head_dim) {
        return unfit(format!(
            "{} tensors of {} heads by {} in it, this model has {n_files} of {heads} by {head_dim}",
            found.0, found.1, found.2
        ));
    }
    let wanted = match header[8] {
        1 => Some(KvDtype::F16),
        2 => Some(KvDtype::F32),
        _ => None,
    };
    if let Some(wanted) = wanted.filter(|&w| w != dtype) {
        return unfit(format!("rows of {} in it, this model keeps {}", wanted.name(), dtype.name()));
    }
    let n = u16_at(14);
    let expected = tensors.iter().map(|t| t.rows_bytes(n)).sum::<usize>() + 8 * n_files;
    if body.len() != expected {
        return Err(SnapshotError::Torn { expected: (HEADER + expected) as u64, found: bytes.len() as u64 });
    }
    let (mut rows, scales) = body.split_at(expected - 8 * n_files);
    let mut data = vec![Vec::new(); tensors.len()];
    let mut scales = scales.chunks_exact(8);
    for i in order(tensors) {
        let tensor = &tensors[i];
        let (own, rest) = rows.split_at(tensor.rows_bytes(n));
        data[i] = own.to_vec();
        rows = rest;
        if tensor.head.is_none_or(|h| h == 0) {
            let saved = scales.next().and_then(|b| b.try_into().ok()).map_or(0.0, f64::from_le_bytes);
            let own = f64::from(tensor.scale);
            if (saved - own).abs() > 1e-6 * own.abs() {
                return unfit(format!("scale {saved} of `{}` in it, {own} in this model", tensor.name()));
            }
        }
    }
    let cells = (0..n).map(cell).collect();
    let groups = vec![GroupImage { cells, mixed: false }];
    let next = if n > 0 { vec![(SeqId(0), n)] } else { Vec::new() };
    Ok(KvImage { groups, next, tensors: tensors.to_vec(), data })
}

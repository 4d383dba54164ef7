//! libGenie's cache file: bytes from a cache image, and back for a model's tensors.
//!
//! `kv-slot-N.ROLE.qnn-htp`, little-endian: u32 tensors, u32 magic `0xC0DE`, u8 type, u8 0, u16 heads, u16 head_dim,
//! u16 rows; then all keys by layer, `[head][dim][row]`, all values by layer, `[head][row][dim]`, in the cache's own
//! type; then an f64 scale for each tensor in the same order (0 for floats).
//!
//! *Trap*: the type byte is 0 for float16 and uint8 alike (measured), so the width comes from the model that reads.
//!
//! *Source*: files written by libGenie 1.21.

use std::path::Path;

use kvmanager::{Cell, GroupImage, KvDtype, KvImage, KvTensor, SeqId};

use crate::error::{FolderFault, NoGenieForm};
use crate::names::KV_MAGIC;

const HEADER: usize = 16;

/// Why a cache file was not accepted.
pub(super) enum ReadError {
    Fault(FolderFault),
    Torn { expected: u64, found: u64 },
}

impl From<FolderFault> for ReadError {
    fn from(fault: FolderFault) -> Self {
        Self::Fault(fault)
    }
}

/// Tensors in the file's order: keys by layer and head, then values; with the number of each in the image.
fn order(tensors: &[KvTensor]) -> Vec<usize> {
    let mut order: Vec<_> = (0..tensors.len()).collect();
    order.sort_by_key(|&i| (tensors[i].kind, tensors[i].layer, tensors[i].head));
    order
}

/// Heads of a layer, elements of a row and element type, which the file has once for all tensors.
fn uniform(tensors: &[KvTensor]) -> Result<(usize, usize, KvDtype), NoGenieForm> {
    let first = tensors.first().ok_or(NoGenieForm::NoTensors)?;
    let same = |t: &&KvTensor| (t.layer, t.kind) == (first.layer, first.kind);
    let heads: usize = tensors.iter().filter(same).map(|t| t.n_heads).sum();
    match tensors.iter().find(|t| (t.head_dim, t.dtype, t.group) != (first.head_dim, first.dtype, 0)) {
        Some(t) => Err(NoGenieForm::MixedTensors { a: t.name(), b: first.name() }),
        None => Ok((heads, first.head_dim, first.dtype)),
    }
}

pub(crate) fn to_bytes(image: &KvImage) -> Result<Vec<u8>, NoGenieForm> {
    let (heads, head_dim, _) = uniform(&image.tensors)?;
    let [group] = image.groups.as_slice() else {
        return Err(NoGenieForm::Groups { n_groups: image.groups.len() });
    };
    let n = group.cells.len();
    // Row `i` of the file is position `i`.
    let mut rows: Vec<usize> = (0..n).collect();
    rows.sort_by_key(|&row| group.cells[row].pos);
    if group.per_head_rows || !rows.iter().enumerate().all(|(pos, &row)| group.cells[row] == cell(pos)) {
        return Err(NoGenieForm::Gaps);
    }
    let narrow = |what, found: usize| u16::try_from(found).map_err(|_| NoGenieForm::TooMany { what, found });
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
    Cell { pos, rotated_pos: pos, seqs: 1 }
}

/// Appends a tensor's rows in another order.
fn permute(tensor: &KvTensor, data: &[u8], rows: &[usize], out: &mut Vec<u8>) {
    let unit = tensor.unit_bytes();
    for line in data.chunks_exact(unit * rows.len().max(1)) {
        rows.iter().for_each(|row| out.extend(&line[row * unit..(row + 1) * unit]));
    }
}

pub(super) fn from_bytes(bytes: &[u8], tensors: &[KvTensor], path: &Path) -> Result<KvImage, ReadError> {
    let (heads, head_dim, dtype) = uniform(tensors).map_err(FolderFault::NoGenieForm)?;
    let magic =
        |found| FolderFault::Magic { file: path.file_name().unwrap_or_default().to_string_lossy().into(), found };
    let (header, body) = bytes.split_at_checked(HEADER).ok_or_else(|| magic(None))?;
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if u32_at(4) != KV_MAGIC {
        return Err(magic(Some(u32_at(4))).into());
    }
    let n_files = tensors.iter().filter(|t| t.head.is_none_or(|h| h == 0)).count();
    let (expected, found) = ((n_files, heads, head_dim), (u32_at(0) as usize, u16_at(10), u16_at(12)));
    if found != expected {
        return Err(FolderFault::OtherTensors { expected, found }.into());
    }
    let found = match header[8] {
        1 => Some(KvDtype::F16),
        2 => Some(KvDtype::F32),
        _ => None,
    };
    if let Some(found) = found.filter(|&found| found != dtype) {
        return Err(FolderFault::OtherDtype { expected: dtype, found }.into());
    }
    let n = u16_at(14);
    let expected = tensors.iter().map(|t| t.rows_bytes(n)).sum::<usize>() + 8 * n_files;
    if body.len() != expected {
        return Err(ReadError::Torn { expected: (HEADER + expected) as u64, found: bytes.len() as u64 });
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
                let (expected, found) = (own, saved);
                return Err(FolderFault::OtherScale { tensor: tensor.name(), expected, found }.into());
            }
        }
    }
    let cells = (0..n).map(cell).collect();
    let groups = vec![GroupImage::of_cells(cells)];
    let next = if n > 0 { vec![(SeqId(0), n)] } else { Vec::new() };
    Ok(KvImage { groups, next, tensors: tensors.to_vec(), data, ..KvImage::default() })
}

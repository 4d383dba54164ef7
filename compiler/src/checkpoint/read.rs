//! Streams one tensor as finite f32 values.

use super::{Checkpoint, Columns, SourceDtype, TensorEntry};
use crate::fs::OnBytes;
use crate::{CompileError, Result, fs};
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Elements converted at a time.
const CHUNK_ELEMS: usize = 64 << 10;

/// Calls `each` with consecutive runs of the tensor's elements, row-major. bf16 and f16 widen exactly.
///
/// # Errors
/// A read that fails or comes short, an element that is NaN or infinite, and errors of `on_read` and `each`.
pub(crate) fn for_each_chunk(
    checkpoint: &Checkpoint,
    name: &str,
    entry: &TensorEntry,
    on_read: &mut OnBytes<'_>,
    mut each: impl FnMut(&[f32]) -> Result<()>,
) -> Result<()> {
    let (mut values, mut bits) = (Vec::new(), Vec::new());
    let mut finite = FiniteCheck { name, dims: &entry.dims, done: 0 };
    let (block_elems, block_bytes) = entry.dtype.block().unwrap_or((1, 1));
    let deltas = checkpoint.overlays.iter().filter_map(|overlay| overlay.deltas(name, &entry.dims).transpose());
    let mut deltas = deltas.collect::<Result<Vec<_>>>()?;
    for_each_raw(checkpoint, name, entry, on_read, |raw| {
        values.resize(raw.len() / block_bytes * block_elems, 0.0);
        widen(&entry.dtype, raw, &mut bits, &mut values);
        deltas.iter_mut().for_each(|deltas| deltas.add(&mut values));
        finite.pass(&values)?;
        each(&values)
    })
}

/// Calls `each` with consecutive runs of the tensor's bytes as stored, whole blocks of them, rows in Hugging Face's order.
///
/// # Errors
/// An unsupported type, a read that fails or comes short, and errors of `on_read` and `each`.
pub(crate) fn for_each_raw(
    checkpoint: &Checkpoint,
    name: &str,
    entry: &TensorEntry,
    on_read: &mut OnBytes<'_>,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let path = &checkpoint.shards[entry.shard];
    entry.check_is_no_list_of_blocks(name)?;
    let (block_elems, block_bytes) = entry
        .dtype
        .block()
        .ok_or_else(|| CompileError::UnsupportedDtype { name: name.into(), found: entry.dtype.name() })?;
    if let Some(columns) = entry.columns {
        return turned(path, name, entry, columns, on_read, each);
    }
    let mut file = fs::open(path)?;
    file.seek(SeekFrom::Start(entry.offset)).map_err(fs::io_err("seek in", path))?;

    let n_elems = entry.dims.iter().product::<usize>();
    let total = n_elems / block_elems * block_bytes;
    let row_bytes = entry.dims[1..].iter().product::<usize>() * block_bytes / block_elems;
    // Heads whose rows come in pairs are read whole.
    let run = entry.paired_heads.map_or(CHUNK_ELEMS / block_elems * block_bytes, |head_dim| head_dim * row_bytes);
    let mut buffer = vec![0_u8; total.min(run)];
    let mut unpaired = Vec::new();
    let mut done = 0;
    while done < total {
        let n = run.min(total - done);
        let raw = &mut buffer[..n];
        file.read_exact(raw).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => CompileError::DamagedFile {
                path: path.clone(),
                detail: format!("tensor `{name}` ends before element {n_elems}"),
            },
            _ => fs::io_err("read", path)(e),
        })?;
        on_read(n as u64)?;
        if entry.paired_heads.is_some() {
            unpair_rows(raw, row_bytes, &mut unpaired);
            each(&unpaired)?;
        } else {
            each(raw)?;
        }
        done += n;
    }
    Ok(())
}

/// A tensor whose rows are columns of a stored matrix: it is put together as a whole, from one pass over the file.
fn turned(
    path: &Path,
    name: &str,
    entry: &TensorEntry,
    Columns { width, first }: Columns,
    on_read: &mut OnBytes<'_>,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let (&[n_rows, inner], Some((1, bytes))) = (&entry.dims[..], entry.dtype.block()) else {
        return Err(CompileError::UnsupportedDtype { name: name.into(), found: entry.dtype.name() });
    };
    let mut file = fs::open(path)?;
    let (mut row, mut all) = (vec![0_u8; n_rows * bytes], vec![0_u8; n_rows * inner * bytes]);
    for i in 0..inner {
        let at = entry.offset + ((i * width + first) * bytes) as u64;
        file.seek(SeekFrom::Start(at)).map_err(fs::io_err("seek in", path))?;
        file.read_exact(&mut row).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => {
                let detail = format!("tensor `{name}` ends before element {}", n_rows * inner);
                CompileError::DamagedFile { path: path.into(), detail }
            }
            _ => fs::io_err("read", path)(e),
        })?;
        on_read(row.len() as u64)?;
        for (o, element) in row.chunks_exact(bytes).enumerate() {
            all[(o * inner + i) * bytes..][..bytes].copy_from_slice(element);
        }
    }
    all.chunks(CHUNK_ELEMS * bytes).try_for_each(&mut each)
}

/// Rows of one head from `(0, d/2), (1, d/2 + 1), ...` to `0, 1, 2, ...`.
fn unpair_rows(rows: &[u8], row_bytes: usize, to: &mut Vec<u8>) {
    let half = rows.len() / row_bytes / 2;
    to.clear();
    for part in 0..2 {
        for row in 0..half {
            let at = (2 * row + part) * row_bytes;
            to.extend_from_slice(&rows[at..at + row_bytes]);
        }
    }
}

fn widen(dtype: &SourceDtype, raw: &[u8], bits: &mut Vec<u16>, values: &mut [f32]) {
    match dtype {
        SourceDtype::F32 => {
            for (value, bytes) in values.iter_mut().zip(raw.as_chunks().0) {
                *value = f32::from_le_bytes(*bytes);
            }
            return;
        }
        SourceDtype::Blocks(format) => return format.decode(raw, values),
        _ => {}
    }
    bits.clear();
    bits.extend(raw.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes)));
    match dtype {
        SourceDtype::F16 => bits.reinterpret_cast::<f16>().convert_to_f32_slice(values),
        _ => {
            for (value, bits) in values.iter_mut().zip(bits.iter()) {
                *value = f32::from_bits(u32::from(*bits) << 16);
            }
        }
    }
}

/// Counts elements and stops at the first that is NaN or infinite; the error has its index.
pub(crate) struct FiniteCheck<'a> {
    /// The tensor's name.
    pub(crate) name: &'a str,
    /// Its extents.
    pub(crate) dims: &'a [usize],
    /// Elements checked so far.
    pub(crate) done: usize,
}

impl FiniteCheck<'_> {
    /// Checks a run of elements.
    pub(crate) fn pass(&mut self, values: &[f32]) -> Result<()> {
        if let Some(at) = values.iter().position(|v| !v.is_finite()) {
            return Err(CompileError::NotFinite { name: self.name.into(), index: self.index(at), value: values[at] });
        }
        self.done += values.len();
        Ok(())
    }

    /// Checks `n` elements that are whole numbers times these: the first of them that is not finite makes the first element so.
    pub(crate) fn pass_scaled(&mut self, n: usize, factors: &[f32]) -> Result<()> {
        if let Some(bad) = factors.iter().find(|factor| !factor.is_finite()) {
            return self.pass(&[*bad]);
        }
        self.done += n;
        Ok(())
    }

    /// Coordinates of the `at`-th element of the current run.
    pub(crate) fn index(&self, at: usize) -> Vec<usize> {
        let mut flat = self.done + at;
        let mut index = vec![0; self.dims.len()];
        for (slot, &extent) in index.iter_mut().zip(self.dims).rev() {
            *slot = flat % extent;
            flat /= extent;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_pairs_are_put_in_order() {
        let mut rows = Vec::new();
        unpair_rows(&[0, 1, 4, 5, 2, 3, 6, 7], 2, &mut rows);
        assert_eq!(rows, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_finite_check_counts_over_runs() {
        let mut finite = FiniteCheck { name: "w", dims: &[3, 2, 4], done: 0 };
        finite.pass(&[0.0; 13]).unwrap();
        let error = finite.pass(&[1.0, -1.0, f32::INFINITY, f32::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "tensor `w` has inf at index [1, 1, 3]: weights must be finite");
    }
}

//! Converts one weight from the checkpoint to the form that a graph stores.
//!
//! *Units*: folded scales multiply in double, then round once to f32 and once more to f16 where that is the precision.
//! Weights quantised by row carry the folded scale in their scales, see [`super::per_row`]; nothing is folded into blocks or bfloat16.

use super::blocks::blocks;
use super::per_row::RowScales;
use super::rounding_loss::RoundingLoss;
use super::weight_format::{BlockBits, Encoding, Format, LinearForm, Role, WeightSpec};
use crate::checkpoint::{BlockFormat, Checkpoint, FiniteCheck, SourceDtype, TensorEntry, for_each_chunk};
use crate::fs::OnBytes;
use crate::{CompileError, Precision, Result};
use genie_types::{Dtype, TensorInfo};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A weight ready for `GraphSink::constant`.
#[derive(Debug)]
pub(crate) struct EncodedWeight {
    /// Name, extents, element type.
    pub(crate) info: TensorInfo,
    /// Little-endian, row-major.
    pub(crate) bytes: Vec<u8>,
    /// What is taken off the weights, one for each block of a row.
    pub(crate) minima: Option<Minima>,
    /// Its bytes in the checkpoint.
    pub(crate) source_bytes: u64,
    /// Error of rounding to blocks, or to bfloat16.
    pub(crate) loss: RoundingLoss,
    /// What is to be said of it, after its name.
    pub(crate) note: Option<String>,
}

/// Whole numbers with a scale for each 256 columns, `[out, in / 32]` or `[out, in / 16]`.
#[derive(Debug)]
pub(crate) struct Minima {
    pub(crate) info: TensorInfo,
    pub(crate) bytes: Vec<u8>,
}

impl EncodedWeight {
    /// Streams the weight: only its converted form is in memory. `on_read` is given no more than [`Self::source_bytes`].
    ///
    /// # Errors
    /// A weight that is not there, cannot be read, or does not fit the format; those of `on_read`.
    pub(crate) fn read(
        checkpoint: &Checkpoint,
        weight: &WeightSpec,
        format: Format,
        on_read: &mut OnBytes<'_>,
    ) -> Result<Self> {
        let entry = checkpoint.expect(&weight.name, &weight.dims)?;
        let (mut loss, mut minima, mut note) = (RoundingLoss::default(), None, None);
        let (info, bytes) = match format.encoding_of(weight.role, &entry.dtype) {
            Encoding::Float(Precision::F32) => {
                let mut bytes = Vec::with_capacity(4 * weight.n_elems());
                for_each_scaled(checkpoint, weight, entry, on_read, |values| {
                    push_le(&mut bytes, values, |v| v.to_le_bytes());
                    Ok(())
                })?;
                (weight.info(Dtype::F32), bytes)
            }
            Encoding::Float(Precision::F16) => (weight.info(Dtype::F16), halves(checkpoint, weight, entry, on_read)?),
            Encoding::Bf16 => {
                let bytes;
                (bytes, loss) = bfloats(checkpoint, weight, entry, on_read)?;
                (weight.info(Dtype::Bf16), bytes)
            }
            Encoding::PerRow { largest } => per_row(checkpoint, weight, entry, (format, largest), on_read)?,
            Encoding::Blocks(bits) => {
                // What is copied loses nothing, and needs fewer bytes than what it could be rounded to without.
                let copied = match entry.dtype {
                    SourceDtype::Blocks(stored) => BlockBits::of_copied(stored, weight.role),
                    _ => None,
                };
                let copied = copied.filter(|_| !checkpoint.is_changed(&weight.name));
                // Those of Q8_0 are copied too; all else is rounded. What an adapter was merged into keeps four bits if it had them.
                let eight = format.keeps_eight_bits && entry.dtype != SourceDtype::Blocks(BlockFormat::Q4_0);
                let bits = if eight { BlockBits::Eight } else { bits };
                let stored = blocks(checkpoint, weight, entry, copied.unwrap_or(bits), on_read)?;
                (loss, minima, note) = (stored.loss, stored.minima, stored.note);
                (stored.info, stored.bytes)
            }
        };
        debug_assert_eq!(bytes.len(), info.size_bytes());
        let (info, bytes) = match (weight.role, format.form) {
            (Role::Linear, LinearForm::Conv2d) => {
                let bytes = columns(&bytes, weight.dims[0], info.dtype.size_bytes(), on_read)?;
                (TensorInfo { dims: format.form.dims(&weight.dims), ..info }, bytes)
            }
            _ => (info, bytes),
        };
        Ok(Self { info, bytes, minima, source_bytes: entry.bytes, loss, note })
    }
}

fn halves(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    on_read: &mut OnBytes<'_>,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(2 * weight.n_elems());
    let mut narrow = Vec::new();
    let mut finite = weight.finite_check();
    for_each_scaled(checkpoint, weight, entry, on_read, |values| {
        check_range(&mut finite, values)?;
        narrow.resize(values.len(), f16::ZERO);
        narrow.convert_from_f32_slice(values);
        push_le(&mut bytes, &narrow, |v| v.to_le_bytes());
        Ok(())
    })?;
    Ok(bytes)
}

/// Numbers of bfloat16 are copied, others rounded to the nearest.
fn bfloats(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    on_read: &mut OnBytes<'_>,
) -> Result<(Vec<u8>, RoundingLoss)> {
    debug_assert!(weight.is_plain(), "{}: no factor is folded into bfloat16", weight.name);
    let is_rounded = entry.dtype != SourceDtype::Bf16 || checkpoint.is_changed(&weight.name);
    let (mut bytes, mut loss) = (Vec::with_capacity(2 * weight.n_elems()), RoundingLoss::default());
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    let mut finite = weight.finite_check();
    for_each_chunk(checkpoint, &weight.name, entry, on_read, |values| {
        narrow.resize(values.len(), bf16::ZERO);
        narrow.convert_from_f32_slice(values);
        if is_rounded {
            wide.resize(values.len(), 0.0);
            narrow.convert_to_f32_slice(&mut wide);
            // The largest floats round to infinity.
            finite.pass(&wide)?;
            values.iter().zip(&wide).for_each(|(value, rounded)| loss.add(*value, *rounded));
        }
        push_le(&mut bytes, &narrow, |v| v.to_le_bytes());
        Ok(())
    })?;
    Ok((bytes, loss))
}

/// Values are dequantised into the activations' type, so their range is checked like that of float weights.
fn per_row(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    (format, largest): (Format, i8),
    on_read: &mut OnBytes<'_>,
) -> Result<(TensorInfo, Vec<u8>)> {
    // It is read twice; each pass is half of the work.
    let on_read = &mut |bytes: u64| on_read(bytes / 2);
    let n_rows = weight.dims[0];
    let mut rows = RowScales::new(n_rows, weight.n_elems() / n_rows.max(1), largest);
    let mut finite = weight.finite_check();
    for_each_scaled(checkpoint, weight, entry, on_read, |values| {
        if format.precision == Precision::F16 {
            check_range(&mut finite, values)?;
        }
        rows.measure(values);
        Ok(())
    })?;
    rows.seal(format.precision == Precision::F16);
    let mut quantised = Vec::with_capacity(weight.n_elems());
    for_each_scaled(checkpoint, weight, entry, on_read, |values| {
        rows.encode(values, &mut quantised);
        Ok(())
    })?;
    Ok((weight.info(Dtype::SFixed8).with_quant(rows.quant(format.form.channel_axis())), quantised))
}

/// The checkpoint's values with what is folded into them.
fn for_each_scaled(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    on_read: &mut OnBytes<'_>,
    mut each: impl FnMut(&[f32]) -> Result<()>,
) -> Result<()> {
    let mut scaled = Vec::new();
    for_each_chunk(checkpoint, &weight.name, entry, on_read, |values| {
        if weight.is_plain() {
            return each(values);
        }
        scaled.clear();
        scaled.extend(values.iter().map(|v| weight.folded(*v)));
        each(&scaled)
    })
}

/// Side of the square that is transposed at a time: its rows and columns stay in the CPU cache.
const TILE: usize = 32;

/// A row-major matrix of `n_rows` rows, column by column; `on_read` may end it.
fn columns(bytes: &[u8], n_rows: usize, width: usize, on_read: &mut OnBytes<'_>) -> Result<Vec<u8>> {
    let n_columns = bytes.len() / (n_rows * width).max(1);
    let mut transposed = vec![0; bytes.len()];
    for row in (0..n_rows).step_by(TILE) {
        on_read(0)?;
        for column in (0..n_columns).step_by(TILE) {
            for r in row..(row + TILE).min(n_rows) {
                for c in column..(column + TILE).min(n_columns) {
                    let (from, to) = ((r * n_columns + c) * width, (c * n_rows + r) * width);
                    transposed[to..to + width].copy_from_slice(&bytes[from..from + width]);
                }
            }
        }
    }
    Ok(transposed)
}

fn check_range(finite: &mut FiniteCheck<'_>, values: &[f32]) -> Result<()> {
    let limit = f16::MAX.to_f32();
    if let Some(at) = values.iter().position(|v| v.abs() > limit) {
        return Err(CompileError::F16Overflow { name: finite.name.into(), index: finite.index(at), value: values[at] });
    }
    finite.pass(values)
}

fn push_le<T, const N: usize>(bytes: &mut Vec<u8>, values: &[T], to_le: impl Fn(&T) -> [u8; N]) {
    let start = bytes.len();
    bytes.resize(start + N * values.len(), 0);
    for (slot, value) in bytes[start..].as_chunks_mut().0.iter_mut().zip(values) {
        *slot = to_le(value);
    }
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn columns_of_any_extent_are_transposed() {
        for (rows, cols) in [(1, 1), (1, 70), (70, 1), (2, 3), (33, 65), (64, 32)] {
            let elems: Vec<u16> = (0..rows * cols).map(|i| i as u16).collect();
            let bytes: Vec<u8> = elems.iter().flat_map(|e| e.to_le_bytes()).collect();
            let transposed = columns(&bytes, rows, 2, &mut |_| Ok(())).unwrap();
            for (i, e) in transposed.as_chunks().0.iter().enumerate() {
                assert_eq!(u16::from_le_bytes(*e) as usize, i % rows * cols + i / rows, "{rows} x {cols} at {i}");
            }
        }
    }
}

//! Converts one weight from the checkpoint to what a graph stores.
//!
//! *Units*: folded scales multiply in double, then round once to f32 and once more to f16 where that is the precision.
//! Linear weights may become int8 codes instead, see [`super::quantize`]: the folded scale is in their row scales then.

use super::blocks::{Bits, blocks, is_power_of_two};
use super::quantize::RowScales;
use super::weights::{Role, WeightSpec};
use crate::checkpoint::{BlockFormat, Checkpoint, Gatekeeper, SourceDtype, TensorEntry, for_each_chunk};
use crate::{CompileError, Precision, Result, Weights};
use genie_types::{Dtype, TensorInfo};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// A weight ready for `GraphSink::constant`.
#[derive(Debug)]
pub(crate) struct Stored {
    /// Name, extents, element type.
    pub(crate) info: TensorInfo,
    /// Little-endian, row-major.
    pub(crate) bytes: Vec<u8>,
    /// What it took in the checkpoint.
    pub(crate) source_bytes: u64,
    /// What rounding to blocks cost.
    pub(crate) loss: Loss,
}

impl Stored {
    /// Streams the weight through: only its converted form is held.
    pub(crate) fn read(checkpoint: &Checkpoint, weight: &WeightSpec, format: Format) -> Result<Self> {
        let entry = checkpoint.expect(&weight.name, &weight.dims)?;
        let mut loss = Loss::default();
        let (info, bytes) = match format.of(weight.role) {
            Encoding::Plain(Precision::F32) => {
                let mut bytes = Vec::with_capacity(4 * weight.n_elems());
                for_each_scaled(checkpoint, weight, entry, |values| {
                    push_le(&mut bytes, values, |v| v.to_le_bytes());
                    Ok(())
                })?;
                (weight.info(Dtype::F32), bytes)
            }
            Encoding::Plain(Precision::F16) => (weight.info(Dtype::F16), halves(checkpoint, weight, entry)?),
            Encoding::RowCodes(top) => row_codes(checkpoint, weight, entry, format, top)?,
            Encoding::Blocks(bits) => {
                // A file's own six bits lose nothing, and need fewer bytes than eight.
                let six = entry.dtype == SourceDtype::Blocks(BlockFormat::Q6K) && is_power_of_two(weight.scale);
                let bits = if six { Bits::Six } else { bits };
                let (info, bytes, lost) = blocks(checkpoint, weight, entry, bits)?;
                loss = lost;
                (info, bytes)
            }
        };
        debug_assert_eq!(bytes.len(), info.size_bytes());
        let (info, bytes) = match (weight.role, format.form) {
            (Role::Linear, LinearForm::Conv2d) => {
                let bytes = columns(&bytes, weight.dims[0], info.dtype.size_bytes());
                (TensorInfo { dims: format.form.dims(&weight.dims), ..info }, bytes)
            }
            _ => (info, bytes),
        };
        Ok(Self { info, bytes, source_bytes: entry.bytes, loss })
    }
}

/// Which op a linear layer becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinearForm {
    /// `FullyConnected`, weights `[out, in]` as in checkpoints: what `qnn-host` reads without rearranging.
    FullyConnected,
    /// `Conv2d` of one by one, weights `[1, 1, in, out]`: what HTP libraries run fastest (`docs/compile.md`).
    Conv2d,
}

impl LinearForm {
    /// Extents of weights `[out, in]`.
    fn dims(self, dims: &[usize]) -> Vec<usize> {
        match self {
            Self::FullyConnected => dims.to_vec(),
            Self::Conv2d => vec![1, 1, dims[1], dims[0]],
        }
    }

    /// The axis of output channels in them.
    const fn channel_axis(self) -> u32 {
        match self {
            Self::FullyConnected => 0,
            Self::Conv2d => 3,
        }
    }
}

/// How the weights of a model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Of activations, and of weights that have no codes.
    pub(crate) precision: Precision,
    /// Of linear layers.
    pub(crate) weights: Weights,
    /// Of linear layers.
    pub(crate) form: LinearForm,
}

/// Squares of what rounding moved, and of what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Loss {
    moved: f64,
    whole: f64,
}

impl Loss {
    /// One weight, and what it became.
    pub(super) fn add(&mut self, weight: f32, rounded: f32) {
        self.moved += f64::from(weight - rounded).powi(2);
        self.whole += f64::from(weight).powi(2);
    }

    /// Another tensor's.
    pub(crate) fn join(&mut self, other: Self) {
        self.moved += other.moved;
        self.whole += other.whole;
    }

    /// Root mean square of the moves over that of the weights; `None` when nothing was rounded.
    pub(crate) fn relative(self) -> Option<f64> {
        (self.whole > 0.0).then(|| (self.moved / self.whole).sqrt())
    }
}

enum Encoding {
    Plain(Precision),
    /// The largest code.
    RowCodes(i8),
    Blocks(Bits),
}

impl Format {
    /// Names and shapes of tensors as the checkpoint has them.
    pub(crate) const PLAIN: Self =
        Self { precision: Precision::F32, weights: Weights::Float, form: LinearForm::FullyConnected };

    fn of(self, role: Role) -> Encoding {
        match (self.weights, role) {
            (Weights::W8, Role::Linear) => Encoding::RowCodes(127),
            (Weights::W4, Role::Linear) => Encoding::RowCodes(7),
            (Weights::Q8_0, Role::Linear | Role::Embedding) | (Weights::Q4_0, Role::Embedding) => {
                Encoding::Blocks(Bits::Eight)
            }
            (Weights::Q4_0, Role::Linear) => Encoding::Blocks(Bits::Four),
            (_, Role::Bias | Role::Norm) | (Weights::Float | Weights::W8 | Weights::W4, _) => {
                Encoding::Plain(self.precision)
            }
        }
    }

    /// Bytes of a weight in a graph, its scales among them.
    pub(crate) fn size_bytes(self, weight: &WeightSpec) -> u64 {
        let (n_elems, n_rows) = (weight.n_elems() as u64, weight.dims[0] as u64);
        match self.of(weight.role) {
            Encoding::Plain(precision) => n_elems * precision.dtype().size_bytes() as u64,
            Encoding::RowCodes(_) => n_elems + 8 * n_rows,
            Encoding::Blocks(bits) => bits.size_bytes(n_elems),
        }
    }
}

fn halves(checkpoint: &Checkpoint, weight: &WeightSpec, entry: &TensorEntry) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(2 * weight.n_elems());
    let mut narrow = Vec::new();
    let mut gate = weight.gate();
    for_each_scaled(checkpoint, weight, entry, |values| {
        check_range(&mut gate, values)?;
        narrow.resize(values.len(), f16::ZERO);
        narrow.convert_from_f32_slice(values);
        push_le(&mut bytes, &narrow, |v| v.to_le_bytes());
        Ok(())
    })?;
    Ok(bytes)
}

/// Codes are unpacked into the activations' type, so their range is checked like that of plain weights.
fn row_codes(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    format: Format,
    top: i8,
) -> Result<(TensorInfo, Vec<u8>)> {
    let n_rows = weight.dims[0];
    let mut rows = RowScales::new(n_rows, weight.n_elems() / n_rows.max(1), top);
    let mut gate = weight.gate();
    for_each_scaled(checkpoint, weight, entry, |values| {
        if format.precision == Precision::F16 {
            check_range(&mut gate, values)?;
        }
        rows.measure(values);
        Ok(())
    })?;
    rows.seal(format.precision == Precision::F16);
    let mut codes = Vec::with_capacity(weight.n_elems());
    for_each_scaled(checkpoint, weight, entry, |values| {
        rows.encode(values, &mut codes);
        Ok(())
    })?;
    Ok((weight.info(Dtype::SFixed8).with_quant(rows.quant(format.form.channel_axis())), codes))
}

/// The checkpoint's values times the folded scale.
fn for_each_scaled(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    mut each: impl FnMut(&[f32]) -> Result<()>,
) -> Result<()> {
    let mut scaled = Vec::new();
    for_each_chunk(checkpoint, &weight.name, entry, |values| match weight.scale {
        1.0 => each(values),
        scale => {
            scaled.clear();
            scaled.extend(values.iter().map(|v| (f64::from(*v) * scale) as f32));
            each(&scaled)
        }
    })
}

/// Side of the square that is turned at a time: its rows and columns stay in the cache.
const TILE: usize = 32;

/// A row-major matrix of `n_rows` rows, column by column.
fn columns(bytes: &[u8], n_rows: usize, width: usize) -> Vec<u8> {
    let n_columns = bytes.len() / (n_rows * width).max(1);
    let mut turned = vec![0; bytes.len()];
    for row in (0..n_rows).step_by(TILE) {
        for column in (0..n_columns).step_by(TILE) {
            for r in row..(row + TILE).min(n_rows) {
                for c in column..(column + TILE).min(n_columns) {
                    let (from, to) = ((r * n_columns + c) * width, (c * n_rows + r) * width);
                    turned[to..to + width].copy_from_slice(&bytes[from..from + width]);
                }
            }
        }
    }
    turned
}

fn check_range(gate: &mut Gatekeeper<'_>, values: &[f32]) -> Result<()> {
    let limit = f16::MAX.to_f32();
    if let Some(at) = values.iter().position(|v| v.abs() > limit) {
        return Err(CompileError::F16Overflow { name: gate.name.into(), index: gate.index(at), value: values[at] });
    }
    gate.pass(values)
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
    fn columns_of_any_extent_are_turned() {
        for (rows, cols) in [(1, 1), (1, 70), (70, 1), (2, 3), (33, 65), (64, 32)] {
            let elems: Vec<u16> = (0..rows * cols).map(|i| i as u16).collect();
            let bytes: Vec<u8> = elems.iter().flat_map(|e| e.to_le_bytes()).collect();
            let turned = columns(&bytes, rows, 2);
            for (i, e) in turned.as_chunks().0.iter().enumerate() {
                assert_eq!(u16::from_le_bytes(*e) as usize, i % rows * cols + i / rows, "{rows} x {cols} at {i}");
            }
        }
    }
}

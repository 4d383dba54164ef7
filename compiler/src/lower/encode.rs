//! Converts one weight from the checkpoint to what a graph stores.
//!
//! *Units*: folded scales multiply in double, then round once to f32 and once more to f16 where that is the precision.
//! Linear weights may become int8 codes instead, see [`super::quantize`]: the folded scale is in their row scales then.

use super::quantize::RowScales;
use super::weights::{Role, WeightSpec};
use crate::checkpoint::{Checkpoint, Gatekeeper, TensorEntry, for_each_chunk};
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
}

impl Stored {
    /// Streams the weight through: only its converted form is held.
    pub(crate) fn read(checkpoint: &Checkpoint, weight: &WeightSpec, format: Format) -> Result<Self> {
        let entry = checkpoint.expect(&weight.name, &weight.dims)?;
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
            Encoding::RowCodes => row_codes(checkpoint, weight, entry, format.precision)?,
        };
        debug_assert_eq!(bytes.len(), info.size_bytes());
        Ok(Self { info, bytes, source_bytes: entry.bytes })
    }
}

/// How the weights of a model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Of activations, and of weights that have no codes.
    pub(crate) precision: Precision,
    /// Of linear layers.
    pub(crate) weights: Weights,
}

enum Encoding {
    Plain(Precision),
    RowCodes,
}

impl Format {
    fn of(self, role: Role) -> Encoding {
        match (self.weights, role) {
            (Weights::W8, Role::Linear) => Encoding::RowCodes,
            (Weights::Float, _) | (Weights::W8, Role::Embedding | Role::Bias | Role::Norm) => {
                Encoding::Plain(self.precision)
            }
        }
    }

    /// Bytes of a weight in a graph, its scales among them.
    pub(crate) fn size_bytes(self, weight: &WeightSpec) -> u64 {
        let (n_elems, n_rows) = (weight.n_elems() as u64, weight.dims[0] as u64);
        match self.of(weight.role) {
            Encoding::Plain(precision) => n_elems * precision.dtype().size_bytes() as u64,
            Encoding::RowCodes => n_elems + 8 * n_rows,
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
    precision: Precision,
) -> Result<(TensorInfo, Vec<u8>)> {
    let n_rows = weight.dims[0];
    let mut rows = RowScales::new(n_rows, weight.n_elems() / n_rows.max(1));
    let mut gate = weight.gate();
    for_each_scaled(checkpoint, weight, entry, |values| {
        if precision == Precision::F16 {
            check_range(&mut gate, values)?;
        }
        rows.measure(values);
        Ok(())
    })?;
    rows.seal();
    let mut codes = Vec::with_capacity(weight.n_elems());
    for_each_scaled(checkpoint, weight, entry, |values| {
        rows.encode(values, &mut codes);
        Ok(())
    })?;
    Ok((weight.info(Dtype::SFixed8).with_quant(rows.quant()), codes))
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

//! Converts one weight from the checkpoint to what a graph stores.
//!
//! *Units*: folded scales multiply in double, then round once to f32 and once more to f16 where that is the precision.
//! Weight quantisation is to be added here: by role, with an encoding in the returned `TensorInfo`.

use super::weights::WeightSpec;
use crate::checkpoint::{Checkpoint, Gatekeeper, for_each_chunk};
use crate::{CompileError, Precision, Result};
use genie_types::TensorInfo;
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
    pub(crate) fn read(checkpoint: &Checkpoint, weight: &WeightSpec, precision: Precision) -> Result<Self> {
        let entry = checkpoint.expect(&weight.name, &weight.dims)?;
        let info = TensorInfo::new(weight.name.replace('.', "_"), weight.dims.clone(), precision.dtype());
        let mut bytes = Vec::with_capacity(info.size_bytes());
        let mut scaled = Vec::new();
        let mut narrow = Vec::new();
        let mut gate = Gatekeeper { name: &weight.name, dims: &weight.dims, done: 0 };
        for_each_chunk(checkpoint, &weight.name, entry, |values| {
            let values = match weight.scale {
                1.0 => values,
                scale => {
                    scaled.clear();
                    scaled.extend(values.iter().map(|v| (f64::from(*v) * scale) as f32));
                    &scaled
                }
            };
            match precision {
                Precision::F32 => push_le(&mut bytes, values, |v| v.to_le_bytes()),
                Precision::F16 => {
                    check_range(&mut gate, values)?;
                    narrow.resize(values.len(), f16::ZERO);
                    narrow.convert_from_f32_slice(values);
                    push_le(&mut bytes, &narrow, |v| v.to_le_bytes());
                }
            }
            Ok(())
        })?;
        Ok(Self { info, bytes, source_bytes: entry.bytes })
    }
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

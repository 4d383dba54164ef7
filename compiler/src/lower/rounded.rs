//! The dequantised weights of a graph, under the checkpoint's names and without the folded scales.

use super::Split;
use super::encode::{EncodedWeight, Minima};
use super::weight_format::{Format, Role, WeightSpec};
use super::weights;
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use genie_types::{Dtype, Quant, TensorInfo};
use half::{bf16, f16};

/// One of a model's weights.
pub(crate) struct RoundedWeight {
    /// Name in a checkpoint.
    pub(crate) name: String,
    spec: WeightSpec,
}

/// All weights that a model's graphs hold in that format; a tied LM head only where it is a tensor of its own.
pub(crate) fn rounded_weights(spec: &ModelSpec, format: Format) -> Vec<RoundedWeight> {
    let head = weights::lm_head(spec, format);
    let named = |weight: WeightSpec| {
        let is_head = weight.stored_as == head.stored_as && !weights::shares_table(spec, format);
        let name = if is_head { "lm_head.weight".into() } else { weight.name.clone() };
        RoundedWeight { name, spec: weight }
    };
    weights::of_split(spec, &Split::whole(spec), format).into_iter().map(named).collect()
}

impl RoundedWeight {
    /// Extents, outermost first.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.spec.dims
    }

    /// Whether it scales normalised values.
    pub(crate) fn is_norm(&self) -> bool {
        self.spec.role == Role::Norm
    }

    /// Reads it, quantises it, and returns its dequantised values.
    pub(crate) fn read(&self, checkpoint: &Checkpoint, format: Format) -> Result<Vec<f32>> {
        let stored = EncodedWeight::read(checkpoint, &self.spec, format, &mut |_| Ok(()));
        let stored = stored.map_err(|error| checkpoint.in_stored_words(error))?;
        let mut values = dequantised(&stored);
        if !self.spec.is_plain() {
            values.iter_mut().for_each(|v| *v = self.spec.unfolded(*v));
        }
        Ok(values)
    }
}

fn dequantised(stored: &EncodedWeight) -> Vec<f32> {
    let EncodedWeight { info, bytes, minima, .. } = stored;
    let mut weights = numbers(info, bytes);
    if let Some(Minima { info, bytes }) = minima {
        let minima = numbers(info, bytes);
        let shared = weights.len() / minima.len();
        weights.chunks_mut(shared).zip(minima).for_each(|(block, m)| block.iter_mut().for_each(|w| *w -= m));
    }
    weights
}

fn numbers(info: &TensorInfo, bytes: &[u8]) -> Vec<f32> {
    let q: Vec<i8> = match info.dtype {
        Dtype::F32 => return bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::F16 => return bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::Bf16 => return bytes.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::SFixed4 => {
            let pair = |b: &u8| [(b << 4).cast_signed() >> 4, b.cast_signed() >> 4];
            bytes.iter().flat_map(pair).collect()
        }
        Dtype::UFixed4 => bytes.iter().flat_map(|b| [b & 15, b >> 4]).map(u8::cast_signed).collect(),
        // Unsigned ones have at most six bits.
        _ => bytes.iter().map(|b| b.cast_signed()).collect(),
    };
    let scales = match &info.quant {
        Quant::PerAxis { scale_offsets, .. } | Quant::Block { scale_offsets, .. } => scale_offsets.as_slice(),
        other => unreachable!("weights are stored per row or in blocks, not as {other:?}"),
    };
    // Scales are in the order of their runs: rows, or blocks of a row.
    let run = q.len() / scales.len().max(1);
    q.chunks(run.max(1))
        .zip(scales)
        .flat_map(|(run, (scale, _))| run.iter().map(move |q| f32::from(*q) * scale))
        .collect()
}

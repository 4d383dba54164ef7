//! The numbers that a graph's stored weights stand for, under the checkpoint's names and without what was folded into them.

use super::Piece;
use super::encode::{Format, Stored};
use super::weights::{self, WeightSpec};
use crate::Result;
use crate::checkpoint::Checkpoint;
use crate::family::ModelSpec;
use genie_types::{Dtype, Quant};
use half::f16;

/// One of a model's weights.
pub(crate) struct RoundedWeight {
    /// What a checkpoint calls it.
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
    weights::of_piece(spec, &Piece::whole(spec), format).into_iter().map(named).collect()
}

impl RoundedWeight {
    /// Extents, outermost first.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.spec.dims
    }

    /// Reads it, rounds it, and gives what it is then.
    pub(crate) fn read(&self, checkpoint: &Checkpoint, format: Format) -> Result<Vec<f32>> {
        let stored = Stored::read(checkpoint, &self.spec, format)?;
        let mut values = numbers(&stored);
        if self.spec.scale != 1.0 {
            values.iter_mut().for_each(|v| *v = (f64::from(*v) / self.spec.scale) as f32);
        }
        Ok(values)
    }
}

fn numbers(stored: &Stored) -> Vec<f32> {
    let Stored { info, bytes, .. } = stored;
    let codes: Vec<i8> = match info.dtype {
        Dtype::F32 => return bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::F16 => return bytes.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        Dtype::SFixed4 => {
            let pair = |b: &u8| [(b << 4).cast_signed() >> 4, b.cast_signed() >> 4];
            bytes.iter().flat_map(pair).collect()
        }
        _ => bytes.iter().map(|b| b.cast_signed()).collect(),
    };
    let scales = match &info.quant {
        Quant::PerAxis { scale_offsets, .. } | Quant::Block { scale_offsets, .. } => scale_offsets.as_slice(),
        other => unreachable!("weights are stored by row or in blocks, not as {other:?}"),
    };
    // Scales stand in the order of the runs that they are for: rows, or blocks of a row.
    let run = codes.len() / scales.len().max(1);
    codes
        .chunks(run.max(1))
        .zip(scales)
        .flat_map(|(run, (scale, _))| run.iter().map(move |c| f32::from(*c) * scale))
        .collect()
}

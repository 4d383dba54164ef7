//! Encodings of fixed-point tensors.
//!
//! *Units*: `real = (code + offset) * scale` on both sides.

use core::mem::offset_of;

use genie_types::Quant;
use qnn_sys::*;

use super::slice;
use crate::error::{Error, Result};

/// The arrays that the C struct points at. Vectors, not boxes: their storage stays put when this is moved.
#[derive(Default)]
pub(super) struct Arrays {
    scale_offsets: Vec<Qnn_ScaleOffset_t>,
    scales: Vec<f32>,
    offsets: Vec<i32>,
    block_dims: Vec<u32>,
}

/// Whether a pair of ours lies in memory as QNN's does: Rust promises it of neither order nor size.
const fn is_pair() -> bool {
    size_of::<(f32, i32)>() == size_of::<Qnn_ScaleOffset_t>()
        && align_of::<(f32, i32)>() >= align_of::<Qnn_ScaleOffset_t>()
        && offset_of!((f32, i32), 0) == offset_of!(Qnn_ScaleOffset_t, scale)
        && offset_of!((f32, i32), 1) == offset_of!(Qnn_ScaleOffset_t, offset)
}

/// Who owns what the C struct of an encoding points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// [`Arrays`], all of it.
    Copied,
    /// The encoding owns the scales of its blocks, of which there are many, and must outlive the struct. They are copied nevertheless where a
    /// pair lies in memory in another way than QNN's.
    Lent,
}

/// The C struct, and what it points at that is not lent.
pub(super) fn to_raw(quant: &Quant, ownership: Ownership) -> (Qnn_QuantizeParams_t, Arrays) {
    let mut raw = Qnn_QuantizeParams_t {
        encodingDefinition: QNN_DEFINITION_UNDEFINED,
        quantizationEncoding: QNN_QUANTIZATION_ENCODING_UNDEFINED,
        ..Default::default()
    };
    let mut arrays = Arrays::default();
    match quant {
        Quant::None | Quant::Other(_) => return (raw, arrays),
        Quant::PerTensor { scale, offset } => {
            raw.quantizationEncoding = QNN_QUANTIZATION_ENCODING_SCALE_OFFSET;
            raw.anon0.scaleOffsetEncoding = Qnn_ScaleOffset_t { scale: *scale, offset: *offset };
        }
        Quant::PerAxis { axis, bits: None, scale_offsets } => {
            arrays.scale_offsets = pairs(scale_offsets);
            raw.quantizationEncoding = QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET;
            raw.anon0.axisScaleOffsetEncoding = Qnn_AxisScaleOffset_t {
                axis: *axis as i32,
                numScaleOffsets: scale_offsets.len() as u32,
                scaleOffset: arrays.scale_offsets.as_mut_ptr(),
            };
        }
        Quant::PerAxis { axis, bits: Some(bits), scale_offsets } => {
            arrays.scales = scale_offsets.iter().map(|pair| pair.0).collect();
            arrays.offsets = scale_offsets.iter().map(|pair| pair.1).collect();
            // The library takes "no offsets" as a null pointer and refuses an array of zeros for some types.
            let symmetric = arrays.offsets.iter().all(|&offset| offset == 0);
            raw.quantizationEncoding = QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET;
            raw.anon0.bwAxisScaleOffsetEncoding = Qnn_BwAxisScaleOffset_t {
                bitwidth: *bits,
                axis: *axis as i32,
                numElements: scale_offsets.len() as u32,
                scales: arrays.scales.as_mut_ptr(),
                offsets: if symmetric { core::ptr::null_mut() } else { arrays.offsets.as_mut_ptr() },
            };
        }
        Quant::Block { block_dims, scale_offsets } => {
            let scale_offset = if ownership == Ownership::Lent && const { is_pair() } {
                // The library reads them only.
                scale_offsets.as_ptr().cast_mut().cast()
            } else {
                arrays.scale_offsets = pairs(scale_offsets);
                arrays.scale_offsets.as_mut_ptr()
            };
            arrays.block_dims = block_dims.clone();
            raw.quantizationEncoding = QNN_QUANTIZATION_ENCODING_BLOCK;
            raw.anon0.blockEncoding =
                Qnn_BlockEncoding_t { blockSize: arrays.block_dims.as_mut_ptr(), scaleOffset: scale_offset };
        }
    }
    raw.encodingDefinition = QNN_DEFINITION_DEFINED;
    (raw, arrays)
}

fn pairs(scale_offsets: &[(f32, i32)]) -> Vec<Qnn_ScaleOffset_t> {
    scale_offsets.iter().map(|&(scale, offset)| Qnn_ScaleOffset_t { scale, offset }).collect()
}

/// Longest list of pairs that is accepted; far above one pair per row of a vocabulary.
const MAX_PAIRS: u64 = 1 << 28;

/// The plain form of an encoding.
///
/// # Safety
/// `raw` is filled as QNN asks: the union member of its encoding, arrays of the lengths it says, and for block encodings
/// one block size per axis of `dims`.
pub(super) unsafe fn from_raw(raw: &Qnn_QuantizeParams_t, dims: &[usize], tensor: &str) -> Result<Quant> {
    if raw.encodingDefinition != QNN_DEFINITION_DEFINED {
        return Ok(Quant::None);
    }
    let odd = |why: &str| Error::Description { what: format!("encoding of tensor `{tensor}`"), why: why.to_owned() };
    Ok(match raw.quantizationEncoding {
        QNN_QUANTIZATION_ENCODING_UNDEFINED => Quant::None,
        QNN_QUANTIZATION_ENCODING_SCALE_OFFSET => {
            // SAFETY: the member of this encoding.
            let one = unsafe { raw.anon0.scaleOffsetEncoding };
            Quant::PerTensor { scale: one.scale, offset: one.offset }
        }
        QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET => {
            // SAFETY: the member of this encoding.
            let one = unsafe { raw.anon0.bwScaleOffsetEncoding };
            Quant::PerTensor { scale: one.scale, offset: one.offset }
        }
        QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET => {
            // SAFETY: the member of this encoding.
            let axis = unsafe { raw.anon0.axisScaleOffsetEncoding };
            // SAFETY: as many pairs as it says.
            let list = unsafe { slice(axis.scaleOffset, axis.numScaleOffsets) };
            let scale_offsets = list.iter().map(|pair| (pair.scale, pair.offset)).collect();
            Quant::PerAxis {
                axis: axis_of(axis.axis, dims).ok_or_else(|| odd("no such axis"))?,
                bits: None,
                scale_offsets,
            }
        }
        QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET => {
            // SAFETY: the member of this encoding.
            let axis = unsafe { raw.anon0.bwAxisScaleOffsetEncoding };
            // SAFETY: as many scales as it says.
            let scales = unsafe { slice(axis.scales, axis.numElements) };
            // SAFETY: as many offsets, or null for none.
            let offsets = unsafe { slice(axis.offsets, axis.numElements) };
            let scale_offsets =
                scales.iter().enumerate().map(|(i, &s)| (s, offsets.get(i).copied().unwrap_or(0))).collect();
            let bits = Some(axis.bitwidth);
            Quant::PerAxis { axis: axis_of(axis.axis, dims).ok_or_else(|| odd("no such axis"))?, bits, scale_offsets }
        }
        QNN_QUANTIZATION_ENCODING_BLOCK => {
            // SAFETY: the member of this encoding.
            let block = unsafe { raw.anon0.blockEncoding };
            // SAFETY: one size per axis.
            let block_dims = unsafe { slice(block.blockSize, dims.len() as u32) }.to_vec();
            if block_dims.len() != dims.len() || block_dims.contains(&0) {
                return Err(odd("block sizes are missing or zero"));
            }
            let n_blocks = dims.iter().zip(&block_dims).map(|(&dim, &block)| (dim as u64).div_ceil(u64::from(block)));
            let n_blocks = n_blocks.product::<u64>();
            if n_blocks > MAX_PAIRS {
                return Err(odd("more blocks than can be"));
            }
            // SAFETY: one pair per block.
            let list = unsafe { slice(block.scaleOffset, n_blocks as u32) };
            Quant::Block { block_dims, scale_offsets: list.iter().map(|pair| (pair.scale, pair.offset)).collect() }
        }
        other => Quant::Other(other),
    })
}

fn axis_of(axis: i32, dims: &[usize]) -> Option<u32> {
    u32::try_from(axis).ok().filter(|&axis| (axis as usize) < dims.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_come_back() {
        let cases = [
            Quant::None,
            Quant::PerTensor { scale: 0.25, offset: -128 },
            Quant::PerAxis { axis: 1, bits: None, scale_offsets: vec![(0.5, 0), (0.25, -3)] },
            Quant::PerAxis { axis: 0, bits: Some(4), scale_offsets: vec![(0.5, 0), (0.25, 0)] },
            Quant::PerAxis { axis: 0, bits: Some(4), scale_offsets: vec![(0.5, -8), (0.25, 0)] },
            Quant::Block { block_dims: vec![1, 2], scale_offsets: vec![(1.0, 0), (2.0, 1), (3.0, 2), (4.0, 3)] },
        ];
        for (quant, ownership) in cases.iter().flat_map(|quant| [(quant, Ownership::Copied), (quant, Ownership::Lent)])
        {
            let (raw, arrays) = to_raw(quant, ownership);
            // SAFETY: filled by `to_raw`; its arrays and the encoding are still here; four blocks of 1x2 in 2x3.
            let back = unsafe { from_raw(&raw, &[2, 3], "t") }.unwrap();
            drop(arrays);
            assert_eq!(&back, quant);
        }
    }

    #[test]
    fn symmetric_narrow_codes_have_no_offsets() {
        let (raw, _arrays) =
            to_raw(&Quant::PerAxis { axis: 0, bits: Some(4), scale_offsets: vec![(0.5, 0)] }, Ownership::Copied);
        // SAFETY: the member of this encoding.
        assert!(unsafe { raw.anon0.bwAxisScaleOffsetEncoding }.offsets.is_null());
    }

    #[test]
    fn an_axis_beyond_the_rank_is_refused() {
        let (raw, _arrays) =
            to_raw(&Quant::PerAxis { axis: 2, bits: None, scale_offsets: vec![(0.5, 0)] }, Ownership::Copied);
        // SAFETY: filled by `to_raw`.
        let error = unsafe { from_raw(&raw, &[2, 3], "w") }.unwrap_err();
        assert_eq!(
            error.to_string(),
            "encoding of tensor `w`: the library's description is not understood: no such axis"
        );
    }
}

//! Tensors, encodings and strings as C structs, with all the memory they point at.

use std::ffi::{CString, c_char};

use qnn_sys as q;
use qnn_sys::{Qnn_QuantizeParams_t, Qnn_ScaleOffset_t, Qnn_Tensor_t};

use crate::ir::{Quant, Role, Tensor, TensorId};

/// Keeps what C structs point at. Invariant: boxes and strings stay where they are until this is dropped.
#[derive(Default)]
pub(crate) struct CMemory {
    strings: Vec<CString>,
    pub(crate) dims: Vec<Box<[u32]>>,
    pairs: Vec<Box<[Qnn_ScaleOffset_t]>>,
    floats: Vec<Box<[f32]>>,
    ints: Vec<Box<[i32]>>,
}

/// A pointer into a box that was just put away.
pub(crate) fn keep<T>(list: &mut Vec<Box<[T]>>, values: Box<[T]>) -> *mut T {
    list.push(values);
    list.last_mut().map_or(std::ptr::null_mut(), |b| b.as_mut_ptr())
}

impl CMemory {
    /// A string.
    pub(crate) fn text(&mut self, s: &str) -> *const c_char {
        // Names come from a checked binary and hold no zero byte.
        let s = CString::new(s).unwrap_or_default();
        let p = s.as_ptr();
        self.strings.push(s);
        p
    }

    /// An encoding.
    pub(crate) fn quant(&mut self, quant: &Quant) -> Qnn_QuantizeParams_t {
        let pairs = |scales: &mut dyn Iterator<Item = f32>, offsets: &[i32]| -> Box<[Qnn_ScaleOffset_t]> {
            let offset = |i: usize| offsets.get(i).copied().unwrap_or(0);
            scales.enumerate().map(|(i, scale)| Qnn_ScaleOffset_t { scale, offset: offset(i) }).collect()
        };
        let (encoding, anon0) = match quant {
            Quant::None => {
                return Qnn_QuantizeParams_t {
                    encodingDefinition: q::QNN_DEFINITION_UNDEFINED,
                    quantizationEncoding: q::QNN_QUANTIZATION_ENCODING_UNDEFINED,
                    anon0: no_encoding(),
                };
            }
            Quant::PerTensor { scale, offset } => {
                let e = Qnn_ScaleOffset_t { scale: *scale, offset: *offset };
                let mut anon0 = no_encoding();
                anon0.scaleOffsetEncoding = e;
                (q::QNN_QUANTIZATION_ENCODING_SCALE_OFFSET, anon0)
            }
            Quant::PerAxis { axis, bits: 0, scales, offsets } => {
                let e = q::Qnn_AxisScaleOffset_t {
                    axis: *axis as i32,
                    numScaleOffsets: scales.len() as u32,
                    scaleOffset: keep(&mut self.pairs, pairs(&mut scales.iter().copied(), offsets)),
                };
                let mut anon0 = no_encoding();
                anon0.axisScaleOffsetEncoding = e;
                (q::QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET, anon0)
            }
            Quant::PerAxis { axis, bits, scales, offsets } => {
                let offsets = if offsets.is_empty() {
                    std::ptr::null_mut()
                } else {
                    keep(&mut self.ints, offsets.iter().copied().collect())
                };
                let e = q::Qnn_BwAxisScaleOffset_t {
                    bitwidth: *bits,
                    axis: *axis as i32,
                    numElements: scales.len() as u32,
                    scales: keep(&mut self.floats, scales.iter().copied().collect()),
                    offsets,
                };
                let mut anon0 = no_encoding();
                anon0.bwAxisScaleOffsetEncoding = e;
                (q::QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET, anon0)
            }
            Quant::Block { block_dims, scales, offsets } => {
                let e = q::Qnn_BlockEncoding_t {
                    blockSize: keep(&mut self.dims, block_dims.iter().copied().collect()),
                    scaleOffset: keep(&mut self.pairs, pairs(&mut scales.iter(), offsets)),
                };
                let mut anon0 = no_encoding();
                anon0.blockEncoding = e;
                (q::QNN_QUANTIZATION_ENCODING_BLOCK, anon0)
            }
        };
        Qnn_QuantizeParams_t { encodingDefinition: q::QNN_DEFINITION_DEFINED, quantizationEncoding: encoding, anon0 }
    }

    /// A tensor without data.
    pub(crate) fn tensor(&mut self, id: TensorId, tensor: &Tensor) -> Qnn_Tensor_t {
        let kind = match tensor.role {
            Role::Input => q::QNN_TENSOR_TYPE_APP_WRITE,
            Role::Output => q::QNN_TENSOR_TYPE_APP_READ,
            Role::Static(_) => q::QNN_TENSOR_TYPE_STATIC,
            Role::Native => q::QNN_TENSOR_TYPE_NATIVE,
            Role::Null => q::QNN_TENSOR_TYPE_NULL,
        };
        let v1 = q::Qnn_TensorV1_t {
            id: id.0 + 1,
            name: self.text(&tensor.name),
            r#type: kind,
            dataFormat: tensor.data_format,
            dataType: tensor.dtype as u32,
            quantizeParams: self.quant(&tensor.quant),
            rank: tensor.dims.len() as u32,
            dimensions: keep(&mut self.dims, tensor.dims.iter().copied().collect()),
            memType: q::QNN_TENSORMEMTYPE_RAW,
            anon0: q::Qnn_TensorV1_t_anon0 {
                clientBuf: q::Qnn_ClientBuffer_t { data: std::ptr::null_mut(), dataSize: 0 },
            },
        };
        Qnn_Tensor_t { version: q::QNN_TENSOR_VERSION_1, anon0: q::Qnn_Tensor_t_anon0 { v1 } }
    }
}

/// The largest member, zeroed, so that no byte of the union is left unset.
fn no_encoding() -> q::Qnn_QuantizeParams_t_anon0 {
    q::Qnn_QuantizeParams_t_anon0 {
        bwAxisScaleOffsetEncoding: q::Qnn_BwAxisScaleOffset_t {
            bitwidth: 0,
            axis: 0,
            numElements: 0,
            scales: std::ptr::null_mut(),
            offsets: std::ptr::null_mut(),
        },
    }
}

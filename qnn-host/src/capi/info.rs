//! What is in a binary, as the C structs of the system interface, with all the memory they point at.

use std::ffi::{CString, c_char};

use qnn_sys as q;
use qnn_sys::{
    Qnn_QuantizeParams_t, Qnn_ScaleOffset_t, Qnn_Tensor_t, Qnn_Version_t, QnnSystemContext_BinaryInfo_t,
    QnnSystemContext_GraphInfo_t,
};

use crate::container::{Image, Summary};
use crate::ir::{Quant, Role, SourceGraph, Tensor, TensorId};

use super::backend::{BACKEND_ID, CORE_VERSION, HOST_VERSION};

/// Keeps what C structs point at. Invariant: boxes and strings stay where they are until this is dropped.
#[derive(Default)]
struct Memory {
    strings: Vec<CString>,
    dims: Vec<Box<[u32]>>,
    pairs: Vec<Box<[Qnn_ScaleOffset_t]>>,
    floats: Vec<Box<[f32]>>,
    ints: Vec<Box<[i32]>>,
    tensors: Vec<Box<[Qnn_Tensor_t]>>,
    graphs: Vec<Box<[QnnSystemContext_GraphInfo_t]>>,
}

/// A pointer into a box that was just put away.
fn keep<T>(list: &mut Vec<Box<[T]>>, values: Box<[T]>) -> *mut T {
    list.push(values);
    list.last_mut().map_or(std::ptr::null_mut(), |b| b.as_mut_ptr())
}

impl Memory {
    fn text(&mut self, s: &str) -> *const c_char {
        // Names come from a checked binary and hold no zero byte.
        let s = CString::new(s).unwrap_or_default();
        let p = s.as_ptr();
        self.strings.push(s);
        p
    }

    fn quant(&mut self, quant: &Quant) -> Qnn_QuantizeParams_t {
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

    fn tensor(&mut self, id: TensorId, tensor: &Tensor) -> Qnn_Tensor_t {
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

    fn graph(&mut self, graph: &SourceGraph) -> QnnSystemContext_GraphInfo_t {
        let mut list = |ids: Vec<TensorId>| {
            let tensors: Box<[_]> = ids.into_iter().map(|id| self.tensor(id, graph.tensor(id))).collect();
            (tensors.len() as u32, keep(&mut self.tensors, tensors))
        };
        let (n_inputs, inputs) = list(graph.inputs().collect());
        let (n_outputs, outputs) = list(graph.outputs().collect());
        let v3 = q::QnnSystemContext_GraphInfoV3_t {
            graphName: self.text(&graph.name),
            numGraphInputs: n_inputs,
            graphInputs: inputs,
            numGraphOutputs: n_outputs,
            graphOutputs: outputs,
            numUpdateableTensors: 0,
            updateableTensors: std::ptr::null_mut(),
            graphBlobInfoSize: 0,
            graphBlobInfo: std::ptr::null_mut(),
            startOpIndex: 0,
            endOpIndex: graph.nodes.len().saturating_sub(1) as u32,
        };
        QnnSystemContext_GraphInfo_t {
            version: q::QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3,
            anon0: q::QnnSystemContext_GraphInfo_t_anon0 { graphInfoV3: v3 },
        }
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

/// A binary's description. Invariant: every pointer in `info` leads into `_memory` or to a null.
pub(super) struct Info {
    info: Box<QnnSystemContext_BinaryInfo_t>,
    _memory: Memory,
}

// SAFETY: the pointers lead into memory that this owns and that is never written.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

impl Info {
    pub(super) fn new(summary: &Summary, image: &Image) -> Self {
        let mut memory = Memory::default();
        let graphs: Box<[_]> = image.graphs.iter().map(|g| memory.graph(g)).collect();
        let n_graphs = graphs.len() as u32;
        let v3 = q::QnnSystemContext_BinaryInfoV3_t {
            backendId: BACKEND_ID,
            buildId: memory.text(&summary.build_id),
            coreApiVersion: CORE_VERSION,
            backendApiVersion: HOST_VERSION,
            socVersion: memory.text("host"),
            contextBlobVersion: Qnn_Version_t { major: summary.format_version, minor: 0, patch: 0 },
            contextBlobSize: summary.total_bytes,
            numContextTensors: 0,
            contextTensors: std::ptr::null_mut(),
            numGraphs: n_graphs,
            graphs: keep(&mut memory.graphs, graphs),
            platformInfo: std::ptr::null_mut(),
            contextMetadataSize: 0,
            contextMetadata: std::ptr::null_mut(),
            socModel: 0,
        };
        let info = Box::new(QnnSystemContext_BinaryInfo_t {
            version: q::QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3,
            anon0: q::QnnSystemContext_BinaryInfo_t_anon0 { contextBinaryInfoV3: v3 },
        });
        Self { info, _memory: memory }
    }

    /// Valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *const QnnSystemContext_BinaryInfo_t {
        &raw const *self.info
    }
}

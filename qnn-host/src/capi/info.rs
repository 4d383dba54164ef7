//! What is in a binary, as the C structs of the system interface, with all the memory they point at.

use qnn_sys as q;
use qnn_sys::{Qnn_Tensor_t, Qnn_Version_t, QnnSystemContext_BinaryInfo_t, QnnSystemContext_GraphInfo_t};

use crate::c_memory::{CMemory, keep};
use crate::container::{Image, Summary};
use crate::ir::{SourceGraph, TensorId};

use super::backend::{BACKEND_ID, CORE_VERSION, HOST_VERSION};

/// Keeps what C structs point at. Invariant: boxes and strings stay where they are until this is dropped.
#[derive(Default)]
struct Memory {
    c: CMemory,
    tensors: Vec<Box<[Qnn_Tensor_t]>>,
    graphs: Vec<Box<[QnnSystemContext_GraphInfo_t]>>,
}

impl Memory {
    fn graph(&mut self, graph: &SourceGraph) -> QnnSystemContext_GraphInfo_t {
        let mut list = |ids: Vec<TensorId>| {
            let tensors: Box<[_]> = ids.into_iter().map(|id| self.c.tensor(id, graph.tensor(id))).collect();
            (tensors.len() as u32, keep(&mut self.tensors, tensors))
        };
        let (n_inputs, inputs) = list(graph.inputs().collect());
        let (n_outputs, outputs) = list(graph.outputs().collect());
        let v3 = q::QnnSystemContext_GraphInfoV3_t {
            graphName: self.c.text(&graph.name),
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
            buildId: memory.c.text(&summary.build_id),
            coreApiVersion: CORE_VERSION,
            backendApiVersion: HOST_VERSION,
            socVersion: memory.c.text("host"),
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

//! The fake's system interface: `FAKE1`, `FAKE2` and `FAKE3` are described in binary info versions 1 to 3.

use core::ffi::c_void;

use genie_types::{Dtype, Quant, TensorInfo};
use qnn_sys::*;

use super::{new_handle, number, record};
use crate::convert::{Ownership, Role, raw_tensor};

/// The slots that the tests need.
pub(super) fn table() -> QnnSystemInterfaceTable {
    QnnSystemInterfaceTable {
        systemContextCreate: Some(create),
        systemContextGetBinaryInfo: Some(binary_info),
        systemContextFree: Some(free),
        ..stub::system_interface()
    }
}

/// The note of version 3: V75.
static ARCH_NOTE: [u32; 2] = [1, 75];

/// The inputs of the described graph.
pub(crate) fn inputs() -> Vec<TensorInfo> {
    vec![
        TensorInfo::new("input_ids", [1, 4], Dtype::I32),
        TensorInfo::new("past_key_0_in", [2, 1, 8, 12], Dtype::UFixed8)
            .with_quant(Quant::PerTensor { scale: 0.5, offset: -128 }),
    ]
}

/// The outputs of the described graph.
pub(crate) fn outputs() -> Vec<TensorInfo> {
    vec![TensorInfo::new("logits", [1, 4, 3], Dtype::F16)]
}

unsafe extern "C" fn create(out: *mut *mut c_void) -> u64 {
    // SAFETY: an out pointer.
    unsafe { *out = new_handle() };
    record("systemContextCreate", String::new)
}

unsafe extern "C" fn free(context: *mut c_void) -> u64 {
    let _ = number(context);
    record("systemContextFree", String::new)
}

/// C structs of tensors, leaked with what they point at.
fn leak(infos: &[TensorInfo], first_id: u32, version: u32) -> (*mut Qnn_Tensor_t, u32) {
    let mut tensors = Vec::new();
    for (i, info) in infos.iter().enumerate() {
        let (mut raw, store) = raw_tensor(info, Role::Input, first_id + i as u32, Ownership::Copied).unwrap();
        Box::leak(Box::new(store));
        if version == 2 {
            // SAFETY: `raw_tensor` writes version 1; version 2 begins alike.
            let v1 = unsafe { raw.anon0.v1 };
            raw = Qnn_Tensor_t { version: QNN_TENSOR_VERSION_2, ..Default::default() };
            raw.anon0.v2 = Qnn_TensorV2_t {
                id: v1.id,
                name: v1.name,
                dataType: v1.dataType,
                quantizeParams: v1.quantizeParams,
                rank: v1.rank,
                dimensions: v1.dimensions,
                ..Default::default()
            };
        }
        tensors.push(raw);
    }
    let n = tensors.len() as u32;
    (tensors.leak().as_mut_ptr(), n)
}

fn describe(version: u32) -> &'static QnnSystemContext_BinaryInfo_t {
    let (graph_inputs, n_inputs) = leak(&inputs(), 10, version);
    let (graph_outputs, n_outputs) = leak(&outputs(), 20, version);
    let mut graph = QnnSystemContext_GraphInfo_t { version, ..Default::default() };
    graph.anon0.graphInfoV1 = QnnSystemContext_GraphInfoV1_t {
        graphName: c"ar4_cl16_1_of_1".as_ptr(),
        numGraphInputs: n_inputs,
        graphInputs: graph_inputs,
        numGraphOutputs: n_outputs,
        graphOutputs: graph_outputs,
    };
    if version == 3 {
        // SAFETY: version 3 begins as version 1 does, and the rest was zeroed.
        let mut v3 = unsafe { graph.anon0.graphInfoV3 };
        let note: &[u64] = vec![1, 7, 8 << 20 | 3 << 32, 0, 4].leak();
        v3.graphBlobInfoSize = 40;
        v3.graphBlobInfo = note.as_ptr().cast_mut().cast();
        graph.anon0.graphInfoV3 = v3;
    }
    let graphs = vec![graph].leak().as_mut_ptr();
    let core = Qnn_Version_t { major: 2, minor: 40, patch: 0 };
    let mut info = QnnSystemContext_BinaryInfo_t { version, ..Default::default() };
    match version {
        1 => {
            info.anon0.contextBinaryInfoV1 = QnnSystemContext_BinaryInfoV1_t {
                backendId: 6,
                buildId: c"v1".as_ptr(),
                coreApiVersion: core,
                socVersion: c"soc text".as_ptr(),
                numGraphs: 1,
                graphs,
                ..Default::default()
            };
        }
        2 => {
            info.anon0.contextBinaryInfoV2 = QnnSystemContext_BinaryInfoV2_t {
                backendId: 6,
                buildId: c"v2".as_ptr(),
                coreApiVersion: core,
                numGraphs: 1,
                graphs,
                ..Default::default()
            };
        }
        _ => {
            info.anon0.contextBinaryInfoV3 = QnnSystemContext_BinaryInfoV3_t {
                backendId: 6,
                buildId: c"v3".as_ptr(),
                coreApiVersion: core,
                numGraphs: 1,
                graphs,
                socModel: 57,
                contextMetadataSize: 8,
                contextMetadata: ARCH_NOTE.as_ptr().cast_mut().cast(),
                contextBlobSize: 99,
                ..Default::default()
            };
        }
    }
    Box::leak(Box::new(info))
}

unsafe extern "C" fn binary_info(
    _context: *mut c_void,
    bytes: *mut c_void,
    n_bytes: u64,
    out: *mut *const QnnSystemContext_BinaryInfo_t,
    _size: *mut u64,
) -> u64 {
    // SAFETY: that many readable bytes.
    let bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), n_bytes as usize) };
    let version = match bytes {
        [b'F', b'A', b'K', b'E', n @ b'1'..=b'3', ..] => u32::from(n - b'0'),
        [b'F', b'A', b'K', b'E', b'9', ..] => {
            let unknown = QnnSystemContext_BinaryInfo_t { version: 9, ..Default::default() };
            // SAFETY: an out pointer.
            unsafe { *out = Box::leak(Box::new(unknown)) };
            return 0;
        }
        _ => return 30010,
    };
    // SAFETY: an out pointer.
    unsafe { *out = describe(version) };
    record("systemContextGetBinaryInfo", String::new)
}

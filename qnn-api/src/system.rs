//! What a context binary holds, read by the system library without loading it onto a backend.
//!
//! *Trap*: the size that `getBinaryInfo` hands back is 0 in the running library and is not looked at. What it points at
//! lives as long as the system context, so all is copied out before that is freed.

use genie_types::{GraphInfo, TensorInfo};
use qnn_sys::*;
use std::path::Path;
use std::sync::Arc;

use crate::backend::log_failure;
use crate::convert;
use crate::error::{Error, Result};
use crate::htp_blob::{self, HtpGraphBlob};
use crate::library::{BACKEND_ID_HTP, Library, System, SystemLibrary, Version};
use crate::mapped::MappedFile;
use crate::table::{CallContext, CallError, Table};

/// What a context binary says about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BinaryInfo {
    /// Version of this description (1 to 3).
    pub format: u32,
    /// Backend it was made for (6 = HTP).
    pub backend_id: u32,
    /// Build of the library that made it.
    pub build_id: String,
    /// Core interface of that library.
    pub core_version: Version,
    /// Backend interface of that library.
    pub backend_version: Version,
    /// Version of the blob inside.
    pub blob_version: Version,
    /// Bytes of the blob inside, where noted.
    pub blob_bytes: u64,
    /// The SoC it was made for, as text (older formats).
    pub soc_text: String,
    /// The SoC it was made for, by Qualcomm's number (format 3).
    pub soc: Option<u32>,
    /// The DSP's architecture, 75 for V75 (HTP binaries of format 3).
    pub dsp_arch: Option<u32>,
    /// Its graphs, in the file's order.
    pub graphs: Vec<GraphInfo>,
    /// What HTP's compiler noted for each of them; nothing for other backends and older formats.
    pub htp_graphs: Vec<Option<HtpGraphBlob>>,
}

/// A graph with the ids by which its tensors are bound.
#[derive(Clone, Debug, Default)]
pub(crate) struct GraphSpec {
    pub(crate) info: GraphInfo,
    pub(crate) input_ids: Vec<u32>,
    pub(crate) output_ids: Vec<u32>,
}

/// Reads what a context binary holds.
///
/// # Errors
/// No system library, bytes that are no context binary, a description in an unknown form.
pub fn binary_info(library: &Arc<Library>, bytes: &[u8]) -> Result<BinaryInfo> {
    // SAFETY: a slice is readable.
    unsafe { read(library, bytes) }.map(|(info, _)| info)
}

impl SystemLibrary {
    /// Reads what a context binary holds; no backend is needed for it.
    ///
    /// # Errors
    /// Bytes that are no context binary, a description in an unknown form.
    pub fn binary_info(&self, bytes: &[u8]) -> Result<BinaryInfo> {
        // SAFETY: a slice is readable.
        unsafe { read_by(self.interface(), None, bytes) }.map(|(info, _)| info)
    }

    /// The same for a file, which is mapped rather than read.
    ///
    /// # Errors
    /// A file that cannot be opened, and as above.
    pub fn binary_info_of(&self, path: &Path) -> Result<BinaryInfo> {
        let file = MappedFile::open(path)?;
        // SAFETY: the mapping is readable and outlives the call.
        unsafe { read_by(self.interface(), None, file.as_raw()) }.map(|(info, _)| info)
    }
}

/// What a context binary holds, with tensor ids.
///
/// # Safety
/// The bytes are readable during the call.
pub(crate) unsafe fn read(library: &Library, bytes: *const [u8]) -> Result<(BinaryInfo, Vec<GraphSpec>)> {
    let system = library.system_table()?;
    // A library with both interfaces keeps the message of its last error behind the core one.
    let core = (system.display_name == library.display_name()).then_some(&library.table);
    // SAFETY: the caller's promise.
    unsafe { read_by(system, core, bytes) }
}

/// `core`: the table that has the message of an error.
///
/// # Safety
/// The bytes are readable during the call.
unsafe fn read_by(system: &System, core: Option<&Table>, bytes: *const [u8]) -> Result<(BinaryInfo, Vec<GraphSpec>)> {
    let context = SystemContext::create(system)?;
    let mut out = core::ptr::null::<QnnSystemContext_BinaryInfo_t>();
    let mut n_info_bytes = 0;
    let n_bytes = bytes.len() as u64;
    let (table, from) = (&system.table, bytes.cast::<core::ffi::c_void>());
    // SAFETY: a live system context, `n_bytes` readable bytes, an out pointer.
    let done = match unsafe { table.context_get_meta_data(context.raw, from, n_bytes, &raw mut out) } {
        failed @ Err(_) if failed.as_ref().is_err_and(CallError::is_unsupported) => {
            out = core::ptr::null();
            let bytes = from.cast_mut();
            // SAFETY: as above; the bytes are not written to, in spite of the pointer's type.
            unsafe { table.context_get_binary_info(context.raw, bytes, n_bytes, &raw mut out, &raw mut n_info_bytes) }
        }
        done => done,
    };
    let done = done.map_err(|error| match (error, core) {
        (CallError::Status(mut error), Some(core)) if error.library_message.is_none() => {
            error.library_message = core.message(error.code);
            CallError::Status(error)
        }
        (error, _) => error,
    });
    done.context(&system.display_name, || format!("read what a context binary of {n_bytes} bytes holds"))?;
    // SAFETY: on success null or a description that lives as long as the system context.
    let raw = unsafe { out.as_ref() }.ok_or_else(|| odd("nothing was handed out"))?;
    // SAFETY: filled by the library for its version.
    unsafe { copy_out(raw) }
}

fn odd(why: impl Into<String>) -> Error {
    Error::Description { what: "context binary".into(), why: why.into() }
}

/// # Safety
/// `raw` is filled as QNN asks for its version.
unsafe fn copy_out(raw: &QnnSystemContext_BinaryInfo_t) -> Result<(BinaryInfo, Vec<GraphSpec>)> {
    /// The fields that all versions have, at each one's own offsets.
    macro_rules! common {
        ($v:expr) => {{
            let v = $v;
            // SAFETY: C strings or nulls.
            let (build_id, soc_text) = unsafe { (convert::text(v.buildId), convert::text(v.socVersion)) };
            let info = BinaryInfo {
                format: raw.version,
                backend_id: v.backendId,
                build_id,
                core_version: v.coreApiVersion.into(),
                backend_version: v.backendApiVersion.into(),
                blob_version: v.contextBlobVersion.into(),
                blob_bytes: v.contextBlobSize,
                soc_text,
                ..Default::default()
            };
            // SAFETY: as many graphs as it says.
            (info, unsafe { convert::slice(v.graphs, v.numGraphs) })
        }};
    }
    let (mut info, graphs) = match raw.version {
        // Version 2 only adds to the end of version 1 (the layout table checks the offsets).
        QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_1 | QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_2 => {
            // SAFETY: the member of this version, or the beginning of it.
            common!(unsafe { &raw.anon0.contextBinaryInfoV1 })
        }
        QNN_SYSTEM_CONTEXT_BINARY_INFO_VERSION_3 => {
            // SAFETY: the member of this version.
            let v = unsafe { &raw.anon0.contextBinaryInfoV3 };
            let (mut info, graphs) = common!(v);
            info.soc = (v.socModel != 0).then_some(v.socModel);
            if v.backendId == BACKEND_ID_HTP {
                // SAFETY: as many bytes as it says; any bytes may be there.
                info.dsp_arch = htp_blob::dsp_arch(unsafe { bytes_of(v.contextMetadata, v.contextMetadataSize) });
            }
            (info, graphs)
        }
        other => return Err(odd(format!("binary info version {other}"))),
    };
    // SAFETY: each filled for its version.
    let specs = graphs.iter().map(|graph| unsafe { graph_spec(graph) }).collect::<Result<Vec<_>>>()?;
    info.graphs = specs.iter().map(|spec| spec.info.clone()).collect();
    if info.backend_id == BACKEND_ID_HTP {
        // SAFETY: each filled for its version.
        info.htp_graphs = graphs.iter().map(|graph| unsafe { graph_blob(graph) }).collect();
    }
    Ok((info, specs))
}

/// # Safety
/// `raw` is filled as QNN asks for its version.
unsafe fn graph_blob(raw: &QnnSystemContext_GraphInfo_t) -> Option<HtpGraphBlob> {
    if raw.version != QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3 {
        return None;
    }
    // SAFETY: the member of this version.
    let v = unsafe { raw.anon0.graphInfoV3 };
    // SAFETY: as many bytes as it says; any bytes may be there.
    htp_blob::graph(unsafe { bytes_of(v.graphBlobInfo, v.graphBlobInfoSize) })
}

/// # Safety
/// `n` readable bytes at `pointer`, or null; they outlive `'a`.
unsafe fn bytes_of<'a>(pointer: *const core::ffi::c_void, n: u32) -> &'a [u8] {
    // SAFETY: the caller vouches for all of it.
    unsafe { convert::slice(pointer.cast::<u8>(), n) }
}

/// # Safety
/// `raw` is filled as QNN asks for its version.
unsafe fn graph_spec(raw: &QnnSystemContext_GraphInfo_t) -> Result<GraphSpec> {
    // Versions 2 and 3 begin as version 1 does.
    let v = match raw.version {
        // SAFETY: the member of this version.
        QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_1 => unsafe { raw.anon0.graphInfoV1 },
        QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_2 | QNN_SYSTEM_CONTEXT_GRAPH_INFO_VERSION_3 => {
            // SAFETY: the fields of version 1 lie at the same offsets in both (checked by the layout table).
            unsafe { raw.anon0.graphInfoV1 }
        }
        other => return Err(odd(format!("graph info version {other}"))),
    };
    // SAFETY: a C string or null.
    let name = unsafe { convert::text(v.graphName) };
    let whose = format!("graph `{name}`");
    // SAFETY: as many tensors as it says.
    let (inputs, outputs) =
        unsafe { (convert::slice(v.graphInputs, v.numGraphInputs), convert::slice(v.graphOutputs, v.numGraphOutputs)) };
    let describe = |list: &[Qnn_Tensor_t]| -> Result<Vec<(TensorInfo, u32)>> {
        // SAFETY: each filled for its version.
        list.iter().map(|tensor| unsafe { convert::describe(tensor, &whose) }).collect()
    };
    let (inputs, input_ids) = describe(inputs)?.into_iter().unzip();
    let (outputs, output_ids) = describe(outputs)?.into_iter().unzip();
    Ok(GraphSpec { info: GraphInfo { name, inputs, outputs }, input_ids, output_ids })
}

/// Invariant: `raw` is live, made by `system`'s table; freed exactly once, in `drop`.
struct SystemContext<'s> {
    raw: QnnSystemContext_Handle_t,
    system: &'s System,
}

impl<'s> SystemContext<'s> {
    fn create(system: &'s System) -> Result<Self> {
        let mut raw = core::ptr::null_mut();
        // SAFETY: an out pointer.
        unsafe { system.table.context_create(&raw mut raw) }
            .context(&system.display_name, || "open the system library".into())?;
        Ok(Self { raw, system })
    }
}

impl Drop for SystemContext<'_> {
    fn drop(&mut self) {
        // SAFETY: live until here, and nothing borrowed from it is left.
        log_failure("systemContextFree", unsafe { self.system.table.context_free(self.raw) });
    }
}

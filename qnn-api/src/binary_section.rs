//! Sections that replace parts of a graph of a loaded binary: what LoRA adapters for Hexagon chips are.
//!
//! *Trap*: neither the x86 emulator nor the host backend takes any; tests see the refusal and, on a fake table, the call.
//! *Source*: `QnnContext.h`, `QnnContext_applyBinarySection`.

use qnn_sys::*;

use crate::error::Result;
use crate::graph::Graph;
use crate::table::CallContext;

impl Graph {
    /// Replaces the parts of the graph that a binary was compiled to let be replaced by those of a section file. The library
    /// copies what it needs before this returns.
    ///
    /// # Errors
    /// What the library refuses: bytes that are no section, a section of another graph, a library that takes none.
    pub fn apply_binary_section(&mut self, section: &[u8]) -> Result<()> {
        let data = Qnn_BinaryBuffer_t {
            // The library only reads it; the C struct has one pointer type for both directions.
            data: section.as_ptr().cast_mut().cast(),
            dataSize: section.len() as u64,
        };
        let buffer = QnnContext_BufferV1_t {
            memType: QNN_CONTEXTMEMTYPE_RAW,
            anon0: QnnContext_BufferV1_t_anon0 { binaryBuf: data },
        };
        let buffer = QnnContext_Buffer_t {
            version: QNN_CONTEXT_BUFFER_VERSION_1,
            anon0: QnnContext_Buffer_t_anon0 { v1: buffer },
        };
        let (none, context) = (core::ptr::null_mut(), &self.context);
        let _calls = context.backend.lock();
        // SAFETY: a finalised graph of a live context; the buffer is of version 1, raw, and its bytes are lent until the call
        // returns; no profile, no signal.
        unsafe {
            context.table().context_apply_binary_section(
                context.raw,
                self.raw,
                QNN_CONTEXT_SECTION_UPDATABLE,
                &raw const buffer,
                none,
                none,
            )
        }
        .context(context.display_name(), || format!("apply a binary section to graph `{}`", self.info.name))
    }
}

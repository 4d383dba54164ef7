//! What HTP's compiler noted in a binary beside the graphs: the DSP's architecture, and per graph what it will take.
//!
//! *Shapes*: a context's note is `QnnHtpSystemContext_ContextBlobInfo_t`; a graph's is
//! `QnnHtpSystemContext_GraphBlobInfo_t` (40 bytes), with `.._GraphBlobInfoV2_t` behind it in libraries of 2.51.
//! *Units*: bytes. *Traps*: other backends may put anything there, so only HTP binaries are read; a note that is shorter
//! than its version asks for, or of a later version, counts as none.

use core::mem::offset_of;

use qnn_sys::*;

/// What a graph takes on the device, as its compiler noted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HtpGraphBlob {
    /// Vector memory (VTCM) that the graph was planned for, in bytes.
    pub vtcm_bytes: u64,
    /// Buffer in main memory for what does not fit there, in bytes.
    pub spill_fill_bytes: u64,
    /// Optimisation level.
    pub optimization: u32,
    /// Vector threads; 0 is the library's choice.
    pub hvx_threads: u64,
    /// Weights and other constants, in bytes, where noted.
    pub const_bytes: Option<u64>,
}

/// The DSP's architecture (75 for V75).
pub(crate) fn dsp_arch(note: &[u8]) -> Option<u32> {
    const AT: usize = offset_of!(QnnHtpSystemContext_ContextBlobInfo_t, anon0);
    let known = u32_at(note, 0)? == QNN_SYSTEM_CONTEXT_HTP_CONTEXT_INFO_BLOB_VERSION_V1;
    known.then(|| u32_at(note, AT)).flatten().filter(|&arch| arch != 0)
}

/// A graph's note.
pub(crate) fn graph(note: &[u8]) -> Option<HtpGraphBlob> {
    const V1: usize = offset_of!(QnnHtpSystemContext_GraphBlobInfo_t, anon0);
    const V2: usize = size_of::<QnnHtpSystemContext_GraphBlobInfo_t>();
    type First = QnnHtpSystemContext_GraphBlobInfoV1_t;
    type Second = QnnHtpSystemContext_GraphBlobInfoV2_t;
    if u32_at(note, 0)? != QNN_SYSTEM_CONTEXT_HTP_GRAPH_INFO_BLOB_VERSION_V1 {
        return None;
    }
    let second = u32_at(note, V2).is_some_and(|v| v == QNN_SYSTEM_CONTEXT_HTP_GRAPH_INFO_BLOB_VERSION_V2);
    Some(HtpGraphBlob {
        vtcm_bytes: u32_at(note, V1 + offset_of!(First, vtcmSize))?.into(),
        spill_fill_bytes: u64_at(note, V1 + offset_of!(First, spillFillBufferSize))?,
        optimization: u32_at(note, V1 + offset_of!(First, optimizationLevel))?,
        hvx_threads: u64_at(note, V1 + offset_of!(First, numHvxThreads))?,
        const_bytes: second.then(|| u64_at(note, V2 + offset_of!(Second, constSize))).flatten(),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libQnnSystem 2.51 hands it out for a graph of `golden/w8a16`.
    fn measured() -> Vec<u8> {
        let note: [u64; 14] = [1, 0, 0x40_0000, 0, 0, 2, 256, 64, 0, 0x1_a000, 0x9800, 0x8_a000, 0, 0];
        note.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }

    #[test]
    fn the_measured_note_is_read() {
        let want = HtpGraphBlob { vtcm_bytes: 4 << 20, const_bytes: Some(0x8_a000), ..Default::default() };
        assert_eq!(graph(&measured()), Some(want));
        assert_eq!(graph(&measured()[..40]), Some(HtpGraphBlob { const_bytes: None, ..want }), "older libraries");
        assert_eq!(dsp_arch(&[1_u32, 75].map(u32::to_ne_bytes).concat()), Some(75));
    }

    #[test]
    fn short_and_unknown_notes_count_as_none() {
        let mut later = measured();
        later[0] = 9;
        assert_eq!((graph(&later), graph(&measured()[..39]), graph(&[])), (None, None, None));
        for note in [&[2_u32, 75][..], &[1], &[1, 0]] {
            let bytes: Vec<u8> = note.iter().flat_map(|w| w.to_ne_bytes()).collect();
            assert_eq!(dsp_arch(&bytes), None, "{note:?}");
        }
    }
}

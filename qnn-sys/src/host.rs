//! The embedded backend's own number, and its custom configs of a context.
//!
//! Custom configs begin with a number in all headers of Qualcomm's; this one's is none of theirs, so a backend of theirs
//! would refuse it, and ours passes over what it does not know.

use core::ffi::{c_char, c_void};

/// Backend id of the embedded backend.
pub const HOST_BACKEND_ID: u32 = 0x4753;

/// The option number of [`HostScratchConfig`].
pub const HOST_CONTEXT_OPTION_SCRATCH: u32 = 0x4753_0001;

/// The option number of a custom config that is nothing but it, a `u32`: the binary that the context is made from is a shared,
/// read-only mapping of a file, and its pages may leave memory when a step has read them.
pub const HOST_CONTEXT_OPTION_MAPPED: u32 = 0x4753_0002;

/// A folder for weights while graphs are composed, so that they need no memory: each is packed and written to a file there that
/// has no name and goes with the context. With it, the client promises that the buffer of `contextGetBinary` is a shared mapping of
/// a file: pages of it leave memory as soon as they are written.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostScratchConfig {
    /// [`HOST_CONTEXT_OPTION_SCRATCH`].
    pub option: u32,
    /// The folder's path, for the call.
    pub folder: *const c_char,
}

/// The option number of [`HostWatchConfig`].
pub const HOST_CONTEXT_OPTION_WATCH: u32 = 0x4753_0003;

/// Given how far a call is, in bytes, and of how many, on the thread that made the call; anything but 0 ends the call with
/// `QNN_CONTEXT_ERROR_ABORTED`. It must neither unwind nor call the library.
pub type HostWatchFn = unsafe extern "C" fn(data: *mut c_void, done_bytes: u64, total_bytes: u64) -> u32;

/// Who watches `contextGetBinarySize`, which reads all weights once, `contextGetBinary`, which copies them, and, in a context with a
/// [`HostScratchConfig`], `tensorCreateGraphTensor`, which packs and keeps them, and tells of 0 bytes until it is over. For
/// `contextSetConfig`; it holds until the next of them, and one without a function only ends it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HostWatchConfig {
    /// [`HOST_CONTEXT_OPTION_WATCH`].
    pub option: u32,
    /// Who is informed and asked.
    pub watch: Option<HostWatchFn>,
    /// Passed on to it; good for as long as the config holds.
    pub data: *mut c_void,
}

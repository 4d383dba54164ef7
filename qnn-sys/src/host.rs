//! The embedded backend's own number, and its custom config of a context.
//!
//! Custom configs begin with a number in all headers of Qualcomm's; this one's is none of theirs, so a backend of theirs
//! would refuse it, and ours passes over what it does not know.

use core::ffi::c_char;

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

//! A client's buffer by its address: two of them may name the same memory, which references could not.

/// Memory of the client for one run. Its maker promises what it may be used for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientBuffer {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: an address and a length; what may be done with them is stated where they are used.
unsafe impl Send for ClientBuffer {}
// SAFETY: as above.
unsafe impl Sync for ClientBuffer {}

impl ClientBuffer {
    /// One that is read only.
    pub(crate) fn reading(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr().cast_mut(), len: bytes.len() }
    }

    /// One that is written.
    pub(crate) fn writing(bytes: &mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len() }
    }
}

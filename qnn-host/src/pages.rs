//! Pages of shared mappings of files that are not needed for now.

/// Takes bytes of a shared mapping of a file out of the process's memory; they come back with the next access. Whole pages only:
/// what lies at the ends may stay.
///
/// # Safety
/// They must lie in such a mapping: other memory would lose what it holds.
pub(crate) unsafe fn forget(bytes: &[u8]) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use std::ffi::{c_int, c_void};

        unsafe extern "C" {
            fn madvise(start: *mut c_void, len: usize, advice: c_int) -> c_int;
        }
        const MADV_DONTNEED: c_int = 4;
        /// The largest page of the platforms at hand; x86-64 has one.
        const PAGE: usize = if cfg!(target_arch = "x86_64") { 4 << 10 } else { 64 << 10 };

        let all = bytes.as_ptr_range();
        let (start, end) = (all.start.addr().next_multiple_of(PAGE), all.end.addr() / PAGE * PAGE);
        if start < end {
            let first = all.start.wrapping_add(start - all.start.addr());
            // SAFETY: the range lies within `bytes`, in a shared mapping of a file by the caller's promise: its pages hold what the
            // file's do, written ones as well. What the system refuses has no effect.
            let _ = unsafe { madvise(first.cast_mut().cast(), end - start, MADV_DONTNEED) };
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = bytes;
}

//! Binds the calling thread to a core, where the system can.

/// Asks for `core`; a refusal (no such core, not allowed) leaves the thread where it was, as pinning is only a wish.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn to_core(core: usize) {
    /// The kernel's mask of cores, 1,024 bits as the C library has it.
    #[repr(C)]
    struct CpuSet([u64; 16]);
    unsafe extern "C" {
        fn sched_setaffinity(pid: i32, size: usize, mask: *const CpuSet) -> i32;
    }
    let mut set = CpuSet([0; 16]);
    if let Some(word) = set.0.get_mut(core / 64) {
        *word |= 1 << (core % 64);
        // SAFETY: the C library (which `std` links) reads `size` bytes at `mask`, which is that large; pid 0 is this
        // thread.
        unsafe { sched_setaffinity(0, size_of::<CpuSet>(), &raw const set) };
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn to_core(_core: usize) {}

//! Binds threads to cores, on Linux and Android; on other systems no cores are listed and binding does nothing.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod mask {
    //! The system's mask of cores of a thread.

    /// 1,024 bits, as the C library has it.
    #[repr(C)]
    #[derive(Clone, Copy)]
    pub(super) struct CpuSet([u64; 16]);

    unsafe extern "C" {
        fn sched_setaffinity(pid: i32, size: usize, mask: *const CpuSet) -> i32;
        fn sched_getaffinity(pid: i32, size: usize, mask: *mut CpuSet) -> i32;
    }

    impl CpuSet {
        /// A single core; `None` past the mask's end.
        pub(super) fn of(core: usize) -> Option<Self> {
            let mut set = Self([0; 16]);
            *set.0.get_mut(core / 64)? |= 1 << (core % 64);
            Some(set)
        }

        /// Those of the calling thread, if the system reports them.
        pub(super) fn of_this_thread() -> Option<Self> {
            let mut set = Self([0; 16]);
            // SAFETY: the C library (which `std` links) writes at most `size` bytes at `mask`, which is that large; pid 0 is this
            // thread.
            let done = unsafe { sched_getaffinity(0, size_of::<Self>(), &raw mut set) };
            (done >= 0).then_some(set)
        }

        /// Makes them the calling thread's; if refused, nothing changes.
        pub(super) fn apply(&self) {
            // SAFETY: the C library reads `size` bytes at `mask`, which is that large; pid 0 is this thread.
            unsafe { sched_setaffinity(0, size_of::<Self>(), self) };
        }

        pub(super) fn cores(self) -> impl Iterator<Item = usize> {
            (0..1024).filter(move |core| self.0[core / 64] >> (core % 64) & 1 == 1)
        }
    }
}
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod mask {
    //! No masks.

    pub(super) enum CpuSet {}

    impl CpuSet {
        pub(super) fn of(_: usize) -> Option<Self> {
            None
        }

        pub(super) fn of_this_thread() -> Option<Self> {
            None
        }

        pub(super) fn apply(&self) {}

        pub(super) fn cores(self) -> impl Iterator<Item = usize> {
            std::iter::empty()
        }
    }
}

use mask::CpuSet;

/// The cores that the calling thread may run on, ascending; none where the system does not report them.
pub fn cores() -> Vec<usize> {
    CpuSet::of_this_thread().map(|set| set.cores().collect()).unwrap_or_default()
}

/// Numbers of cores, ascending, as runs: `0-3, 6`.
pub fn shown(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b);
    let shown: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            one => one.iter().map(usize::to_string).collect(),
        })
        .collect();
    shown.join(", ")
}

/// Binds the calling thread to `core` until it ends; if refused, nothing changes.
pub(super) fn to_core(core: usize) {
    if let Some(set) = CpuSet::of(core) {
        set.apply();
    }
}

/// Binds the calling thread to one core, and back to its former cores when dropped.
pub(super) struct Pinned(CpuSet);

impl Pinned {
    /// `None` where the system does not report the former cores.
    pub(super) fn to(core: usize) -> Option<Self> {
        let (before, there) = (CpuSet::of_this_thread()?, CpuSet::of(core)?);
        there.apply();
        Some(Self(before))
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.0.apply();
    }
}

//! What the system says of SME, and a thread's streaming vector length: Linux and Android. Other systems are not asked.

/// Bytes of the vectors that the kernels are written for.
const BYTES: i32 = 64;

/// The thread's streaming vectors have [`BYTES`] bytes while it lives.
pub(super) struct Length {
    /// The setting to go back to.
    before: Option<i32>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    //! Calls of the C library, which `std` links, and the numbers that Linux has for them.

    use std::ffi::c_ulong;

    const AT_HWCAP2: c_ulong = 26;
    const HWCAP2_BF16: c_ulong = 1 << 14;
    const HWCAP2_SME: c_ulong = 1 << 23;
    const HWCAP2_SME_B16F32: c_ulong = 1 << 28;
    const PR_SME_SET_VL: i32 = 63;
    const PR_SME_GET_VL: i32 = 64;

    unsafe extern "C" {
        fn getauxval(kind: c_ulong) -> c_ulong;
        fn prctl(option: i32, ...) -> i32;
    }

    pub(super) fn has_products() -> bool {
        const ALL: c_ulong = HWCAP2_BF16 | HWCAP2_SME | HWCAP2_SME_B16F32;
        // SAFETY: the call reads a table that the kernel left, and answers 0 for what it does not know.
        let features = unsafe { getauxval(AT_HWCAP2) };
        features & ALL == ALL
    }

    /// The setting: bytes, and flags above them; negative where there is no such thing.
    pub(super) fn setting() -> i32 {
        // SAFETY: the call changes nothing.
        unsafe { prctl(PR_SME_GET_VL) }
    }

    /// Changes it to the greatest length that the CPU has up to this one, and returns what it is then.
    pub(super) fn set(setting: i32) -> i32 {
        // SAFETY: this changes the length of vectors in streaming mode, which this thread is not in, and empties `ZA`, which is off:
        // detection and `Sme::tiles` look before they set it, and none of our code leaves either on.
        unsafe { prctl(PR_SME_SET_VL, i64::from(setting)) }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    //! Nothing is known.

    pub(super) fn has_products() -> bool {
        false
    }

    pub(super) fn setting() -> i32 {
        -1
    }

    pub(super) fn set(_: i32) -> i32 {
        -1
    }
}

/// Whether the CPU has SME with products of bf16 in f32, and conversions to bf16 outside of it.
pub(super) fn cpu_has_products() -> bool {
    system::has_products()
}

/// Bytes in a setting.
fn bytes(setting: i32) -> i32 {
    setting & 0xffff
}

impl Length {
    /// Sets it, if the CPU has vectors of that length.
    pub(super) fn set() -> Option<Self> {
        let before = system::setting();
        if before < 0 {
            return None;
        }
        if bytes(before) == BYTES {
            return Some(Self { before: None });
        }
        // Dropped, it goes back, whether or not the length is one that there is. Flags stay as they are.
        let length = Self { before: Some(before) };
        let now = system::set(before & !0xffff | BYTES);
        (now >= 0 && bytes(now) == BYTES).then_some(length)
    }
}

impl Drop for Length {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            system::set(before);
        }
    }
}

#[cfg(test)]
pub(super) fn of_this_thread() -> i32 {
    bytes(system::setting())
}

//! Weights that stream from memory are asked for twice: far ahead of use, into the second-level cache, and near, into the first.
//!
//! Far alone keeps memory busy while one row of `X` is computed. With several rows a core holds fewer steps in flight, and waits
//! for the second-level cache as well. AMD's cores with AVX-512 (measured on Zen 4) are slower when asked near, and fastest unasked where
//! one line follows the other and there is little to compute.
//! Measured: docs/bench-results.md, "Decode again" (far), "Streams" (near) and "Streams on Zen 4".

use std::sync::OnceLock;

use super::first_cache::first_cache_bytes;
use super::simd::Simd;

/// How far ahead of use lines are asked for into the second-level cache, in bytes.
pub(super) const FAR: usize = 6144;
/// The same for weights of 8 bits and more, which are slower with more.
pub(super) const FAR_OF_WIDE: usize = 4096;
/// How far ahead into the first-level cache, where `X` stays as well.
const NEAR: usize = 896;

/// What is asked for ahead of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Bytes; 0 for nothing.
    far: usize,
    near: bool,
}

impl Ahead {
    pub(super) const NOTHING: Self = Self { far: 0, near: false };

    /// Far and near, on any CPU.
    pub(super) const fn twice(far: usize) -> Self {
        Self { far, near: true }
    }

    /// For weights in several streams, or with more to compute than to read.
    pub(super) fn of_streams(far: usize) -> Self {
        Self { far, near: !runs_ahead_itself() }
    }

    /// For weights in one stream with little to compute.
    pub(super) fn of_one_stream(far: usize) -> Self {
        if runs_ahead_itself() { Self::NOTHING } else { Self::twice(far) }
    }

    pub(super) fn is_nothing(self) -> bool {
        self == Self::NOTHING
    }
}

/// Whether a row of `X` of `row_bytes` stays in the first-level cache beside one stream of weights: two thirds of it may be that row, half where
/// the CPU reads ahead by itself, which takes room as well.
pub(super) fn leaves_room(row_bytes: usize) -> bool {
    let cache = first_cache_bytes();
    if runs_ahead_itself() { 2 * row_bytes <= cache } else { 3 * row_bytes <= 2 * cache }
}

/// Asks for what follows the line at `at`, which need not be a valid address.
#[inline(always)]
pub(super) fn ask<S: Simd, T>(s: S, at: *const T, ahead: Ahead) {
    if ahead.far > 0 {
        s.prefetch_l2(at.wrapping_byte_add(ahead.far));
    }
    if ahead.near {
        s.prefetch(at.wrapping_byte_add(NEAR));
    }
}

/// Whether a block's lines are asked for one by one between its products with `rows` rows of `X`; else all at once before them. Few rows are
/// done with a line sooner, and requests at once keep the block's own loads waiting.
pub(super) const fn evenly(rows: usize) -> bool {
    rows <= 2
}

/// Whether this CPU reads ahead better than when it is asked to.
fn runs_ahead_itself() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(is_amd_with_avx512)
}

#[cfg(target_arch = "x86_64")]
fn is_amd_with_avx512() -> bool {
    let vendor = std::arch::x86_64::__cpuid(0);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    name.as_flattened() == b"AuthenticAMD" && is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_amd_with_avx512() -> bool {
    false
}

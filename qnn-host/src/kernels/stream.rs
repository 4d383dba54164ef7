//! Weights that stream from memory are asked for twice: far ahead of use, into the second-level cache, and near, into the first.
//!
//! Far alone keeps memory busy while one row of `X` is computed. With several rows a core holds fewer steps in flight, and waits
//! for the second-level cache as well. Measured: docs/bench-results.md, "Decode again" (far) and "Streams" (near).

use super::simd::Simd;

/// How far ahead of use lines are asked for into the second-level cache, in bytes.
pub(super) const FAR: usize = 6144;
/// The same for weights of 8 bits and more, which are slower with more.
pub(super) const FAR_OF_WIDE: usize = 4096;
/// How far ahead into the first-level cache, where `X` stays as well.
const NEAR: usize = 896;

/// Asks for what follows the line at `at`, which need not be a valid address, `far` ahead and near.
#[inline(always)]
pub(super) fn ask<S: Simd, T>(s: S, at: *const T, far: usize) {
    s.prefetch_l2(at.wrapping_byte_add(far));
    s.prefetch(at.wrapping_byte_add(NEAR));
}

/// Whether a block's lines are asked for one by one between its products with `rows` rows of `X`; else all at once before them. Few rows are
/// done with a line sooner, and requests at once keep the block's own loads waiting.
pub(super) const fn evenly(rows: usize) -> bool {
    rows <= 2
}

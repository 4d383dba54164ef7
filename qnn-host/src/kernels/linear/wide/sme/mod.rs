//! SME: `X` in tiles as weights are, `[16 pairs of k][16 rows][2]` bf16, as the outer product takes both.

pub(super) mod open;

use std::arch::aarch64::*;
use std::arch::asm;

use super::super::super::simd::Simd;
use super::super::super::simd::matrix::TILE_K;
/// The unit for floats beside it.
pub(super) use super::super::super::simd::neon::Neon as Float;
pub(super) use super::super::super::simd::sme::Tiles;

/// Bytes from pair to pair of a tile.
const LINE_BYTES: usize = 64;

/// Rounds up to 32 numbers (the first of `rest`) to row `row` of the tile at `to`, zeros behind them.
///
/// # Safety
/// The tile is writable, `row` is one of its 16, and the CPU has bf16 conversions.
pub(super) unsafe fn round_row(rest: &[f32], row: usize, to: *mut u8) {
    let s = Float(());
    let mut whole = [0.0; TILE_K];
    let count = rest.len().min(TILE_K);
    whole[..count].copy_from_slice(&rest[..count]);
    for (i, eight) in whole.as_chunks::<8>().0.iter().enumerate() {
        // SAFETY: eight numbers are four pairs, of which a tile has 16 lines; a line has 16 rows of 4 bytes.
        unsafe {
            let pairs = pairs(s.load(eight.as_ptr()), s.load(eight.as_ptr().add(4)));
            let to = to.add(4 * i * LINE_BYTES + 4 * row);
            vst1q_lane_u32::<0>(to.cast(), pairs);
            vst1q_lane_u32::<1>(to.add(LINE_BYTES).cast(), pairs);
            vst1q_lane_u32::<2>(to.add(2 * LINE_BYTES).cast(), pairs);
            vst1q_lane_u32::<3>(to.add(3 * LINE_BYTES).cast(), pairs);
        }
    }
}

/// Eight numbers rounded to bf16, two in each lane.
///
/// # Safety
/// The CPU has bf16 conversions.
#[inline(always)]
unsafe fn pairs(low: float32x4_t, high: float32x4_t) -> uint32x4_t {
    let pairs;
    // SAFETY: the caller's promise; the instructions read and write registers only.
    unsafe {
        asm!(
            ".arch_extension bf16",
            "bfcvtn {p:v}.4h, {a:v}.4s",
            "bfcvtn2 {p:v}.8h, {b:v}.4s",
            p = out(vreg) pairs,
            a = in(vreg) low,
            b = in(vreg) high,
            options(pure, nomem, nostack),
        );
    }
    pairs
}

//! AMX, and products of bf16 on AVX-512 vectors: `X` in tiles of `[16][32]` bf16, as a load of AMX takes them.

pub(super) mod open;

use std::arch::x86_64::*;

/// The unit for floats beside it.
pub(super) use super::super::super::simd::avx512::Avx512 as Float;
use super::super::super::simd::matrix::TILE_K;
pub(super) use super::super::super::simd::matrix_x86::Tiles;

/// Rounds up to 32 numbers (the first of `rest`) to row `row` of the tile at `to`, zeros behind them.
///
/// # Safety
/// The tile is writable, `row` is one of its 16, and the CPU has the features.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub(super) unsafe fn round_row(rest: &[f32], row: usize, to: *mut u8) {
    // SAFETY: masks keep the loads to the numbers that are left; a tile has 16 rows of 64 bytes.
    unsafe {
        let mask = u32::MAX.checked_shr(TILE_K.saturating_sub(rest.len()) as u32).unwrap_or(0);
        let low = _mm512_maskz_loadu_ps(mask as u16, rest.as_ptr());
        let high = _mm512_maskz_loadu_ps((mask >> 16) as u16, rest.as_ptr().wrapping_add(16));
        let pairs: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
        _mm512_storeu_si512(to.add(row * 64).cast(), pairs);
    }
}

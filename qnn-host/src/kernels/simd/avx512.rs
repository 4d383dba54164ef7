//! AVX-512 (F, BW, DQ, VL): sixteen lanes, thirty-two registers, masks for tails.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{BELOW_HALF, Piece, Simd, Tile, TilePiece};

/// Proof that the CPU has AVX-512 F, BW, DQ and VL, and all of AVX2's path; made only by detection in
/// [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(pub(in super::super) ());

/// An intrinsic without pointers.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { $e }
    }};
}

#[inline(always)]
fn first(n: usize) -> __mmask16 {
    ((1u32 << n) - 1) as __mmask16
}

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;
    const TILE_ROWS: usize = 12;
    const MANY_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn outline<P: Piece>(self, piece: P) {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
        #[inline(never)]
        unsafe fn run<P: Piece>(s: Avx512, piece: P) {
            // SAFETY: the caller's promise is the piece's.
            unsafe { piece.run(s) }
        }
        // SAFETY: as above; `self` proves that the CPU has these features.
        unsafe { run(self, piece) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        op!(_mm512_set1_ps(x))
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        // SAFETY: the caller promised 16 numbers; this load needs no alignment.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m512) {
        // SAFETY: the caller promised space for 16 numbers.
        unsafe { _mm512_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn load_first(self, p: *const f32, n: usize) -> __m512 {
        // SAFETY: the mask keeps the load to the `n` numbers that the caller promised.
        unsafe { _mm512_maskz_loadu_ps(first(n), p) }
    }

    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, v: __m512, n: usize) {
        // SAFETY: the mask keeps the store to the `n` numbers that the caller promised.
        unsafe { _mm512_mask_storeu_ps(p, first(n), v) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> __m512 {
        // SAFETY: the caller promised 16 numbers of 2 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn splat_f16(self, p: *const f16) -> __m512 {
        // SAFETY: the caller promised one number of 2 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_set1_epi16(p.cast::<i16>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: __m512) {
        // SAFETY: the caller promised space for 16 numbers of 2 bytes.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> __m512 {
        // SAFETY: the caller promised 16 numbers of 2 bytes. A bf16 is the upper half of an f32.
        unsafe {
            let halves = _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> __m512 {
        // SAFETY: the caller promised 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> __m512 {
        // SAFETY: the caller promised 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn store_u8(self, p: *mut u8, v: __m512) {
        // SAFETY: the caller promised space for 16 bytes.
        unsafe { _mm_storeu_si128(p.cast(), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v))) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_div_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_min_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_max_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn round(self, a: __m512) -> __m512 {
        op!(_mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn round_away(self, a: __m512) -> __m512 {
        op!({
            let less = _mm512_or_ps(_mm512_and_ps(a, _mm512_set1_ps(-0.0)), _mm512_set1_ps(BELOW_HALF));
            _mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(_mm512_add_ps(a, less))
        })
    }

    #[inline(always)]
    fn scale(self, v: __m512, n: __m512) -> __m512 {
        op!(_mm512_scalef_ps(v, n))
    }

    #[inline(always)]
    fn zero_below(self, v: __m512, x: __m512, limit: __m512) -> __m512 {
        op!(_mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, limit), v))
    }

    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        op!(_mm512_reduce_add_ps(v))
    }

    #[inline(always)]
    fn max_lane(self, v: __m512) -> f32 {
        op!(_mm512_reduce_max_ps(v))
    }

    /// As integers, the bits of sizes have an order in which NaN is the largest.
    #[inline(always)]
    fn max_size(self, a: __m512, b: __m512) -> __m512 {
        op!({
            let [a, b] = [a, b].map(|x| _mm512_castps_si512(_mm512_abs_ps(x)));
            _mm512_castsi512_ps(_mm512_max_epi32(a, b))
        })
    }

    #[inline(always)]
    fn max_size_lane(self, sizes: __m512) -> f32 {
        f32::from_bits(op!(_mm512_reduce_max_epi32(_mm512_castps_si512(sizes))).cast_unsigned())
    }

    #[inline(always)]
    unsafe fn tile(self, t: Tile, vectors: usize, add: bool) {
        // SAFETY: the caller's promise is the piece's.
        unsafe {
            match vectors {
                1 => self.outline(TilePiece::<12, 1>(t, add)),
                _ => self.outline(TilePiece::<12, 2>(t, add)),
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // SAFETY: the caller promised both 16 x 16 blocks; the rest is register work.
        unsafe {
            let r: [__m512; 16] = std::array::from_fn(|i| _mm512_loadu_ps(src.add(i * src_stride)));
            // q[4 g + c]: columns c, c + 4, c + 8, c + 12 of rows 4 g .. 4 g + 4, a quarter each.
            let mut q = r;
            for g in 0..4 {
                let o = 4 * g;
                let (a, b) = (_mm512_unpacklo_ps(r[o], r[o + 1]), _mm512_unpackhi_ps(r[o], r[o + 1]));
                let (c, d) = (_mm512_unpacklo_ps(r[o + 2], r[o + 3]), _mm512_unpackhi_ps(r[o + 2], r[o + 3]));
                q[o] = _mm512_shuffle_ps::<0x44>(a, c);
                q[o + 1] = _mm512_shuffle_ps::<0xEE>(a, c);
                q[o + 2] = _mm512_shuffle_ps::<0x44>(b, d);
                q[o + 3] = _mm512_shuffle_ps::<0xEE>(b, d);
            }
            for c in 0..4 {
                // Quarters 0 and 2, then 1 and 3, of rows 0..8 and 8..16; again, and each is a whole column.
                let (even, odd) =
                    (_mm512_shuffle_f32x4::<0x88>(q[c], q[c + 4]), _mm512_shuffle_f32x4::<0xDD>(q[c], q[c + 4]));
                let (even2, odd2) = (
                    _mm512_shuffle_f32x4::<0x88>(q[c + 8], q[c + 12]),
                    _mm512_shuffle_f32x4::<0xDD>(q[c + 8], q[c + 12]),
                );
                _mm512_storeu_ps(dst.add(c * dst_stride), _mm512_shuffle_f32x4::<0x88>(even, even2));
                _mm512_storeu_ps(dst.add((c + 4) * dst_stride), _mm512_shuffle_f32x4::<0x88>(odd, odd2));
                _mm512_storeu_ps(dst.add((c + 8) * dst_stride), _mm512_shuffle_f32x4::<0xDD>(even, even2));
                _mm512_storeu_ps(dst.add((c + 12) * dst_stride), _mm512_shuffle_f32x4::<0xDD>(odd, odd2));
            }
        }
    }
}

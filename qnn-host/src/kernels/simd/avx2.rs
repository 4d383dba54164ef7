//! AVX2 with FMA and F16C: eight lanes, sixteen registers.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{BELOW_HALF, Piece, Simd, Tile, TilePiece};

/// Proof that the CPU has AVX2, FMA and F16C; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(pub(in super::super) ());

/// An intrinsic without pointers.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { $e }
    }};
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const TILE_ROWS: usize = 6;
    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn outline<P: Piece>(self, piece: P) {
        #[target_feature(enable = "avx2,fma,f16c")]
        #[inline(never)]
        unsafe fn run<P: Piece>(s: Avx2, piece: P) {
            // SAFETY: the caller's promise is the piece's.
            unsafe { piece.run(s) }
        }
        // SAFETY: as above; `self` proves that the CPU has these features.
        unsafe { run(self, piece) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        op!(_mm256_set1_ps(x))
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m256 {
        // SAFETY: the caller promised 8 numbers; this load needs no alignment.
        unsafe { _mm256_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: __m256) {
        // SAFETY: the caller promised space for 8 numbers.
        unsafe { _mm256_storeu_ps(p, v) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> __m256 {
        // SAFETY: the caller promised 8 numbers of 2 bytes.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn splat_f16(self, p: *const f16) -> __m256 {
        // SAFETY: the caller promised one number of 2 bytes.
        unsafe { _mm256_cvtph_ps(_mm_set1_epi16(p.cast::<i16>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: __m256) {
        // SAFETY: the caller promised space for 8 numbers of 2 bytes.
        unsafe { _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> __m256 {
        // SAFETY: the caller promised 8 numbers of 2 bytes. A bf16 is the upper half of an f32.
        unsafe {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> __m256 {
        // SAFETY: the caller promised 8 bytes.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> __m256 {
        // SAFETY: the caller promised 8 bytes.
        unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn store_u8(self, p: *mut u8, v: __m256) {
        // SAFETY: the caller promised space for 8 bytes.
        unsafe {
            let words = _mm256_cvtps_epi32(v);
            let halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storel_epi64(p.cast(), _mm_packus_epi16(halves, halves));
        }
    }

    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_div_ps(a, b))
    }

    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        op!(_mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        op!(_mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn round(self, a: __m256) -> __m256 {
        op!(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a))
    }

    #[inline(always)]
    fn round_away(self, a: __m256) -> __m256 {
        op!({
            let less = _mm256_or_ps(_mm256_and_ps(a, _mm256_set1_ps(-0.0)), _mm256_set1_ps(BELOW_HALF));
            _mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(_mm256_add_ps(a, less))
        })
    }

    #[inline(always)]
    fn scale(self, v: __m256, n: __m256) -> __m256 {
        op!({
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_mul_ps(v, _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent)))
        })
    }

    #[inline(always)]
    fn zero_below(self, v: __m256, x: __m256, limit: __m256) -> __m256 {
        op!(_mm256_andnot_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(x, limit), v))
    }

    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        op!({
            let half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)))
        })
    }

    #[inline(always)]
    fn max_lane(self, v: __m256) -> f32 {
        op!({
            let half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)))
        })
    }

    /// As integers, the bits of sizes have an order in which NaN is the largest.
    #[inline(always)]
    fn max_size(self, a: __m256, b: __m256) -> __m256 {
        op!({
            let [a, b] = [a, b].map(|x| _mm256_castps_si256(_mm256_andnot_ps(_mm256_set1_ps(-0.0), x)));
            _mm256_castsi256_ps(_mm256_max_epi32(a, b))
        })
    }

    #[inline(always)]
    fn max_size_lane(self, sizes: __m256) -> f32 {
        op!({
            let eight = _mm256_castps_si256(sizes);
            let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
            _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))))
        })
    }

    #[inline(always)]
    unsafe fn tile(self, t: Tile, vectors: usize, add: bool) {
        // SAFETY: the caller's promise is the piece's.
        unsafe {
            match vectors {
                1 => self.outline(TilePiece::<6, 1>(t, add)),
                _ => self.outline(TilePiece::<6, 2>(t, add)),
            }
        }
    }

    #[inline(always)]
    unsafe fn transpose(self, src: *const f32, src_stride: usize, dst: *mut f32, dst_stride: usize) {
        // SAFETY: the caller promised both 8 x 8 blocks; the rest is register work. Pairs of rows are interleaved, then
        // pairs of pairs, then the halves of rows four apart are joined.
        unsafe {
            let r: [__m256; 8] = std::array::from_fn(|i| _mm256_loadu_ps(src.add(i * src_stride)));
            let mut q = r;
            for h in 0..2 {
                let o = 4 * h;
                let (a, b) = (_mm256_unpacklo_ps(r[o], r[o + 1]), _mm256_unpackhi_ps(r[o], r[o + 1]));
                let (c, d) = (_mm256_unpacklo_ps(r[o + 2], r[o + 3]), _mm256_unpackhi_ps(r[o + 2], r[o + 3]));
                q[o] = _mm256_shuffle_ps::<0x44>(a, c);
                q[o + 1] = _mm256_shuffle_ps::<0xEE>(a, c);
                q[o + 2] = _mm256_shuffle_ps::<0x44>(b, d);
                q[o + 3] = _mm256_shuffle_ps::<0xEE>(b, d);
            }
            for i in 0..4 {
                _mm256_storeu_ps(dst.add(i * dst_stride), _mm256_permute2f128_ps::<0x20>(q[i], q[i + 4]));
                _mm256_storeu_ps(dst.add((i + 4) * dst_stride), _mm256_permute2f128_ps::<0x31>(q[i], q[i + 4]));
            }
        }
    }
}

//! [`Dot`] on AVX-512 with VNNI: sixteen rows are one register, and a product of quads one instruction.

use std::arch::asm;
use std::arch::x86_64::*;

use half::f16;

use super::Simd;
use super::act_scale::scale_of;
use super::avx512::Avx512;
use super::dot::{Dot, DotPiece, FourBlocks};

/// Proof that the CPU has VNNI as well; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vnni512(pub(in super::super) Avx512);

/// An intrinsic without pointers.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { $e }
    }};
}

/// [`Dot::dot`], which the compiler leaves where it is written.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dot_in_place(sums: __m512i, weights: __m512i, quad: __m512i) -> __m512i {
    let mut sums = sums;
    // SAFETY: the instruction works on registers, and the CPU has it. It is not said to be `pure`, which keeps its place among others.
    unsafe {
        asm!(
            "vpdpbusd {sums}, {weights}, {quad}",
            sums = inout(zmm_reg) sums,
            weights = in(zmm_reg) weights,
            quad = in(zmm_reg) quad,
            options(nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// [`Dot::dot`] in place with the quad that lies `OFFSET` bytes behind `quads`, by one instruction.
///
/// # Safety
/// 4 bytes are readable there.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_at<const OFFSET: usize>(sums: __m512i, weights: __m512i, quads: *const i8) -> __m512i {
    let mut sums = sums;
    // SAFETY: the instruction reads the 4 bytes that the caller promised, and the CPU has it.
    unsafe {
        asm!(
            "vpdpbusd {sums}, {weights}, dword ptr [{quads} + {offset}]{{1to16}}",
            sums = inout(zmm_reg) sums,
            weights = in(zmm_reg) weights,
            quads = in(reg) quads,
            offset = const OFFSET,
            options(readonly, nostack, preserves_flags),
        );
    }
    sums
}

impl Dot for Vnni512 {
    type Float = Avx512;
    type Weights = __m512i;
    type Sums = __m512i;
    type Group = __m512;
    type Quad = __m512i;
    /// The instructions multiply unsigned with signed bytes: weights are the unsigned ones.
    const BYTE_OFFSET: i32 = 128;
    const TILE: (usize, usize) = (4, 3);
    const BASED: bool = true;

    #[inline(always)]
    unsafe fn outline<P: DotPiece>(self, piece: P) {
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
        #[inline(never)]
        unsafe fn run<P: DotPiece>(d: Vnni512, piece: P) {
            // SAFETY: the caller's promise is the piece's.
            unsafe { piece.run(d) }
        }
        // SAFETY: as above; `self` proves that the CPU has these features.
        unsafe { run(self, piece) }
    }

    #[inline(always)]
    fn float(self) -> Avx512 {
        self.0
    }

    #[inline(always)]
    unsafe fn load(self, p: *const u8) -> __m512i {
        // SAFETY: the caller promised 64 bytes.
        unsafe { _mm512_loadu_si512(p.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, weights: __m512i) {
        // SAFETY: the caller promised 64 bytes.
        unsafe { _mm512_storeu_si512(p.cast(), weights) }
    }

    #[inline(always)]
    fn bytes(self, weights: __m512i) -> __m512i {
        op!(_mm512_xor_si512(weights, _mm512_set1_epi8(-128)))
    }

    #[inline(always)]
    fn low(self, weights: __m512i) -> __m512i {
        op!(_mm512_and_si512(weights, _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn high(self, weights: __m512i) -> __m512i {
        op!(_mm512_and_si512(_mm512_srli_epi16::<4>(weights), _mm512_set1_epi8(15)))
    }

    #[inline(always)]
    fn six(self, lower: __m512i, upper: __m512i, i: u32) -> __m512i {
        op!({
            let upper = match i {
                0 => _mm512_slli_epi16::<4>(upper),
                1 => _mm512_slli_epi16::<2>(upper),
                2 => upper,
                _ => _mm512_srli_epi16::<2>(upper),
            };
            _mm512_or_si512(lower, _mm512_and_si512(upper, _mm512_set1_epi8(0x30)))
        })
    }

    #[inline(always)]
    fn two(self, weights: __m512i, i: u32) -> __m512i {
        op!({
            let moved = match i {
                0 => weights,
                1 => _mm512_srli_epi16::<2>(weights),
                2 => _mm512_srli_epi16::<4>(weights),
                _ => _mm512_srli_epi16::<6>(weights),
            };
            _mm512_and_si512(moved, _mm512_set1_epi8(3))
        })
    }

    #[inline(always)]
    fn three(self, lower: __m512i, upper: __m512i, i: u32) -> __m512i {
        op!({
            let lower = match i % 4 {
                0 => lower,
                1 => _mm512_srli_epi16::<2>(lower),
                2 => _mm512_srli_epi16::<4>(lower),
                _ => _mm512_srli_epi16::<6>(lower),
            };
            let upper = match i {
                0 => _mm512_slli_epi16::<2>(upper),
                1 => _mm512_slli_epi16::<1>(upper),
                2 => upper,
                3 => _mm512_srli_epi16::<1>(upper),
                4 => _mm512_srli_epi16::<2>(upper),
                5 => _mm512_srli_epi16::<3>(upper),
                6 => _mm512_srli_epi16::<4>(upper),
                _ => _mm512_srli_epi16::<5>(upper),
            };
            let two = _mm512_and_si512(lower, _mm512_set1_epi8(3));
            _mm512_or_si512(two, _mm512_and_si512(upper, _mm512_set1_epi8(4)))
        })
    }

    #[inline(always)]
    fn five(self, lower: __m512i, upper: __m512i, i: u32) -> __m512i {
        op!({
            let upper = match i {
                0 => _mm512_slli_epi16::<4>(upper),
                1 => _mm512_slli_epi16::<3>(upper),
                2 => _mm512_slli_epi16::<2>(upper),
                3 => _mm512_slli_epi16::<1>(upper),
                4 => upper,
                5 => _mm512_srli_epi16::<1>(upper),
                6 => _mm512_srli_epi16::<2>(upper),
                _ => _mm512_srli_epi16::<3>(upper),
            };
            _mm512_or_si512(lower, _mm512_and_si512(upper, _mm512_set1_epi8(0x10)))
        })
    }

    #[inline(always)]
    fn levels(self, numbers: __m512i, levels: &[i8; 16]) -> __m512i {
        op!({
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(levels.as_ptr().cast()));
            self.bytes(_mm512_shuffle_epi8(table, numbers))
        })
    }

    #[inline(always)]
    unsafe fn load_group_i8(self, p: *const i8) -> __m512 {
        // SAFETY: the caller promised 16 bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_group_u4(self, p: *const u8, upper: bool) -> __m512 {
        // SAFETY: the caller promised 16 bytes.
        unsafe {
            let bytes = _mm_loadu_si128(p.cast());
            let bytes = if upper { _mm_srli_epi16::<4>(bytes) } else { bytes };
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_and_si128(bytes, _mm_set1_epi8(15))))
        }
    }

    #[inline(always)]
    unsafe fn load_group_exponents(self, p: *const u8) -> __m512 {
        // SAFETY: the caller promised 16 bytes.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast())))) }
    }

    #[inline(always)]
    unsafe fn quad(self, p: *const i8) -> __m512i {
        // SAFETY: the caller promised 4 bytes.
        unsafe { _mm512_set1_epi32(p.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    fn sums(self, start: i32) -> __m512i {
        op!(_mm512_set1_epi32(start))
    }

    #[inline(always)]
    fn dot(self, sums: __m512i, weights: __m512i, quad: __m512i) -> __m512i {
        op!(_mm512_dpbusd_epi32(sums, weights, quad))
    }

    /// Elsewhere the compiler would take one sum after the other, each a chain of products that waits for itself, and keep what all of them
    /// need on the stack.
    #[inline(always)]
    fn dot_in_place(self, sums: __m512i, weights: __m512i, quad: __m512i) -> __m512i {
        op!(dot_in_place(sums, weights, quad))
    }

    /// With several rows the compiler would load quads by instructions of their own, into more registers than there are.
    #[inline(always)]
    unsafe fn dot_rows<const R: usize>(self, sums: &mut [__m512i; R], weights: __m512i, quads: *const i8) {
        macro_rules! add {
            ($($r:literal)*) => {$(
                if $r < R {
                    // SAFETY: the caller promised a quad for each row.
                    sums[$r] = unsafe { dot_at::<{ 4 * $r }>(sums[$r], weights, quads) };
                }
            )*};
        }
        const { assert!(R <= 8) };
        add!(0 1 2 3 4 5 6 7);
    }

    #[inline(always)]
    unsafe fn dot_few_rows<const R: usize>(self, few: &mut [__m512i; R], weights: __m512i, quads: *const i8) {
        // SAFETY: the caller's promise.
        unsafe { self.dot_rows(few, weights, quads) }
    }

    #[inline(always)]
    fn to_float(self, sums: __m512i) -> __m512 {
        op!(_mm512_cvtepi32_ps(sums))
    }

    #[inline(always)]
    fn less_base(self, sums: __m512i, base: f32) -> __m512 {
        op!(_mm512_sub_ps(_mm512_castsi512_ps(sums), _mm512_set1_ps(base)))
    }

    #[inline(always)]
    fn zero(self) -> __m512 {
        op!(_mm512_setzero_ps())
    }

    #[inline(always)]
    unsafe fn load_group(self, p: *const f32) -> __m512 {
        // SAFETY: the caller promised 16 numbers.
        unsafe { _mm512_loadu_ps(p) }
    }

    #[inline(always)]
    unsafe fn load_group_f16(self, p: *const f16) -> __m512 {
        // SAFETY: the caller promised 16 numbers.
        unsafe { self.0.load_f16(p) }
    }

    #[inline(always)]
    unsafe fn store_group(self, p: *mut f32, group: __m512) {
        // SAFETY: the caller promised 16 numbers.
        unsafe { _mm512_storeu_ps(p, group) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        op!(_mm512_mul_ps(a, b))
    }

    #[inline(always)]
    fn mul_splat(self, a: __m512, x: f32) -> __m512 {
        op!(_mm512_mul_ps(a, _mm512_set1_ps(x)))
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn fma_splat(self, a: __m512, x: f32, c: __m512) -> __m512 {
        op!(_mm512_fmadd_ps(a, _mm512_set1_ps(x), c))
    }

    #[inline(always)]
    unsafe fn quantize(self, x: *const f32, to: *mut i8) -> (f32, i32) {
        // SAFETY: the caller promised 32 numbers and 32 bytes; the rest is register work.
        unsafe {
            let (a, b) = (_mm512_loadu_ps(x), _mm512_loadu_ps(x.add(16)));
            let largest = _mm512_reduce_max_epi32(larger(a, b));
            let (scale, inverse) = scale_of(f32::from_bits(largest.cast_unsigned()));
            let inverse = _mm512_set1_ps(inverse);
            let a = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(a, inverse)));
            let b = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(b, inverse)));
            _mm_storeu_si128(to.cast(), a);
            _mm_storeu_si128(to.add(16).cast(), b);
            // Of the bytes as they are kept, also where numbers are too small to have an inverse, or none at all.
            (scale, _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_cvtepi8_epi32(a), _mm512_cvtepi8_epi32(b))))
        }
    }

    /// Packing works on quarters of registers, which are quads here: those of four rows come out side by side.
    #[inline(always)]
    unsafe fn quantize_four(self, x: [*const f32; 4], to: *mut i8, stride: usize) -> FourBlocks {
        // SAFETY: the caller promised the numbers and the bytes; the rest is register work.
        unsafe {
            let mut numbers = [[_mm512_setzero_ps(); 2]; 4];
            let mut largest = [_mm512_setzero_si512(); 4];
            for row in 0..4 {
                numbers[row] = [_mm512_loadu_ps(x[row]), _mm512_loadu_ps(x[row].add(16))];
                largest[row] = larger(numbers[row][0], numbers[row][1]);
            }
            let mut scales = [0.0; 4];
            _mm_storeu_ps(scales.as_mut_ptr(), largest_of_four(largest));
            let mut inverses = [0.0; 4];
            for row in 0..4 {
                (scales[row], inverses[row]) = scale_of(scales[row]);
            }
            let mut sums = [[0; 4]; 2];
            for half in 0..2 {
                let mut whole = [_mm512_setzero_si512(); 4];
                for row in 0..4 {
                    whole[row] = _mm512_cvtps_epi32(_mm512_mul_ps(numbers[row][half], _mm512_set1_ps(inverses[row])));
                }
                let values =
                    _mm512_packs_epi16(_mm512_packs_epi32(whole[0], whole[1]), _mm512_packs_epi32(whole[2], whole[3]));
                let to = to.add(4 * half * stride);
                _mm_storeu_si128(to.cast(), _mm512_castsi512_si128(values));
                _mm_storeu_si128(to.add(stride).cast(), _mm512_extracti32x4_epi32::<1>(values));
                _mm_storeu_si128(to.add(2 * stride).cast(), _mm512_extracti32x4_epi32::<2>(values));
                _mm_storeu_si128(to.add(3 * stride).cast(), _mm512_extracti32x4_epi32::<3>(values));
                // Of the bytes as they are kept, as in `quantize`.
                let quads = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), values);
                let pairs = _mm256_add_epi32(_mm512_castsi512_si256(quads), _mm512_extracti64x4_epi64::<1>(quads));
                let sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256::<1>(pairs));
                _mm_storeu_si128(sums[half].as_mut_ptr().cast(), sum);
            }
            FourBlocks { scales, sums }
        }
    }
}

/// The larger magnitudes, by their bits ([`magnitude`](super::act_scale::magnitude)).
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn larger(a: __m512, b: __m512) -> __m512i {
    _mm512_max_epi32(_mm512_castps_si512(_mm512_abs_ps(a)), _mm512_castps_si512(_mm512_abs_ps(b)))
}

/// The largest of each.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn largest_of_four(rows: [__m512i; 4]) -> __m128 {
    let [a, b, c, d] = rows;
    // Of quarters: two of a, two of b, and so on, then one of each.
    let ab = _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_max_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let quarters = _mm512_max_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let halves = _mm256_max_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti32x8_epi32::<1>(quarters));
    _mm_castsi128_ps(_mm_max_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256::<1>(halves)))
}

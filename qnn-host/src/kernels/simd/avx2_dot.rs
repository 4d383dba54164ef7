//! [`Dot`] on AVX2: sixteen rows are two registers of eight. With AVX-VNNI a product of quads is one instruction per register.
//!
//! Without, one instruction multiplies unsigned with signed bytes and adds pairs in 16 bits. Weights of 2 to 6 bits are unsigned,
//! and sums of pairs stay there for a few quads: two instructions a quad, and two more to widen the sums at the end. Signed
//! weights of 8 bits take five, of which two bring signs to the side that may have them.

use std::arch::asm;
use std::arch::x86_64::*;

use half::f16;

use super::Simd;
use super::act_scale::scale_of;
use super::avx2::Avx2;
use super::dot::{Dot, DotPiece};

/// Proof that the CPU has AVX-VNNI as well; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AvxVnni(pub(in super::super) Avx2);

/// An intrinsic without pointers.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { $e }
    }};
}

/// The two units differ in what signed weights become, and in how quads are multiplied.
macro_rules! impl_dot {
    ($unit:ty, $features:literal, $float:expr, $offset:literal, $bytes:expr, $dot:expr, { $($few:tt)* }) => {
        impl Dot for $unit {
            type Float = Avx2;
            type Weights = [__m256i; 2];
            type Sums = [__m256i; 2];
            type Group = [__m256; 2];
            type Quad = __m256i;
            const BYTE_OFFSET: i32 = $offset;
            const TILE: (usize, usize) = (4, 1);

            #[inline(always)]
            unsafe fn outline<P: DotPiece>(self, piece: P) {
                #[target_feature(enable = $features)]
                #[inline(never)]
                unsafe fn run<P: DotPiece>(d: $unit, piece: P) {
                    // SAFETY: the caller's promise is the piece's.
                    unsafe { piece.run(d) }
                }
                // SAFETY: as above; `self` proves that the CPU has these features.
                unsafe { run(self, piece) }
            }

            #[inline(always)]
            fn float(self) -> Avx2 {
                $float(self)
            }

            #[inline(always)]
            unsafe fn load(self, p: *const u8) -> [__m256i; 2] {
                // SAFETY: the caller promised 64 bytes.
                unsafe { [_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(32).cast())] }
            }

            #[inline(always)]
            unsafe fn store(self, p: *mut u8, weights: [__m256i; 2]) {
                // SAFETY: the caller promised 64 bytes.
                unsafe {
                    _mm256_storeu_si256(p.cast(), weights[0]);
                    _mm256_storeu_si256(p.add(32).cast(), weights[1]);
                }
            }

            #[inline(always)]
            fn bytes(self, [a, b]: [__m256i; 2]) -> [__m256i; 2] {
                op!([$bytes(a), $bytes(b)])
            }

            #[inline(always)]
            fn low(self, [a, b]: [__m256i; 2]) -> [__m256i; 2] {
                op!({
                    let mask = _mm256_set1_epi8(15);
                    [_mm256_and_si256(a, mask), _mm256_and_si256(b, mask)]
                })
            }

            #[inline(always)]
            fn high(self, [a, b]: [__m256i; 2]) -> [__m256i; 2] {
                op!({
                    let mask = _mm256_set1_epi8(15);
                    [
                        _mm256_and_si256(_mm256_srli_epi16::<4>(a), mask),
                        _mm256_and_si256(_mm256_srli_epi16::<4>(b), mask),
                    ]
                })
            }

            #[inline(always)]
            fn two(self, weights: [__m256i; 2], i: u32) -> [__m256i; 2] {
                op!({
                    let (right, mask) = (_mm_cvtsi32_si128(2 * i as i32), _mm256_set1_epi8(3));
                    let moved = [_mm256_srl_epi16(weights[0], right), _mm256_srl_epi16(weights[1], right)];
                    [_mm256_and_si256(moved[0], mask), _mm256_and_si256(moved[1], mask)]
                })
            }

            #[inline(always)]
            fn three(self, lower: [__m256i; 2], upper: [__m256i; 2], i: u32) -> [__m256i; 2] {
                op!({
                    let right = _mm_cvtsi32_si128(2 * (i as i32 % 4));
                    let (up, down) = (_mm_cvtsi32_si128(2 - i.min(2) as i32), _mm_cvtsi32_si128(i.max(2) as i32 - 2));
                    let value = |lower, upper| {
                        let two = _mm256_and_si256(_mm256_srl_epi16(lower, right), _mm256_set1_epi8(3));
                        let third = _mm256_srl_epi16(_mm256_sll_epi16(upper, up), down);
                        _mm256_or_si256(two, _mm256_and_si256(third, _mm256_set1_epi8(4)))
                    };
                    [value(lower[0], upper[0]), value(lower[1], upper[1])]
                })
            }

            #[inline(always)]
            fn six(self, lower: [__m256i; 2], upper: [__m256i; 2], i: u32) -> [__m256i; 2] {
                op!({
                    let (up, down) =
                        (_mm_cvtsi32_si128(4 - 2 * i.min(2) as i32), _mm_cvtsi32_si128(2 * i.max(2) as i32 - 4));
                    let two = |upper| {
                        let moved = _mm256_srl_epi16(_mm256_sll_epi16(upper, up), down);
                        _mm256_and_si256(moved, _mm256_set1_epi8(0x30))
                    };
                    [_mm256_or_si256(lower[0], two(upper[0])), _mm256_or_si256(lower[1], two(upper[1]))]
                })
            }

            #[inline(always)]
            fn five(self, lower: [__m256i; 2], upper: [__m256i; 2], i: u32) -> [__m256i; 2] {
                op!({
                    let (left, right) =
                        (_mm_cvtsi32_si128(4 - i.min(4) as i32), _mm_cvtsi32_si128(i.max(4) as i32 - 4));
                    let bit = |upper| {
                        let moved = _mm256_srl_epi16(_mm256_sll_epi16(upper, left), right);
                        _mm256_and_si256(moved, _mm256_set1_epi8(0x10))
                    };
                    [_mm256_or_si256(lower[0], bit(upper[0])), _mm256_or_si256(lower[1], bit(upper[1]))]
                })
            }

            #[inline(always)]
            fn levels(self, numbers: [__m256i; 2], levels: &[i8; 16]) -> [__m256i; 2] {
                op!({
                    let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(levels.as_ptr().cast()));
                    self.bytes([_mm256_shuffle_epi8(table, numbers[0]), _mm256_shuffle_epi8(table, numbers[1])])
                })
            }

            #[inline(always)]
            unsafe fn load_group_u4(self, p: *const u8, upper: bool) -> [__m256; 2] {
                // SAFETY: the caller promised 16 bytes.
                unsafe {
                    let bytes = _mm_loadu_si128(p.cast());
                    let bytes = if upper { _mm_srli_epi16::<4>(bytes) } else { bytes };
                    widened_bytes(_mm_and_si128(bytes, _mm_set1_epi8(15)))
                }
            }

            #[inline(always)]
            unsafe fn load_group_exponents(self, p: *const u8) -> [__m256; 2] {
                // SAFETY: the caller promised 16 bytes.
                unsafe {
                    let number = |eight| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_cvtepu8_epi32(eight)));
                    [number(_mm_loadl_epi64(p.cast())), number(_mm_loadl_epi64(p.add(8).cast()))]
                }
            }

            #[inline(always)]
            unsafe fn quad(self, p: *const i8) -> __m256i {
                // SAFETY: the caller promised 4 bytes.
                unsafe { _mm256_set1_epi32(p.cast::<i32>().read_unaligned()) }
            }

            #[inline(always)]
            fn sums(self, start: i32) -> [__m256i; 2] {
                op!([_mm256_set1_epi32(start); 2])
            }

            #[inline(always)]
            fn dot(self, sums: [__m256i; 2], weights: [__m256i; 2], quad: __m256i) -> [__m256i; 2] {
                op!([$dot(sums[0], weights[0], quad), $dot(sums[1], weights[1], quad)])
            }

            $($few)*

            #[inline(always)]
            fn to_float(self, [a, b]: [__m256i; 2]) -> [__m256; 2] {
                op!([_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b)])
            }

            #[inline(always)]
            fn zero(self) -> [__m256; 2] {
                op!([_mm256_setzero_ps(); 2])
            }

            #[inline(always)]
            unsafe fn load_group(self, p: *const f32) -> [__m256; 2] {
                // SAFETY: the caller promised 16 numbers.
                unsafe { [_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))] }
            }

            #[inline(always)]
            unsafe fn load_group_f16(self, p: *const f16) -> [__m256; 2] {
                // SAFETY: the caller promised 16 numbers.
                unsafe { [self.float().load_f16(p), self.float().load_f16(p.add(8))] }
            }

            #[inline(always)]
            unsafe fn store_group(self, p: *mut f32, [a, b]: [__m256; 2]) {
                // SAFETY: the caller promised 16 numbers.
                unsafe {
                    _mm256_storeu_ps(p, a);
                    _mm256_storeu_ps(p.add(8), b);
                }
            }

            #[inline(always)]
            fn mul(self, a: [__m256; 2], b: [__m256; 2]) -> [__m256; 2] {
                op!([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])])
            }

            #[inline(always)]
            fn mul_splat(self, a: [__m256; 2], x: f32) -> [__m256; 2] {
                op!({
                    let x = _mm256_set1_ps(x);
                    [_mm256_mul_ps(a[0], x), _mm256_mul_ps(a[1], x)]
                })
            }

            #[inline(always)]
            fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
                op!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
            }

            #[inline(always)]
            fn fma_splat(self, a: [__m256; 2], x: f32, c: [__m256; 2]) -> [__m256; 2] {
                op!({
                    let x = _mm256_set1_ps(x);
                    [_mm256_fmadd_ps(a[0], x, c[0]), _mm256_fmadd_ps(a[1], x, c[1])]
                })
            }

            #[inline(always)]
            unsafe fn quantize(self, x: *const f32, to: *mut i8) -> (f32, i32) {
                // SAFETY: the caller promised 32 numbers and 32 bytes; the rest is register work.
                unsafe {
                    let v: [__m256; 4] = std::array::from_fn(|i| _mm256_loadu_ps(x.add(8 * i)));
                    let sign = _mm256_set1_ps(-0.0);
                    let size = v.map(|v| _mm256_castps_si256(_mm256_andnot_ps(sign, v)));
                    let (scale, inverse) = scale_of(largest_of(size));
                    let inverse = _mm256_set1_ps(inverse);
                    let q = v.map(|v| _mm256_cvtps_epi32(_mm256_mul_ps(v, inverse)));
                    // Packing works on halves of registers; the permutation puts the quads back in order.
                    let bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
                    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
                    _mm256_storeu_si256(to.cast(), _mm256_permutevar8x32_epi32(bytes, order));
                    // Of the bytes as they are kept, also where numbers are too small to have an inverse, or none at all.
                    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
                    let sum = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
                    let half = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
                    let pair = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
                    (scale, _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<0b10_11_00_01>(pair))))
                }
            }
        }
    };
}

/// The largest of magnitudes, by their bits ([`magnitude`](super::act_scale::magnitude)).
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn largest_of([a, b, c, d]: [__m256i; 4]) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let eight = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
        let four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
        let two = _mm_max_epi32(four, _mm_shuffle_epi32::<0b01_00_11_10>(four));
        _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(two, _mm_shuffle_epi32::<0b10_11_00_01>(two))))
    }
}

/// Sixteen signed bytes as numbers.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn widened_bytes(bytes: __m128i) -> [__m256; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let upper = _mm_unpackhi_epi64(bytes, bytes);
        [_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(upper))]
    }
}

/// # Safety
/// None.
#[inline(always)]
unsafe fn as_they_are(weights: __m256i) -> __m256i {
    weights
}

/// Signed weights, 128 larger: the instruction multiplies unsigned with signed ones, and weights are the unsigned ones.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn raised(weights: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_xor_si256(weights, _mm256_set1_epi8(-128)) }
}

/// `maddubs` takes one side unsigned, and saturates pairs at 16 bits: magnitudes of the weights (at most 128) with activations
/// (at most 127) that take over the weights' signs, so a pair is at most 32,512.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn widened(sum: __m256i, weight: __m256i, quad: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weight), _mm256_sign_epi8(quad, weight));
        _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
    }
}

/// # Safety
/// The CPU has AVX-VNNI.
#[inline(always)]
unsafe fn vnni(sum: __m256i, weight: __m256i, quad: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_dpbusd_avx_epi32(sum, weight, quad) }
}

/// Sums of pairs in 16 bits, widened and added.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn widen(sum: __m256i, pairs: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))) }
}

/// Keeps sums in the order in which they are written. Left alone, the compiler adds the products of all quads up in a tree, for which
/// there are not registers enough.
///
/// # Safety
/// The CPU has AVX2.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn in_order([mut a, mut b]: [__m256i; 2]) -> [__m256i; 2] {
    // SAFETY: there are no instructions; the registers exist.
    unsafe {
        asm!("/* {} {} */", inout(ymm_reg) a, inout(ymm_reg) b, options(pure, nomem, nostack, preserves_flags));
    }
    [a, b]
}

impl_dot!(Avx2, "avx2,fma,f16c", |unit: Avx2| unit, 0, as_they_are, widened, {
    #[inline(always)]
    fn begin_few(self, _: [__m256i; 2]) -> [__m256i; 2] {
        op!([_mm256_setzero_si256(); 2])
    }

    #[inline(always)]
    fn dot_few(self, few: [__m256i; 2], weights: [__m256i; 2], quad: __m256i) -> [__m256i; 2] {
        op!([
            _mm256_add_epi16(few[0], _mm256_maddubs_epi16(weights[0], quad)),
            _mm256_add_epi16(few[1], _mm256_maddubs_epi16(weights[1], quad)),
        ])
    }

    #[inline(always)]
    fn end_few(self, sums: [__m256i; 2], few: [__m256i; 2]) -> [__m256i; 2] {
        op!([widen(sums[0], few[0]), widen(sums[1], few[1])])
    }

    // Plain loops over places: closures of an array's `map` were compiled as calls, without the instructions.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn products<const R: usize, const G: usize, const FEW: usize>(
        self,
        weights: *const u8,
        stride: usize,
        acts: *const i8,
        quads: usize,
        starts: *const i32,
    ) -> [[[__m256i; 2]; G]; R] {
        // SAFETY: the caller's promise.
        unsafe {
            let start = |r: usize| self.sums(*starts.add(r));
            let load = |g: usize, quad: usize| Dot::load(self, weights.add(g * stride + 64 * quad));
            let x = |r: usize, quad: usize| self.quad(acts.add((quad * R + r) * 4));
            let zero = [_mm256_setzero_si256(); 2];
            let mut sums = [[zero; G]; R];
            if FEW == 0 {
                for r in 0..R {
                    sums[r] = [start(r); G];
                }
                for quad in 0..quads {
                    for g in 0..G {
                        let w = load(g, quad);
                        for r in 0..R {
                            sums[r][g] = self.dot(sums[r][g], w, x(r, quad));
                        }
                    }
                }
                return sums;
            }
            // Decoding is what bounds this: quads are written out, and neither sums nor their starts are added to zeros.
            for first in (0..quads).step_by(FEW) {
                let mut few = [[zero; G]; R];
                macro_rules! add_quad {
                    ($($quad:literal)*) => {$(
                        if $quad < FEW && first + $quad < quads {
                            for g in 0..G {
                                let w = load(g, first + $quad);
                                for r in 0..R {
                                    few[r][g] = in_order(if $quad == 0 {
                                        let x = x(r, first);
                                        [_mm256_maddubs_epi16(w[0], x), _mm256_maddubs_epi16(w[1], x)]
                                    } else {
                                        self.dot_few(few[r][g], w, x(r, first + $quad))
                                    });
                                }
                            }
                        }
                    )*};
                }
                add_quad!(0 1 2 3 4 5 6 7);
                for r in 0..R {
                    let before = if first == 0 { [start(r); G] } else { sums[r] };
                    for g in 0..G {
                        sums[r][g] = self.end_few(before[g], few[r][g]);
                    }
                }
            }
            sums
        }
    }
});
impl_dot!(AvxVnni, "avx2,fma,f16c,avxvnni", |unit: AvxVnni| unit.0, 128, raised, vnni, {});

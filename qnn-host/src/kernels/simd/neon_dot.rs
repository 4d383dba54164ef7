//! [`Dot`] on NEON: sixteen rows are four registers. With the dot product extension a product of quads is one instruction
//! a register; without, five.

use std::arch::aarch64::*;
use std::arch::asm;

use half::f16;

use super::Simd;
use super::dot::{Dot, DotPiece, quantize_plainly};
use super::neon::Neon;

/// Proof that the CPU has the dot product extension as well; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeonDot(pub(in super::super) Neon);

/// An intrinsic without pointers.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { $e }
    }};
}

/// Applies an expression to each register.
macro_rules! each {
    ($i:ident => $e:expr) => {{
        op!([
            {
                const $i: usize = 0;
                $e
            },
            {
                const $i: usize = 1;
                $e
            },
            {
                const $i: usize = 2;
                $e
            },
            {
                const $i: usize = 3;
                $e
            },
        ])
    }};
}

/// The two units differ in one operation.
macro_rules! impl_dot {
    ($unit:ty, $features:literal, $float:expr, $dot:expr) => {
        impl Dot for $unit {
            type Float = Neon;
            type Codes = [int8x16_t; 4];
            type Sums = [int32x4_t; 4];
            type Group = [float32x4_t; 4];
            type Quad = int8x16_t;
            const BYTE_OFFSET: i32 = 0;
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
            fn float(self) -> Neon {
                $float(self)
            }

            #[inline(always)]
            unsafe fn load(self, p: *const u8) -> [int8x16_t; 4] {
                // SAFETY: the caller promised 64 bytes.
                unsafe { std::array::from_fn(|i| vld1q_s8(p.add(16 * i).cast())) }
            }

            #[inline(always)]
            unsafe fn store(self, p: *mut u8, codes: [int8x16_t; 4]) {
                for (i, codes) in codes.into_iter().enumerate() {
                    // SAFETY: the caller promised 64 bytes.
                    unsafe { vst1q_s8(p.add(16 * i).cast(), codes) };
                }
            }

            #[inline(always)]
            fn bytes(self, codes: [int8x16_t; 4]) -> [int8x16_t; 4] {
                codes
            }

            #[inline(always)]
            fn low(self, codes: [int8x16_t; 4]) -> [int8x16_t; 4] {
                each!(I => vandq_s8(codes[I], vdupq_n_s8(15)))
            }

            #[inline(always)]
            fn high(self, codes: [int8x16_t; 4]) -> [int8x16_t; 4] {
                each!(I => vreinterpretq_s8_u8(vshrq_n_u8::<4>(vreinterpretq_u8_s8(codes[I]))))
            }

            #[inline(always)]
            unsafe fn quad(self, p: *const i8) -> int8x16_t {
                // SAFETY: the caller promised 4 bytes.
                unsafe { vreinterpretq_s8_s32(vdupq_n_s32(p.cast::<i32>().read_unaligned())) }
            }

            #[inline(always)]
            fn sums(self, start: i32) -> [int32x4_t; 4] {
                op!([vdupq_n_s32(start); 4])
            }

            #[inline(always)]
            fn dot(self, sums: [int32x4_t; 4], codes: [int8x16_t; 4], quad: int8x16_t) -> [int32x4_t; 4] {
                each!(I => $dot(sums[I], codes[I], quad))
            }

            #[inline(always)]
            fn to_float(self, sums: [int32x4_t; 4]) -> [float32x4_t; 4] {
                each!(I => vcvtq_f32_s32(sums[I]))
            }

            #[inline(always)]
            fn zero(self) -> [float32x4_t; 4] {
                op!([vdupq_n_f32(0.0); 4])
            }

            #[inline(always)]
            unsafe fn load_group(self, p: *const f32) -> [float32x4_t; 4] {
                // SAFETY: the caller promised 16 numbers.
                unsafe { std::array::from_fn(|i| Simd::load(self.float(), p.add(4 * i))) }
            }

            #[inline(always)]
            unsafe fn load_group_f16(self, p: *const f16) -> [float32x4_t; 4] {
                // SAFETY: the caller promised 16 numbers.
                unsafe { std::array::from_fn(|i| self.float().load_f16(p.add(4 * i))) }
            }

            #[inline(always)]
            unsafe fn store_group(self, p: *mut f32, group: [float32x4_t; 4]) {
                for (i, group) in group.into_iter().enumerate() {
                    // SAFETY: the caller promised 16 numbers.
                    unsafe { Simd::store(self.float(), p.add(4 * i), group) };
                }
            }

            #[inline(always)]
            fn mul(self, a: [float32x4_t; 4], b: [float32x4_t; 4]) -> [float32x4_t; 4] {
                each!(I => vmulq_f32(a[I], b[I]))
            }

            #[inline(always)]
            fn mul_splat(self, a: [float32x4_t; 4], x: f32) -> [float32x4_t; 4] {
                each!(I => vmulq_n_f32(a[I], x))
            }

            #[inline(always)]
            fn fma(self, a: [float32x4_t; 4], b: [float32x4_t; 4], c: [float32x4_t; 4]) -> [float32x4_t; 4] {
                each!(I => vfmaq_f32(c[I], a[I], b[I]))
            }

            #[inline(always)]
            fn fma_splat(self, a: [float32x4_t; 4], x: f32, c: [float32x4_t; 4]) -> [float32x4_t; 4] {
                each!(I => vfmaq_n_f32(c[I], a[I], x))
            }

            #[inline(always)]
            unsafe fn quantize(self, x: *const f32, to: *mut i8) -> (f32, i32) {
                // SAFETY: the caller's promise.
                unsafe { quantize_plainly(x, to) }
            }
        }
    };
}

/// # Safety
/// The CPU has the dot product extension.
#[inline(always)]
unsafe fn sdot(sums: int32x4_t, codes: int8x16_t, quad: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: the caller's promise; the instruction reads and writes registers only.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {s:v}.4s, {c:v}.16b, {q:v}.16b",
            s = inout(vreg) sums,
            c = in(vreg) codes,
            q = in(vreg) quad,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn widened(sums: int32x4_t, codes: int8x16_t, quad: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's promise. A product is at most 128 * 127, so a pair of them, added at 32 bits, is exact.
    unsafe {
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(codes), vget_low_s8(quad)));
        let high = vpaddlq_s16(vmull_high_s8(codes, quad));
        vaddq_s32(sums, vpaddq_s32(low, high))
    }
}

impl_dot!(NeonDot, "neon,dotprod", |unit: NeonDot| unit.0, sdot);
impl_dot!(Neon, "neon", |unit: Neon| unit, widened);

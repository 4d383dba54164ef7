//! [`Dot`] on NEON: sixteen rows are four registers. With the dot product extension a product of quads is one instruction
//! per register; without, five.
//!
//! With the matrix extension (i8mm), tiles of many rows take `smmla`: two rows of weights times two of activations, eight values
//! of each, 32 products per instruction where `sdot` makes 16. The packed layout is the same. Two quads are interleaved when
//! a block is opened for the tiles, which is done once for all rows of activations:
//!
//! ```text
//! packed, opened for sdot    quad 0 of rows 0 1 2 3 | quad 0 of rows 4 .. 7 | .. | quad 1 of rows 0 1 2 3 | ..
//! opened for smmla           row 0: quads 0 1, row 1: quads 0 1 | row 2, row 3 | .. | row 14, row 15
//! ```
//!
//! Counted in vector instructions for four rows times sixteen, per block: 64 products, 8 to interleave activations and 16 to sort
//! sums, against 128 products and 32 broadcasts. Few rows, which wait for memory, keep `sdot`.

use std::arch::aarch64::*;
use std::arch::asm;

use half::f16;

use super::Simd;
use super::dot::{Dot, DotPiece, GROUP, quantize_plainly};
use super::neon::Neon;

/// Proof that the CPU has the dot product extension as well; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeonDot(pub(in super::super) Neon);

/// Proof that the CPU has the matrix extension besides; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct NeonI8mm(pub(in super::super) NeonDot);

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

/// The units differ in the product, and in `more`: methods of their own.
macro_rules! impl_dot {
    ($unit:ty, $features:literal, $float:expr, $dot:expr, { $($more:item)* }) => {
        impl Dot for $unit {
            type Float = Neon;
            type Weights = [int8x16_t; 4];
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
            unsafe fn store(self, p: *mut u8, weights: [int8x16_t; 4]) {
                for (i, weights) in weights.into_iter().enumerate() {
                    // SAFETY: the caller promised 64 bytes.
                    unsafe { vst1q_s8(p.add(16 * i).cast(), weights) };
                }
            }

            #[inline(always)]
            fn bytes(self, weights: [int8x16_t; 4]) -> [int8x16_t; 4] {
                weights
            }

            #[inline(always)]
            fn low(self, weights: [int8x16_t; 4]) -> [int8x16_t; 4] {
                each!(I => vandq_s8(weights[I], vdupq_n_s8(15)))
            }

            #[inline(always)]
            fn high(self, weights: [int8x16_t; 4]) -> [int8x16_t; 4] {
                each!(I => vreinterpretq_s8_u8(vshrq_n_u8::<4>(vreinterpretq_u8_s8(weights[I]))))
            }

            #[inline(always)]
            fn two(self, weights: [int8x16_t; 4], i: u32) -> [int8x16_t; 4] {
                each!(I => {
                    let moved = vshlq_u8(vreinterpretq_u8_s8(weights[I]), vdupq_n_s8(-2 * i as i8));
                    vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8(3)))
                })
            }

            #[inline(always)]
            fn three(self, lower: [int8x16_t; 4], upper: [int8x16_t; 4], i: u32) -> [int8x16_t; 4] {
                each!(I => {
                    let two = vshlq_u8(vreinterpretq_u8_s8(lower[I]), vdupq_n_s8(-2 * (i as i8 % 4)));
                    let third = vshlq_u8(vreinterpretq_u8_s8(upper[I]), vdupq_n_s8(2 - i as i8));
                    let two = vandq_u8(two, vdupq_n_u8(3));
                    vreinterpretq_s8_u8(vorrq_u8(two, vandq_u8(third, vdupq_n_u8(4))))
                })
            }

            #[inline(always)]
            fn six(self, lower: [int8x16_t; 4], upper: [int8x16_t; 4], i: u32) -> [int8x16_t; 4] {
                each!(I => {
                    let moved = vshlq_u8(vreinterpretq_u8_s8(upper[I]), vdupq_n_s8(4 - 2 * i as i8));
                    vorrq_s8(lower[I], vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8(0x30))))
                })
            }

            #[inline(always)]
            fn five(self, lower: [int8x16_t; 4], upper: [int8x16_t; 4], i: u32) -> [int8x16_t; 4] {
                each!(I => {
                    let moved = vshlq_u8(vreinterpretq_u8_s8(upper[I]), vdupq_n_s8(4 - i as i8));
                    vorrq_s8(lower[I], vreinterpretq_s8_u8(vandq_u8(moved, vdupq_n_u8(0x10))))
                })
            }

            #[inline(always)]
            fn levels(self, numbers: [int8x16_t; 4], levels: &[i8; 16]) -> [int8x16_t; 4] {
                each!(I => vqtbl1q_s8(vld1q_s8(levels.as_ptr()), vreinterpretq_u8_s8(numbers[I])))
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
            fn dot(self, sums: [int32x4_t; 4], weights: [int8x16_t; 4], quad: int8x16_t) -> [int32x4_t; 4] {
                each!(I => $dot(sums[I], weights[I], quad))
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

            $($more)*
        }
    };
}

/// # Safety
/// The CPU has the dot product extension.
#[inline(always)]
unsafe fn sdot(sums: int32x4_t, weights: int8x16_t, quad: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // SAFETY: the caller's promise; the instruction reads and writes registers only.
    unsafe {
        asm!(
            ".arch_extension dotprod",
            "sdot {s:v}.4s, {c:v}.16b, {q:v}.16b",
            s = inout(vreg) sums,
            c = in(vreg) weights,
            q = in(vreg) quad,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn widened(sums: int32x4_t, weights: int8x16_t, quad: int8x16_t) -> int32x4_t {
    // SAFETY: the caller's promise. A product is at most 128 * 127, so a pair of them, added at 32 bits, is exact.
    unsafe {
        let low = vpaddlq_s16(vmull_s8(vget_low_s8(weights), vget_low_s8(quad)));
        let high = vpaddlq_s16(vmull_high_s8(weights, quad));
        vaddq_s32(sums, vpaddq_s32(low, high))
    }
}

/// Two rows of weights times two rows of activations: `[w0 x0, w0 x1, w1 x0, w1 x1]`.
///
/// # Safety
/// The CPU has the matrix extension.
#[inline(always)]
unsafe fn smmla(sums: int32x4_t, weights: int8x16_t, acts: int8x16_t) -> int32x4_t {
    let mut sums = sums;
    // Not `pure`, as `sdot` is: products then stay in order, each next to its load. Moved about, they run out of registers.
    // SAFETY: the caller's promise; the instruction reads and writes registers only.
    unsafe {
        asm!(
            ".arch_extension i8mm",
            "smmla {s:v}.4s, {c:v}.16b, {x:v}.16b",
            s = inout(vreg) sums,
            c = in(vreg) weights,
            x = in(vreg) acts,
            options(nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Of two registers with quads of four rows: both quads of rows 0 and 1, both quads of rows 2 and 3.
///
/// # Safety
/// The CPU has NEON.
#[inline(always)]
unsafe fn interleaved(first: int8x16_t, second: int8x16_t) -> [int8x16_t; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (vreinterpretq_s32_s8(first), vreinterpretq_s32_s8(second));
        [vreinterpretq_s8_s32(vzip1q_s32(a, b)), vreinterpretq_s8_s32(vzip2q_s32(a, b))]
    }
}

impl_dot!(Neon, "neon", |unit: Neon| unit, widened, {});
impl_dot!(NeonDot, "neon,dotprod", |unit: NeonDot| unit.0, sdot, {});
impl_dot!(NeonI8mm, "neon,dotprod,i8mm", |unit: NeonI8mm| unit.0.0, sdot, {
    #[inline(always)]
    unsafe fn store_opened(self, p: *mut u8, first: [int8x16_t; 4], second: [int8x16_t; 4]) {
        for (i, (first, second)) in first.into_iter().zip(second).enumerate() {
            // SAFETY: the caller promised 128 bytes.
            unsafe {
                let [a, b] = interleaved(first, second);
                vst1q_s8(p.add(32 * i).cast(), a);
                vst1q_s8(p.add(32 * i + 16).cast(), b);
            }
        }
    }

    #[inline(always)]
    unsafe fn products<const R: usize, const G: usize, const FEW: usize>(
        self,
        weights: *const u8,
        stride: usize,
        acts: *const i8,
        quads: usize,
        starts: *const i32,
    ) -> [[[int32x4_t; 4]; G]; R] {
        assert!(R == Self::TILE.0, "a tile has {} rows, not {R}", Self::TILE.0);
        // SAFETY: the caller's promise; the rows are four.
        unsafe {
            // Of rows 2p and 2p + 1: for each two rows of a group, four sums.
            let mut squares: [[[int32x4_t; GROUP / 2]; G]; 2] = std::array::from_fn(|p| {
                let starts = vld1_s32(starts.add(2 * p));
                [[vcombine_s32(starts, starts); GROUP / 2]; G]
            });
            for pair in 0..quads / 2 {
                let x = acts.add(32 * pair);
                let x = interleaved(vld1q_s8(x), vld1q_s8(x.add(16)));
                for g in 0..G {
                    let w = weights.add(g * stride + 128 * pair);
                    for i in 0..GROUP / 2 {
                        let w = vld1q_s8(w.add(16 * i).cast());
                        for (squares, x) in squares.iter_mut().zip(x) {
                            squares[g][i] = smmla(squares[g][i], w, x);
                        }
                    }
                }
            }
            let mut sums = [[self.sums(0); G]; R];
            for (p, squares) in squares.into_iter().enumerate() {
                for (g, squares) in squares.into_iter().enumerate() {
                    for (i, [a, b]) in squares.as_chunks::<2>().0.iter().enumerate() {
                        sums[2 * p][g][i] = vuzp1q_s32(*a, *b);
                        sums[2 * p + 1][g][i] = vuzp2q_s32(*a, *b);
                    }
                }
            }
            sums
        }
    }
});

//! [`Dot`] for any CPU: loops over arrays.

use half::f16;

use super::Simd;
use super::dot::{Dot, DotPiece, GROUP, quantize_plainly};
use super::plain::Plain;

type Group = [f32; GROUP];

impl Dot for Plain {
    type Float = Self;
    type Weights = [[i8; 4]; GROUP];
    type Sums = [i32; GROUP];
    type Group = Group;
    type Quad = [i8; 4];
    const BYTE_OFFSET: i32 = 0;
    const TILE: (usize, usize) = (2, 1);

    #[inline(always)]
    unsafe fn outline<P: DotPiece>(self, piece: P) {
        #[inline(never)]
        unsafe fn run<P: DotPiece>(d: Plain, piece: P) {
            // SAFETY: the caller's promise is the piece's.
            unsafe { piece.run(d) }
        }
        // SAFETY: as above.
        unsafe { run(self, piece) }
    }

    #[inline(always)]
    fn float(self) -> Self {
        self
    }

    #[inline(always)]
    unsafe fn load(self, p: *const u8) -> Self::Weights {
        // SAFETY: the caller promised 64 bytes.
        unsafe { p.cast::<Self::Weights>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut u8, weights: Self::Weights) {
        // SAFETY: the caller promised 64 bytes.
        unsafe { p.cast::<Self::Weights>().write_unaligned(weights) }
    }

    #[inline(always)]
    fn bytes(self, weights: Self::Weights) -> Self::Weights {
        weights
    }

    #[inline(always)]
    fn low(self, weights: Self::Weights) -> Self::Weights {
        weights.map(|c| c.map(|c| c & 15))
    }

    #[inline(always)]
    fn high(self, weights: Self::Weights) -> Self::Weights {
        weights.map(|c| c.map(|c| (c.cast_unsigned() >> 4).cast_signed()))
    }

    #[inline(always)]
    unsafe fn quad(self, p: *const i8) -> [i8; 4] {
        // SAFETY: the caller promised 4 bytes.
        unsafe { p.cast::<[i8; 4]>().read_unaligned() }
    }

    #[inline(always)]
    fn sums(self, start: i32) -> Self::Sums {
        [start; GROUP]
    }

    /// Not inlined: it is long, and would be copied into every loop.
    #[inline(never)]
    fn dot(self, sums: Self::Sums, weights: Self::Weights, quad: [i8; 4]) -> Self::Sums {
        std::array::from_fn(|row| {
            sums[row] + (0..4).map(|i| i32::from(weights[row][i]) * i32::from(quad[i])).sum::<i32>()
        })
    }

    #[inline(always)]
    fn to_float(self, sums: Self::Sums) -> Group {
        sums.map(|s| s as f32)
    }

    #[inline(always)]
    fn zero(self) -> Group {
        [0.0; GROUP]
    }

    #[inline(always)]
    unsafe fn load_group(self, p: *const f32) -> Group {
        // SAFETY: the caller promised 16 numbers.
        unsafe { p.cast::<Group>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_group_f16(self, p: *const f16) -> Group {
        // SAFETY: the caller promised 16 numbers.
        let parts: [[f32; 4]; 4] = std::array::from_fn(|i| unsafe { self.load_f16(p.add(4 * i)) });
        std::array::from_fn(|i| parts[i / 4][i % 4])
    }

    #[inline(always)]
    unsafe fn store_group(self, p: *mut f32, group: Group) {
        // SAFETY: the caller promised 16 numbers.
        unsafe { p.cast::<Group>().write_unaligned(group) }
    }

    #[inline(always)]
    fn mul(self, a: Group, b: Group) -> Group {
        std::array::from_fn(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn mul_splat(self, a: Group, x: f32) -> Group {
        a.map(|a| a * x)
    }

    #[inline(always)]
    fn fma(self, a: Group, b: Group, c: Group) -> Group {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn fma_splat(self, a: Group, x: f32, c: Group) -> Group {
        std::array::from_fn(|i| a[i] * x + c[i])
    }

    #[inline(always)]
    unsafe fn quantize(self, x: *const f32, to: *mut i8) -> (f32, i32) {
        // SAFETY: the caller's promise.
        unsafe { quantize_plainly(x, to) }
    }
}

//! The path for any CPU: four numbers in an array, which the compiler vectorises as far as the target allows.

use half::{bf16, f16};

use super::{Piece, Simd, Tile, TilePiece};

/// No special instructions needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain;

const LANES: usize = 4;
type V = [f32; LANES];

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    std::array::from_fn(|i| f(a[i], b[i]))
}

/// Not inlined: conversion is long without instructions for it, and it would be copied into every loop.
#[inline(never)]
fn widen(halves: [f16; LANES]) -> V {
    halves.map(|half| {
        let (sign, rest) = (u32::from(half.to_bits() & 0x8000) << 16, u32::from(half.to_bits() & 0x7FFF) << 13);
        // The exponent moves from a bias of 15 to one of 127, by a product, which makes subnormal halves normal as well.
        let number = (f32::from_bits(rest) * f32::from_bits((254 - 15) << 23)).to_bits();
        // All ones stay all ones: infinities and what is no number.
        let special = if rest >= 0x7C00 << 13 { 0x7F80_0000 } else { 0 };
        f32::from_bits(number | special | sign)
    })
}

#[inline(never)]
fn narrow(v: V) -> [f16; LANES] {
    v.map(f16::from_f32)
}

impl Simd for Plain {
    type V = V;
    const LANES: usize = LANES;
    const TILE_ROWS: usize = 4;
    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn outline<P: Piece>(self, piece: P) {
        #[inline(never)]
        unsafe fn run<P: Piece>(s: Plain, piece: P) {
            // SAFETY: the caller's promise is the piece's.
            unsafe { piece.run(s) }
        }
        // SAFETY: as above.
        unsafe { run(self, piece) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> V {
        [x; LANES]
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> V {
        // SAFETY: the caller promised `LANES` numbers; no alignment is assumed.
        unsafe { p.cast::<V>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: V) {
        // SAFETY: as `load`, writable.
        unsafe { p.cast::<V>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> V {
        // SAFETY: the caller promised `LANES` numbers; no alignment is assumed.
        widen(unsafe { p.cast::<[f16; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: V) {
        // SAFETY: as `load_f16`, writable.
        unsafe { p.cast::<[f16; LANES]>().write_unaligned(narrow(v)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> V {
        // SAFETY: the caller promised `LANES` numbers; no alignment is assumed.
        unsafe { p.cast::<[bf16; LANES]>().read_unaligned() }.map(bf16::to_f32)
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> V {
        // SAFETY: the caller promised `LANES` bytes.
        unsafe { p.cast::<[i8; LANES]>().read() }.map(f32::from)
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> V {
        // SAFETY: the caller promised `LANES` bytes.
        unsafe { p.cast::<[u8; LANES]>().read() }.map(f32::from)
    }

    #[inline(always)]
    fn add(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x + y)
    }

    #[inline(always)]
    fn sub(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x - y)
    }

    #[inline(always)]
    fn mul(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x * y)
    }

    #[inline(always)]
    fn div(self, a: V, b: V) -> V {
        zip(a, b, |x, y| x / y)
    }

    #[inline(always)]
    fn min(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x < y { x } else { y })
    }

    #[inline(always)]
    fn max(self, a: V, b: V) -> V {
        zip(a, b, |x, y| if x > y { x } else { y })
    }

    /// Rounds twice: a fused one is a slow library call where the CPU lacks it.
    #[inline(always)]
    fn fma(self, a: V, b: V, c: V) -> V {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn round(self, a: V) -> V {
        // Adding 1.5 * 2^23 pushes the fraction out of the mantissa (for |x| < 2^22, all that is asked here).
        const SHIFT: f32 = 12_582_912.0;
        a.map(|x| (x + SHIFT) - SHIFT)
    }

    #[inline(always)]
    fn scale(self, v: V, n: V) -> V {
        zip(v, n, |x, n| x * f32::from_bits(((n as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    fn zero_below(self, v: V, x: V, limit: V) -> V {
        std::array::from_fn(|i| if x[i] < limit[i] { 0.0 } else { v[i] })
    }

    #[inline(always)]
    fn sum(self, v: V) -> f32 {
        (v[0] + v[2]) + (v[1] + v[3])
    }

    #[inline(always)]
    fn max_lane(self, v: V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    /// As integers, the bits of sizes have an order in which NaN is the largest.
    #[inline(always)]
    fn max_size(self, a: V, b: V) -> V {
        zip(a, b, |x, y| f32::from_bits(x.abs().to_bits().max(y.abs().to_bits())))
    }

    #[inline(always)]
    fn max_size_lane(self, sizes: V) -> f32 {
        f32::from_bits(sizes.into_iter().map(f32::to_bits).fold(0, u32::max))
    }

    #[inline(always)]
    unsafe fn tile(self, t: Tile, vectors: usize, add: bool) {
        // SAFETY: the caller's promise is the piece's.
        unsafe {
            match vectors {
                1 => self.outline(TilePiece::<4, 1>(t, add)),
                _ => self.outline(TilePiece::<4, 2>(t, add)),
            }
        }
    }
}

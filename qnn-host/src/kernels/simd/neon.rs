//! NEON: four lanes, thirty-two registers. Half precision is converted by instructions of the base architecture.

use std::arch::aarch64::*;
use std::arch::asm;

use half::{bf16, f16};

use super::{Piece, Simd, Tile, TilePiece};

/// Proof that the CPU has NEON; made only by detection in [`super::super::isa`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(pub(in super::super) ());

/// An intrinsic without pointers.
macro_rules! op {
    ($e:expr) => {{
        // SAFETY: `self` proves that the CPU has the instructions.
        unsafe { $e }
    }};
}

impl Simd for Neon {
    type V = float32x4_t;
    const LANES: usize = 4;
    const TILE_ROWS: usize = 12;
    const MANY_REGISTERS: bool = true;

    #[inline(always)]
    unsafe fn outline<P: Piece>(self, piece: P) {
        #[inline(never)]
        unsafe fn run<P: Piece>(s: Neon, piece: P) {
            // SAFETY: the caller's promise is the piece's.
            unsafe { piece.run(s) }
        }
        // SAFETY: as above.
        unsafe { run(self, piece) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> float32x4_t {
        op!(vdupq_n_f32(x))
    }

    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> float32x4_t {
        // SAFETY: the caller promised 4 numbers; a load of bytes needs no alignment.
        unsafe { vreinterpretq_f32_u8(vld1q_u8(p.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32, v: float32x4_t) {
        // SAFETY: the caller promised space for 4 numbers.
        unsafe { vst1q_u8(p.cast(), vreinterpretq_u8_f32(v)) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, p: *const f16) -> float32x4_t {
        let wide: float32x4_t;
        // SAFETY: the caller promised 4 numbers of 2 bytes; the instruction widens registers and touches no memory.
        unsafe {
            let halves = vld1_u8(p.cast());
            asm!("fcvtl {w:v}.4s, {h:v}.4h", w = out(vreg) wide, h = in(vreg) halves, options(pure, nomem, nostack));
        }
        wide
    }

    #[inline(always)]
    unsafe fn store_f16(self, p: *mut f16, v: float32x4_t) {
        let halves: uint8x8_t;
        // SAFETY: the instruction narrows registers and touches no memory; the caller promised space for 4 numbers of 2 bytes.
        unsafe {
            asm!("fcvtn {h:v}.4h, {w:v}.4s", h = out(vreg) halves, w = in(vreg) v, options(pure, nomem, nostack));
            vst1_u8(p.cast(), halves);
        }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, p: *const bf16) -> float32x4_t {
        // SAFETY: the caller promised 4 numbers of 2 bytes. A bf16 is the upper half of an f32.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(p.cast())))) }
    }

    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> float32x4_t {
        // SAFETY: the caller promised 4 bytes.
        let four = unsafe { p.cast::<u32>().read_unaligned() };
        // SAFETY: NEON is there, as holding the value proves.
        unsafe { vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(u64::from(four)))))) }
    }

    #[inline(always)]
    unsafe fn load_u8(self, p: *const u8) -> float32x4_t {
        // SAFETY: the caller promised 4 bytes.
        let four = unsafe { p.cast::<u32>().read_unaligned() };
        // SAFETY: NEON is there, as holding the value proves.
        unsafe { vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(u64::from(four)))))) }
    }

    #[inline(always)]
    unsafe fn store_u8(self, p: *mut u8, v: float32x4_t) {
        let halves = op!(vmovn_u32(vcvtq_u32_f32(v)));
        let bytes = op!(vmovn_u16(vcombine_u16(halves, halves)));
        let four = op!(vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)));
        // SAFETY: the caller promised space for 4 bytes.
        unsafe { p.cast::<u32>().write_unaligned(four) }
    }

    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vaddq_f32(a, b))
    }

    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vsubq_f32(a, b))
    }

    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vmulq_f32(a, b))
    }

    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vdivq_f32(a, b))
    }

    #[inline(always)]
    fn min(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vbslq_f32(vcltq_f32(a, b), a, b))
    }

    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!(vbslq_f32(vcgtq_f32(a, b), a, b))
    }

    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        op!(vfmaq_f32(c, a, b))
    }

    #[inline(always)]
    fn round(self, a: float32x4_t) -> float32x4_t {
        op!(vrndnq_f32(a))
    }

    #[inline(always)]
    fn round_away(self, a: float32x4_t) -> float32x4_t {
        op!(vrndaq_f32(a))
    }

    #[inline(always)]
    fn scale(self, v: float32x4_t, n: float32x4_t) -> float32x4_t {
        op!({
            let exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vmulq_f32(v, vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent)))
        })
    }

    #[inline(always)]
    fn zero_below(self, v: float32x4_t, x: float32x4_t, limit: float32x4_t) -> float32x4_t {
        op!(vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x, limit))))
    }

    #[inline(always)]
    fn sum(self, v: float32x4_t) -> f32 {
        op!(vaddvq_f32(v))
    }

    #[inline(always)]
    fn max_lane(self, v: float32x4_t) -> f32 {
        op!(vmaxvq_f32(v))
    }

    /// As integers, the bits of sizes have an order in which NaN is the largest.
    #[inline(always)]
    fn max_size(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        op!({
            let [a, b] = [a, b].map(|x| vreinterpretq_s32_f32(vabsq_f32(x)));
            vreinterpretq_f32_s32(vmaxq_s32(a, b))
        })
    }

    #[inline(always)]
    fn max_size_lane(self, sizes: float32x4_t) -> f32 {
        f32::from_bits(op!(vmaxvq_s32(vreinterpretq_s32_f32(sizes))).cast_unsigned())
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
}

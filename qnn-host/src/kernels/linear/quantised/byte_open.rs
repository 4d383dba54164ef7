//! The kinds of weights that are multiplied in tiles of bytes, and what opens them.

use std::arch::x86_64::*;
use std::hint::assert_unchecked;

use super::super::super::packed::{Bits, Packed, Packing, Scales};
use super::super::super::simd::avx512_dot::Vnni512;
use super::super::super::simd::dot::{BLOCK, Dot};
use super::tiled::{Form, OPEN_BLOCKS, open_group};

/// What is known of weights when a kernel is compiled.
pub(super) trait Kind {
    const PACKING: Packing;
    /// Whether as many minima are taken off as there are scales.
    const LESS: bool;
    /// Whether blocks have scales: else rows have.
    const BLOCK_SCALES: bool = matches!(Self::PACKING.scales, Scales::Block);
    /// Scales of a block, 1 or 2.
    const PARTS: usize = if Self::PACKING.by_halves() { 2 } else { 1 };
    /// Cache lines of two blocks, about.
    const LINES: usize = (Self::PACKING.stretch_bytes() * 2 * BLOCK / Self::PACKING.stretch_cols()).div_ceil(64);
}

/// What is opened while a panel is multiplied: an even number of blocks of a group of weights.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    pub(super) weights: Packed<'a>,
    pub(super) group: usize,
    /// The first block, which begins a stretch.
    pub(super) block0: usize,
    pub(super) blocks: usize,
    /// Room for opened blocks, and for their scales.
    pub(super) opened: *mut u8,
    pub(super) scales: *mut f32,
}

impl Next<'_> {
    /// Opens blocks `first` (an even one) and `first + 1`, if there are such.
    ///
    /// # Safety
    /// The fields are what they say, of weights of kind `K`; the CPU has AVX-512.
    #[inline(always)]
    pub(super) unsafe fn open<K: Kind>(&self, d: Vnni512, first: usize) {
        if first < self.blocks {
            let (w, to, scales) = (self.weights, self.opened, self.scales);
            // SAFETY: the caller's promise: there are at most `OPEN_BLOCKS`, an even number.
            unsafe {
                assert_unchecked(first < OPEN_BLOCKS);
                open_group(
                    d,
                    Signed::of(K::PACKING.bits),
                    w,
                    K::PACKING.bits,
                    self.group,
                    self.block0,
                    first..first + 2,
                    to,
                    scales,
                );
            }
        }
    }
}

/// As signed bytes: what was added to weights, so that they are not negative, is taken off.
#[derive(Clone, Copy)]
struct Signed(__m512i);

impl Signed {
    #[target_feature(enable = "avx512f")]
    fn of(bits: Bits) -> Self {
        Self(_mm512_set1_epi8(match bits {
            Bits::UTwo | Bits::UFour | Bits::UFive => 0,
            Bits::Three => 4,
            Bits::Four => 8,
            Bits::Five => 16,
            Bits::Six => 32,
            Bits::Eight | Bits::Levels | Bits::Nonlinear | Bits::FloatFour => i8::MIN,
            Bits::Minima | Bits::HalfMinima => unreachable!("minima are no weights"),
        }))
    }
}

impl Form<Vnni512> for Signed {
    #[inline(always)]
    unsafe fn keep(self, d: Vnni512, to: *mut u8, first: __m512i, second: __m512i) {
        // SAFETY: the caller promised 128 bytes; `d` proves that the CPU has the instructions.
        unsafe {
            d.store(to, _mm512_sub_epi8(first, self.0));
            d.store(to.add(64), _mm512_sub_epi8(second, self.0));
        }
    }
}

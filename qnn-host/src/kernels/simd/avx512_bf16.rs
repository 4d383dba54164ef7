//! Products of bf16 on AVX-512 vectors (`vdpbf16ps`), on the operands that AMX has tiles for.
//!
//! An instruction adds to 16 sums the products of two numbers each: twice the products of a multiply-add of f32, half those of
//! `vpdpbusd`. So it is used for weights of 16 bits, and rows of bytes, where there is no AMX; weights in blocks have products of bytes.
//!
//! A pair of panels with a pair of groups (32 x 32 sums) is worked on 8 rows at a time: 16 registers of sums, two of weights, and a
//! pair of numbers of a row in all lanes. Products are added in f32, in the order of `k`; subnormal numbers count as 0.

use std::arch::x86_64::*;
use std::sync::OnceLock;

use super::super::switch::asked;
use super::matrix::{ASKED_LINES, Product, TILE_BYTES, TILE_K, TILE_ROWS};

/// The variable that turns the unit off, and AMX with it.
const SWITCH: &str = "GENIE_BF16";
/// Rows of activations whose sums are in registers.
const ROWS: usize = 8;
/// Bytes of a line of a tile: a row of activations, or a pair along `k` of 16 outputs.
const LINE: usize = 64;
/// Bytes of a step along `k`: two tiles.
const STEP: usize = 2 * TILE_BYTES;

/// Proof that the CPU has AVX-512 with products of bf16, which may be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512Bf16 {
    /// Whether weights in blocks are opened for it.
    takes_blocks: bool,
}

impl Avx512Bf16 {
    /// A short name for logs and test messages.
    pub(crate) const NAME: &str = "avx512bf16";

    /// The unit, if there is one that may be used; `GENIE_BF16=0` says that it may not.
    pub(crate) fn detect() -> Option<Self> {
        static FOUND: OnceLock<bool> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            asked(SWITCH) != Some(false)
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bf16")
        });
        found.then_some(Self { takes_blocks: false })
    }

    /// Whether weights in blocks are opened for it.
    pub(crate) fn takes_blocks(self) -> bool {
        self.takes_blocks
    }

    /// The same for weights in blocks: so tests reach what AMX shares with it on CPUs without AMX.
    #[cfg(test)]
    pub(crate) fn with_blocks(self) -> Self {
        Self { takes_blocks: true }
    }

    /// As AMX's function of this name.
    ///
    /// # Safety
    /// All operands are readable, sums writable, as [`Product`] describes them.
    pub(crate) unsafe fn multiply(self, panels: usize, groups: usize, p: Product) {
        // SAFETY: the token proves that the CPU has the features; the caller's promise.
        unsafe {
            match groups {
                2 => of_groups::<2>(panels, p),
                _ => of_groups::<1>(panels, p),
            }
        }
    }

    /// Multiplies in registers, as [`Self::multiply`] combines them, and returns how many operations that were, two for each
    /// product, and a sum of the results.
    pub(crate) fn rounds(self, rounds: usize) -> (u64, f32) {
        // SAFETY: the token proves that the CPU has the features.
        let sum = unsafe { in_registers(rounds.max(1)) };
        ((rounds.max(1) * ROWS * 2 * TILE_ROWS * 4) as u64, sum)
    }
}

/// # Safety
/// As [`Avx512Bf16::multiply`], with `G` groups; the CPU has the features.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn of_groups<const G: usize>(panels: usize, p: Product) {
    for line in 0..p.steps * ASKED_LINES {
        _mm_prefetch::<_MM_HINT_ET0>(p.next_sums.cast::<i8>().wrapping_add(LINE * line));
    }
    for half in 0..panels * TILE_ROWS / ROWS {
        let (panel, row) = (half * ROWS / TILE_ROWS, half * ROWS % TILE_ROWS);
        // SAFETY: the panel and its sums exist.
        unsafe {
            let acts = p.acts.add(panel * TILE_BYTES + row * LINE);
            let sums: [*mut f32; G] = std::array::from_fn(|g| p.sums[2 * panel + g].byte_add(row * p.stride));
            rows::<G>(acts, p, sums);
        }
    }
}

/// `ROWS` rows, from `acts` on, with `G` groups.
///
/// # Safety
/// As [`of_groups`]; `sums` are where the first row's are.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn rows<const G: usize>(acts: *const u8, p: Product, sums: [*mut f32; G]) {
    let mut c = [[_mm512_setzero_ps(); G]; ROWS];
    // SAFETY: a step has two tiles of either operand, of 16 lines each; sums of these rows are there.
    unsafe {
        if p.add {
            for (row, c) in c.iter_mut().enumerate() {
                for (c, sums) in c.iter_mut().zip(sums) {
                    *c = _mm512_loadu_ps(sums.byte_add(row * p.stride));
                }
            }
        }
        for step in 0..p.steps {
            let (acts, weights) = (acts.add(step * STEP), p.weights.add(step * STEP));
            for pair in 0..TILE_K / 2 {
                let w: [__m512bh; G] = std::array::from_fn(|g| {
                    std::mem::transmute(_mm512_loadu_si512(weights.add(g * TILE_BYTES + pair * LINE).cast()))
                });
                for (row, c) in c.iter_mut().enumerate() {
                    let two = acts.add(row * LINE + 4 * pair).cast::<i32>().read_unaligned();
                    let two: __m512bh = std::mem::transmute(_mm512_set1_epi32(two));
                    for (c, w) in c.iter_mut().zip(w) {
                        *c = _mm512_dpbf16_ps(*c, two, w);
                    }
                }
            }
        }
        for (row, c) in c.into_iter().enumerate() {
            for (c, sums) in c.into_iter().zip(sums) {
                _mm512_storeu_ps(sums.byte_add(row * p.stride), c);
            }
        }
    }
}

/// `rounds` times a product for each register of sums, and the sum of them all.
///
/// # Safety
/// The CPU has the features.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn in_registers(rounds: usize) -> f32 {
    let mut c = [[_mm512_setzero_ps(); 2]; ROWS];
    // 0.5 and 1: sums of one sign that grow slowly.
    let w = [0x3f00_3f00, 0x3f80_3f80].map(std::hint::black_box);
    for _ in 0..rounds {
        // SAFETY: types of the same 64 bytes.
        let [x, y] = w.map(|bits| unsafe { std::mem::transmute::<__m512i, __m512bh>(_mm512_set1_epi32(bits)) });
        for row in &mut c {
            for c in row {
                *c = _mm512_dpbf16_ps(*c, x, y);
            }
        }
    }
    c.iter().flatten().map(|&c| _mm512_reduce_add_ps(c)).sum()
}

/// Two numbers of each of 16 columns, side by side and rounded to bf16: a row of the second operand.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(crate) fn pairs(even: __m512, odd: __m512) -> __m512i {
    const fn order() -> [u16; 32] {
        let mut order = [0; 32];
        let mut i = 0;
        while i < 16 {
            order[2 * i] = i as u16;
            order[2 * i + 1] = i as u16 + 16;
            i += 1;
        }
        order
    }
    static ORDER: [u16; 32] = order();
    // SAFETY: 64 bytes are read; the two types are of the same 64 bytes.
    unsafe {
        let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(ORDER.as_ptr().cast()), both)
    }
}

//! A panel's products: tiles of exact sums, and vectors that scale them and add them up.
//!
//! Products are begun two ahead of the sums that are added, from one panel to the next, and the next weights are opened between: each alone leaves
//! a part of the core without work.

use std::arch::asm;
use std::arch::x86_64::*;
use std::hint::assert_unchecked;

use super::super::super::simd::amx::ByteTiles;
use super::super::super::simd::avx512_dot::Vnni512;
use super::super::super::simd::dot::{BLOCK, GROUP};
use super::super::finish::MAX_CHUNK;
use super::acts::{Record, less_of_half};
use super::byte_open::{Kind, Next};
use super::tiled::{LESS_AT, OPEN_BLOCKS, OPEN_BYTES};

/// Bytes of a tile of sums.
pub(super) const SUMS_BYTES: usize = 1024;

/// What is multiplied: some blocks of a panel of `R` rows and of a group.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    /// The record of the first block.
    pub(super) acts: *const u8,
    /// Opened weights, signed.
    pub(super) opened: *const u8,
}

impl Operands {
    /// Begins the product of part `at` (a block, or half of one, of weights of kind `K`) in register set `SET`.
    ///
    /// # Safety
    /// The part is there in both operands; tiles are shaped for `R` rows and the columns of a part.
    #[inline(always)]
    unsafe fn multiply<const SET: usize, const R: usize, K: Kind>(self, tiles: &ByteTiles, at: usize) {
        let (block, part) = (at / K::PARTS, at % K::PARTS);
        let acts = Record::at(self.acts, R, block).row(0).cast::<u8>().wrapping_add(part * (BLOCK / 2));
        let weights = self.opened.wrapping_add(block * OPEN_BYTES + part * (OPEN_BYTES / 2));
        // SAFETY: the caller's promise.
        unsafe { tiles.multiply::<SET>(acts, BLOCK, weights) };
    }

    /// Begins the first two products, and stores the first one: what [`panel_products`] finds from the panel before it.
    ///
    /// # Safety
    /// As [`Self::multiply`], for two parts; the sums are writable.
    #[inline(always)]
    pub(super) unsafe fn begin<const R: usize, K: Kind>(self, tiles: &ByteTiles, sums: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            self.multiply::<0, R, K>(tiles, 0);
            tiles.store::<0>(sums.cast());
            self.multiply::<1, R, K>(tiles, 1);
        }
    }
}

/// The operands of [`panel_products`].
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) operands: Operands,
    pub(super) scales: *const f32,
    pub(super) blocks: usize,
    /// What is multiplied behind this: its first two products are begun.
    pub(super) then: Operands,
    /// What the stream of weights asks for meanwhile, and how many lines.
    pub(super) ask: *const u8,
    pub(super) lines: usize,
    /// The panel's products, rows [`MAX_CHUNK`] apart, and whether they begin with these blocks: else they are added to.
    pub(super) to: *mut f32,
    pub(super) first: bool,
    /// Room for two tiles.
    pub(super) sums: *mut u8,
}

/// `all` and sixteen exact sums times the weights' scales (if blocks have scales) and that of `X`.
///
/// In the order that is written: the compiler would begin with all rows' scales, more than there are registers for.
///
/// # Safety
/// Sixteen sums, and the scale, are readable; the CPU has AVX-512.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn add_scaled<K: Kind>(mut all: __m512, sums: *const u8, scales: __m512, x: *const f32) -> __m512 {
    // What is left in the registers between: their type says how wide they are.
    let (_sum, _scale): (__m512, __m512);
    // SAFETY: the caller's promise.
    unsafe {
        if K::BLOCK_SCALES {
            asm!(
                "vcvtdq2ps {sum}, zmmword ptr [{sums}]",
                "vmulps {scale}, {scales}, dword ptr [{x}]{{1to16}}",
                "vfmadd231ps {all}, {sum}, {scale}",
                sums = in(reg) sums,
                x = in(reg) x,
                scales = in(zmm_reg) scales,
                sum = out(zmm_reg) _sum,
                scale = out(zmm_reg) _scale,
                all = inout(zmm_reg) all,
                options(nostack, readonly, preserves_flags),
            );
        } else {
            asm!(
                "vcvtdq2ps {sum}, zmmword ptr [{sums}]",
                "vfmadd231ps {all}, {sum}, dword ptr [{x}]{{1to16}}",
                sums = in(reg) sums,
                x = in(reg) x,
                sum = out(zmm_reg) _sum,
                all = inout(zmm_reg) all,
                options(nostack, readonly, preserves_flags),
            );
        }
    }
    all
}

/// The `R` rows of a panel times a group, added to the products. With each two blocks, two of `next`, of the same kind, are opened.
///
/// # Safety
/// The operands have the shapes of [`Tile`]; tiles are shaped for `R` rows and the columns of a part, and hold what [`Operands::begin`] began
/// (or another panel, whose `then` these are); the CPU has the features.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn panel_products<const R: usize, K: Kind>(d: Vnni512, tiles: &ByteTiles, t: Tile, next: Next<'_>) {
    let parts = t.blocks * K::PARTS;
    let sums_of = |set: usize| t.sums.wrapping_add(set * SUMS_BYTES);
    // SAFETY: the panel's products are there, and each part, of which there is an even number, exists in all operands. The first two of `then` do.
    unsafe {
        assert_unchecked(t.blocks <= OPEN_BLOCKS);
        let mut all: [__m512; R] =
            std::array::from_fn(
                |r| {
                    if t.first { _mm512_setzero_ps() } else { _mm512_loadu_ps(t.to.add(r * MAX_CHUNK)) }
                },
            );
        // A macro, as a function that is called twice may be left a call, and then all sums go to memory.
        macro_rules! add {
            ($at:expr, $set:literal) => {{
                let at = $at;
                let record = Record::at(t.operands.acts, R, at / K::PARTS);
                let sums = sums_of($set);
                let scales = _mm512_loadu_ps(t.scales.add(if K::BLOCK_SCALES { at * GROUP } else { 0 }));
                for (r, all) in all.iter_mut().enumerate() {
                    let x = record.scale(r);
                    *all = add_scaled::<K>(*all, sums.add(64 * r), scales, x);
                    if K::LESS {
                        let less = match K::PARTS {
                            2 => less_of_half(*x, *record.start_of_half(at % K::PARTS, r)),
                            _ => *record.less(r),
                        };
                        let taken = _mm512_loadu_ps(t.scales.add(K::PARTS * LESS_AT + at * GROUP));
                        *all = _mm512_fmadd_ps(taken, _mm512_set1_ps(less), *all);
                    }
                }
            }};
        }
        let (mut ask, mut due) = (t.ask, 0);
        for at in (0..parts).step_by(2) {
            // Evenly: many at once would keep the tiles' loads waiting.
            due += 2 * t.lines;
            while due >= parts {
                _mm_prefetch::<_MM_HINT_T1>(ask.cast());
                ask = ask.wrapping_add(64);
                due -= parts;
            }
            // Before what comes behind this panel is begun: that may be these two blocks.
            if at % (2 * K::PARTS) == 0 {
                next.open::<K>(d, at / K::PARTS);
            }
            // Without a branch: across one, the compiler keeps sums in memory.
            let (of, from) = if at + 2 < parts { (t.operands, at + 2) } else { (t.then, 0) };
            of.multiply::<0, R, K>(tiles, from);
            tiles.store::<1>(sums_of(1).cast());
            add!(at, 0);
            of.multiply::<1, R, K>(tiles, from + 1);
            tiles.store::<0>(sums_of(0).cast());
            add!(at + 1, 1);
        }
        for (r, all) in all.into_iter().enumerate() {
            _mm512_storeu_ps(t.to.add(r * MAX_CHUNK), all);
        }
    }
}

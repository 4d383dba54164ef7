//! A panel's products: tiles of exact sums, and vectors that scale them and add them up.

use std::arch::x86_64::*;

use super::super::super::simd::amx::ByteTiles;
use super::super::super::simd::dot::{BLOCK, GROUP};
use super::super::finish::MAX_CHUNK;
use super::acts::{Record, less_of_half};
use super::tiled::{LESS_AT, OPEN_BYTES};

/// Bytes of a tile of sums.
pub(super) const SUMS_BYTES: usize = 1024;

/// The operands of [`panel_products`].
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Opened weights of a group, signed.
    pub(super) opened: *const u8,
    pub(super) scales: *const f32,
    /// A panel, from its first block on.
    pub(super) acts: *const u8,
    pub(super) block0: usize,
    pub(super) blocks: usize,
    /// What the stream of weights asks for meanwhile, and how many lines.
    pub(super) ask: *const u8,
    pub(super) lines: usize,
    /// The panel's products, rows [`MAX_CHUNK`] apart: to add to, or to begin with the first block.
    pub(super) to: *mut f32,
    /// Room for two tiles.
    pub(super) sums: *mut u8,
}

/// The `R` rows of a panel times a group, added to the products. Blocks have `PARTS` scales per row, 1 or 2, and minima if `LESS`.
///
/// # Safety
/// The operands have the shapes of [`Tile`]; tiles are shaped for `R` rows and the columns of a part; the CPU has the features.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(super) unsafe fn panel_products<const R: usize, const BLOCK_SCALES: bool, const PARTS: usize, const LESS: bool>(
    tiles: &ByteTiles,
    t: Tile,
) {
    let parts = t.blocks * PARTS;
    let place = |at: usize| {
        let (block, part) = (at / PARTS, at % PARTS);
        let acts = Record::at(t.acts, R, t.block0 + block).row(0).cast::<u8>();
        (acts.wrapping_add(part * (BLOCK / 2)), t.opened.wrapping_add(block * OPEN_BYTES + part * (OPEN_BYTES / 2)))
    };
    let sums_of = |set: usize| t.sums.wrapping_add(set * SUMS_BYTES);
    // SAFETY: the panel's products are there, and each part, of which there is an even number, exists in all operands.
    unsafe {
        let mut all: [__m512; R] = std::array::from_fn(|r| {
            if t.block0 == 0 { _mm512_setzero_ps() } else { _mm512_loadu_ps(t.to.add(r * MAX_CHUNK)) }
        });
        let add = |all: &mut [__m512; R], at: usize, set: usize| {
            let record = Record::at(t.acts, R, t.block0 + at / PARTS);
            let sums = sums_of(set);
            let scales = _mm512_loadu_ps(t.scales.add(if BLOCK_SCALES { at * GROUP } else { 0 }));
            for (r, all) in all.iter_mut().enumerate() {
                let sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums.add(64 * r).cast()));
                let x = *record.scale(r);
                let scale = if BLOCK_SCALES { _mm512_mul_ps(scales, _mm512_set1_ps(x)) } else { _mm512_set1_ps(x) };
                *all = _mm512_fmadd_ps(sum, scale, *all);
                if LESS {
                    let less = match PARTS {
                        2 => less_of_half(x, *record.start_of_half(at % PARTS, r)),
                        _ => *record.less(r),
                    };
                    let taken = _mm512_loadu_ps(t.scales.add(PARTS * LESS_AT + at * GROUP));
                    *all = _mm512_fmadd_ps(taken, _mm512_set1_ps(less), *all);
                }
            }
        };
        macro_rules! multiply {
            ($set:literal, $at:expr) => {{
                let (acts, weights) = place($at);
                tiles.multiply::<$set>(acts, BLOCK, weights);
            }};
        }
        // The unit is a product ahead of what is stored, and that of what is added.
        multiply!(0, 0);
        tiles.store::<0>(sums_of(0).cast());
        multiply!(1, 1);
        let (mut ask, mut due) = (t.ask, 0);
        for at in (0..parts).step_by(2) {
            // Evenly: many at once would keep the tiles' loads waiting.
            due += 2 * t.lines;
            while due >= parts {
                _mm_prefetch::<_MM_HINT_T1>(ask.cast());
                ask = ask.wrapping_add(64);
                due -= parts;
            }
            let more = at + 2 < parts;
            if more {
                multiply!(0, at + 2);
            }
            tiles.store::<1>(sums_of(1).cast());
            add(&mut all, at, 0);
            if more {
                multiply!(1, at + 3);
                tiles.store::<0>(sums_of(0).cast());
            }
            add(&mut all, at + 1, 1);
        }
        for (r, all) in all.into_iter().enumerate() {
            _mm512_storeu_ps(t.to.add(r * MAX_CHUNK), all);
        }
    }
}

//! A register tile: some rows of `X` times one to three groups of opened weights, added to the products. As many of each as the unit has
//! registers for.

use std::arch::asm;

use super::super::super::packed::Bits;
use super::super::super::simd::act_scale::{MANTISSAS, mantissa_of, scale_of_base};
use super::super::super::simd::dot::{BLOCK, Dot, DotPiece, GROUP, few_quads};
use super::acts::{Record, less_of_half};
use super::half_blocks as halves;
use super::tiled::{GROUP_SCALES, LESS_AT, OPEN_BLOCKS, OPEN_BYTES};

/// Starts of sums with weights that are 0 or more.
const ZEROS: [i32; 4] = [0; 4];

/// The operands of a register tile.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    /// Opened weights, groups `OPEN_BLOCKS * OPEN_BYTES` apart.
    pub(super) opened: *const u8,
    /// Opened scales, groups [`GROUP_SCALES`] apart; where sums have a base, times each of the mantissas.
    pub(super) scales: *const f32,
    /// A panel, from the first of the blocks on.
    pub(super) acts: *const u8,
    pub(super) blocks: usize,
    pub(super) bits: Bits,
    /// The panel's products with these groups.
    pub(super) to: *mut f32,
    /// Whether to add to them; else what they are is not read. Units that keep them in memory meanwhile always add.
    pub(super) add: bool,
    /// From a row of products to the next one.
    pub(super) width: usize,
}

/// Whether a tile's products stay in registers for all its blocks, for which the unit must have enough.
pub(super) const fn products_stay<D: Dot>() -> bool {
    D::TILE.1 >= 3
}

/// # Safety
/// The operands have the shapes of [`Tile`], panels of the unit's rows; `groups` are at most those of `D::TILE`.
#[inline(always)]
pub(super) unsafe fn by_shape<
    D: Dot,
    const BLOCK_SCALES: bool,
    const PARTS: usize,
    const LESS: bool,
    const BITS: u32,
>(
    d: D,
    groups: usize,
    t: Tile,
) {
    // SAFETY: the caller's promise; each arm is the unit's own shape.
    unsafe {
        match (D::TILE, groups) {
            ((4, 3), 3) => d.outline(TilePiece::<4, 3, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
            ((4, 3), 2) => d.outline(TilePiece::<4, 2, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
            ((4, _), _) => d.outline(TilePiece::<4, 1, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
            _ => d.outline(TilePiece::<2, 1, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
        }
    }
}

/// [`tile`] as a function of its own.
struct TilePiece<
    const R: usize,
    const G: usize,
    const BLOCK_SCALES: bool,
    const PARTS: usize,
    const LESS: bool,
    const BITS: u32,
>(Tile);

impl<const R: usize, const G: usize, const BLOCK_SCALES: bool, const PARTS: usize, const LESS: bool, const BITS: u32>
    DotPiece for TilePiece<R, G, BLOCK_SCALES, PARTS, LESS, BITS>
{
    #[inline(always)]
    unsafe fn run<D: Dot>(self, d: D) {
        // SAFETY: the caller's promise.
        unsafe { tile::<D, R, G, BLOCK_SCALES, PARTS, LESS, BITS>(d, self.0) }
    }
}

/// The same place, which the compiler takes for another one.
#[expect(clippy::pointers_in_nomem_asm_block, reason = "there are no instructions that could follow it")]
#[inline(always)]
fn opaque(mut place: *mut f32) -> *mut f32 {
    // SAFETY: there are no instructions; the register exists.
    unsafe { asm!("/* {} */", inout(reg) place, options(nomem, nostack, preserves_flags)) };
    place
}

/// `R` rows of a panel times `G` groups, added to the products if so asked; blocks have `PARTS` scales per row, 1 or 2, and minima if `LESS`.
/// Weights are signed if they have 8 `BITS`, and unsigned otherwise.
///
/// # Safety
/// The operands have the shapes of [`Tile`], panels of `R` rows.
#[inline(always)]
unsafe fn tile<
    D: Dot,
    const R: usize,
    const G: usize,
    const BLOCK_SCALES: bool,
    const PARTS: usize,
    const LESS: bool,
    const BITS: u32,
>(
    d: D,
    t: Tile,
) {
    let place = |r: usize, g: usize| t.to.wrapping_add(r * t.width + g * GROUP);
    // Sums of all blocks stay in registers where there are enough: to store them for each takes as long as a fifth of the products.
    let stay = const { products_stay::<D>() };
    let mut all = [[d.zero(); G]; R];
    if stay && t.add {
        for (r, all) in all.iter_mut().enumerate() {
            for (g, all) in all.iter_mut().enumerate() {
                // SAFETY: the panel's products are there.
                *all = unsafe { d.load_group(place(r, g)) };
            }
        }
    }
    for at in 0..t.blocks * PARTS {
        // Products that are kept in memory are not to be kept in registers as well: AVX2 has too few.
        let to = if stay || cfg!(not(target_arch = "x86_64")) { t.to } else { opaque(t.to) };
        let place = |r: usize, g: usize| to.wrapping_add(r * t.width + g * GROUP);
        let (block, part) = (at / PARTS, at % PARTS);
        let record = Record::at(t.acts, R, block);
        let opened = t.opened.wrapping_add(block * OPEN_BYTES);
        // SAFETY: the block exists in all operands.
        unsafe {
            let mut own = ZEROS;
            // What was added to starts, if sums have a base.
            let base = |r: usize| if D::BASED { (*record.scale(r)).to_bits().cast_signed() } else { 0 };
            let zeros = if D::BASED { record.scale(0).cast() } else { ZEROS.as_ptr() };
            let starts = match PARTS {
                2 if t.bits == Bits::Three => {
                    let start = |r| record.start_of_half(part, r).read().wrapping_sub(base(r)) / halves::THREES_IN_SIX;
                    own[..R].iter_mut().enumerate().for_each(|(r, to)| *to = start(r).wrapping_add(base(r)));
                    own.as_ptr()
                }
                2 if t.bits == Bits::UTwo => zeros,
                2 => record.start_of_half(part, 0),
                _ => match t.bits {
                    Bits::Four => record.start4(0),
                    Bits::Five => {
                        let start = |r| record.start4(r).read().wrapping_mul(2).wrapping_sub(base(r));
                        own[..R].iter_mut().enumerate().for_each(|(r, to)| *to = start(r));
                        own.as_ptr()
                    }
                    Bits::UFour | Bits::UFive => zeros,
                    _ => record.start8(0),
                },
            };
            let (first, quads) = (part * 4, BLOCK / 4 / PARTS);
            let opened = opened.add(64 * first);
            let acts = record.quad(first, 0);
            let sums = match const { few_quads(BITS) } {
                8 => d.products::<R, G, 8>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
                4 => d.products::<R, G, 4>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
                2 => d.products::<R, G, 2>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
                _ => d.products::<R, G, 0>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
            };
            // A place of scales times the mantissa with this number.
            let scales = |g: usize, mantissa: usize| {
                t.scales.add(g * GROUP_SCALES + (mantissa * PARTS * OPEN_BLOCKS + at) * GROUP)
            };
            let own_scales: [D::Group; G] =
                std::array::from_fn(|g| if BLOCK_SCALES && !D::BASED { d.load_group(scales(g, 0)) } else { d.zero() });
            let taken: [D::Group; G] = std::array::from_fn(|g| {
                if LESS {
                    d.load_group(t.scales.add(g * GROUP_SCALES + PARTS * LESS_AT + at * GROUP))
                } else {
                    d.zero()
                }
            });
            for (r, (sums, all)) in sums.into_iter().zip(&mut all).enumerate() {
                let x = *record.scale(r);
                // Read by itself: the compiler would compute all rows' numbers in a vector, from where places come late.
                let mantissa = mantissa_of(if D::BASED { record.scale(r).read_volatile() } else { x });
                let less = match PARTS {
                    2 if D::BASED => {
                        less_of_half(scale_of_base(x), record.start_of_half(part, r).read().wrapping_sub(base(r)))
                    }
                    2 => less_of_half(x, *record.start_of_half(part, r)),
                    _ => *record.less(r),
                };
                for (g, ((sum, w), all)) in sums.into_iter().zip(own_scales).zip(all).enumerate() {
                    let before = if stay { *all } else { d.load_group(place(r, g)) };
                    *all = match (D::BASED, BLOCK_SCALES) {
                        (true, true) => d.fma(d.less_base(sum, x), d.load_group(scales(g, mantissa)), before),
                        (true, false) => d.fma_splat(d.less_base(sum, x), MANTISSAS[mantissa], before),
                        (false, true) => d.fma(d.to_float(sum), d.mul_splat(w, x), before),
                        (false, false) => d.fma_splat(d.to_float(sum), x, before),
                    };
                    if LESS {
                        *all = d.fma_splat(taken[g], less, *all);
                    }
                    if !stay {
                        d.store_group(place(r, g), *all);
                    }
                }
            }
        }
    }
    if stay {
        for (r, all) in all.into_iter().enumerate() {
            for (g, all) in all.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { d.store_group(place(r, g), all) };
            }
        }
    }
}

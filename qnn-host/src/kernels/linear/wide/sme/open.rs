//! Weights of any format as bf16 tiles, `[16 pairs of k][16 outputs][2]`, with NEON.
//!
//! A block of 32 columns is a tile: its eight quads are opened into signed bytes as for products of bytes, then multiplied by their
//! scales in f32, less the minima, and rounded.

use std::arch::aarch64::*;

use super::super::super::super::Mat;
use super::super::super::super::convert::move_all;
use super::super::super::super::packed::{Bits, Packed, Scales};
use super::super::super::super::rows::{RowMat, with_row_elem};
use super::super::super::super::simd::dot::{BLOCK, Dot};
use super::super::super::super::simd::matrix::{TILE_BYTES, TILE_K, TILE_ROWS};
use super::super::super::super::{block_values, half_blocks, k_blocks};
use super::{Float, LINE_BYTES, pairs, round_row};

/// Four signed values of each of 16 outputs: a register for four of them.
type Quad = [int8x16_t; 4];
/// A number for each of 16 outputs.
type Group = [float32x4_t; 4];

/// Quads of a block.
const QUADS: usize = BLOCK / 4;

/// Tiles `step0 .. step0 + steps` along `k` of the outputs `n0 .. n0 + 16`, two tiles apart. Scales of rows are left out:
/// they multiply the sums.
///
/// # Safety
/// `n0` begins a group and exists, as do the steps; the tiles are writable at `to`, and the CPU has bf16 conversions.
pub(in super::super) unsafe fn tiles(w: &Mat<'_>, n0: usize, step0: usize, steps: usize, to: *mut u8) {
    for step in 0..steps {
        // SAFETY: the caller's promise.
        unsafe {
            let to = to.add(2 * step * TILE_BYTES);
            if let Some(packed) = w.packed() {
                block(packed, n0 / TILE_ROWS, step0 + step, to);
            } else if let Some(rows) = w.as_rows() {
                from_rows(rows, n0, (step0 + step) * TILE_K, to);
            }
        }
    }
}

/// A block of packed weights.
///
/// # Safety
/// As [`tiles`].
unsafe fn block(w: Packed<'_>, group: usize, block: usize, to: *mut u8) {
    let d = Float(());
    let packing = w.packing();
    let in_stretch = packing.stretch_cols() / BLOCK;
    let (stretch, block) = (block / in_stretch, block % in_stretch);
    // SAFETY: the group has this stretch and block, and so have its minima, if there are some.
    unsafe {
        let minima = w.minima(group).map(|minima| {
            let bytes = if packing.by_halves() {
                half_blocks::stretch_bytes(Bits::HalfMinima)
            } else {
                k_blocks::stretch_bytes(Bits::Minima)
            };
            minima.add(stretch * bytes)
        });
        let stretch = w.group(group).add(packing.group_header() + stretch * packing.stretch_bytes());
        let quads = quads(d, packing.bits, stretch.add(packing.stretch_header() + block * packing.block_bytes()));
        for half in 0..2 {
            let scale = match (packing.scales, packing.bits) {
                (Scales::Row, _) => None,
                (_, Bits::Four | Bits::Five | Bits::Nonlinear | Bits::Eight) => {
                    Some(d.load_group_f16(stretch.add(packing.scale_at(0, block)).cast()))
                }
                (_, Bits::FloatFour) => Some(d.load_group_exponents(stretch.add(packing.scale_at(0, block)))),
                (_, bits) => Some(number(d, bits, stretch, block, half)),
            };
            let less = minima.map(|minima| number(d, packing.bits, minima, block, half));
            for (i, quad) in quads[half * QUADS / 2..][..QUADS / 2].iter().enumerate() {
                store(quad, scale, less, to.add((half * QUADS / 2 + i) * 2 * LINE_BYTES));
            }
        }
    }
}

/// The scales of half a block, or its minima, from a stretch that begins with numbers which whole ones multiply.
///
/// # Safety
/// The stretch is readable and its weights (or those that it is minima of) have `bits` bits.
unsafe fn number(d: Float, bits: Bits, stretch: *const u8, block: usize, half: usize) -> Group {
    let sub = 2 * block + half;
    // SAFETY: the caller's promise.
    unsafe {
        let whole = match bits {
            Bits::UTwo => d.load_group_u4(stretch.add(half_blocks::nibbles(sub).0), half_blocks::nibbles(sub).1),
            bits if half_blocks::are_of(bits) => {
                d.load_group_i8(stretch.add(half_blocks::STEPS_AT + sub * TILE_ROWS).cast())
            }
            _ => d.load_group_i8(stretch.add(k_blocks::STEPS_AT + block * TILE_ROWS).cast()),
        };
        d.mul(whole, d.load_group(stretch.cast()))
    }
}

/// The quads of a block.
///
/// # Safety
/// It is readable at `from`, as `bits` says.
unsafe fn quads(d: Float, bits: Bits, from: *const u8) -> [Quad; QUADS] {
    // SAFETY: the caller's promise: what is loaded are parts of the block.
    let load = |at: usize| unsafe { d.load(from.add(at)) };
    let nibble = |quad: usize| {
        let both = load(64 * (quad % 4));
        if quad < 4 { d.low(both) } else { d.high(both) }
    };
    std::array::from_fn(|quad| {
        let (value, offset) = match bits {
            Bits::Eight => (load(64 * quad), 0),
            Bits::Four => (nibble(quad), 8),
            Bits::Five => (d.five(nibble(quad), load(block_values::NIBBLES), quad as u32), 16),
            Bits::UFive => (d.five(nibble(quad), load(k_blocks::NIBBLES), quad as u32), 0),
            Bits::Levels | Bits::Nonlinear | Bits::FloatFour => {
                (d.levels(nibble(quad), block_values::table_of(bits)), 0)
            }
            Bits::Six => {
                let upper = load(half_blocks::UPPER_AT + 64 * (quad / 4));
                (d.six(nibble(quad), upper, quad as u32 % 4), half_blocks::OFFSET as i8)
            }
            Bits::Three => {
                let third = load(half_blocks::THIRD_AT);
                (d.three(load(64 * (quad / 4)), third, quad as u32), half_blocks::OFFSET_OF_THREE as i8)
            }
            Bits::UTwo => (d.two(load(64 * (quad / 4)), quad as u32 % 4), 0),
            Bits::UFour | Bits::Minima | Bits::HalfMinima => (nibble(quad), 0),
        };
        // SAFETY: NEON is part of the architecture.
        value.map(|value| unsafe { vsubq_s8(value, vdupq_n_s8(offset)) })
    })
}

/// A quad times its scales, less what is taken off: two lines of a tile.
///
/// # Safety
/// Two lines are writable at `to`, and the CPU has bf16 conversions.
#[inline(always)]
unsafe fn store(quad: &Quad, scale: Option<Group>, less: Option<Group>, to: *mut u8) {
    for (i, &values) in quad.iter().enumerate() {
        // SAFETY: the caller's promise; a line has 16 outputs of 4 bytes, and these are four of them.
        unsafe {
            let (low, high) = (vmovl_s8(vget_low_s8(values)), vmovl_high_s8(values));
            let whole = [
                vmovl_s16(vget_low_s16(low)),
                vmovl_high_s16(low),
                vmovl_s16(vget_low_s16(high)),
                vmovl_high_s16(high),
            ];
            let mut w = whole.map(|values| vcvtq_f32_s32(values));
            if let Some(scale) = scale {
                let s = scale[i];
                w = [
                    vmulq_laneq_f32::<0>(w[0], s),
                    vmulq_laneq_f32::<1>(w[1], s),
                    vmulq_laneq_f32::<2>(w[2], s),
                    vmulq_laneq_f32::<3>(w[3], s),
                ];
            }
            if let Some(less) = less {
                let l = less[i];
                w = [
                    vsubq_f32(w[0], vdupq_laneq_f32::<0>(l)),
                    vsubq_f32(w[1], vdupq_laneq_f32::<1>(l)),
                    vsubq_f32(w[2], vdupq_laneq_f32::<2>(l)),
                    vsubq_f32(w[3], vdupq_laneq_f32::<3>(l)),
                ];
            }
            let (first, second) = (pairs(w[0], w[1]), pairs(w[2], w[3]));
            vst1q_u32(to.add(16 * i).cast(), vuzp1q_u32(first, second));
            vst1q_u32(to.add(LINE_BYTES + 16 * i).cast(), vuzp2q_u32(first, second));
        }
    }
}

/// Rows of floats or bytes.
///
/// # Safety
/// As [`tiles`].
unsafe fn from_rows(w: RowMat<'_>, n0: usize, k0: usize, to: *mut u8) {
    let count = TILE_K.min(w.cols - k0);
    for row in 0..TILE_ROWS {
        let mut numbers = [0.0; TILE_K];
        if row < w.rows - n0 {
            let at = (n0 + row) * w.cols + k0;
            // SAFETY: the row has `count` elements from `k0` on, of the type that `elem` names; there is space for 32.
            with_row_elem!(w.elem, E => unsafe {
                move_all::<Float, E, f32>(Float(()), w.ptr::<E>().add(at), numbers.as_mut_ptr(), count)
            });
        }
        // SAFETY: the caller's promise.
        unsafe { round_row(&numbers, row, to) };
    }
}

//! Weights of any format as bf16 tiles: `[16 pairs of k][16 outputs][2]`.

use std::arch::x86_64::*;

use half::f16;

use super::super::super::super::Mat;
use super::super::super::super::float::Float;
use super::super::super::super::packed::{Bits, Packed, Scales};
use super::super::super::super::rows::{RowElem, RowMat};
use super::super::super::super::simd::avx512_bf16::pairs;
use super::super::super::super::simd::matrix::{TILE_BYTES, TILE_K, TILE_ROWS};
use super::super::super::super::{block_values, half_blocks, k_blocks};

/// Tiles `step0 .. step0 + steps` along `k` of the outputs `n0 .. n0 + 16`, two tiles apart. Scales of rows are left out:
/// they multiply the sums.
///
/// # Safety
/// `n0` begins a group and exists, as do the steps; the tiles are writable at `to`, and the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
pub(in super::super) unsafe fn tiles(w: &Mat<'_>, n0: usize, step0: usize, steps: usize, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(packed) = w.packed() {
            for step in 0..steps {
                let to = to.add(2 * step * TILE_BYTES);
                match packed.packing().bits {
                    bits if packed.packing().by_halves() => halves(packed, bits, n0 / TILE_ROWS, step0 + step, to),
                    bits @ (Bits::Four | Bits::Five | Bits::Nonlinear | Bits::FloatFour | Bits::Eight) => {
                        block(packed, bits, n0 / TILE_ROWS, step0 + step, to)
                    }
                    bits => k_block(packed, bits, n0 / TILE_ROWS, step0 + step, to),
                }
            }
        } else if let Some(rows) = w.as_rows() {
            for step in 0..steps {
                from_rows(rows, n0, (step0 + step) * TILE_K, to.add(2 * step * TILE_BYTES));
            }
        }
    }
}

/// A block with one scale.
///
/// # Safety
/// As [`tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn block(w: Packed<'_>, bits: Bits, group: usize, block: usize, to: *mut u8) {
    let packing = w.packing();
    // SAFETY: the group has this block, and its scales where the packing says.
    unsafe {
        let group = w.group(group);
        let from = group.add(packing.block_at(block));
        let scale = match packing.scales {
            Scales::Row => _mm512_set1_ps(1.0),
            Scales::Block if bits == Bits::FloatFour => {
                let exponents = _mm_loadu_si128(group.add(packing.scale_at(0, block)).cast());
                _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_cvtepu8_epi32(exponents)))
            }
            Scales::Block => _mm512_cvtph_ps(_mm256_loadu_si256(group.add(packing.scale_at(0, block)).cast())),
        };
        match bits {
            Bits::Eight => {
                let grid = Grid::new(8, 128, scale);
                for quad in 0..8 {
                    let values = _mm512_loadu_si512(from.add(64 * quad).cast());
                    let values = _mm512_xor_si512(values, _mm512_set1_epi8(i8::MIN));
                    grid.store::<15, 7, 31, 23>(values, to.add(128 * quad));
                }
            }
            Bits::Five => fives(&Grid::new(5, 16, scale), from, block_values::NIBBLES, to),
            Bits::Nonlinear | Bits::FloatFour => {
                levels(&Grid::new(8, 128, scale), block_values::table_of(bits), from, to)
            }
            _ => {
                let grid = Grid::new(4, 8, scale);
                for quad in 0..4 {
                    let both = _mm512_loadu_si512(from.add(64 * quad).cast());
                    grid.store::<19, 11, 3, 27>(both, to.add(128 * quad));
                    grid.store::<15, 7, 31, 23>(both, to.add(128 * (quad + 4)));
                }
            }
        }
    }
}

/// The eight quads of a block of 5 bits; the fifth ones begin at `fifth_at`.
///
/// # Safety
/// The block is readable at `from`, a tile is writable at `to`, and the CPU has the features.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn fives(grid: &Grid, from: *const u8, fifth_at: usize, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        // The fifth bit of quad `i` is at bit `i` of its byte, and goes to bit 4.
        let mut upper = _mm512_loadu_si512(from.add(fifth_at).cast());
        for quad in 0..8 {
            let lower = _mm512_loadu_si512(from.add(64 * (quad % 4)).cast());
            let lower = low_bits(if quad < 4 { lower } else { _mm512_srli_epi16::<4>(lower) });
            let fifth = _mm512_and_si512(_mm512_slli_epi16::<4>(upper), _mm512_set1_epi8(0x10));
            upper = _mm512_srli_epi16::<1>(upper);
            grid.store::<18, 10, 2, 26>(_mm512_or_si512(lower, fifth), to.add(128 * quad));
        }
    }
}

/// The eight quads of a block of numbers of levels.
///
/// # Safety
/// As [`fives`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn levels(grid: &Grid, levels: &[i8; 16], from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(levels.as_ptr().cast()));
        let table = _mm512_xor_si512(table, _mm512_set1_epi8(i8::MIN));
        for quad in 0..4 {
            let both = _mm512_loadu_si512(from.add(64 * quad).cast());
            grid.store::<15, 7, 31, 23>(_mm512_shuffle_epi8(table, low_bits(both)), to.add(128 * quad));
            let high = low_bits(_mm512_srli_epi16::<4>(both));
            grid.store::<15, 7, 31, 23>(_mm512_shuffle_epi8(table, high), to.add(128 * (quad + 4)));
        }
    }
}

/// The lower four bits of each byte.
#[inline]
#[target_feature(enable = "avx512f")]
fn low_bits(v: __m512i) -> __m512i {
    _mm512_and_si512(v, _mm512_set1_epi8(15))
}

/// A block with a step for each half, less its minima if it has some.
///
/// # Safety
/// As [`tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn halves(w: Packed<'_>, bits: Bits, group: usize, block: usize, to: *mut u8) {
    const BLOCKS: usize = half_blocks::STRETCH / TILE_K;
    // SAFETY: the group has this stretch and block.
    unsafe {
        let stretch = w.group(group).add(block / BLOCKS * half_blocks::stretch_bytes(bits));
        let from = stretch.add(half_blocks::blocks_at(bits) + block % BLOCKS * half_blocks::block_bytes(bits));
        let row_scales = _mm512_loadu_ps(stretch.cast());
        for half in 0..2 {
            let sub = 2 * (block % BLOCKS) + half;
            if bits == Bits::UTwo {
                let numbers = |stretch: *const u8| {
                    let (at, upper) = half_blocks::nibbles(sub);
                    let steps = _mm_loadu_si128(stretch.add(at).cast());
                    let steps = if upper { _mm_srli_epi16::<4>(steps) } else { steps };
                    let steps = _mm_and_si128(steps, _mm_set1_epi8(15));
                    _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(steps)), _mm512_loadu_ps(stretch.cast()))
                };
                let less = match w.minima(group) {
                    Some(minima) => numbers(minima.add(block / BLOCKS * half_blocks::stretch_bytes(Bits::HalfMinima))),
                    None => _mm512_setzero_ps(),
                };
                let grid = Grid::new(2, 0, numbers(stretch)).less(less);
                // Two bits of quad `i` of the half are at bit `2 * i`.
                let mut lower = _mm512_loadu_si512(from.add(64 * half).cast());
                for i in 0..4 {
                    grid.store::<21, 13, 5, 29>(lower, to.add(128 * (4 * half + i)));
                    lower = _mm512_srli_epi16::<2>(lower);
                }
                continue;
            }
            let steps = _mm_loadu_si128(stretch.add(half_blocks::STEPS_AT + sub * TILE_ROWS).cast());
            let scale = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(steps)), row_scales);
            if bits == Bits::Three {
                let grid = Grid::new(3, half_blocks::OFFSET_OF_THREE, scale);
                // Two bits of quad `i` of the half are at bit `2 * i`; the third one, of all quads, goes from bit `quad` to bit 2.
                let mut lower = _mm512_loadu_si512(from.add(64 * half).cast());
                let third = _mm512_loadu_si512(from.add(half_blocks::THIRD_AT).cast());
                let mut third = if half == 0 { third } else { _mm512_srli_epi16::<4>(third) };
                for i in 0..4 {
                    let two = _mm512_and_si512(lower, _mm512_set1_epi8(3));
                    let high = _mm512_and_si512(_mm512_slli_epi16::<2>(third), _mm512_set1_epi8(4));
                    (lower, third) = (_mm512_srli_epi16::<2>(lower), _mm512_srli_epi16::<1>(third));
                    grid.store::<20, 12, 4, 28>(_mm512_or_si512(two, high), to.add(128 * (4 * half + i)));
                }
                continue;
            }
            let grid = Grid::new(6, half_blocks::OFFSET, scale);
            let mut upper = _mm512_loadu_si512(from.add(half_blocks::UPPER_AT + 64 * half).cast());
            for i in 0..4 {
                let lower = _mm512_loadu_si512(from.add(64 * i).cast());
                let lower = if half == 0 { lower } else { _mm512_srli_epi16::<4>(lower) };
                let lower = _mm512_and_si512(lower, _mm512_set1_epi8(15));
                let high = _mm512_and_si512(_mm512_slli_epi16::<4>(upper), _mm512_set1_epi8(0x30));
                upper = _mm512_srli_epi16::<2>(upper);
                grid.store::<17, 9, 1, 25>(_mm512_or_si512(lower, high), to.add(128 * (4 * half + i)));
            }
        }
    }
}

/// A block with steps, less its minima if it has some.
///
/// # Safety
/// As [`tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn k_block(w: Packed<'_>, bits: Bits, group: usize, block: usize, to: *mut u8) {
    const BLOCKS: usize = k_blocks::BLOCKS;
    // SAFETY: the group has this stretch and block, and so have its minima.
    unsafe {
        let numbers = |stretch: *const u8| {
            let steps = _mm_loadu_si128(stretch.add(k_blocks::STEPS_AT + block % BLOCKS * TILE_ROWS).cast());
            _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(steps)), _mm512_loadu_ps(stretch.cast()))
        };
        let stretch = w.group(group).add(block / BLOCKS * w.packing().stretch_bytes());
        let from = stretch.add(k_blocks::BLOCKS_AT + block % BLOCKS * k_blocks::block_bytes(bits));
        let scale = numbers(stretch);
        let less = match w.minima(group) {
            Some(minima) => numbers(minima.add(block / BLOCKS * k_blocks::BLOCKS_AT)),
            None => _mm512_setzero_ps(),
        };
        match bits {
            Bits::UFour => {
                let grid = Grid::new(4, 0, scale).less(less);
                for quad in 0..4 {
                    let both = _mm512_loadu_si512(from.add(64 * quad).cast());
                    grid.store::<19, 11, 3, 27>(both, to.add(128 * quad));
                    grid.store::<15, 7, 31, 23>(both, to.add(128 * (quad + 4)));
                }
            }
            Bits::UFive => fives(&Grid::new(5, 0, scale).less(less), from, k_blocks::NIBBLES, to),
            _ => levels(&Grid::new(8, 128, scale), &k_blocks::LEVELS, from, to),
        }
    }
}

/// From unsigned values to weights: as the first digits of a number `f = 1 + value / 2^bits`, a value is one instruction from
/// `(value - offset) * scale = f * (2^bits * scale) - (2^bits + offset) * scale`, exactly: scales have at most 19 digits.
struct Grid {
    /// The digits of a value.
    digits: __m512i,
    factor: __m512,
    term: __m512,
}

impl Grid {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(bits: i32, offset: i32, scale: __m512) -> Self {
        let range = 1 << bits;
        Self {
            digits: _mm512_set1_epi32((range - 1) << (23 - bits)),
            factor: _mm512_mul_ps(scale, _mm512_set1_ps(range as f32)),
            term: _mm512_mul_ps(scale, _mm512_set1_ps(-(range + offset) as f32)),
        }
    }

    /// The same, and a number taken off each weight.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn less(self, number: __m512) -> Self {
        Self { term: _mm512_sub_ps(self.term, number), ..self }
    }

    /// Four values of each of 16 outputs, which come to the first digits when their 32 bits are rotated left by `A` to `D`: two
    /// rows of a tile.
    ///
    /// # Safety
    /// 128 bytes are writable at `to`, and the CPU has the features.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    unsafe fn store<const A: i32, const B: i32, const C: i32, const D: i32>(&self, values: __m512i, to: *mut u8) {
        /// `a & b | c`.
        const SELECT_AND_SET: i32 = 0xea;
        let one = _mm512_set1_epi32(1.0f32.to_bits().cast_signed());
        let number = |rotated: __m512i| {
            let f = _mm512_ternarylogic_epi32::<SELECT_AND_SET>(rotated, self.digits, one);
            _mm512_fmadd_ps(_mm512_castsi512_ps(f), self.factor, self.term)
        };
        let first = pairs(number(_mm512_rol_epi32::<A>(values)), number(_mm512_rol_epi32::<B>(values)));
        let second = pairs(number(_mm512_rol_epi32::<C>(values)), number(_mm512_rol_epi32::<D>(values)));
        // SAFETY: the caller's promise.
        unsafe {
            _mm512_storeu_si512(to.cast(), first);
            _mm512_storeu_si512(to.add(64).cast(), second);
        }
    }
}

/// Rows of floats or bytes.
///
/// # Safety
/// As [`tiles`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn from_rows(w: RowMat<'_>, n0: usize, k0: usize, to: *mut u8) {
    let count = TILE_K.min(w.cols - k0);
    let mask = u32::MAX >> (TILE_K - count);
    let mut rows = [_mm512_setzero_si512(); TILE_ROWS];
    for (i, row) in rows.iter_mut().enumerate().take(w.rows - n0) {
        let at = (n0 + i) * w.cols + k0;
        // SAFETY: masks keep the loads to the `count` elements that the row has from `k0` on.
        *row = unsafe {
            match w.elem {
                RowElem::Float(Float::Bf16) => _mm512_maskz_loadu_epi16(mask, w.ptr::<half::bf16>().add(at).cast()),
                RowElem::Float(Float::F16) => {
                    let halves = _mm512_maskz_loadu_epi16(mask, w.ptr::<f16>().add(at).cast());
                    let low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
                    let high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(halves));
                    std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
                }
                RowElem::I8 => {
                    let bytes = _mm256_maskz_loadu_epi8(mask, w.ptr::<i8>().add(at));
                    let number = |bytes| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
                    let low = number(_mm256_castsi256_si128(bytes));
                    let high = number(_mm256_extracti128_si256::<1>(bytes));
                    std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low))
                }
                RowElem::Float(Float::F32) => unreachable!("not taken"),
            }
        };
    }
    // SAFETY: a tile is 16 rows of 64 bytes.
    unsafe { transpose(&rows, to) }
}

/// 16 x 16 pairs, transposed.
///
/// # Safety
/// A tile is writable at `to`, and the CPU has the features.
#[target_feature(enable = "avx512f")]
unsafe fn transpose(rows: &[__m512i; TILE_ROWS], to: *mut u8) {
    let mut a = [_mm512_setzero_si512(); 16];
    for i in (0..16).step_by(2) {
        a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    // `b[4 * q + c]`: column `c` of each four of rows `4 * q ..`.
    let mut b = [_mm512_setzero_si512(); 16];
    for q in 0..4 {
        let (lo, lo2, hi, hi2) = (a[4 * q], a[4 * q + 2], a[4 * q + 1], a[4 * q + 3]);
        b[4 * q] = _mm512_unpacklo_epi64(lo, lo2);
        b[4 * q + 1] = _mm512_unpackhi_epi64(lo, lo2);
        b[4 * q + 2] = _mm512_unpacklo_epi64(hi, hi2);
        b[4 * q + 3] = _mm512_unpackhi_epi64(hi, hi2);
    }
    for c in 0..4 {
        let low = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[c], b[4 + c]);
        let low2 = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[8 + c], b[12 + c]);
        let high = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[c], b[4 + c]);
        let high2 = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[8 + c], b[12 + c]);
        // SAFETY: columns are 0..16, of 64 bytes each.
        unsafe {
            let put = |column: usize, v| _mm512_storeu_si512(to.add(64 * column).cast(), v);
            put(c, _mm512_shuffle_i32x4::<0b10_00_10_00>(low, low2));
            put(4 + c, _mm512_shuffle_i32x4::<0b10_00_10_00>(high, high2));
            put(8 + c, _mm512_shuffle_i32x4::<0b11_01_11_01>(low, low2));
            put(12 + c, _mm512_shuffle_i32x4::<0b11_01_11_01>(high, high2));
        }
    }
}

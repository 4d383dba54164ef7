//! Rows into blocks of 8-bit numbers with a scale each: new rows of a cache in blocks.
//!
//! *Units*: a number `q` of a block stands for `(q + offset) * scale`. A scale is the largest size of the block over `divisor`, at least
//! `least`, rounded to `float16`; numbers are chosen for the rounded scale: the quotient to the nearest whole number, halves away
//! from zero, 0 to 255.
//! *Invariant*: every unit makes the bits of the ops that say the same one by one (Abs, ReduceMax, Divide, Maximum, Convert, Divide,
//! Convert, Multiply), whatever the numbers: infinity has an infinite scale. One NaN makes its block's scale NaN, and so whatever
//! is computed with the block; which of NaN's bits is not said.

use half::f16;

use super::attention::BLOCK;
use super::isa::simd_fn;
use super::simd::{MAX_LANES, Simd};

/// How a block's scale follows from its numbers, and what is added to a number `q`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockRule {
    /// The largest size over it is the scale; finite and positive.
    pub divisor: f32,
    /// The smallest scale before it is rounded; finite and positive.
    pub least: f32,
    /// -255 to 0.
    pub offset: i32,
}

/// Bytes of a scale.
pub const SCALE_BYTES: usize = size_of::<f16>();

/// Blocks whose scales are computed side by side: whole vectors of any unit.
const TOGETHER: usize = MAX_LANES;

simd_fn! {
    /// Numbers and `float16` scales of the blocks of `x`, and perhaps what they stand for.
    ///
    /// # Panics
    /// When `x` is not whole blocks, or a result has not a byte for each of its numbers, a scale for each of its blocks, or its length.
    pub fn quantise_blocks(x: &[f32], rule: BlockRule, numbers: &mut [u8], scales: &mut [u8], rows: Option<&mut [f32]>) = body
}

#[inline(always)]
fn body<S: Simd>(
    s: S,
    x: &[f32],
    rule: BlockRule,
    numbers: &mut [u8],
    scales: &mut [u8],
    mut rows: Option<&mut [f32]>,
) {
    let n_blocks = x.len() / BLOCK;
    assert!(x.len().is_multiple_of(BLOCK), "{} numbers are no blocks of {BLOCK}", x.len());
    assert_eq!(numbers.len(), x.len(), "a byte for each number");
    assert_eq!(scales.len(), n_blocks * SCALE_BYTES, "a scale for each block");
    assert!(rows.as_ref().is_none_or(|rows| rows.len() == x.len()), "result and operand differ in length");
    for first in (0..n_blocks).step_by(TOGETHER) {
        let count = TOGETHER.min(n_blocks - first);
        let elems = first * BLOCK..(first + count) * BLOCK;
        let x = x[elems.clone()].as_ptr();
        let numbers = numbers[elems.clone()].as_mut_ptr();
        let rows = rows.as_mut().map(|rows| rows[elems].as_mut_ptr());
        let mut sizes = [0.0; TOGETHER];
        for (i, size) in sizes[..count].iter_mut().enumerate() {
            // SAFETY: block `i` of `count` blocks.
            *size = unsafe { largest(s, x.add(i * BLOCK)) };
        }
        let (halves, each) = scales_of(s, &sizes, rule);
        let scales = &mut scales[first * SCALE_BYTES..(first + count) * SCALE_BYTES];
        scales.as_chunks_mut().0.iter_mut().zip(halves).for_each(|(to, half)| *to = half.to_ne_bytes());
        for (i, scale) in each[..count].iter().enumerate() {
            let at = i * BLOCK;
            // SAFETY: block `i` of `count` blocks of all three; results overlap nothing.
            unsafe { block(s, x.add(at), *scale, rule.offset, numbers.add(at), rows.map(|rows| rows.add(at))) };
        }
    }
}

/// The largest size of a block; NaN where one of its numbers is none.
///
/// # Safety
/// [`BLOCK`] numbers are readable at `x`.
#[inline(always)]
unsafe fn largest<S: Simd>(s: S, x: *const f32) -> f32 {
    let mut most = s.zero();
    for i in (0..BLOCK).step_by(S::LANES) {
        // SAFETY: a block is whole vectors.
        most = s.max_size(most, unsafe { s.load(x.add(i)) });
    }
    s.max_size_lane(most)
}

/// Scales of blocks by their largest sizes, as `float16` and as the same numbers in `f32`.
#[inline(always)]
fn scales_of<S: Simd>(s: S, sizes: &[f32; TOGETHER], rule: BlockRule) -> ([f16; TOGETHER], [f32; TOGETHER]) {
    let (mut halves, mut each) = ([f16::ZERO; TOGETHER], [0.0; TOGETHER]);
    for i in (0..TOGETHER).step_by(S::LANES) {
        // SAFETY: the arrays are whole vectors.
        unsafe {
            let exact = s.div(s.load(sizes.as_ptr().add(i)), s.splat(rule.divisor));
            // The second operand stays where it is no number.
            s.store_f16(halves.as_mut_ptr().add(i), s.max(s.splat(rule.least), exact));
            s.store(each.as_mut_ptr().add(i), s.load_f16(halves.as_ptr().add(i)));
        }
    }
    (halves, each)
}

/// One block with its scale.
///
/// # Safety
/// [`BLOCK`] numbers are readable at `x` and writable at `numbers` and `rows`; they do not overlap.
#[inline(always)]
unsafe fn block<S: Simd>(s: S, x: *const f32, scale: f32, offset: i32, numbers: *mut u8, rows: Option<*mut f32>) {
    let (low, high) = (s.splat(offset as f32), s.splat((offset + 255) as f32));
    let scale = s.splat(scale);
    for i in (0..BLOCK).step_by(S::LANES) {
        // SAFETY: a block is whole vectors.
        let quotient = s.div(unsafe { s.load(x.add(i)) }, scale);
        // What is no number becomes the lowest. The limits are whole, so that cutting and rounding may change places.
        let whole = s.round_away(s.min(s.max(quotient, low), high));
        let number = s.sub(whole, low);
        // SAFETY: as above; whole numbers of 0 to 255.
        unsafe { s.store_u8(numbers.add(i), number) };
        if let Some(rows) = rows {
            // Adding again leaves no negative zero.
            // SAFETY: as above.
            unsafe { s.store(rows.add(i), s.mul(s.add(number, low), scale)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::isas;
    use super::super::{Isa, testing};
    use super::*;
    use crate::storage::QuantGrid;

    const RULE: BlockRule = BlockRule { divisor: 127.0, least: 5.960_464_5e-8, offset: -128 };

    /// Numbers, scales and rows as bits, those of one NaN for all.
    type Found = (Vec<u8>, Vec<u16>, Vec<u32>);

    fn bits(scales: &[u8], rows: &[f32]) -> (Vec<u16>, Vec<u32>) {
        let scales = scales.as_chunks().0.iter().map(|&half| f16::from_ne_bytes(half));
        let scales = scales.map(|half| if half.is_nan() { f16::NAN.to_bits() } else { half.to_bits() });
        let rows = rows.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() });
        (scales.collect(), rows.collect())
    }

    fn found(isa: Isa, x: &[f32], rule: BlockRule) -> Found {
        let (mut numbers, mut scales) = (vec![0xAA; x.len()], vec![0xAA; x.len() / BLOCK * SCALE_BYTES]);
        let mut rows = vec![f32::NAN; x.len()];
        quantise_blocks(isa, x, rule, &mut numbers, &mut scales, Some(&mut rows));
        let alone = (numbers.clone(), scales.clone());
        quantise_blocks(isa, x, rule, &mut numbers, &mut scales, None);
        assert_eq!((&numbers, &scales), (&alone.0, &alone.1), "the same without rows");
        let (scales, rows) = bits(&scales, &rows);
        (numbers, scales, rows)
    }

    /// What the ops compute, one by one, and NaN for the scale and the rows of a block with a NaN.
    fn expected(x: &[f32], rule: BlockRule) -> Found {
        let grid = QuantGrid { scale: 1.0, offset: rule.offset, min: 0, max: 255 };
        let (mut numbers, mut scales, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        for block in x.as_chunks::<BLOCK>().0 {
            let largest = block.iter().fold(f64::NEG_INFINITY, |m, x| m.max(f64::from(x.abs()))) as f32;
            let is_nan = block.iter().any(|x| x.is_nan());
            let scale = if is_nan { f16::NAN } else { f16::from_f32((largest / rule.divisor).max(rule.least)) };
            scales.extend(scale.to_ne_bytes());
            for x in block {
                let q = grid.quantise(x / scale.to_f32());
                numbers.push(q as u8);
                rows.push(grid.dequantise(q) * scale.to_f32());
            }
        }
        let (scales, rows) = bits(&scales, &rows);
        (numbers, scales, rows)
    }

    #[track_caller]
    fn check(x: &[f32], rule: BlockRule) {
        let wanted = expected(x, rule);
        for isa in isas() {
            let found = found(isa, x, rule);
            for (i, x) in x.iter().enumerate() {
                assert_eq!(found.0[i], wanted.0[i], "number of {x:e} on {}", isa.name());
                assert_eq!(found.2[i], wanted.2[i], "row of {x:e} on {}", isa.name());
            }
            assert_eq!(found.1, wanted.1, "scales on {}", isa.name());
        }
    }

    /// A block around one number.
    fn around(x: f32, others: &[f32]) -> Vec<f32> {
        (0..BLOCK).map(|i| if i == 7 { x } else { others[i % others.len()] }).collect()
    }

    #[test]
    fn odd_numbers_become_what_the_ops_make_of_them() {
        let odd = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::NAN,
            -f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            -f32::from_bits(1),
            // Scales at float16's ends.
            65_504.0 * 127.0,
            65_519.9 * 127.0,
            65_520.0 * 127.0,
            5.960_464_5e-8,
            127.0 * 5.960_464_5e-8,
            127.0 * 1.499 * 5.960_464_5e-8,
            127.0 * 6.1e-5,
        ];
        for x in odd {
            for other in odd {
                check(&around(x, &[other]), RULE);
                check(&around(x, &[other, 0.3, -x, 0.0]), RULE);
            }
        }
    }

    #[test]
    fn one_number_that_is_none_makes_its_block_so_and_no_other() {
        for at in 0..BLOCK {
            for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0xffff_ffff)] {
                let mut x = testing::numbers(3 * BLOCK, 9);
                x[BLOCK + at] = nan;
                check(&x, RULE);
                for isa in isas() {
                    let (_, scales, rows) = found(isa, &x, RULE);
                    let is_nan = |block: usize| {
                        let rows = &rows[block * BLOCK..][..BLOCK];
                        let n_nan = rows.iter().filter(|&&x| f32::from_bits(x).is_nan()).count();
                        (f16::from_bits(scales[block]).is_nan(), n_nan)
                    };
                    assert_eq!(
                        [0, 1, 2].map(is_nan),
                        [(false, 0), (true, BLOCK), (false, 0)],
                        "{at} on {}",
                        isa.name()
                    );
                }
            }
        }
    }

    #[test]
    fn halves_go_away_from_zero_and_what_is_beside_them_does_not() {
        // Scale 1: numbers are themselves.
        for whole in 0..127 {
            let half = whole as f32 + 0.5;
            let beside = [half, half.next_down(), half.next_up(), whole as f32];
            let both: Vec<f32> = beside.iter().flat_map(|&x| [x, -x]).collect();
            check(&around(127.0, &both), RULE);
        }
    }

    #[test]
    fn other_rules_are_followed() {
        let x = testing::numbers(40 * BLOCK, 5);
        for (divisor, least, offset) in [(1.0, 0.5, -128), (127.0, 1e-3, -100), (100.0, 1e-8, 0), (8.0, 1e-30, -255)] {
            check(&x, BlockRule { divisor, least, offset });
        }
    }

    #[test]
    fn no_block_is_no_work() {
        check(&[], RULE);
    }

    proptest! {
        #[test]
        fn every_unit_makes_the_same_bits(n_blocks in 1usize..40, seed: u64, exponent in -45i32..39) {
            let x: Vec<f32> = testing::numbers(n_blocks * BLOCK, seed).iter().map(|x| x * 10f32.powi(exponent)).collect();
            check(&x, RULE);
        }

        #[test]
        fn whatever_the_bits_of_the_numbers(bits in proptest::collection::vec(any::<u32>(), BLOCK..=3 * BLOCK)) {
            let x: Vec<f32> = bits[..bits.len() / BLOCK * BLOCK].iter().map(|&bits| f32::from_bits(bits)).collect();
            check(&x, RULE);
        }
    }
}

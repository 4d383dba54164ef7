//! Packed weights back into quantised values and scales, as a client described them; nothing is lost on the way.

use super::half_blocks::{self, SUB};
use super::packed::{BLOCK, Bits, Packed, Packing, Scales};
use super::simd::dot::GROUP;
use super::{block_values, k_blocks};
use crate::bytes::Bytes;

/// How the matrix was given to whoever packed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Portable {
    /// Rows.
    pub(crate) rows: usize,
    /// Columns.
    pub(crate) cols: usize,
    /// Columns that share a scale.
    pub(crate) block: usize,
    /// Two values of 4 bits per byte, the earlier in the lower half.
    pub(crate) halves: bool,
}

impl Portable {
    /// Bytes of the values.
    pub(crate) fn values_bytes(self) -> usize {
        let n = self.rows * self.cols;
        if self.halves { n.div_ceil(2) } else { n }
    }

    /// Bytes of the scales, an f32 each.
    pub(crate) fn scales_bytes(self) -> usize {
        self.rows * (self.cols / self.block) * size_of::<f32>()
    }

    /// Why `form` cannot be such a matrix in this packing, as (expected, found).
    ///
    /// # Errors
    /// That.
    pub(crate) fn check(self, packing: Packing, form: &[u8]) -> Result<(), (String, String)> {
        let blocks = match (packing.bits, packing.scales) {
            (_, Scales::Row) => {
                return Err(("a packing with a scale for each block".to_owned(), format!("{packing:?}")));
            }
            (Bits::HalfMinima, Scales::Block) => self.block == half_blocks::STRETCH / SUB,
            (bits, Scales::Block) if half_blocks::are_of(bits) => {
                self.block == SUB && self.cols.is_multiple_of(half_blocks::STRETCH)
            }
            (Bits::Minima, Scales::Block) => self.block == k_blocks::BLOCKS,
            (bits, Scales::Block) if k_blocks::are_of(bits) => {
                self.block == BLOCK && self.cols.is_multiple_of(k_blocks::STRETCH)
            }
            (_, Scales::Block) => self.block != 0 && self.block.is_multiple_of(BLOCK),
        };
        if !blocks || !self.cols.is_multiple_of(self.block) {
            return Err((format!("blocks that {packing:?} has in rows of {}", self.cols), self.block.to_string()));
        }
        if self.halves && !matches!(packing.bits, Bits::Four | Bits::UFour | Bits::UTwo) {
            return Err(("values of 4 bits where two share a byte".to_owned(), format!("{packing:?}")));
        }
        match packing.size_bytes(self.rows, self.cols) {
            Some(size) if size == form.len() => Ok(()),
            _ => Err((format!("{packing:?} of {} x {}", self.rows, self.cols), format!("{} bytes", form.len()))),
        }
    }

    /// The values.
    pub(crate) fn values(self, packing: Packing, form: &[u8]) -> Bytes {
        let packed = Packed::new(form, packing, self.rows, self.cols);
        let mut row = vec![0; self.cols];
        Bytes::filled(self.values_bytes(), |to| {
            for r in 0..self.rows {
                packed.values_of(r, &mut row);
                for (i, &value) in (r * self.cols..).zip(&row) {
                    match self.halves {
                        true => to[i / 2] |= (value.cast_unsigned() & 15) << (i % 2 * 4),
                        false => to[i] = value.cast_unsigned(),
                    }
                }
            }
        })
    }

    /// The scales, f32 in little-endian order.
    pub(crate) fn scales(self, packing: Packing, form: &[u8]) -> Bytes {
        let mut to = Vec::with_capacity(self.scales_bytes());
        self.each_scale(packing, form, |scale| to.extend(scale.to_le_bytes()));
        Bytes::copy_from(&to)
    }

    /// The first scale that is not finite, and its block.
    pub(crate) fn first_odd_scale(self, packing: Packing, form: &[u8]) -> Option<(usize, f32)> {
        let (mut block, mut odd) = (0, None);
        self.each_scale(packing, form, |scale| {
            if !scale.is_finite() && odd.is_none() {
                odd = Some((block, scale));
            }
            block += 1;
        });
        odd
    }

    fn each_scale(self, packing: Packing, form: &[u8], mut take: impl FnMut(f32)) {
        let packed = Packed::new(form, packing, self.rows, self.cols);
        let mut row = vec![0.0; packing.scales_of_row(self.cols)];
        // A block of the client's may be several of the packing's, all with its scale.
        let repeat = row.len() / (self.cols / self.block).max(1);
        for r in 0..self.rows {
            packed.scales_of(r, &mut row);
            row.iter().step_by(repeat.max(1)).for_each(|&scale| take(scale));
        }
    }
}

impl Packed<'_> {
    /// The quantised values of row `row`.
    fn values_of(&self, row: usize, to: &mut [i8]) {
        let (packing, group) = (self.packing(), self.group_of(row));
        let row = row % GROUP;
        if packing.by_halves() {
            let stretches = group.chunks_exact(packing.stretch_bytes()).zip(to.chunks_mut(packing.stretch_cols()));
            stretches.for_each(|(stretch, to)| half_blocks::values_of(packing.bits, stretch, row, to));
            return;
        }
        if k_blocks::are_of(packing.bits) {
            let stretches = group.chunks_exact(packing.stretch_bytes()).zip(to.chunks_mut(packing.stretch_cols()));
            stretches.for_each(|(stretch, to)| k_blocks::values_of(packing.bits, stretch, row, to));
            return;
        }
        for (block, to) in to.chunks_mut(BLOCK).enumerate() {
            let values = &group[packing.block_at(block)..];
            for (col, to) in to.iter_mut().enumerate() {
                *to = block_values::read(packing.bits, values, row, col);
            }
        }
    }

    /// The scales of row `row`: [`Packing::scales_of_row`] many.
    fn scales_of(&self, row: usize, to: &mut [f32]) {
        let (packing, group) = (self.packing(), self.group_of(row));
        let row = row % GROUP;
        if packing.by_halves() {
            let per_stretch = packing.scales_of_row(packing.stretch_cols());
            let stretches = group.chunks_exact(packing.stretch_bytes()).zip(to.chunks_mut(per_stretch));
            stretches.for_each(|(stretch, to)| half_blocks::scales_of(packing.bits, stretch, row, to));
            return;
        }
        if k_blocks::are_of(packing.bits) {
            let per_stretch = packing.scales_of_row(packing.stretch_cols());
            let stretches = group.chunks_exact(packing.stretch_bytes()).zip(to.chunks_mut(per_stretch));
            stretches.for_each(|(stretch, to)| k_blocks::scales_of(packing.bits, stretch, row, to));
            return;
        }
        for (block, to) in to.iter_mut().enumerate() {
            *to = packing.scale_of(group, row, block);
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use proptest::prelude::*;

    use super::super::packed::Packer;
    use super::*;

    /// Values and scales that `packing` holds without loss, by a seed.
    fn matrix(packing: Packing, portable: Portable, seed: u64) -> (Vec<i8>, Vec<f32>) {
        let mut state = seed | 1;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as i64
        };
        let (low, count) = match packing.bits {
            Bits::UTwo => (0, 4),
            Bits::HalfMinima => (0, 16),
            Bits::Three => (-4, 8),
            Bits::Four => (-8, 16),
            Bits::Five => (-16, 32),
            Bits::Six => (-32, 64),
            Bits::Eight => (-128, 256),
            Bits::UFour | Bits::Levels | Bits::Nonlinear | Bits::FloatFour => (0, 16),
            Bits::UFive => (0, 32),
            Bits::Minima => (0, 128),
        };
        let value = |drawn: i64| match packing.bits {
            Bits::Levels | Bits::Nonlinear => k_blocks::LEVELS[drawn as usize],
            Bits::FloatFour => block_values::FLOATS[drawn as usize],
            _ => drawn as i8,
        };
        let values = (0..portable.rows * portable.cols).map(|_| value(next() % count + low)).collect();
        let n_scales = portable.rows * portable.cols / portable.block;
        let scales = match packing.bits {
            Bits::UFour | Bits::UFive | Bits::Levels => {
                (0..n_scales).map(|i| ((next() % 64) as f32) * [0.5, 0.25][i / 8 % 2]).collect()
            }
            Bits::UTwo => (0..n_scales).map(|i| ((next() % 16) as f32) * [0.5, 0.25][i / 16 % 2]).collect(),
            Bits::Six | Bits::Three => {
                (0..n_scales).map(|i| ((next() % 255 - 127) as f32) * [0.5, 0.25][i / 16 % 2]).collect()
            }
            Bits::FloatFour => (0..n_scales).map(|_| f32::from_bits(((next() % 247) as u32) << 23)).collect(),
            _ => (0..n_scales).map(|_| f16::from_f32((next() % 4001 - 2000) as f32 / 999.0).to_f32()).collect(),
        };
        (values, scales)
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(rows in 1usize..40, blocks in 1usize..6, form in 0usize..14, seed: u64) {
            let (bits, block) = [
                (Bits::Four, 32), (Bits::Eight, 32), (Bits::Six, SUB), (Bits::Four, 64), (Bits::UFour, 32),
                (Bits::UFive, 32), (Bits::Levels, 32), (Bits::Minima, k_blocks::BLOCKS),
                (Bits::Five, 32), (Bits::Nonlinear, 64), (Bits::Three, SUB), (Bits::UTwo, SUB), (Bits::HalfMinima, half_blocks::STRETCH / SUB),
                (Bits::FloatFour, 32),
            ][form];
            let packing = Packing { bits, scales: Scales::Block };
            let whole = matches!(bits, Bits::Six | Bits::Three | Bits::UTwo | Bits::UFour | Bits::UFive | Bits::Levels);
            let cols = if whole { half_blocks::STRETCH * blocks } else { block * blocks };
            for halves in [false, matches!(bits, Bits::Four | Bits::UFour | Bits::UTwo)] {
                let portable = Portable { rows, cols, block, halves };
                let (values, scales) = matrix(packing, portable, seed);
                let mut data = vec![0; packing.size_bytes(rows, cols).expect("small")];
                let mut packer = Packer::new(&mut data, packing, rows, cols);
                let repeat = packing.scales_of_row(cols) / (cols / block);
                for r in 0..rows {
                    let of_row = &scales[r * (cols / block)..(r + 1) * (cols / block)];
                    let wide: Vec<f32> = of_row.iter().flat_map(|&s| std::iter::repeat_n(s, repeat)).collect();
                    packer.row(r, &values[r * cols..(r + 1) * cols], &wide).expect("they fit");
                }
                portable.check(packing, &data).expect("it is one");
                let back = portable.values(packing, &data);
                let at = |i: usize| match halves {
                    true if bits != Bits::Four => (back[i / 2] >> (i % 2 * 4) & 15).cast_signed(),
                    true => (back[i / 2] >> (i % 2 * 4) << 4).cast_signed() >> 4,
                    false => back[i].cast_signed(),
                };
                prop_assert_eq!(back.len(), portable.values_bytes());
                prop_assert!((0..values.len()).all(|i| at(i) == values[i]));
                // As numbers: a zero may lose its sign in Q6_K's two levels, which no product can tell.
                let back = portable.scales(packing, &data);
                let back = back.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
                prop_assert!(back.eq(scales.iter().copied()), "scales");
                prop_assert_eq!(portable.first_odd_scale(packing, &data), None);
            }
        }
    }

    #[test]
    fn what_cannot_be_such_a_matrix_is_refused() {
        let four = Packing { bits: Bits::Four, scales: Scales::Block };
        let good = Portable { rows: 3, cols: 64, block: 32, halves: true };
        let form = vec![0; four.size_bytes(3, 64).expect("small")];
        assert_eq!(good.check(four, &form), Ok(()));
        for bad in [
            Portable { rows: 17, ..good },
            Portable { block: 0, ..good },
            Portable { block: 16, ..good },
            Portable { block: 96, ..good },
            Portable { rows: usize::MAX, ..good },
        ] {
            assert!(bad.check(four, &form).is_err(), "{bad:?}");
        }
        let (six, row) = (Bits::Six, Packing { scales: Scales::Row, ..four });
        assert!(good.check(Packing { bits: six, ..four }, &form).is_err());
        assert!(good.check(row, &form).is_err());
    }
}

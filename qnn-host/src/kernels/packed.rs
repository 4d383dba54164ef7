//! Weights of 4, 5 or 8 bits, laid out for the product kernels of every instruction set.
//!
//! A weight is `value * scale`: signed quantised values, -8..=7, -16..=15, -128..=127 or one of sixteen levels or floats, and a scale for
//! each row or for each block of 32 along the row. Block scales are f16, as in Q4_0, Q5_0, IQ4_NL and Q8_0, or powers of two, as in MXFP4,
//! whose values and scales this layout keeps bit for bit.
//!
//! *Layout*: sixteen rows form a group, 64 columns a stretch; bytes of missing rows and columns are 0. One stream of bytes, read
//! once from front to back by a product with a vector:
//!
//! ```text
//! group   [row scales: 16 x f32]                              with scales by row
//!         stretch, stretch, ...
//! stretch [block scales: 2 blocks x 16 rows x f16]            with scales by block; a byte each beside floats
//!         block 0, block 1
//! block   512 bytes with 8 bits, 320 with 5, 256 with 4       see `block_values.rs`
//! ```
//!
//! Values of 6, 3 and 2 bits have steps and scales of their own, and longer stretches: see `half_blocks.rs`. So have unsigned ones and levels as in
//! IQ4_XS, the former perhaps with minima beside them: see `k_blocks.rs`.
//!
//! The same bytes serve every CPU: what differs is how many of the sixteen rows fit in a register. Bytes that begin at a
//! multiple of 64 keep every load inside a cache line, except beside floats, whose stretches have 544 bytes: there half of the loads of
//! 64 bytes take two.

use std::fmt;

use super::half_blocks::{self, Unfit};
pub(crate) use super::simd::dot::{BLOCK, GROUP};
use super::{block_values, k_blocks};

/// Columns of a stretch.
pub(super) const STRETCH: usize = 2 * BLOCK;
/// Bytes of a group's scales, and of a stretch's where they are f16.
pub(super) const SCALES_BYTES: usize = 64;

/// Bits of a quantised value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// 0..=3, with scales for each 16 columns that are whole numbers 0..=15 times one number for each 256.
    UTwo,
    /// -4..=3, with scales for each 16 columns that are whole numbers times one number for each 256.
    Three,
    /// -8..=7.
    Four,
    /// -16..=15.
    Five,
    /// -32..=31, with such scales.
    Six,
    /// -128..=127.
    Eight,
    /// 0..=15, with scales for each 32 columns that are whole numbers times one number for each 256.
    UFour,
    /// 0..=31, with such scales.
    UFive,
    /// One of sixteen levels, with such scales.
    Levels,
    /// One of sixteen levels.
    Nonlinear,
    /// One of sixteen floats, 0, 0.5, 1, 1.5, 2, 3, 4 and 6 with either sign, as twice that; scales are powers of two.
    FloatFour,
    /// Not weights but what is taken off them: 0..=127 for each 32 columns, and a scale for each 256.
    Minima,
    /// The same for weights with scales for each 16: 0..=15 for each 16 columns, and a scale for each 256.
    HalfMinima,
}

/// What shares a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scales {
    /// Blocks of 32 along a row; an f16 each.
    Block,
    /// A whole row; an f32 each.
    Row,
}

/// A format of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packing {
    /// Bits of a quantised value.
    pub bits: Bits,
    /// What shares a scale.
    pub scales: Scales,
}

impl Packing {
    /// All formats.
    pub const ALL: [Self; 15] = [
        Self { bits: Bits::Four, scales: Scales::Block },
        Self { bits: Bits::Eight, scales: Scales::Block },
        Self { bits: Bits::Four, scales: Scales::Row },
        Self { bits: Bits::Eight, scales: Scales::Row },
        Self { bits: Bits::Six, scales: Scales::Block },
        Self { bits: Bits::UFour, scales: Scales::Block },
        Self { bits: Bits::UFive, scales: Scales::Block },
        Self { bits: Bits::Levels, scales: Scales::Block },
        Self { bits: Bits::Five, scales: Scales::Block },
        Self { bits: Bits::Nonlinear, scales: Scales::Block },
        Self { bits: Bits::Three, scales: Scales::Block },
        Self { bits: Bits::UTwo, scales: Scales::Block },
        Self { bits: Bits::FloatFour, scales: Scales::Block },
        Self::MINIMA,
        Self::HALF_MINIMA,
    ];

    /// The format of minima, which go with weights of another: a column for each 32 of theirs.
    pub const MINIMA: Self = Self { bits: Bits::Minima, scales: Scales::Block };

    /// The format of minima of weights with scales for each 16: a column for each 16 of theirs.
    pub const HALF_MINIMA: Self = Self { bits: Bits::HalfMinima, scales: Scales::Block };

    /// Names the format and its version in files.
    pub(crate) fn tag(self) -> u32 {
        const VERSION: u32 = 1;
        let bits = match self.bits {
            Bits::Three => 3,
            Bits::Four => 4,
            Bits::Five => 5,
            Bits::Six => 6,
            Bits::Eight => 8,
            Bits::UFour => 0x14,
            Bits::UFive => 0x15,
            Bits::Levels => 0x24,
            Bits::Nonlinear => 0x34,
            Bits::FloatFour => 0x44,
            Bits::Minima => 0x17,
            Bits::UTwo => 0x12,
            Bits::HalfMinima => 0x1C,
        };
        let scales = u32::from(self.scales == Scales::Row);
        bits << 16 | scales << 8 | VERSION
    }

    /// The format that a tag names, if it is known.
    pub fn from_tag(tag: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|packing| packing.tag() == tag)
    }

    /// Bytes of a matrix of `rows` x `cols`; `None` if that is too many to count.
    pub fn size_bytes(self, rows: usize, cols: usize) -> Option<usize> {
        let stretches = cols.div_ceil(self.stretch_cols()).checked_mul(self.stretch_bytes())?;
        rows.div_ceil(GROUP).checked_mul(stretches.checked_add(self.group_header())?)
    }

    pub(super) const fn block_bytes(self) -> usize {
        match self.bits {
            bits if half_blocks::are_of(bits) => half_blocks::block_bytes(bits),
            bits if k_blocks::are_of(bits) => k_blocks::block_bytes(bits),
            bits => block_values::block_bytes(bits),
        }
    }

    pub(super) const fn stretch_header(self) -> usize {
        match (self.bits, self.scales) {
            (bits, _) if half_blocks::are_of(bits) => half_blocks::blocks_at(bits),
            (bits, _) if k_blocks::are_of(bits) => k_blocks::BLOCKS_AT,
            (bits, Scales::Block) => 2 * GROUP * block_values::scale_bytes(bits),
            (_, Scales::Row) => 0,
        }
    }

    /// Columns of a stretch.
    pub(super) const fn stretch_cols(self) -> usize {
        match self.bits {
            Bits::HalfMinima => half_blocks::STRETCH / half_blocks::SUB,
            bits if half_blocks::are_of(bits) => half_blocks::STRETCH,
            Bits::Minima => k_blocks::BLOCKS,
            bits if k_blocks::are_of(bits) => k_blocks::STRETCH,
            _ => STRETCH,
        }
    }

    pub(super) fn group_header(self) -> usize {
        if self.scales == Scales::Row { SCALES_BYTES } else { 0 }
    }

    pub(super) const fn stretch_bytes(self) -> usize {
        self.stretch_header() + self.stretch_cols() / BLOCK * self.block_bytes()
    }

    /// Whether scales are those of 16 columns, so that products are summed up for each half of a block.
    pub(crate) const fn by_halves(self) -> bool {
        half_blocks::are_of(self.bits)
    }

    /// Whether minima may be taken off such weights.
    pub fn takes_minima(self) -> bool {
        self.minima().is_some()
    }

    /// The format of minima that may be taken off such weights.
    pub fn minima(self) -> Option<Self> {
        match self.bits {
            Bits::UFour | Bits::UFive => Some(Self::MINIMA),
            Bits::UTwo => Some(Self::HALF_MINIMA),
            _ => None,
        }
    }

    /// Whether it holds no weights but minima.
    pub fn is_minima(self) -> bool {
        self == Self::MINIMA || self == Self::HALF_MINIMA
    }

    /// Columns of weights that share a minimum.
    pub fn minimum_cols(self) -> usize {
        if self.by_halves() { half_blocks::SUB } else { BLOCK }
    }

    /// Where block `block` of the group that begins at 0 begins.
    pub(super) fn block_at(self, block: usize) -> usize {
        let in_stretch = self.stretch_header() + block % 2 * self.block_bytes();
        self.group_header() + block / 2 * self.stretch_bytes() + in_stretch
    }

    /// Where the scale of row `row` of the group for `block` is: an f32 with scales by row, otherwise what [`block_values`] says.
    pub(super) fn scale_at(self, row: usize, block: usize) -> usize {
        match self.scales {
            Scales::Row => 4 * row,
            Scales::Block => {
                let in_stretch = block_values::scale_bytes(self.bits) * (block % 2 * GROUP + row);
                block / 2 * self.stretch_bytes() + in_stretch
            }
        }
    }

    /// That scale.
    pub(super) fn scale_of(self, group: &[u8], row: usize, block: usize) -> f32 {
        let from = &group[self.scale_at(row, block)..];
        match self.scales {
            Scales::Row => f32::from_le_bytes([from[0], from[1], from[2], from[3]]),
            Scales::Block => block_values::read_scale(self.bits, from),
        }
    }

    /// Scales of a row of `cols` columns.
    pub fn scales_of_row(self, cols: usize) -> usize {
        match (self.bits, self.scales) {
            (_, Scales::Row) => 1,
            (Bits::HalfMinima, _) => cols.div_ceil(half_blocks::STRETCH / half_blocks::SUB),
            (bits, _) if half_blocks::are_of(bits) => cols.div_ceil(half_blocks::SUB),
            (Bits::Minima, _) => cols.div_ceil(k_blocks::BLOCKS),
            _ => cols.div_ceil(BLOCK),
        }
    }
}

/// A packed matrix of `rows` x `cols`.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    data: &'a [u8],
    /// In groups as the matrix; empty if it has none.
    minima: &'a [u8],
    packing: Packing,
    rows: usize,
    cols: usize,
}

impl<'a> Packed<'a> {
    /// Views bytes that a [`Packer`] wrote.
    ///
    /// # Panics
    /// When the bytes are not [`Packing::size_bytes`] many.
    pub fn new(data: &'a [u8], packing: Packing, rows: usize, cols: usize) -> Self {
        assert_eq!(Some(data.len()), packing.size_bytes(rows, cols), "{packing:?} of {rows} x {cols}");
        Self { data, minima: &[], packing, rows, cols }
    }

    /// With a minimum for each 32 columns, or 16, in the format [`Packing::minima`]: weights are so much less.
    ///
    /// # Panics
    /// When the format takes none, or the bytes are not that many.
    pub fn with_minima(self, minima: &'a [u8]) -> Self {
        let Some(format) = self.packing.minima() else { panic!("{:?} with minima", self.packing) };
        let size = format.size_bytes(self.rows, self.cols.div_ceil(self.packing.minimum_cols()));
        assert_eq!(Some(minima.len()), size, "minima of {} x {}", self.rows, self.cols);
        Self { minima, ..self }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Format.
    pub fn packing(&self) -> Packing {
        self.packing
    }

    /// Rows `range`, which begin at a group.
    ///
    /// # Panics
    /// When they do not, or do not lie inside.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        assert!(range.start.is_multiple_of(GROUP) && range.end <= self.rows, "rows {range:?} of {}", self.rows);
        let bytes = self.group_bytes();
        let data = &self.data[range.start / GROUP * bytes..range.end.div_ceil(GROUP) * bytes];
        let bytes = self.minima_bytes();
        let minima = &self.minima[range.start / GROUP * bytes..range.end.div_ceil(GROUP) * bytes];
        Self { data, minima, rows: range.len(), ..*self }
    }

    /// Start of group `group` (rows `16 * group ..`).
    pub(super) fn group(&self, group: usize) -> *const u8 {
        self.data[group * self.group_bytes()..].as_ptr()
    }

    /// Start of the minima of group `group`, if it has some.
    pub(super) fn minima(&self, group: usize) -> Option<*const u8> {
        let has_some = !self.minima.is_empty();
        has_some.then(|| self.minima[group * self.minima_bytes()..].as_ptr())
    }

    /// Bytes of a group's minima.
    fn minima_bytes(&self) -> usize {
        let stretches = if self.minima.is_empty() { 0 } else { self.cols.div_ceil(k_blocks::STRETCH) };
        stretches * k_blocks::BLOCKS_AT
    }

    /// The bytes of the group that row `row` is in.
    pub(super) fn group_of(&self, row: usize) -> &'a [u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        &self.data[row / GROUP * self.group_bytes()..][..self.group_bytes()]
    }

    /// Bytes from group to group.
    pub(super) fn group_bytes(&self) -> usize {
        group_bytes(self.packing, self.cols)
    }

    /// Widens row `row`, as an embedding look-up needs it, and takes its minima off.
    ///
    /// # Panics
    /// When there is no such row or `to` has not `cols` numbers.
    pub fn row(&self, row: usize, to: &mut [f32]) {
        assert!(to.len() == self.cols, "row {row} of {} columns into {} numbers", self.cols, to.len());
        self.values_of_row(row, to);
        let minima = &self.minima[row / GROUP * self.minima_bytes()..][..self.minima_bytes()];
        for (minima, to) in minima.chunks_exact(k_blocks::BLOCKS_AT).zip(to.chunks_mut(k_blocks::STRETCH)) {
            let (shared, mut less) = (self.packing.minimum_cols(), [0.0; half_blocks::STRETCH / half_blocks::SUB]);
            if self.packing.by_halves() {
                half_blocks::read(Bits::HalfMinima, minima, row % GROUP, &mut less);
            } else {
                k_blocks::read(Bits::Minima, minima, row % GROUP, &mut less[..k_blocks::BLOCKS]);
            }
            to.chunks_mut(shared).zip(less).for_each(|(to, less)| to.iter_mut().for_each(|to| *to -= less));
        }
    }

    /// Row `row` without regard to minima.
    fn values_of_row(&self, row: usize, to: &mut [f32]) {
        let group = self.group_of(row);
        let (packing, row) = (self.packing, row % GROUP);
        if packing.by_halves() {
            let stretches = group.chunks_exact(packing.stretch_bytes()).zip(to.chunks_mut(packing.stretch_cols()));
            stretches.for_each(|(stretch, to)| half_blocks::read(packing.bits, stretch, row, to));
            return;
        }
        if k_blocks::are_of(packing.bits) {
            let stretches = group.chunks_exact(packing.stretch_bytes()).zip(to.chunks_mut(packing.stretch_cols()));
            stretches.for_each(|(stretch, to)| k_blocks::read(packing.bits, stretch, row, to));
            return;
        }
        for (block, to) in to.chunks_mut(BLOCK).enumerate() {
            let scale = packing.scale_of(group, row, block);
            let values = &group[packing.block_at(block)..];
            for (col, to) in to.iter_mut().enumerate() {
                *to = f32::from(block_values::read(packing.bits, values, row, col)) * scale;
            }
        }
    }
}

/// Bytes from group to group.
fn group_bytes(packing: Packing, cols: usize) -> usize {
    packing.group_header() + cols.div_ceil(packing.stretch_cols()) * packing.stretch_bytes()
}

impl fmt::Debug for Packed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({:?}, {} x {})", self.packing, self.rows, self.cols)
    }
}

/// Why a row cannot be packed without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PackError {
    /// A block's scale needs more bits.
    Scale {
        /// The row.
        row: usize,
        /// The block.
        block: usize,
        /// Its scale.
        scale: f32,
    },
    /// A quantised value needs more bits.
    Value {
        /// The row.
        row: usize,
        /// The column.
        col: usize,
        /// The value.
        value: i8,
    },
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scale { row, block, scale } => {
                write!(f, "scale {scale} of row {row}, block {block}: expected a number that the format holds exactly")
            }
            Self::Value { row, col, value } => {
                write!(f, "value {value} of row {row}, column {col}: expected one that the format's bits hold")
            }
        }
    }
}

impl std::error::Error for PackError {}

/// Writes a matrix row by row, in any order.
pub struct Packer<'a> {
    data: &'a mut [u8],
    packing: Packing,
    rows: usize,
    cols: usize,
}

impl<'a> Packer<'a> {
    /// Begins a matrix of zeros in `data`.
    ///
    /// # Panics
    /// When the bytes are not [`Packing::size_bytes`] many.
    pub fn new(data: &'a mut [u8], packing: Packing, rows: usize, cols: usize) -> Self {
        assert_eq!(Some(data.len()), packing.size_bytes(rows, cols), "{packing:?} of {rows} x {cols}");
        data.fill(0);
        Self { data, packing, rows, cols }
    }

    /// Writes row `row`: its signed quantised values and its scales ([`Packing::scales_of_row`] many).
    ///
    /// # Errors
    /// A value or a scale that the format cannot hold; the row is then partly written.
    ///
    /// # Panics
    /// When there is no such row, or the lengths are wrong.
    pub fn row(&mut self, row: usize, values: &[i8], scales: &[f32]) -> Result<(), PackError> {
        let (packing, cols) = (self.packing, self.cols);
        assert!(row < self.rows && values.len() == cols, "row {row} of {}, {} values", self.rows, values.len());
        assert_eq!(scales.len(), packing.scales_of_row(cols), "scales of a row");
        let group_bytes = group_bytes(packing, cols);
        let group = &mut self.data[row / GROUP * group_bytes..][..group_bytes];
        let in_group = row % GROUP;
        if packing.by_halves() || k_blocks::are_of(packing.bits) {
            return Self::row_of_two_levels(packing, group, row, values, scales);
        }
        for (block, &scale) in scales.iter().enumerate() {
            let at = packing.scale_at(in_group, block);
            match packing.scales {
                Scales::Row => group[at..at + 4].copy_from_slice(&scale.to_le_bytes()),
                Scales::Block => {
                    if !block_values::write_scale(packing.bits, &mut group[at..], scale) {
                        return Err(PackError::Scale { row, block, scale });
                    }
                }
            }
        }
        for (block, values) in values.chunks(BLOCK).enumerate() {
            let to = &mut group[packing.block_at(block)..][..packing.block_bytes()];
            for (i, &value) in values.iter().enumerate() {
                if !block_values::write(packing.bits, to, in_group, i, value) {
                    return Err(PackError::Value { row, col: block * BLOCK + i, value });
                }
            }
        }
        Ok(())
    }

    fn row_of_two_levels(
        packing: Packing,
        group: &mut [u8],
        row: usize,
        values: &[i8],
        scales: &[f32],
    ) -> Result<(), PackError> {
        let (cols, per_stretch) = (packing.stretch_cols(), packing.scales_of_row(packing.stretch_cols()));
        let parts = values.chunks(cols).zip(scales.chunks(per_stretch));
        for (i, (stretch, (values, scales))) in group.chunks_exact_mut(packing.stretch_bytes()).zip(parts).enumerate() {
            let written = match packing.bits {
                bits if half_blocks::are_of(bits) => half_blocks::write(bits, stretch, row % GROUP, values, scales),
                bits => k_blocks::write(bits, stretch, row % GROUP, values, scales),
            };
            written.map_err(|unfit| match unfit {
                Unfit::Scales => PackError::Scale { row, block: i * per_stretch, scale: scales[0] },
                Unfit::Value(at) => PackError::Value { row, col: i * cols + at, value: values[at] },
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{less, packed_minima, packed_numbers};
    use super::*;

    proptest! {
        #[test]
        fn rows_come_back_as_they_went_in(rows in 1usize..40, cols in 1usize..600, format in 0..Packing::ALL.len(), seed: u64) {
            let packing = Packing::ALL[format];
            let (bytes, stored) = packed_numbers(packing, rows, cols, seed);
            let packed = Packed::new(&bytes, packing, rows, cols);
            let mut row = vec![f32::NAN; cols];
            for (r, expected) in stored.chunks_exact(cols).enumerate() {
                packed.row(r, &mut row);
                prop_assert_eq!(&row[..], expected, "row {}", r);
            }
            if packing.takes_minima() {
                let (minima, taken) = packed_minima(packing, rows, cols, seed ^ 1);
                let packed = packed.with_minima(&minima);
                for (r, expected) in less(&stored, &taken).chunks_exact(cols).enumerate() {
                    packed.row(r, &mut row);
                    prop_assert_eq!(&row[..], expected, "row {} less minima", r);
                }
            }
        }
    }

    #[test]
    fn sizes_are_those_of_the_formats() {
        // Four bits and a half for Q4_0, eight and a half for Q8_0, as there.
        let size = |i: usize| Packing::ALL[i].size_bytes(2048, 2048).expect("small");
        assert_eq!([0, 1, 2, 3].map(size), [2048 * 64 * 18, 2048 * 64 * 34, 2048 * 1028, 2048 * 2052]);
        // Q5_0 and IQ4_NL to the byte.
        assert_eq!([8, 9].map(size), [2048 * 64 * 22, 2048 * 64 * 18]);
        // MXFP4 too.
        assert_eq!(size(12), 2048 * 64 * 17);
        // Q6_K has 210 bytes for 256 weights; its scale is an f32 here.
        assert_eq!(size(4), 2048 * 8 * 212);
        // Q3_K has 110 bytes.
        assert_eq!(size(10), 2048 * 8 * 116);
        // Q2_K has 84; with an f32 for a scale and one for minima.
        let minima = Packing::HALF_MINIMA.size_bytes(2048, 2048 / 16).expect("small");
        assert_eq!([size(11), minima], [2048 * 8 * 76, 2048 * 8 * 12]);
        // Q4_K and Q5_K have 144 and 176 bytes for 256 weights, IQ4_XS 136; with an f32 for a scale and one for minima.
        let minima = Packing::MINIMA.size_bytes(2048, 2048 / 32).expect("small");
        let k_blocks = [size(5) + minima, size(6) + minima, size(7)];
        assert_eq!(k_blocks, [2048 * 8 * (140 + 12), 2048 * 8 * (172 + 12), 2048 * 8 * 140]);
        assert_eq!(Packing::ALL[0].size_bytes(1, 1), Some(576));
        assert_eq!(Packing::ALL[1].size_bytes(usize::MAX, usize::MAX), None);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let q4 = Packing::ALL[0];
        let mut bytes = vec![0; q4.size_bytes(2, 40).expect("small")];
        let mut packer = Packer::new(&mut bytes, q4, 2, 40);
        let mut values = [0i8; 40];
        let error = packer.row(1, &values, &[0.5, 1.000_1]).expect_err("no f16");
        assert_eq!(
            error.to_string(),
            "scale 1.0001 of row 1, block 1: expected a number that the format holds exactly"
        );
        values[33] = 8;
        let error = packer.row(1, &values, &[0.5, 1.0]).expect_err("five bits");
        assert_eq!(error.to_string(), "value 8 of row 1, column 33: expected one that the format's bits hold");

        let floats = Packing::ALL[12];
        let mut bytes = vec![0; floats.size_bytes(2, 40).expect("small")];
        let mut packer = Packer::new(&mut bytes, floats, 2, 40);
        let error = packer.row(1, &values, &[0.5, 3.0]).expect_err("no power of two");
        assert_eq!(error.to_string(), "scale 3 of row 1, block 1: expected a number that the format holds exactly");
        values[33] = 5;
        let error = packer.row(1, &values, &[0.5, 2.0]).expect_err("no float of 4 bits is 2.5");
        assert_eq!(error.to_string(), "value 5 of row 1, column 33: expected one that the format's bits hold");
    }
}

//! The rotary table: computed once in double, kept in the type the graphs take, copied row by row. A context may have more positions than
//! are ever used, so that rows are computed as far as a dialog comes.
//!
//! *Shapes*: `[positions, rope_dim]` for cos and for sin. *Units and dtype*: float16, float32 or quantised; a quantised value is
//! the number cut down to the next lower step, as libGenie makes it.
//! *Traps*: rows of padding have position 0 (cos of the amplitude, sin 0), not the position they stand at.

use genie_types::RopeAngles;
use kvmanager::{Columns, SeqId};

use crate::grids::Grids;
use crate::quant::{QuantParams, Rounding};

/// Cos or sin rows in one encoding.
#[derive(Debug)]
pub(crate) struct RopeTable {
    rows: Vec<u8>,
    row_bytes: usize,
    angles: RopeAngles,
    sin: bool,
    encoding: QuantParams,
    n_positions: usize,
    /// The axis of each angle, where tokens have three positions.
    axes: Option<Vec<usize>>,
}

/// Positions that are computed at a time.
const BLOCK: usize = 4096;

impl RopeTable {
    /// Rows for positions `0..n_positions`, the first of them computed.
    pub(crate) fn new(angles: RopeAngles, n_positions: usize, sin: bool, encoding: QuantParams) -> Self {
        let row_bytes = angles.frequencies.len() * encoding.size_bytes();
        let mut made = Self { rows: Vec::new(), row_bytes, angles, sin, encoding, n_positions, axes: None };
        made.reach(1);
        made
    }

    /// Computes rows until positions `0..n` are there, `n` at most [`n_positions`](Self::n_positions).
    pub(crate) fn reach(&mut self, n: usize) {
        let done = self.rows.len() / self.row_bytes.max(1);
        if n <= done {
            return;
        }
        let RopeAngles { frequencies, amplitude } = &self.angles;
        let until = n.next_multiple_of(BLOCK).min(self.n_positions);
        // A vector of bytes may start anywhere; values are encoded in an aligned row and copied.
        let mut row = crate::buffer::Buffer::zeroed(self.row_bytes);
        for position in done..until {
            let angles = frequencies.iter().map(|f| position as f64 * f);
            let numbers = angles.map(|angle| amplitude * if self.sin { angle.sin() } else { angle.cos() });
            self.encoding.encode(numbers, Rounding::Down, row.bytes_mut());
            self.rows.extend_from_slice(row.bytes());
        }
    }

    /// The same for tokens with three positions: the axis of each angle.
    pub(crate) fn with_axes(self, axes: Option<Vec<usize>>) -> Self {
        Self { axes, ..self }
    }

    /// True where tokens may have three positions.
    pub(crate) const fn has_axes(&self) -> bool {
        self.axes.is_some()
    }

    /// As [`Self::fill`]; those of sequence 0 have the positions that its images give them, which are at most their places.
    pub(crate) fn fill_on_axes(&self, bytes: &mut [u8], columns: &Columns, ar: usize, grids: &Grids) {
        self.fill(bytes, columns, ar);
        let Some(axes) = &self.axes else { return };
        let width = self.row_bytes / axes.len().max(1);
        let mut rows = bytes.chunks_exact_mut(self.row_bytes);
        for slice in columns.slices() {
            for (place, row) in (slice.first..slice.first + slice.n).zip(&mut rows) {
                if slice.seq != SeqId(0) {
                    continue;
                }
                let positions = grids.positions(place);
                for ((j, axis), to) in axes.iter().enumerate().zip(row.chunks_exact_mut(width)) {
                    to.copy_from_slice(&self.rows[positions[*axis] * self.row_bytes + j * width..][..width]);
                }
            }
        }
    }

    /// The rows that are computed, one after the other.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.rows
    }

    /// Bytes of a row.
    pub(crate) const fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Positions in the table.
    pub(crate) fn n_positions(&self) -> usize {
        self.n_positions
    }

    /// Fills `ar` rows: one for each column, the rest as position 0. The positions are [computed](Self::reach).
    pub(crate) fn fill(&self, bytes: &mut [u8], columns: &Columns, ar: usize) {
        let mut rest = &mut bytes[..ar * self.row_bytes];
        for slice in columns.slices() {
            let (rows, tail) = std::mem::take(&mut rest).split_at_mut(slice.n * self.row_bytes);
            let first = slice.first * self.row_bytes;
            rows.copy_from_slice(&self.rows[first..first + rows.len()]);
            rest = tail;
        }
        rest.chunks_exact_mut(self.row_bytes).for_each(|row| row.copy_from_slice(&self.rows[..self.row_bytes]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::{Buffer, elements};
    use genie_types::{Dtype, Quant, RopeConfig};

    fn f32s() -> QuantParams {
        QuantParams::of(Dtype::F32, &Quant::None).unwrap()
    }

    #[test]
    fn rows_are_copied_and_padding_is_position_zero() {
        let angles = RopeConfig::new(2, 100.0).angles(8);
        let (cos, sin) = (RopeTable::new(angles.clone(), 8, false, f32s()), RopeTable::new(angles, 8, true, f32s()));
        assert_eq!(cos.n_positions(), 8);
        let mut buffer = Buffer::zeroed(4 * 2 * 3);
        cos.fill(buffer.bytes_mut(), &Columns::of(SeqId(0), 5, 2), 3);
        // 100^(-1/2) = 0.1
        let want = [5f64.cos(), 0.5f64.cos(), 6f64.cos(), 0.6f64.cos(), 1.0, 1.0].map(|x| x as f32);
        assert_eq!(elements::<f32>(buffer.bytes()), want);
        sin.fill(buffer.bytes_mut(), &Columns::of(SeqId(0), 7, 1), 3);
        let want = [7f64.sin(), 0.7f64.sin(), 0.0, 0.0, 0.0, 0.0].map(|x| x as f32);
        assert_eq!(elements::<f32>(buffer.bytes()), want);
    }

    #[test]
    fn sixteen_bit_values_are_cut() {
        let quant = Quant::PerTensor { scale: 2.0 / 65535.0, offset: -32768 };
        let angles = RopeConfig::new(16, 1e4).angles(128);
        let table = RopeTable::new(angles, 128, false, QuantParams::of(Dtype::UFixed16, &quant).unwrap());
        let mut buffer = Buffer::zeroed(128 * 16 * 2);
        table.fill(buffer.bytes_mut(), &Columns::of(SeqId(0), 0, 128), 128);
        for (i, &value) in elements::<u16>(buffer.bytes()).iter().enumerate() {
            let angle = (i / 16) as f64 * 1e4f64.powf(-((i % 16) as f64) / 16.0);
            let exact = angle.cos() / f64::from(2.0f32 / 65535.0) + 32768.0;
            assert!(f64::from(value) <= exact && exact < f64::from(value) + 1.0, "{i}: {value} for {exact}");
        }
    }
}

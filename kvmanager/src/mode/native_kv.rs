//! `NativeKv`: rows in the weight tiles of the Hexagon matrix unit, so that the graph need not repack its past.
//!
//! A matrix of `k` contraction rows by `n` columns is cut into tiles of 32 by 32; the tiles of one column of tiles
//! follow each other. Within a tile, 4 bytes worth of consecutive contraction rows are interleaved (four of uint8, two
//! of 16-bit types):
//!
//! ```text
//!   tiles (k = 64, n = 64)   |0 2|     one float16 tile   |a00 a10|a01 a11|a02 a12|..
//!                            |1 3|                        |a20 a30|a21 a31|a22 a32|..
//! ```
//!
//! Keys are `k = head_dim, n = sequence`: 32 tokens are one run of bytes and a longer past moves nothing within a
//! head. Values are `k = sequence, n = head_dim`. The past is padded to whole tiles.
//!
//! *Not proven*: that this is the order the hardware wants. The geometry is data, packing and unpacking are tested
//! against each other and against the formula, but the emulator refuses the format on plain graph inputs,
//! so no graph has read these tiles yet.

use super::{CacheMode, RowLayout};
use crate::buffer::fill;
use crate::error::{KvError, Reason};
use crate::geometry::{KvLayout, KvTensor};
use crate::rows::{Rows, transfer_elements};

/// Extents of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Contraction rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Bytes of interleaved contraction rows at each column.
    pub word_bytes: usize,
}

impl Tile {
    /// Contraction rows interleaved for a type.
    const fn interleave(&self, elem_bytes: usize) -> usize {
        if self.word_bytes > elem_bytes { self.word_bytes / elem_bytes } else { 1 }
    }

    /// Element of a tensor whose sequence is padded to `len`.
    pub fn element(&self, tensor: &KvTensor, len: usize, head: usize, dim: usize, row: usize) -> usize {
        let (k, n, n_k) = match tensor.layout {
            KvLayout::HeadDimSeq => (dim, row, tensor.head_dim),
            KvLayout::HeadSeqDim => (row, dim, len),
        };
        let each = self.interleave(tensor.dtype.size_bytes());
        let tile = n / self.cols * (n_k / self.rows) + k / self.rows;
        let (k, n) = (k % self.rows, n % self.cols);
        head * tensor.head_dim * len + tile * self.rows * self.cols + (k / each * self.cols + n) * each + k % each
    }

    /// Puts `n` rows in layout-neutral form (keys `[n_heads, head_dim, n]`, values `[n_heads, n, head_dim]`) into tiles;
    /// the sequence is padded to whole tiles with the tensor's pad value.
    ///
    /// # Errors
    /// [`KvError::Refused`] when the geometry does not divide into tiles, [`KvError::BadImage`] when `rows` has another
    /// size.
    pub fn pack(&self, tensor: &KvTensor, rows: &[u8], n: usize) -> Result<Vec<u8>, KvError> {
        let padded = self.check_rows(tensor, rows.len(), n)?;
        let mut tiles = vec![0; tensor.rows_bytes(padded)];
        let (element, size) = tensor.pad_element();
        fill(&mut tiles, &element[..size]);
        let src = Rows { bytes: rows, place: RowLayout::dense(n), row: 0 };
        let mut dst = Rows { bytes: &mut tiles[..], place: self.place(padded), row: 0 };
        transfer_elements(&tensor.canonical(), tensor, &src, &mut dst, n);
        Ok(tiles)
    }

    /// Takes `n` rows out of tiles again.
    ///
    /// # Errors
    /// As [`pack`](Self::pack).
    pub fn unpack(&self, tensor: &KvTensor, tiles: &[u8], n: usize) -> Result<Vec<u8>, KvError> {
        let n_tiled = n.next_multiple_of(self.rows.max(self.cols).max(1));
        let padded = self.check_rows(tensor, tiles.len(), n_tiled)?;
        let mut rows = vec![0; tensor.rows_bytes(n)];
        let src = Rows { bytes: tiles, place: self.place(padded), row: 0 };
        let mut dst = Rows { bytes: &mut rows[..], place: RowLayout::dense(n), row: 0 };
        transfer_elements(tensor, &tensor.canonical(), &src, &mut dst, n);
        Ok(rows)
    }

    fn check_rows(&self, tensor: &KvTensor, found: usize, n: usize) -> Result<usize, KvError> {
        let mode = NativeKv { tile: *self };
        let unfit = |why| KvError::UnfitTensor { mode: mode.name(), tensor: tensor.name(), why };
        mode.check(tensor).map_err(unfit)?;
        let expected = tensor.rows_bytes(n);
        if found != expected {
            let why = format!("`{}`: {found} bytes of {n} rows, expected {expected}", tensor.name());
            return Err(KvError::BadImage { why });
        }
        Ok(mode.padded(n))
    }

    fn place(self, padded: usize) -> RowLayout {
        RowLayout { tile: Some(self), ..RowLayout::dense(padded) }
    }

    /// Lines of whole tiles: how many there are, the elements of a block of tokens in each, and tokens of a block.
    pub(crate) fn lines(&self, tensor: &KvTensor) -> (usize, usize, usize) {
        match tensor.layout {
            KvLayout::HeadDimSeq => (tensor.n_heads, tensor.head_dim * self.cols, self.cols),
            KvLayout::HeadSeqDim => (tensor.n_heads * (tensor.head_dim / self.cols), self.rows * self.cols, self.rows),
        }
    }
}

/// Rows in tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NativeKv {
    /// The tile. Square, so that keys and values pad alike.
    pub tile: Tile,
}

impl NativeKv {
    /// The tiles of Hexagon's matrix unit.
    pub const HMX: Self = Self { tile: Tile { rows: 32, cols: 32, word_bytes: 4 } };
}

impl CacheMode for NativeKv {
    fn name(&self) -> &'static str {
        "native-kv"
    }

    fn padded(&self, n: usize) -> usize {
        n.next_multiple_of(self.tile.rows.max(self.tile.cols))
    }

    fn buffer_units(&self, tensor: &KvTensor, past_len: usize, _ar: usize) -> usize {
        tensor.n_lines() * self.padded(past_len)
    }

    fn place(&self, past_len: usize, _extent: usize) -> RowLayout {
        RowLayout { tile: Some(self.tile), ..RowLayout::dense(self.padded(past_len)) }
    }

    fn new_place(&self, ar: usize) -> RowLayout {
        RowLayout { tile: Some(self.tile), ..RowLayout::dense(self.padded(ar)) }
    }

    fn check(&self, tensor: &KvTensor) -> Result<(), Reason> {
        let Tile { rows, cols, .. } = self.tile;
        if rows == 0 || self.tile.word_bytes == 0 {
            return Err(Reason::EmptyTile);
        }
        if rows != cols {
            return Err(Reason::TileShape { rows, cols });
        }
        if rows % self.tile.interleave(tensor.dtype.size_bytes()) != 0 || !tensor.head_dim.is_multiple_of(rows) {
            return Err(Reason::TileDivision { head_dim: tensor.head_dim, rows, cols });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{KvDtype, KvKind};

    #[test]
    fn elements_follow_the_picture() {
        let key = KvTensor::new(KvKind::Key, 0, 1, 64, KvDtype::F16);
        let tile = NativeKv::HMX.tile;
        let at = |dim, row| tile.element(&key, 64, 0, dim, row);
        assert_eq!([at(0, 0), at(1, 0), at(0, 1), at(1, 1), at(2, 0)], [0, 1, 2, 3, 64]);
        assert_eq!([at(32, 0), at(0, 32), at(32, 32)], [1024, 2048, 3072]);
        let value = KvTensor::new(KvKind::Value, 0, 2, 32, KvDtype::U8);
        let at = |head, row, dim| tile.element(&value, 64, head, dim, row);
        assert_eq!([at(0, 3, 0), at(0, 4, 0), at(0, 0, 1), at(0, 32, 0), at(1, 0, 0)], [3, 128, 4, 1024, 2048]);
    }

    #[test]
    fn what_is_packed_comes_back() {
        let tile = NativeKv::HMX.tile;
        for kind in [KvKind::Key, KvKind::Value] {
            for dtype in [KvDtype::U8, KvDtype::U16, KvDtype::F16, KvDtype::F32] {
                for n in [0, 1, 31, 32, 33, 70] {
                    let tensor = KvTensor::new(kind, 0, 2, 64, dtype).with_quant(1.0, -7);
                    let rows: Vec<u8> = (0..tensor.rows_bytes(n)).map(|i| (i * 31 + i / 253) as u8).collect();
                    for tensor in [tensor, tensor.transposed()] {
                        let tiles = tile.pack(&tensor, &rows, n).unwrap();
                        assert_eq!(tiles.len(), tensor.rows_bytes(n.next_multiple_of(32)));
                        assert_eq!(tile.unpack(&tensor, &tiles, n).unwrap(), rows, "{kind:?} {dtype:?} {n}");
                        if n == 1 {
                            let (pad, size) = tensor.pad_element();
                            let at = tile.element(&tensor, 32, 1, 63, 31) * size;
                            assert_eq!(tiles[at..at + size], pad[..size], "columns without a row hold the pad value");
                        }
                    }
                }
            }
        }
        let key = KvTensor::new(KvKind::Key, 3, 1, 48, KvDtype::U8);
        let refused = tile.pack(&key, &[], 0).unwrap_err().to_string();
        assert_eq!(refused, "native-kv cannot keep `past_key_3`: head_dim 48 does not divide into tiles of 32 by 32");
        let key = KvTensor { head_dim: 64, ..key };
        let short = tile.pack(&key, &[0; 5], 2).unwrap_err().to_string();
        assert_eq!(short, "bad cache image: `past_key_3`: 5 bytes of 2 rows, expected 128");
        assert!(tile.unpack(&key, &[0; 64], 1).is_err(), "tiles are padded");
        let flat = Tile { word_bytes: 0, ..tile };
        assert!(
            flat.pack(&key, &[], 0).is_err() && Tile { rows: 0, cols: 0, word_bytes: 4 }.pack(&key, &[], 0).is_err()
        );
    }

    #[test]
    fn every_element_has_its_own_place() {
        for kind in [KvKind::Key, KvKind::Value] {
            for dtype in [KvDtype::U8, KvDtype::U16, KvDtype::F32] {
                let tensor = KvTensor::new(kind, 0, 2, 64, dtype);
                let mut seen = vec![false; 2 * 64 * 96];
                for (head, dim, row) in (0..2).flat_map(|h| (0..64).flat_map(move |d| (0..96).map(move |r| (h, d, r))))
                {
                    let at = NativeKv::HMX.tile.element(&tensor, 96, head, dim, row);
                    assert!(!std::mem::replace(&mut seen[at], true), "{kind:?} {dtype:?} {head} {dim} {row}");
                }
            }
        }
    }
}

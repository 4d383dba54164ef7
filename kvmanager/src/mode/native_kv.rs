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
//! against each other and against the formula, but the emulator refuses the format on plain graph inputs
//! (`facts/qnn-ops.md`), so no graph has read these tiles yet.

use super::{CacheMode, Place};
use crate::geometry::{KvLayout, KvTensor};

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

    fn place(&self, past_len: usize, _extent: usize) -> Place {
        Place { tile: Some(self.tile), ..Place::dense(self.padded(past_len)) }
    }

    fn new_place(&self, ar: usize) -> Place {
        Place { tile: Some(self.tile), ..Place::dense(self.padded(ar)) }
    }

    fn check(&self, tensor: &KvTensor) -> Result<(), String> {
        let Tile { rows, cols, .. } = self.tile;
        if rows != cols {
            return Err(format!("tiles must be square, found {rows} by {cols}"));
        }
        if rows % self.tile.interleave(tensor.dtype.size_bytes()) != 0 || !tensor.head_dim.is_multiple_of(rows) {
            return Err(format!("head_dim {} does not divide into tiles of {rows} by {cols}", tensor.head_dim));
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

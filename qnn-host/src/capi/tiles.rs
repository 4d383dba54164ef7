//! Client tensors in the weight tiles of the Hexagon matrix unit (data format 8), to and from dense order.
//!
//! *Layout*: the last two extents are a matrix of `k` rows by `n` columns, both padded to whole tiles of 32 by 32. The tiles
//! of one column of tiles follow each other; within a tile, 4 bytes worth of consecutive rows are interleaved (four of 8-bit types, two
//! of 16-bit types):
//!
//! ```text
//!   tiles (k = 64, n = 64)   |0 2|     one float16 tile   |a00 a10|a01 a11|a02 a12|..
//!                            |1 3|                        |a20 a30|a21 a31|a22 a32|..
//! ```
//!
//! Keys `[.., head_dim, s]` and values `[.., s, head_dim]` are both the right side of a product. What padding holds is not
//! looked at, and left as it is.
//! *Not proven*: that this is the order of the hardware; see `kvmanager`'s `native_kv`.

use qnn_sys::QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT;

use crate::ir::Tensor;

/// Side of a tile.
const SIDE: usize = 32;
/// Bytes of interleaved rows at each column.
const WORD_BYTES: usize = 4;

/// Where the elements of a tiled tensor are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    matrices: usize,
    rows: usize,
    cols: usize,
    elem_bytes: usize,
}

impl Tiles {
    /// Of a tensor that is in tiles.
    pub(super) fn of(tensor: &Tensor) -> Option<Self> {
        let (lead, &[rows, cols]) = tensor.dims.split_last_chunk::<2>()?;
        (tensor.data_format == QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT).then_some(Self {
            matrices: lead.iter().map(|&d| d as usize).product(),
            rows: rows as usize,
            cols: cols as usize,
            elem_bytes: tensor.dtype.size_bytes(),
        })
    }

    /// Bytes in tiles.
    pub(super) const fn bytes(&self) -> usize {
        self.matrices * self.rows.next_multiple_of(SIDE) * self.cols.next_multiple_of(SIDE) * self.elem_bytes
    }

    /// Calls back with each element's byte in dense order and in tiles.
    fn each(&self, mut element: impl FnMut(usize, usize)) {
        let (tile_rows, tile_cols) = (self.rows.div_ceil(SIDE), self.cols.div_ceil(SIDE));
        let each = (WORD_BYTES / self.elem_bytes).max(1);
        let mut dense = 0;
        for matrix in 0..self.matrices {
            let first = matrix * tile_rows * tile_cols * SIDE * SIDE;
            for k in 0..self.rows {
                for n in 0..self.cols {
                    let tile = n / SIDE * tile_rows + k / SIDE;
                    let (k, n) = (k % SIDE, n % SIDE);
                    let within = (k / each * SIDE + n) * each + k % each;
                    element(dense, (first + tile * SIDE * SIDE + within) * self.elem_bytes);
                    dense += self.elem_bytes;
                }
            }
        }
    }

    /// Out of tiles.
    pub(super) fn unpack(&self, tiles: &[u8], dense: &mut [u8]) {
        let n = self.elem_bytes;
        self.each(|to, from| dense[to..to + n].copy_from_slice(&tiles[from..from + n]));
    }

    /// Into tiles.
    pub(super) fn pack(&self, dense: &[u8], tiles: &mut [u8]) {
        let n = self.elem_bytes;
        self.each(|from, to| tiles[to..to + n].copy_from_slice(&dense[from..from + n]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Dtype, Quant, Role};

    fn tiles(dims: &[u32], dtype: Dtype) -> Tiles {
        let (name, dims, quant) = ("past_key_0_in".to_owned(), dims.to_vec(), Quant::None);
        Tiles::of(&Tensor { name, dims, dtype, quant, data_format: 8, role: Role::Input }).unwrap()
    }

    #[test]
    fn elements_follow_the_picture() {
        let places = |dims: &[u32], dtype| {
            let mut places = Vec::new();
            tiles(dims, dtype).each(|_, at| places.push(at));
            places
        };
        // One column of 64 rows: two tiles; pairs of rows side by side.
        let column = places(&[1, 64, 1], Dtype::F16);
        assert_eq!(column[..5], [0, 2, 128, 130, 256]);
        assert_eq!(column[32], 32 * 32 * 2);
        // A row of 33: the last in the next column of tiles.
        let row = places(&[1, 1, 33], Dtype::UFixed8);
        assert_eq!((row[1], row[31], row[32]), (4, 124, 1024));
    }

    #[test]
    fn what_is_packed_comes_back_and_padding_is_left() {
        for dtype in [Dtype::UFixed8, Dtype::F16, Dtype::F32] {
            for dims in [[2, 32, 1], [2, 1, 32], [1, 32, 95], [3, 96, 64]] {
                let tiles = tiles(&dims, dtype);
                let n = dims.iter().product::<u32>() as usize * dtype.size_bytes();
                let dense: Vec<u8> = (0..n).map(|i| (i * 31 + i / 253) as u8).collect();
                let mut packed = vec![0xee; tiles.bytes()];
                tiles.pack(&dense, &mut packed);
                let mut back = vec![0; n];
                tiles.unpack(&packed, &mut back);
                assert_eq!(back, dense, "{dtype:?} {dims:?}");
                let padding = packed.len() - n;
                assert!(packed.iter().filter(|&&b| b == 0xee).count() >= padding, "{dtype:?} {dims:?}");
            }
        }
    }
}

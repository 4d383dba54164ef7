//! Embedding tables of few bits: codes of 2, 4, 8 or 16 bits whose scales and offsets may differ by column or by row.
//!
//! *Units and dtype*: `real = (code + offset) * scale`. Codes narrower than a byte are packed, the first in the lowest bits. A file
//! of scales holds little-endian float32, one of offsets little-endian int32: one for the table, one per column, or one per row.

use std::path::{Path, PathBuf};

use crate::{EngineError, load};

/// Numbers of a table's quantisation.
#[derive(Clone, Debug, PartialEq)]
pub enum CodeNumbers<T> {
    /// One for all codes.
    One(T),
    /// A file of them.
    File(PathBuf),
}

/// How codes of a table become numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeTable {
    /// 2, 4, 8 or 16.
    pub bits: u32,
    /// Codes are two's complement.
    pub signed: bool,
    /// Step between two codes.
    pub scale: CodeNumbers<f32>,
    /// Added to a code before scaling.
    pub offset: CodeNumbers<i32>,
}

/// The same with its numbers read.
#[derive(Debug)]
pub(crate) struct Codes {
    bits: u32,
    signed: bool,
    size: usize,
    scales: Vec<f32>,
    offsets: Vec<i32>,
}

impl CodeTable {
    /// Bytes of a row of `size` codes, if they are whole.
    pub(crate) fn row_bytes(&self, size: usize) -> Option<usize> {
        let bits = size * self.bits as usize;
        (matches!(self.bits, 2 | 4 | 8 | 16) && bits > 0 && bits.is_multiple_of(8)).then_some(bits / 8)
    }

    /// Reads the numbers of a table of `n_rows` rows.
    pub(crate) fn read(&self, size: usize, n_rows: usize) -> Result<Codes, EngineError> {
        let scales = numbers(&self.scale, size, n_rows, f32::from_le_bytes)?;
        if let Some(bad) = scales.iter().find(|scale| !(scale.is_finite() && **scale > 0.0)) {
            let expected = "finite numbers above 0";
            return Err(EngineError::Config { what: "embedding scale", expected, found: bad.to_string() });
        }
        let offsets = numbers(&self.offset, size, n_rows, i32::from_le_bytes)?;
        Ok(Codes { bits: self.bits, signed: self.signed, size, scales, offsets })
    }
}

fn numbers<T: Copy>(
    from: &CodeNumbers<T>,
    size: usize,
    n_rows: usize,
    read: fn([u8; 4]) -> T,
) -> Result<Vec<T>, EngineError> {
    let path: &Path = match from {
        CodeNumbers::One(number) => return Ok(vec![*number]),
        CodeNumbers::File(path) => path,
    };
    const WHAT: &str = "file of quantisation parameters";
    load::must_exist(WHAT, path)?;
    let refused = |source| EngineError::ReadFile { what: WHAT, path: path.to_owned(), source };
    let bytes = std::fs::read(path).map_err(refused)?;
    let (whole, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || ![1, size, n_rows].contains(&whole.len()) {
        let expected = [4, size * 4, n_rows * 4];
        return Err(EngineError::QuantisationFile { path: path.to_owned(), expected, found: bytes.len() });
    }
    Ok(whole.iter().map(|number| read(*number)).collect())
}

impl Codes {
    /// A row as numbers.
    pub(crate) fn decode(&self, row: usize, bytes: &[u8], out: &mut [f32]) {
        for (column, to) in out.iter_mut().enumerate() {
            let code = self.code(bytes, column);
            let offset = *self.at(&self.offsets, row, column);
            *to = (code + offset) as f32 * self.at(&self.scales, row, column);
        }
    }

    fn code(&self, bytes: &[u8], column: usize) -> i32 {
        let bits = self.bits as usize;
        let raw = match bits {
            16 => i32::from(u16::from_le_bytes([bytes[column * 2], bytes[column * 2 + 1]])),
            _ => {
                let per_byte = 8 / bits;
                let byte = i32::from(bytes[column / per_byte]);
                (byte >> (column % per_byte * bits)) & ((1 << bits) - 1)
            }
        };
        let sign = 1 << (bits - 1);
        if self.signed && raw & sign != 0 { raw - 2 * sign } else { raw }
    }

    /// As many numbers as columns are one per column, also where there are as many rows.
    fn at<'a, T>(&self, list: &'a [T], row: usize, column: usize) -> &'a T {
        match list.len() {
            1 => &list[0],
            n if n == self.size => &list[column],
            _ => &list[row],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(bits: u32, signed: bool) -> CodeTable {
        CodeTable { bits, signed, scale: CodeNumbers::One(0.5), offset: CodeNumbers::One(-1) }
    }

    fn decoded(table: &CodeTable, rows: &[&[u8]], size: usize) -> Vec<f32> {
        let codes = table.read(size, rows.len()).unwrap();
        let mut out = vec![0.0; size * rows.len()];
        for (row, (bytes, to)) in rows.iter().zip(out.chunks_mut(size)).enumerate() {
            assert_eq!(table.row_bytes(size), Some(bytes.len()));
            codes.decode(row, bytes, to);
        }
        out
    }

    #[test]
    fn codes_of_every_width() {
        assert_eq!(decoded(&table(2, false), &[&[0b11_10_01_00]], 4), [-0.5, 0.0, 0.5, 1.0]);
        assert_eq!(decoded(&table(4, false), &[&[0xf1, 0x20]], 4), [0.0, 7.0, -0.5, 0.5]);
        assert_eq!(decoded(&table(4, true), &[&[0xf1, 0x28]], 4), [0.0, -1.0, -4.5, 0.5]);
        assert_eq!(decoded(&table(8, true), &[&[0xff, 3]], 2), [-1.0, 1.0]);
        assert_eq!(decoded(&table(16, false), &[&[1, 1]], 1), [128.0]);
        assert_eq!((table(4, false).row_bytes(3), table(3, false).row_bytes(8)), (None, None));
    }

    #[test]
    fn scales_and_offsets_of_columns_and_rows() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: Vec<u8>| {
            std::fs::write(folder.path().join(name), bytes).unwrap();
            folder.path().join(name)
        };
        let floats = |list: &[f32]| list.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
        let by_column = CodeTable {
            scale: CodeNumbers::File(file("columns", floats(&[1.0, 10.0]))),
            offset: CodeNumbers::File(file("offsets", [0i32, -1, -2].iter().flat_map(|x| x.to_le_bytes()).collect())),
            ..table(8, false)
        };
        let rows: [&[u8]; 3] = [&[2, 2], &[2, 2], &[2, 2]];
        assert_eq!(decoded(&by_column, &rows, 2), [2.0, 20.0, 1.0, 10.0, 0.0, 0.0]);
        let wrong = CodeTable { scale: CodeNumbers::File(file("four", floats(&[1.0; 4]))), ..table(8, false) };
        let error = wrong.read(2, 3).unwrap_err().to_string();
        assert!(
            error.ends_with("has 16 bytes, expected 4 (one for all), 8 (one per column) or 12 (one per row)"),
            "{error}"
        );
        let negative = CodeTable { scale: CodeNumbers::One(-1.0), ..table(8, false) };
        assert!(negative.read(2, 3).is_err());
    }
}

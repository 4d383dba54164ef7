//! Token embeddings from a file, for graphs that take `inputs_embeds`: rows are read when needed and converted.
//!
//! *Shapes*: file `[vocabulary, size]`, input `[1, AR, size]`. *Units and dtype*: little-endian float32, quantised values, or the
//! input's own bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use genie_types::{Dtype, Quant, TokenId};

use crate::buffer::Buffer;
use crate::config::{EmbeddingLut, LutDtype};
use crate::extra_rows::ExtraRows;
use crate::quant::{QuantParams, Rounding};
use crate::{EngineError, load};

/// An open table.
#[derive(Debug)]
pub(crate) struct Embedder {
    file: File,
    path: PathBuf,
    n_rows: usize,
    size: usize,
    /// Of the file; `None` for rows that are copied as they are.
    from: Option<QuantParams>,
    to: QuantParams,
    /// A row as it is in the file.
    raw: Buffer,
    /// The same as numbers.
    numbers: Vec<f32>,
    /// The row of the pad token, converted.
    pad: Vec<u8>,
}

impl Embedder {
    /// Opens the table for an input of that type and scale.
    pub(crate) fn open(lut: &EmbeddingLut, to: QuantParams, pad_token: TokenId) -> Result<Self, EngineError> {
        const WHAT: &str = "embedding table";
        let from = match lut.dtype {
            LutDtype::Native => None,
            LutDtype::Float32 => QuantParams::of(Dtype::F32, &Quant::None),
            LutDtype::Fixed { dtype, scale, offset } => {
                let encoding = QuantParams::of(dtype, &Quant::PerTensor { scale, offset });
                Some(encoding.filter(|_| dtype.is_fixed_point()).ok_or_else(|| EngineError::Config {
                    what: "embedding datatype",
                    expected: "ufixed8, ufixed16, sfixed8 or sfixed16",
                    found: dtype.to_string(),
                })?)
            }
        };
        load::must_exist(WHAT, &lut.path)?;
        let read = |source| EngineError::ReadFile { what: WHAT, path: lut.path.clone(), source };
        let file = File::open(&lut.path).map_err(read)?;
        let found = file.metadata().map_err(read)?.len();
        let row_bytes = lut.size * from.unwrap_or(to).size_bytes();
        let n_rows = usize::try_from(found / row_bytes as u64).unwrap_or(usize::MAX);
        if n_rows == 0 || found % row_bytes as u64 != 0 {
            return Err(EngineError::EmbeddingFile { path: lut.path.clone(), row_bytes: row_bytes as u64, found });
        }
        let mut embedder = Self {
            file,
            path: lut.path.clone(),
            n_rows,
            size: lut.size,
            from,
            to,
            raw: Buffer::zeroed(row_bytes),
            numbers: vec![0.0; lut.size],
            pad: Vec::new(),
        };
        let mut pad = Buffer::zeroed(embedder.row_bytes());
        embedder.row(pad_token, 0, pad.bytes_mut())?;
        embedder.pad = pad.bytes().to_vec();
        Ok(embedder)
    }

    /// Rows in the table.
    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    fn row_bytes(&self) -> usize {
        self.size * self.to.size_bytes()
    }

    /// Fills `ar` rows: those of the tokens, then the pad token's.
    pub(crate) fn fill(
        &mut self,
        bytes: &mut [u8],
        tokens: &[TokenId],
        ar: usize,
        extra: Option<&ExtraRows>,
    ) -> Result<(), EngineError> {
        let row_bytes = self.row_bytes();
        let (real, padding) = bytes[..ar * row_bytes].split_at_mut(tokens.len() * row_bytes);
        for (place, (row, token)) in real.chunks_exact_mut(row_bytes).zip(tokens).enumerate() {
            match extra.and_then(|extra| extra.row(*token)) {
                Some(numbers) => {
                    self.to.encode(numbers.iter().map(|&x| f64::from(x)), Rounding::Nearest, row);
                }
                None => self.row(*token, place, row)?,
            }
        }
        padding.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(&self.pad));
        Ok(())
    }

    fn row(&mut self, token: TokenId, place: usize, to: &mut [u8]) -> Result<(), EngineError> {
        if token.0 as usize >= self.n_rows {
            return Err(EngineError::TokenOutOfRange { token, place, vocab_size: self.n_rows });
        }
        let start = u64::from(token.0) * self.raw.bytes().len() as u64;
        let read = self.file.seek(SeekFrom::Start(start)).and_then(|_| self.file.read_exact(self.raw.bytes_mut()));
        read.map_err(|source| EngineError::ReadFile { what: "embedding table", path: self.path.clone(), source })?;
        match self.from {
            None => to.copy_from_slice(self.raw.bytes()),
            Some(from) => {
                from.decode(self.raw.bytes(), &mut self.numbers);
                let numbers = self.numbers.iter().map(|&x| f64::from(x));
                // Rows within a buffer begin at a multiple of the row's bytes, so at an element.
                self.to.encode(numbers, Rounding::Nearest, to);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::elements;

    fn table(bytes: &[u8], size: usize, dtype: LutDtype) -> (tempfile::TempDir, EmbeddingLut) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lut.raw");
        std::fs::write(&path, bytes).unwrap();
        (folder, EmbeddingLut { path, size, dtype })
    }

    fn to(dtype: Dtype) -> QuantParams {
        QuantParams::of(dtype, &Quant::PerTensor { scale: 0.5, offset: -4 }).unwrap()
    }

    #[test]
    fn rows_are_converted_and_padded() {
        let numbers: Vec<u8> = [0.0f32, 1.0, 2.0, 3.0, -1.0, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let (_folder, lut) = table(&numbers, 2, LutDtype::Float32);
        let mut embedder = Embedder::open(&lut, to(Dtype::F16), TokenId(1)).unwrap();
        assert_eq!(embedder.n_rows(), 3);
        let mut buffer = Buffer::zeroed(3 * 2 * 2);
        embedder.fill(buffer.bytes_mut(), &[TokenId(2), TokenId(0)], 3, None).unwrap();
        let found: Vec<f32> = elements::<half::f16>(buffer.bytes()).iter().map(|x| x.to_f32()).collect();
        assert_eq!(found, [-1.0, -2.0, 0.0, 1.0, 2.0, 3.0]);

        let mut embedder = Embedder::open(&lut, to(Dtype::UFixed8), TokenId(0)).unwrap();
        embedder.fill(buffer.bytes_mut(), &[TokenId(1)], 2, None).unwrap();
        assert_eq!(buffer.bytes()[..4], [8, 10, 4, 6]);
    }

    #[test]
    fn codes_and_native_rows() {
        let quantised = LutDtype::Fixed { dtype: Dtype::SFixed8, scale: 0.25, offset: 0 };
        let (_folder, lut) = table(&[4, 0xfc, 0, 1], 2, quantised);
        let mut buffer = Buffer::zeroed(16);
        Embedder::open(&lut, to(Dtype::F32), TokenId(0))
            .unwrap()
            .fill(buffer.bytes_mut(), &[TokenId(0)], 1, None)
            .unwrap();
        assert_eq!(elements::<f32>(buffer.bytes())[..2], [1.0, -1.0]);
        let (_folder, lut) = table(&[1, 2, 3, 4], 1, LutDtype::Native);
        let mut embedder = Embedder::open(&lut, to(Dtype::F16), TokenId(0)).unwrap();
        embedder.fill(buffer.bytes_mut(), &[TokenId(1)], 1, None).unwrap();
        assert_eq!(buffer.bytes()[..2], [3, 4]);
    }

    #[test]
    fn bad_tables_are_refused() {
        let (_folder, lut) = table(&[0; 12], 2, LutDtype::Float32);
        let err = Embedder::open(&lut, to(Dtype::F16), TokenId(0)).unwrap_err();
        assert!(err.to_string().contains("has 12 bytes, expected a multiple of 8 (rows of 8 bytes)"), "{err}");
        let (_folder, lut) = table(&[0; 16], 2, LutDtype::Float32);
        let err = Embedder::open(&lut, to(Dtype::F16), TokenId(2)).unwrap_err();
        assert_eq!(err.to_string(), "token 2 at place 0 of the input is not in the vocabulary of 2");
        let gone = EmbeddingLut { path: "/nowhere/lut.raw".into(), ..lut };
        let err = Embedder::open(&gone, to(Dtype::F16), TokenId(0)).unwrap_err();
        assert_eq!(err.to_string(), "embedding table `/nowhere/lut.raw` does not exist");
    }
}

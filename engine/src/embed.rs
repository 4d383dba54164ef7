//! Token embeddings from a file or a program, for graphs that take `inputs_embeds`: rows are read when needed and converted.
//!
//! *Shapes*: file `[vocabulary, size]`, input `[1, AR, size]`. *Units and dtype*: little-endian float32, quantised values, or the
//! input's own bytes.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use genie_types::{Dtype, Quant, TokenId};

use crate::buffer::Buffer;
use crate::config::{EmbeddingCallback, EmbeddingLut, LutDtype};
use crate::embedding_codes::Codes;
use crate::extra_rows::ExtraRows;
use crate::quant::{QuantParams, Rounding};
use crate::{EngineError, load};

/// Where the rows of tokens come from.
#[derive(Debug)]
pub(crate) struct Embedder {
    source: Source,
    n_rows: usize,
    size: usize,
    to: QuantParams,
    /// A row as numbers.
    numbers: Vec<f32>,
    /// The row of the pad token, converted.
    pad: Vec<u8>,
}

#[derive(Debug)]
enum Source {
    /// An open table.
    Table { file: File, path: PathBuf, raw: Buffer, from: From },
    /// A program's function.
    Callback(EmbeddingCallback),
}

/// What a table's bytes stand for.
#[derive(Debug)]
enum From {
    /// The input's own type: they are copied.
    Native,
    /// One type and scale for all.
    Uniform(QuantParams),
    /// Packed codes, or scales of their own.
    Codes(Codes),
}

impl Embedder {
    /// Opens the table for an input of that type and scale.
    pub(crate) fn open(lut: &EmbeddingLut, to: QuantParams, pad_token: TokenId) -> Result<Self, EngineError> {
        const WHAT: &str = "embedding table";
        let refuse = |expected, found: String| EngineError::Config { what: "embedding datatype", expected, found };
        let (from, row_bytes) = match &lut.dtype {
            LutDtype::Native => (Some(From::Native), lut.size * to.size_bytes()),
            LutDtype::Float32 => (QuantParams::of(Dtype::F32, &Quant::None).map(From::Uniform), lut.size * 4),
            LutDtype::Fixed { dtype, scale, offset } => {
                let encoding = QuantParams::of(*dtype, &Quant::PerTensor { scale: *scale, offset: *offset });
                let encoding = encoding.filter(|_| dtype.is_fixed_point());
                let expected = "ufixed8, ufixed16, sfixed8 or sfixed16";
                let encoding = encoding.ok_or_else(|| refuse(expected, dtype.to_string()))?;
                (Some(From::Uniform(encoding)), lut.size * encoding.size_bytes())
            }
            LutDtype::Codes(table) => {
                let expected = "codes of 2, 4, 8 or 16 bits that fill whole bytes in each row";
                let bytes = table.row_bytes(lut.size);
                (None, bytes.ok_or_else(|| refuse(expected, format!("{} of {} bits", lut.size, table.bits)))?)
            }
        };
        load::must_exist(WHAT, &lut.path)?;
        let read = |source| EngineError::ReadFile { what: WHAT, path: lut.path.clone(), source };
        let file = File::open(&lut.path).map_err(read)?;
        let found = file.metadata().map_err(read)?.len();
        let n_rows = usize::try_from(found / row_bytes as u64).unwrap_or(usize::MAX);
        if n_rows == 0 || found % row_bytes as u64 != 0 {
            return Err(EngineError::EmbeddingFile { path: lut.path.clone(), row_bytes: row_bytes as u64, found });
        }
        let from = match (from, &lut.dtype) {
            (None, LutDtype::Codes(table)) => From::Codes(table.read(lut.size, n_rows)?),
            (from, _) => from.unwrap_or(From::Native),
        };
        let source = Source::Table { file, path: lut.path.clone(), raw: Buffer::zeroed(row_bytes), from };
        let mut embedder = Self::with(source, n_rows, lut.size, to);
        let mut pad = Buffer::zeroed(embedder.row_bytes());
        embedder.row(pad_token, 0, pad.bytes_mut())?;
        embedder.pad = pad.bytes().to_vec();
        Ok(embedder)
    }

    /// Rows from a function, for the tokens of a vocabulary; columns without a token are zeros.
    pub(crate) fn of_callback(callback: EmbeddingCallback, n_rows: usize, size: usize, to: QuantParams) -> Self {
        let mut embedder = Self::with(Source::Callback(callback), n_rows, size, to);
        let mut pad = Buffer::zeroed(embedder.row_bytes());
        to.encode(std::iter::repeat_n(0.0, size), Rounding::Nearest, pad.bytes_mut());
        embedder.pad = pad.bytes().to_vec();
        embedder
    }

    fn with(source: Source, n_rows: usize, size: usize, to: QuantParams) -> Self {
        Self { source, n_rows, size, to, numbers: vec![0.0; size], pad: Vec::new() }
    }

    /// Numbers in the type of the graphs' input.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<Vec<f32>, EngineError> {
        crate::config::decode(self.to, bytes)
    }

    /// Rows in the table.
    pub(crate) fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Bytes of a row in the type of the graphs.
    pub(crate) fn row_bytes(&self) -> usize {
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
        match &mut self.source {
            Source::Callback(callback) => callback.write(token, &mut self.numbers),
            Source::Table { file, path, raw, from } => {
                let start = u64::from(token.0) * raw.bytes().len() as u64;
                let read = file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(raw.bytes_mut()));
                read.map_err(|source| EngineError::ReadFile { what: "embedding table", path: path.clone(), source })?;
                match from {
                    From::Native => {
                        to.copy_from_slice(raw.bytes());
                        return Ok(());
                    }
                    From::Uniform(from) => from.decode(raw.bytes(), &mut self.numbers),
                    From::Codes(codes) => codes.decode(token.0 as usize, raw.bytes(), &mut self.numbers),
                }
            }
        }
        let numbers = self.numbers.iter().map(|&x| f64::from(x));
        // Rows within a buffer begin at a multiple of the row's bytes, so at an element.
        self.to.encode(numbers, Rounding::Nearest, to);
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

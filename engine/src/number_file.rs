//! Files of numbers: NumPy's `.npy`, which says its extents, or raw little-endian float32 without a header.
//!
//! *Layout*: `.npy` of version 1 to 3, C order, `f2`, `f4`, `f8`, `u1` or `i1`, little-endian; known by its first bytes,
//! whatever its name. Own code: the readers on crates.io pull in a parser of Python literals for a line of fixed form.

use std::path::{Path, PathBuf};

use half::f16;

use crate::{EngineError, load};

/// Longest file that is read.
const MAX_BYTES: u64 = 1 << 32;
const MAGIC: &[u8] = b"\x93NUMPY";

/// Numbers of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberFile {
    /// Where they are from, for messages.
    pub path: PathBuf,
    /// Extents, outermost first; `None` for a raw file.
    pub dims: Option<Vec<usize>>,
    /// All of them, row by row.
    pub numbers: Vec<f32>,
}

impl NumberFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// [`EngineError::MissingFile`], [`EngineError::ReadFile`]; [`EngineError::NumberFile`] with what was expected and found.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, EngineError> {
        let path = path.as_ref();
        const WHAT: &str = "file of numbers";
        load::must_exist(WHAT, path)?;
        let unread = |source| EngineError::ReadFile { what: WHAT, path: path.to_owned(), source };
        let bad =
            |(expected, found): (String, String)| EngineError::NumberFile { path: path.to_owned(), expected, found };
        let length = std::fs::metadata(path).map_err(unread)?.len();
        if length > MAX_BYTES {
            return Err(bad((format!("at most {MAX_BYTES} bytes"), length.to_string())));
        }
        let bytes = std::fs::read(path).map_err(unread)?;
        let (dims, numbers) =
            if bytes.starts_with(MAGIC) { npy(&bytes).map_err(bad)? } else { raw(&bytes).map_err(bad)? };
        Ok(Self { path: path.to_owned(), dims, numbers })
    }

    /// The error that something else was expected of this file.
    pub(crate) fn refused(&self, expected: String, found: String) -> EngineError {
        EngineError::NumberFile { path: self.path.clone(), expected, found }
    }

    /// The extents as text, or the count.
    pub(crate) fn shape(&self) -> String {
        match &self.dims {
            Some(dims) => format!("{dims:?}"),
            None => format!("{} numbers", self.numbers.len()),
        }
    }
}

type Parsed = Result<(Option<Vec<usize>>, Vec<f32>), (String, String)>;

fn raw(bytes: &[u8]) -> Parsed {
    let (numbers, rest) = bytes.as_chunks::<4>();
    if numbers.is_empty() || !rest.is_empty() {
        let expected = "`.npy`, or raw float32: a multiple of 4 bytes, at least 4".to_owned();
        return Err((expected, format!("{} bytes", bytes.len())));
    }
    Ok((None, numbers.iter().map(|b| f32::from_le_bytes(*b)).collect()))
}

fn npy(bytes: &[u8]) -> Parsed {
    let cut = || ("a whole `.npy` header".to_owned(), format!("{} bytes", bytes.len()));
    let at = |range: std::ops::Range<usize>| bytes.get(range).ok_or_else(cut);
    let (start, length): (usize, usize) = match bytes.get(6).ok_or_else(cut)? {
        1 => (10, usize::from(u16::from_le_bytes([at(8..9)?[0], at(9..10)?[0]]))),
        2 | 3 => (12, at(8..12)?.iter().rev().fold(0, |n, &b| n << 8 | usize::from(b))),
        other => return Err(("`.npy` of version 1 to 3".into(), format!("version {other}"))),
    };
    let end = start.checked_add(length).ok_or_else(cut)?;
    let header = String::from_utf8_lossy(at(start..end)?);
    let value = |key: &str| {
        let (_, rest) = header.split_once(&format!("'{key}':"))?;
        Some(rest.trim_start())
    };
    let wrong = |expected: &str| (format!("`.npy` with {expected}"), format!("`{}`", header.trim_end()));
    if !value("fortran_order").is_some_and(|v| v.starts_with("False")) {
        return Err(wrong("`'fortran_order': False`"));
    }
    let shape =
        value("shape").and_then(|v| v.strip_prefix('(')?.split_once(')')).ok_or_else(|| wrong("`'shape': (..)`"))?.0;
    let extents = shape.split(',').map(str::trim).filter(|text| !text.is_empty());
    let dims = extents.map(str::parse).collect::<Result<Vec<usize>, _>>().map_err(|_| wrong("whole extents"))?;
    let descr = value("descr").and_then(|v| v.strip_prefix('\'')?.split_once('\'')).map_or("", |(descr, _)| descr);
    let data = &bytes[end..];
    let size = match descr {
        "<f4" => 4,
        "<f2" => 2,
        "<f8" => 8,
        "|u1" | "|i1" => 1,
        _ => return Err(wrong("type `<f4`, `<f2`, `<f8`, `|u1` or `|i1`")),
    };
    let wanted = dims.iter().try_fold(size, |n: usize, &d| n.checked_mul(d));
    if wanted != Some(data.len()) || data.is_empty() {
        let wanted = wanted.map_or("more than there can be".to_owned(), |n| n.to_string());
        return Err((format!("{wanted} bytes of numbers for {descr} {dims:?}, at least one"), data.len().to_string()));
    }
    let numbers = match descr {
        "<f4" => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        "<f2" => data.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        "<f8" => data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b) as f32).collect(),
        "|u1" => data.iter().map(|&b| b.into()).collect(),
        _ => data.iter().map(|&b| b.cast_signed().into()).collect(),
    };
    Ok((Some(dims), numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy_bytes(header: &str, data: &[u8]) -> Vec<u8> {
        let header = format!("{header}\n");
        [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), data].concat()
    }

    fn read(bytes: &[u8]) -> Result<NumberFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        std::fs::write(&path, bytes).unwrap();
        let strip = |e: EngineError| e.to_string().replace(&*path.to_string_lossy(), "numbers");
        NumberFile::read(&path).map_err(strip)
    }

    #[test]
    fn numbers_of_every_type() {
        let floats: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let found = read(&floats).unwrap();
        assert_eq!((found.dims, found.numbers), (None, vec![1.5, -2.0]));
        let dict =
            |descr: &str, shape: &str| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        let halves: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
        let doubles: Vec<u8> = [1.5f64, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        for (descr, data) in [("<f4", floats), ("<f2", halves), ("<f8", doubles)] {
            let found = read(&npy_bytes(&dict(descr, "(1, 2)"), &data)).unwrap();
            assert_eq!((found.dims, found.numbers), (Some(vec![1, 2]), vec![1.5, -2.0]), "{descr}");
        }
        assert_eq!(read(&npy_bytes(&dict("|u1", "(2,)"), &[0, 255])).unwrap().numbers, [0.0, 255.0]);
        assert_eq!(read(&npy_bytes(&dict("|i1", "(2,)"), &[0, 255])).unwrap().numbers, [0.0, -1.0]);
    }

    #[test]
    fn other_files_are_refused() {
        let whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
        let cases = [
            (vec![], "`numbers`: expected `.npy`, or raw float32: a multiple of 4 bytes, at least 4, found 0 bytes"),
            (
                vec![0; 6],
                "`numbers`: expected `.npy`, or raw float32: a multiple of 4 bytes, at least 4, found 6 bytes",
            ),
            (MAGIC.to_vec(), "`numbers`: expected a whole `.npy` header, found 6 bytes"),
            ([MAGIC, &[9, 0, 0, 0]].concat(), "`numbers`: expected `.npy` of version 1 to 3, found version 9"),
            (
                [MAGIC, &[2, 0, 255, 255, 255, 255]].concat(),
                "`numbers`: expected a whole `.npy` header, found 12 bytes",
            ),
            (npy_bytes(whole, &[0; 3]), "`numbers`: expected 4 bytes of numbers for <f4 [1], at least one, found 3"),
            (
                npy_bytes(&whole.replace("False", "True"), &[0; 4]),
                "`numbers`: expected `.npy` with `'fortran_order': False`, found `{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }`",
            ),
            (
                npy_bytes(&whole.replace("<f4", ">f4"), &[0; 4]),
                "`numbers`: expected `.npy` with type `<f4`, `<f2`, `<f8`, `|u1` or `|i1`, found `{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }`",
            ),
            (
                npy_bytes(&whole.replace("(1,)", "(4294967296, 4294967296)"), &[0; 4]),
                "`numbers`: expected more than there can be bytes of numbers for <f4 [4294967296, 4294967296], at least one, found 4",
            ),
        ];
        for (bytes, want) in cases {
            assert_eq!(read(&bytes).unwrap_err(), want);
        }
    }
}

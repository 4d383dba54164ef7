//! GGUF files: metadata by key, and where each tensor lies.
//!
//! ```text
//! | "GGUF" | version u32 | tensors u64 | pairs u64 | pairs: key, type, value | tensors: name, extents, type, offset | pad | data |
//! ```
//!
//! Numbers are little-endian; extents are stored innermost first and reversed here; offsets count from the start of the data.
//! No length is trusted: each is checked against the rest of the file before anything is allocated.
//! *Source*: the GGUF description in the ggml repository, versions 2 and 3.

mod blocks;
mod config;
mod family_keys;
mod layout;
mod metadata;
mod names;
mod read;
mod rope;
#[cfg(test)]
mod tests;
mod tokenizer;
mod types;
mod value;
mod words;

use crate::{Result, fs};
use layout::read_tensor;
use read::Reader;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(crate) use crate::gguf_error::GgufError;
pub use blocks::BlockFormat;
pub(crate) use metadata::Metadata;
pub(crate) use names::{gguf_name, hugging_face_name};
pub(crate) use types::GgmlType;
pub(crate) use words::{in_stored_keys, in_stored_words};

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// Key of the data's alignment, and the alignment without it.
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;
/// More tensors or keys than any model has.
const MAX_ENTRIES: u64 = 1 << 16;
/// Bytes of the shortest key-value pair, and of the shortest description of a tensor.
const LEAST_PAIR: u64 = 8 + 4 + 1;
const LEAST_TENSOR: u64 = 8 + 4 + 8 + 4 + 8;
/// Lists that are kept however long: all others that are long are left out as they are read.
const LONG_LISTS: [&str; 4] =
    ["tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores", "tokenizer.ggml.merges"];

/// The `tokenizer.json` of a GGUF file, whose weights are not looked at and may be absent.
///
/// # Errors
/// The file is damaged, has no tokenizer or one of a kind that is not supported.
pub fn gguf_tokenizer(path: &Path) -> Result<Vec<u8>> {
    let gguf = Gguf::open(path)?;
    Ok(gguf.tokenizer(gguf.n_tokens()?)?.to_string().into_bytes())
}

/// An opened file: everything but the weights.
#[derive(Debug)]
pub(crate) struct Gguf {
    /// The file.
    pub(crate) path: PathBuf,
    /// Metadata by key.
    pub(crate) meta: Metadata,
    /// Tensors by their names in the file.
    pub(crate) tensors: BTreeMap<String, GgufTensor>,
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GgufTensor {
    /// Extents, outermost first.
    pub(crate) dims: Vec<usize>,
    /// How numbers are stored.
    pub(crate) ty: GgmlType,
    /// First byte, counted from the file's start.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) bytes: u64,
}

impl Gguf {
    /// Reads everything but the weights.
    ///
    /// # Errors
    /// Damaged, foreign, older or newer files; a part of a model; values, extents and offsets that cannot be.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = fs::open(path)?;
        let file_bytes = file.metadata().map_err(fs::io_err("inspect", path))?.len();
        let mut r = Reader::new(path, file, file_bytes);
        let (n_tensors, n_values) = read_header(&mut r)?;
        let mut values = BTreeMap::new();
        for _ in 0..n_values {
            let key = r.text()?;
            let value = value::read(&mut r, LONG_LISTS.contains(&key.as_str()))?;
            if values.contains_key(&key) {
                return Err(r.malformed(format!("key `{}` is there twice", value::shown(&key))));
            }
            values.insert(key, value);
        }
        let meta = Metadata::new(path, values);
        meta.check_kind()?;
        let mut tensors = BTreeMap::new();
        for _ in 0..n_tensors {
            let (name, tensor) = read_tensor(&mut r)?;
            if tensors.contains_key(&name) {
                return Err(r.malformed(format!("tensor `{}` is there twice", value::shown(&name))));
            }
            tensors.insert(name, tensor);
        }
        let alignment = meta.count(ALIGNMENT_KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() {
            return Err(meta.refused(ALIGNMENT_KEY, "a power of two"));
        }
        layout::place(&r, &mut tensors, alignment, file_bytes)?;
        Ok(Self { path: path.into(), meta, tensors })
    }
}

/// Magic, version, and how many tensors and pairs there are.
fn read_header(r: &mut Reader<'_>) -> Result<(u64, u64)> {
    if r.left() == 0 {
        return Err(r.foreign("it is empty".into()));
    }
    let magic = r.array::<4>()?;
    if magic != MAGIC {
        return Err(r.foreign(format!("it begins with {magic:02x?}, expected `GGUF`")));
    }
    let version = r.u32()?;
    if !VERSIONS.contains(&version) {
        // A file of the other byte order has its version in the upper bytes.
        let swapped = VERSIONS.contains(&version.swap_bytes());
        let what = if swapped { "big-endian numbers".into() } else { format!("version {version}") };
        return Err(r.foreign(format!("it has {what}, expected little-endian of version 2 or 3")));
    }
    let (n_tensors, n_values) = (r.u64()?, r.u64()?);
    for (what, n, least) in [("tensors", n_tensors, LEAST_TENSOR), ("keys", n_values, LEAST_PAIR)] {
        let limit = MAX_ENTRIES.min(r.left() / least);
        if n > limit {
            return Err(r.damaged(format!("its header counts {n} {what}, a file of its length has at most {limit}")));
        }
    }
    Ok((n_tensors, n_values))
}

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
mod names;
mod read;
#[cfg(test)]
mod tests;
mod tokenizer;
mod value;

use crate::{CompileError, Result, fs};
use read::Reader;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use blocks::BlockFormat;
pub(crate) use blocks::q6_k_parts;
pub(crate) use names::{gguf_name, hugging_face_name};
pub(crate) use value::Value;

const MAGIC: [u8; 4] = *b"GGUF";
const VERSIONS: std::ops::RangeInclusive<u32> = 2..=3;
/// Key of the data's alignment, and the alignment without it.
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;
/// More extents than any model's tensors have.
const MAX_RANK: u32 = 8;

/// An opened file: everything but the weights.
#[derive(Debug)]
pub(crate) struct Gguf {
    /// The file.
    pub(crate) path: PathBuf,
    /// Metadata by key.
    pub(crate) values: BTreeMap<String, Value>,
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

/// Element types of tensors: the supported ones, and the number of any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GgmlType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// Upper half of an IEEE single.
    Bf16,
    /// Blocks of quantised values.
    Blocks(BlockFormat),
    /// Any other, by its number.
    Other(u32),
}

impl GgmlType {
    fn from_number(number: u32) -> Self {
        match number {
            0 => Self::F32,
            1 => Self::F16,
            30 => Self::Bf16,
            2 => Self::Blocks(BlockFormat::Q4_0),
            3 => Self::Blocks(BlockFormat::Q4_1),
            6 => Self::Blocks(BlockFormat::Q5_0),
            7 => Self::Blocks(BlockFormat::Q5_1),
            8 => Self::Blocks(BlockFormat::Q8_0),
            12 => Self::Blocks(BlockFormat::Q4K),
            13 => Self::Blocks(BlockFormat::Q5K),
            14 => Self::Blocks(BlockFormat::Q6K),
            other => Self::Other(other),
        }
    }

    /// Elements and bytes of a block; plain numbers are blocks of one.
    pub(crate) fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::Bf16 => Some((1, 2)),
            Self::Blocks(format) => Some((format.elems(), format.bytes())),
            Self::Other(_) => None,
        }
    }
}

impl Gguf {
    /// Reads everything but the weights.
    ///
    /// # Errors
    /// Torn, foreign, older or newer files; values, extents and offsets that cannot be.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = fs::open(path)?;
        let file_bytes = file.metadata().map_err(fs::io_err("inspect", path))?.len();
        let mut r = Reader::new(path, file, file_bytes);
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
        let mut values = BTreeMap::new();
        for _ in 0..n_values {
            let key = r.text()?;
            let value = value::read(&mut r)?;
            if values.insert(key.clone(), value).is_some() {
                return Err(r.malformed(format!("key `{key}` comes twice")));
            }
        }
        let mut tensors = BTreeMap::new();
        for _ in 0..n_tensors {
            let (name, tensor) = read_tensor(&mut r)?;
            if tensors.insert(name.clone(), tensor).is_some() {
                return Err(r.malformed(format!("tensor `{name}` comes twice")));
            }
        }
        let alignment = values.get(ALIGNMENT_KEY).and_then(Value::unsigned).unwrap_or(DEFAULT_ALIGNMENT);
        if !alignment.is_power_of_two() {
            return Err(r.malformed(format!("`{ALIGNMENT_KEY}` is {alignment}, expected a power of two")));
        }
        let data = r.at().next_multiple_of(alignment);
        for (name, tensor) in &mut tensors {
            tensor.offset = place(&r, name, tensor, data, file_bytes)?;
        }
        Ok(Self { path: path.into(), values, tensors })
    }
}

/// Name, extents and type; the offset as written.
fn read_tensor(r: &mut Reader<'_>) -> Result<(String, GgufTensor)> {
    let name = r.text()?;
    let rank = r.u32()?;
    if rank == 0 || rank > MAX_RANK {
        return Err(r.malformed(format!("tensor `{name}` has {rank} axes")));
    }
    let mut dims = (0..rank)
        .map(|_| usize::try_from(r.u64()?).map_err(|_| r.malformed(format!("tensor `{name}` is too large"))))
        .collect::<Result<Vec<_>>>()?;
    let ty = GgmlType::from_number(r.u32()?);
    let n_elems = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let row = dims[0];
    let bytes = match ty.block() {
        None => Some(0),
        Some((elems, _)) if !row.is_multiple_of(elems) => {
            return Err(r.malformed(format!("tensor `{name}` has rows of {row} elements, no multiple of {elems}")));
        }
        Some((elems, bytes)) => n_elems.and_then(|n| (n / elems).checked_mul(bytes)),
    };
    let bytes = bytes.ok_or_else(|| r.malformed(format!("tensor `{name}` of {dims:?} is too large")))? as u64;
    dims.reverse();
    Ok((name, GgufTensor { dims, ty, offset: r.u64()?, bytes }))
}

/// The offset from the file's start, checked to lie inside.
fn place(r: &Reader<'_>, name: &str, tensor: &GgufTensor, data: u64, file_bytes: u64) -> Result<u64> {
    let start = data.checked_add(tensor.offset);
    match start.and_then(|start| Some((start, start.checked_add(tensor.bytes)?))) {
        Some((start, end)) if end <= file_bytes => Ok(start),
        Some((_, end)) => Err(CompileError::DamagedFile {
            path: r.path().into(),
            detail: format!("tensor `{name}` ends at byte {end}, the file at {file_bytes}"),
        }),
        None => Err(r.malformed(format!("the offset of tensor `{name}` overflows"))),
    }
}

//! The JSON header of one safetensors file: read and checked against the file's length, or written.
//!
//! ```text
//! | header length N: u64 LE | N bytes of JSON | tensor data, dense, offsets count from here |
//! ```

use super::{SourceDtype, TensorEntry};
use crate::json::{self, shown, shown_key};
use crate::{CompileError, Result, fs};
use file_io::FileKind;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// Far above any real header; a larger length means another file format.
const MAX_HEADER_BYTES: u64 = 100 << 20;
const METADATA_KEY: &str = "__metadata__";

/// An entry as it is written.
struct RawEntry<'a> {
    dtype: &'a str,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl<'a> RawEntry<'a> {
    /// Reads it; an error says which part is wrong, what was found and expected.
    fn of(value: &'a Value) -> Result<Self, String> {
        let map = value.as_object().ok_or_else(|| format!("found {}, expected an object", shown(value)))?;
        if let Some(key) = map.keys().find(|key| !["dtype", "shape", "data_offsets"].contains(&key.as_str())) {
            return Err(format!("unknown key `{}`", shown_key(key)));
        }
        let part = |key: &str| map.get(key).ok_or_else(|| format!("it has no `{key}`"));
        let bad = |key: &str, value, expected| format!("its `{key}` is {}, expected {expected}", shown(value));
        let (dtype, shape, offsets) = (part("dtype")?, part("shape")?, part("data_offsets")?);
        let numbers = |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
        let extents =
            |value: &Value| numbers(value)?.into_iter().map(|n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
        Ok(Self {
            dtype: dtype.as_str().ok_or_else(|| bad("dtype", dtype, "a string"))?,
            shape: extents(shape).ok_or_else(|| bad("shape", shape, "a list of whole numbers"))?,
            data_offsets: numbers(offsets)
                .and_then(|pair| pair.try_into().ok())
                .ok_or_else(|| bad("data_offsets", offsets, "two whole numbers"))?,
        })
    }
}

/// Length and header of a file with those tensors, all of one type of `width` bytes, one after the other.
pub(crate) fn file_header<'t>(
    dtype: &str,
    width: usize,
    tensors: impl Iterator<Item = (&'t str, &'t [usize])>,
) -> Vec<u8> {
    let mut header = Map::from_iter([(METADATA_KEY.to_string(), json!({ "format": "pt" }))]);
    let mut at = 0;
    for (name, dims) in tensors {
        let end = at + width * dims.iter().product::<usize>();
        header.insert(name.into(), json!({ "dtype": dtype, "shape": dims, "data_offsets": [at, end] }));
        at = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    [&(header.len() as u64).to_le_bytes(), header.as_slice()].concat()
}

/// The tensors of one file, their offsets made absolute.
pub(super) fn read(path: &Path, shard: usize) -> Result<BTreeMap<String, TensorEntry>> {
    let damaged = |detail: String| CompileError::DamagedFile { path: path.into(), detail };
    let mut file = fs::open(path)?;
    let file_bytes = file.metadata().map_err(fs::io_err("inspect", path))?.len();
    let mut length = [0; 8];
    if file_bytes < 8 {
        return Err(damaged(format!("{file_bytes} bytes, too short for a header length")));
    }
    file.read_exact(&mut length).map_err(fs::io_err("read", path))?;
    let header_bytes = u64::from_le_bytes(length);
    if header_bytes > MAX_HEADER_BYTES {
        let detail = match FileKind::of(path) {
            FileKind::Safetensors | FileKind::Unknown { .. } => {
                format!("its first 8 bytes give a header of {header_bytes} bytes, expected at most {MAX_HEADER_BYTES}")
            }
            kind => format!("it is {kind}"),
        };
        return Err(CompileError::NotSafetensors { path: path.into(), detail });
    }
    let data_start = 8 + header_bytes;
    if data_start > file_bytes {
        return Err(damaged(format!("its header ends at byte {data_start}, the file at {file_bytes}")));
    }
    let mut header = vec![0; header_bytes as usize];
    file.read_exact(&mut header).map_err(fs::io_err("read", path))?;
    let foreign = |detail| CompileError::NotSafetensors { path: path.into(), detail };
    let header = json::parse_bytes(&header).map_err(|e| foreign(format!("its header is not a JSON object: {e}")))?;
    let Value::Object(raw) = &header else {
        return Err(foreign(format!("its header is {}, expected an object", shown(&header))));
    };

    let mut tensors = BTreeMap::new();
    for (name, value) in raw.iter().filter(|(name, _)| *name != METADATA_KEY) {
        let entry = RawEntry::of(value)
            .and_then(|raw| check(raw, shard, data_start))
            .map_err(|detail| CompileError::BadTensorEntry { path: path.into(), name: shown_key(name), detail })?;
        tensors.insert(name.clone(), entry);
    }
    check_coverage(path, &tensors, data_start, file_bytes)?;
    Ok(tensors)
}

fn check(raw: RawEntry<'_>, shard: usize, data_start: u64) -> Result<TensorEntry, String> {
    let [begin, end] = raw.data_offsets;
    let dtype = SourceDtype::parse(raw.dtype);
    let offset = data_start.checked_add(begin).ok_or_else(|| format!("offset {begin} overflows"))?;
    let bytes = end.checked_sub(begin).ok_or_else(|| format!("its data ends at {end}, before it begins at {begin}"))?;
    let n_elems = raw.shape.iter().try_fold(1_usize, |n, &d| n.checked_mul(d));
    let n_elems = n_elems.ok_or_else(|| format!("shape {:?} overflows", raw.shape))?;
    if let Some(bits) = element_bits(raw.dtype) {
        let needed = (n_elems as u64).checked_mul(bits).map(|bits| bits.div_ceil(8));
        if needed != Some(bytes) {
            return Err(format!("{} {:?} does not fill {bytes} bytes", raw.dtype, raw.shape));
        }
    }
    Ok(TensorEntry { shard, dtype, dims: raw.shape, offset, bytes, paired_heads: None, columns: None })
}

/// Bits of an element, of the types that safetensors files have, also of those that are not read.
fn element_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Checks that tensors are contiguous and end at the end of the file.
fn check_coverage(
    path: &Path,
    tensors: &BTreeMap<String, TensorEntry>,
    data_start: u64,
    file_bytes: u64,
) -> Result<()> {
    let mut by_offset: Vec<_> = tensors.iter().collect();
    by_offset.sort_by_key(|(_, t)| (t.offset, t.bytes));
    let mut at = data_start;
    let last = by_offset.last().map(|(name, _)| shown_key(name));
    for (name, tensor) in by_offset {
        if tensor.offset != at {
            let what = if tensor.offset < at { "overlaps the tensor before it" } else { "leaves a gap before it" };
            return Err(CompileError::BadTensorEntry { path: path.into(), name: name.clone(), detail: what.into() });
        }
        at = at.checked_add(tensor.bytes).ok_or_else(|| CompileError::BadTensorEntry {
            path: path.into(),
            name: name.clone(),
            detail: "its end overflows".into(),
        })?;
    }
    if at != file_bytes {
        let detail = match last {
            Some(last) if at < file_bytes => {
                format!("the {} bytes after its last tensor, `{last}`, are of no tensor", file_bytes - at)
            }
            _ => format!("its tensors end at byte {at}, the file at {file_bytes}"),
        };
        return Err(CompileError::DamagedFile { path: path.into(), detail });
    }
    Ok(())
}

//! Descriptions of tensors, and the check that each lies in the file, aligned, and alone.

use super::GgufTensor;
use super::read::Reader;
use super::types::GgmlType;
use super::value::shown;
use crate::Result;
use std::collections::BTreeMap;

/// More extents than any model's tensors have.
const MAX_RANK: u32 = 8;
/// More bytes than a tensor's name has: ggml allows 63.
const MAX_NAME: usize = 255;

/// Name, extents and type; the offset as written.
pub(super) fn read_tensor(r: &mut Reader<'_>) -> Result<(String, GgufTensor)> {
    let name = r.text()?;
    let as_shown = shown(&name);
    let bad = |r: &Reader<'_>, what: String| r.malformed(format!("tensor `{as_shown}` {what}"));
    if name.len() > MAX_NAME {
        return Err(bad(r, format!("has a name of {} bytes", name.len())));
    }
    let rank = r.u32()?;
    if rank == 0 || rank > MAX_RANK {
        return Err(bad(r, format!("has {rank} axes")));
    }
    let mut dims = Vec::new();
    for _ in 0..rank {
        let extent = r.u64()?;
        match usize::try_from(extent) {
            Ok(0) => return Err(bad(r, "has an axis of 0".into())),
            Ok(extent) => dims.push(extent),
            Err(_) => return Err(bad(r, format!("has an axis of {extent}"))),
        }
    }
    let ty = GgmlType::from_number(r.u32()?);
    let n_elems = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let row = dims[0];
    let bytes = match ty.block() {
        // Of a format that is not known only the beginning can be checked.
        None => Some(1),
        Some((elems, _)) if !row.is_multiple_of(elems) => {
            return Err(bad(r, format!("has rows of {row} elements, no multiple of {elems}")));
        }
        Some((elems, bytes)) => n_elems.and_then(|n| (n / elems).checked_mul(bytes)),
    };
    dims.reverse();
    let bytes = bytes.ok_or_else(|| bad(r, format!("of {dims:?} is too large")))? as u64;
    Ok((name, GgufTensor { dims, ty, offset: r.u64()?, bytes }))
}

/// Makes the offsets absolute.
///
/// # Errors
/// Tensors that are not aligned, that end outside of the file, or of which two share bytes.
pub(super) fn place(
    r: &Reader<'_>,
    tensors: &mut BTreeMap<String, GgufTensor>,
    alignment: u64,
    file_bytes: u64,
) -> Result<()> {
    let data = r.at().next_multiple_of(alignment);
    for (name, tensor) in &mut *tensors {
        let name = shown(name);
        if !tensor.offset.is_multiple_of(alignment) {
            let offset = tensor.offset;
            return Err(r.malformed(format!("tensor `{name}` is at offset {offset}, no multiple of {alignment}")));
        }
        let start = data.checked_add(tensor.offset);
        match start.and_then(|start| Some((start, start.checked_add(tensor.bytes)?))) {
            Some((start, end)) if end <= file_bytes => tensor.offset = start,
            Some((_, end)) => {
                return Err(r.damaged(format!("tensor `{name}` ends at byte {end}, the file at {file_bytes}")));
            }
            None => return Err(r.malformed(format!("the offset of tensor `{name}` overflows"))),
        }
    }
    let mut by_place: Vec<_> = tensors.iter().map(|(name, t)| (t.offset, t.offset + t.bytes, name)).collect();
    by_place.sort_unstable();
    match by_place.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => {
            let (one, other) = (shown(pair[0].2), shown(pair[1].2));
            Err(r.malformed(format!("tensors `{one}` and `{other}` overlap in byte {}", pair[1].0)))
        }
        None => Ok(()),
    }
}

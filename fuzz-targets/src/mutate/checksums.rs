//! Makes the checksums of a changed file right, so that readers get behind them. Written from the documented layouts.

use xxhash_rust::xxh3::xxh3_64;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn range(bytes: &[u8], start: u64, len: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(start).ok()?..usize::try_from(start.checked_add(len)?).ok()?)
}

fn put(bytes: &mut [u8], at: usize, sum: u64) {
    if let Some(place) = bytes.get_mut(at..at + 8) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
}

/// A context binary of ours: length, checksum of the metadata, checksum of the header.
pub(super) fn context_binary(bytes: &mut [u8]) {
    let len = bytes.len() as u64;
    put(bytes, 16, len);
    let metadata = u64_at(bytes, 24).zip(u64_at(bytes, 32)).and_then(|(start, len)| range(bytes, start, len));
    if let Some(sum) = metadata.map(xxh3_64) {
        put(bytes, 40, sum);
    }
    if let Some(sum) = bytes.get(..120).map(xxh3_64) {
        put(bytes, 120, sum);
    }
}

/// A snapshot: length, a checksum for each section, checksum of the header and the table.
pub(super) fn snapshot(bytes: &mut [u8]) {
    let len = bytes.len() as u64;
    put(bytes, 16, len);
    let sections = (u32_at(bytes, 12).unwrap_or(0) as usize).min(bytes.len() / 32);
    for entry in (0..sections).map(|i| 32 + 32 * i) {
        let place = u64_at(bytes, entry + 8).zip(u64_at(bytes, entry + 16));
        if let Some(sum) = place.and_then(|(start, len)| range(bytes, start, len)).map(xxh3_64) {
            put(bytes, entry + 24, sum);
        }
    }
    if let (Some(head), Some(table)) = (bytes.get(..24), bytes.get(32..32 + 32 * sections)) {
        let sum = xxh3_64(&[head, table].concat());
        put(bytes, 24, sum);
    }
}

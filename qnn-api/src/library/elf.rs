//! What a library's file declares, read before any of its code runs.
//!
//! *Layout*: 64-bit little-endian ELF; the dynamic segment names the string table of the symbols that the loader sees.
//! What cannot be read this way is left to the loader, which refuses what is no library without running it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
/// Largest table that is read, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// Refuses a library whose symbols do not include that name. A bare name is for the loader to find, and passes.
pub(super) fn must_name(path: &Path, symbol: &'static str) -> Result<()> {
    if path.parent().is_none_or(|folder| folder.as_os_str().is_empty()) {
        return Ok(());
    }
    let names = |table: &[u8]| table.split(|&byte| byte == 0).any(|name| name == symbol.as_bytes());
    match symbol_names(path) {
        Some(table) if !names(&table) => Err(Error::Symbol { library: path.display().to_string(), symbol }),
        _ => Ok(()),
    }
}

/// The processor that an ELF file is for, as Rust names it; nothing for other files and other processors.
pub(crate) fn machine_of(path: &Path) -> Option<&'static str> {
    let head = bytes_at(&File::open(path).ok()?, 0, 20)?;
    // `e_machine`: EM_X86_64, EM_AARCH64, EM_HEXAGON.
    match (head.starts_with(b"\x7fELF"), number(&head, 18, 2)?) {
        (true, 62) => Some("x86_64"),
        (true, 183) => Some("aarch64"),
        (true, 164) => Some("hexagon"),
        _ => None,
    }
}

/// The names of the symbols that a library offers or asks for, each ended by a zero byte.
fn symbol_names(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let head = bytes_at(&file, 0, 64)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, entry, n) = (number(&head, 32, 8)?, number(&head, 54, 2)?, number(&head, 56, 2)?);
    let table = bytes_at(&file, at, entry * n)?;
    let segments = || table.chunks_exact(entry.max(1) as usize);
    // File offset, address and length.
    let place = |segment: &[u8]| Some((number(segment, 8, 8)?, number(segment, 16, 8)?, number(segment, 32, 8)?));
    let of_kind = |kind| segments().filter(move |segment| number(segment, 0, 4) == Some(kind)).filter_map(place);
    let (at, _, n_bytes) = of_kind(PT_DYNAMIC).next()?;
    let dynamic = bytes_at(&file, at, n_bytes)?;
    let value = |tag| dynamic.chunks_exact(16).find(|e| number(e, 0, 8) == Some(tag)).and_then(|e| number(e, 8, 8));
    let (address, n_bytes) = (value(DT_STRTAB)?, value(DT_STRSZ)?);
    let (at, start, _) = of_kind(PT_LOAD).find(|&(_, start, length)| address.wrapping_sub(start) < length)?;
    bytes_at(&file, at.checked_add(address - start)?, n_bytes)
}

fn bytes_at(mut file: &File, at: u64, n_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(n_bytes).ok().filter(|_| n_bytes <= MAX_BYTES)?];
    file.seek(SeekFrom::Start(at)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

/// A little-endian number of `width` bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + width)?;
    Some(bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_without_the_entry_point_is_refused_unopened() {
        // The program of this test is itself an ELF file with dynamic symbols: C's among them, QNN's not.
        let program = std::env::current_exe().unwrap();
        assert!(must_name(&program, "dlsym").is_ok());
        let error = must_name(&program, qnn_sys::GET_PROVIDERS).unwrap_err();
        assert!(error.to_string().contains("has no symbol `QnnInterface_getProviders`"), "{error}");
        assert_eq!(machine_of(&program), Some(std::env::consts::ARCH));
    }

    #[test]
    fn what_cannot_be_read_is_left_to_the_loader() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libQnnHtp.so");
        for bytes in [
            &b""[..],
            b"text, and more than sixty-four bytes of it, so that a header could be there",
            b"\x7fELF\x02\x01",
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(must_name(&path, qnn_sys::GET_PROVIDERS).is_ok());
            // Torn after the header: offsets and counts point anywhere.
            let mut torn = bytes.to_vec();
            torn.resize(64, 0xff);
            std::fs::write(&path, torn).unwrap();
            assert!(must_name(&path, qnn_sys::GET_PROVIDERS).is_ok());
        }
        assert!(must_name(Path::new("libQnnHtp.so"), qnn_sys::GET_PROVIDERS).is_ok());
    }
}

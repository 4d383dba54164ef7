//! Signatures: the first bytes of files by kind.
//!
//! *Source*: the formats' documents; for HTP binaries, which have none, files written by QAIRT 2.51. The owners of our own
//! formats test that theirs are known here.

use std::path::Path;

use super::file_kind::FileKind;
use super::text;

/// A zip archive that is no model.
pub(super) const ZIP: &str = "a zip archive";

/// Formats that are recognised by their first bytes alone, and used or named.
const SIGNATURES: &[(&[u8], FileKind)] = &[
    // Two big-endian numbers: 2 and 3.
    (&[0, 0, 0, 2, 0, 0, 0, 3], FileKind::HtpBinary),
    (b"GNKVSNAP", FileKind::Snapshot),
    (b"version https://git-lfs.github.com/spec/", FileKind::LfsPointer),
    (b"PK\x05\x06", FileKind::Named("an empty zip archive")),
    (b"\x1f\x8b", FileKind::Named("a gzip archive")),
    (b"\x28\xb5\x2f\xfd", FileKind::Named("a zstd archive")),
    (b"\xfd7zXZ\0", FileKind::Named("an xz archive")),
    (b"BZh", FileKind::Named("a bzip2 archive")),
    (b"7z\xbc\xaf\x27\x1c", FileKind::Named("a 7z archive")),
    (b"lmgg", FileKind::Named("a GGML file, which came before GGUF")),
    (b"fmgg", FileKind::Named("a GGML file, which came before GGUF")),
    (b"tjgg", FileKind::Named("a GGML file, which came before GGUF")),
    (b"\x93NUMPY", FileKind::Named("a NumPy array")),
    (b"\x89HDF\r\n\x1a\n", FileKind::Named("an HDF5 file")),
    (b"MZ", FileKind::Named("a Windows library or program")),
    (b"\xcf\xfa\xed\xfe", FileKind::Named("a macOS library or program")),
    (b"\xca\xfe\xba\xbe", FileKind::Named("a macOS library or program")),
    (b"%PDF-", FileKind::Named("a PDF document")),
    (b"\x89PNG\r\n\x1a\n", FileKind::Named("a PNG image")),
    (b"\xff\xd8\xff", FileKind::Named("a JPEG image")),
];

/// The kind of a file by its first bytes.
pub(super) fn of(head: &[u8]) -> FileKind {
    if head.is_empty() {
        return FileKind::Empty;
    }
    if let Some((_, kind)) = SIGNATURES.iter().find(|(signature, _)| head.starts_with(signature)) {
        return kind.clone();
    }
    host_binary(head)
        .or_else(|| gguf(head))
        .or_else(|| elf(head))
        .or_else(|| genie_cache(head))
        .or_else(|| pytorch(head))
        .or_else(|| head.starts_with(b"PK\x03\x04").then_some(FileKind::Named(ZIP)))
        .or_else(|| safetensors(head))
        .or_else(|| tflite(head))
        .or_else(|| sentence_piece(head))
        .or_else(|| onnx(head))
        .or_else(|| text::of(head))
        .unwrap_or_else(|| FileKind::Unknown { begins: head[..head.len().min(8)].to_vec() })
}

fn u32_at(head: &[u8], at: usize) -> Option<u32> {
    let bytes = head.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// A cut file may end before its version.
fn host_binary(head: &[u8]) -> Option<FileKind> {
    head.starts_with(b"\x89OGHOST\n").then(|| FileKind::HostBinary { format: u32_at(head, 8).unwrap_or_default() })
}

/// Versions are small numbers: of a big-endian file, the low half is zero.
fn gguf(head: &[u8]) -> Option<FileKind> {
    if !head.starts_with(b"GGUF") {
        return None;
    }
    let version = u32_at(head, 4).unwrap_or_default();
    let big_endian = version != 0 && version & 0xffff == 0;
    let version = if big_endian { version.swap_bytes() } else { version };
    Some(FileKind::Gguf { version, big_endian, part: None })
}

/// The place of a file of a split model: `NAME-00001-of-00003.gguf`.
pub(super) fn gguf_part(path: &Path) -> Option<(u32, u32)> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (_, number) = rest.rsplit_once('-')?;
    let (number, count) = (number.parse().ok()?, count.parse().ok()?);
    (count > 1).then_some((number, count))
}

fn elf(head: &[u8]) -> Option<FileKind> {
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    let number = head.get(18..20).map(|two| u16::from_le_bytes([two[0], two[1]]));
    let machine = match number {
        Some(62) => Some("x86_64"),
        Some(183) => Some("aarch64"),
        Some(164) => Some("hexagon"),
        _ => None,
    };
    Some(FileKind::Elf { machine })
}

/// Its second number is 0xC0DE.
fn genie_cache(head: &[u8]) -> Option<FileKind> {
    (u32_at(head, 4)? == 0xC0DE && head.len() >= 16).then_some(FileKind::GenieCache)
}

/// A zip whose first member lies in `.../data.pkl`, or a bare pickle.
fn pytorch(head: &[u8]) -> Option<FileKind> {
    let pickle = head[0] == 0x80 && head.get(1).is_some_and(|version| (2..=5).contains(version));
    let member = || {
        let name = head.get(26..28).map(|two| usize::from(u16::from_le_bytes([two[0], two[1]])))?;
        head.get(30..30 + name)
    };
    let zipped = head.starts_with(b"PK\x03\x04") && member().is_some_and(|name| name.ends_with(b"/data.pkl"));
    (pickle || zipped).then_some(FileKind::PyTorch)
}

/// The length of a JSON header, and the header's brace.
fn safetensors(head: &[u8]) -> Option<FileKind> {
    const LONGEST: u64 = 100 << 20;
    let length = u64::from_le_bytes(head.get(..8)?.try_into().ok()?);
    ((2..=LONGEST).contains(&length) && head.get(8) == Some(&b'{')).then_some(FileKind::Safetensors)
}

fn tflite(head: &[u8]) -> Option<FileKind> {
    (head.get(4..8)? == b"TFL3").then_some(FileKind::Named("a TensorFlow Lite model"))
}

/// A protobuf message that begins with a piece: a text and its score.
fn sentence_piece(head: &[u8]) -> Option<FileKind> {
    let [0x0a, message @ 1..=0x7f, 0x0a, piece @ 1..=0x7f, rest @ ..] = head else { return None };
    let (message, piece) = (usize::from(*message), usize::from(*piece));
    let text = rest.get(..piece)?;
    let scored = message >= piece + 2 && rest.get(piece) == Some(&0x15);
    (scored && std::str::from_utf8(text).is_ok()).then_some(FileKind::SentencePiece)
}

/// A protobuf message of a small version and the name of the program that wrote it.
fn onnx(head: &[u8]) -> Option<FileKind> {
    let [0x08, 1..=0x20, 0x12, name @ 1..=0x7f, rest @ ..] = head else { return None };
    let name = rest.get(..usize::from(*name))?;
    name.iter().all(u8::is_ascii_graphic).then_some(FileKind::Named("an ONNX model"))
}

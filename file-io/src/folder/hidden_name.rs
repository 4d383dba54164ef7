//! Names of hidden folders: what one is, for which place, and who made it.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Maker;

/// What a hidden folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An unfinished folder: nothing is lost with it.
    Partial,
    /// A finished one that is about to be exchanged, or the old one after that: others may have worked in it.
    Exchange,
    /// An old folder between two renames: perhaps nothing is in its place.
    Replaced,
}

/// Bytes of the place's name in a hidden name, which has to stay below 256.
const LONGEST: usize = 160;

impl Kind {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Partial => "partial",
            Self::Exchange => "exchange",
            Self::Replaced => "replaced",
        }
    }

    /// The place's name as part of a hidden name. A replaced folder needs all of it, to be put back.
    pub(super) fn cut(self, name: &OsStr) -> Cow<'_, OsStr> {
        match name.to_str() {
            Some(text) if self != Self::Replaced && text.len() > LONGEST => {
                let end = (0..=LONGEST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
                Cow::Borrowed(OsStr::new(&text[..end]))
            }
            None if self != Self::Replaced && name.len() > LONGEST => Cow::Borrowed(OsStr::new("folder")),
            _ => Cow::Borrowed(name),
        }
    }
}

/// A name of its own for each process and each call.
pub(super) fn hidden_name(place: &Path, kind: Kind) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = OsString::from(".");
    name.push(kind.cut(place.file_name().unwrap_or_default()));
    name.push(format!(".{}.{}.{number}", kind.word(), Maker::this()));
    place.with_file_name(name)
}

/// `.NAME.partial.MAKER.N`: the kind, the name of the place, the maker.
pub(super) fn parse(name: &OsStr) -> Option<(Kind, &OsStr, Maker)> {
    let bytes = name.as_encoded_bytes().strip_prefix(b".")?;
    let mut parts = bytes.rsplitn(4, |&byte| byte == b'.');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (number, maker, word) = (text()?, text()?, text()?);
    let kind = [Kind::Partial, Kind::Exchange, Kind::Replaced].into_iter().find(|kind| kind.word() == word)?;
    number.parse::<u64>().ok()?;
    let maker = Maker::parse(maker)?;
    // What is left of the bytes is the place's name; it may hold points and need not be UTF-8.
    let rest = parts.next()?;
    Some((kind, os_str(name, 1, rest.len())?, maker))
}

/// A part of a name: `from` and `length` in bytes.
#[cfg(unix)]
fn os_str(name: &OsStr, from: usize, length: usize) -> Option<&OsStr> {
    use std::os::unix::ffi::OsStrExt;
    name.as_bytes().get(from..from + length).map(OsStr::from_bytes)
}

#[cfg(not(unix))]
fn os_str(name: &OsStr, from: usize, length: usize) -> Option<&OsStr> {
    name.to_str()?.get(from..from + length).map(OsStr::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_say_what_they_are() {
        let maker = Maker::this();
        let name = format!(".my.bundle.partial.{maker}.7");
        assert_eq!(parse(OsStr::new(&name)), Some((Kind::Partial, OsStr::new("my.bundle"), maker)));
        let name = format!(".b.replaced.{maker}.0");
        assert_eq!(parse(OsStr::new(&name)), Some((Kind::Replaced, OsStr::new("b"), maker)));
        for name in [".b.partial-12", ".b.replaced", ".partial.12.0", &format!("b.partial.{maker}.0"), "b"] {
            assert_eq!(parse(OsStr::new(name)), None, "{name}");
        }
        let long = "é".repeat(100);
        assert_eq!(Kind::Partial.cut(OsStr::new(&long)).len(), LONGEST);
        assert_eq!(Kind::Replaced.cut(OsStr::new(&long)).len(), 200);
    }
}

//! The QAIRT release that made a file: `v2.51.0.260929181845`.

use core::fmt;

/// A release with its time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Build {
    /// Major, minor and patch number.
    pub release: (u32, u32, u32),
    /// Time stamp, year first.
    pub stamp: u64,
}

/// Fewest digits of a time stamp; with fewer it is another version number.
const MIN_STAMP: usize = 8;

impl Build {
    /// Reads a build id at the start of a text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::at_start(text.as_bytes())
    }

    /// The first build id in the bytes of a file.
    pub fn find(bytes: &[u8]) -> Option<Self> {
        let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'v');
        starts.map(|(at, _)| &bytes[at..]).find_map(Self::at_start)
    }

    fn at_start(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(b"v").unwrap_or(bytes);
        let mut number = |last: bool| -> Option<(u64, usize)> {
            let n = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let value = core::str::from_utf8(&rest[..n]).ok()?.parse().ok()?;
            rest = &rest[n..];
            rest = if last { rest } else { rest.strip_prefix(b".")? };
            Some((value, n))
        };
        let mut part = || u32::try_from(number(false)?.0).ok();
        let release = (part()?, part()?, part()?);
        let (stamp, n) = number(true)?;
        (n >= MIN_STAMP).then_some(Self { release, stamp })
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.release;
        write!(f, "QAIRT {major}.{minor}.{patch} ({})", self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_ids_are_read_and_found() {
        let want = Build { release: (2, 51, 0), stamp: 260_929_181_845 };
        assert_eq!(Build::parse("v2.51.0.260929181845"), Some(want));
        assert_eq!(Build::parse("v2.51.0.260929181845_123456"), Some(want));
        assert_eq!(Build::find(b"\0verb v1.2 \0hexnn_ver_v2.51.0.260929181845.\0"), Some(want));
        assert_eq!(want.to_string(), "QAIRT 2.51.0 (260929181845)");
        for other in ["qnn-host 0.1.0", "v2.51.0", "v2.51.0.12", "", "v..."] {
            assert_eq!(Build::parse(other), None, "{other}");
        }
    }

    #[test]
    fn newer_releases_are_greater() {
        let build = |text| Build::parse(text).unwrap();
        assert!(build("v2.9.0.250101000000") < build("v2.10.0.240101000000"));
    }
}

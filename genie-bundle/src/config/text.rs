//! The text of a config: of bounded length, without a byte order mark, and no key twice.

use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use crate::StrictJson;

/// Longest config that is read, in bytes. The longest known ones have 20 kB.
pub const MAX_BYTES: u64 = 4 << 20;

/// The text of a config's file.
///
/// # Errors
/// The system's; what is there is no file; longer than [`MAX_BYTES`]; not UTF-8.
pub fn read(path: &Path) -> io::Result<String> {
    file_io::utf8(file_io::read_file_up_to(path, MAX_BYTES)?)
}

/// The text of a config that is no file: of stdin.
///
/// # Errors
/// The system's; longer than [`MAX_BYTES`]; not UTF-8.
pub fn from_reader(from: impl Read) -> io::Result<String> {
    file_io::utf8(file_io::read_up_to(from, MAX_BYTES)?)
}

/// The document. A byte order mark at its start is skipped, as libGenie's parser does.
///
/// # Errors
/// Not JSON, or a key twice in one object.
pub fn parse(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str::<StrictJson>(text.strip_prefix('\u{feff}').unwrap_or(text)).map(|json| json.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3: a key twice; and a byte order mark, a huge file.
    #[test]
    fn keys_come_once_marks_are_skipped_and_length_is_bounded() {
        assert_eq!(parse("\u{feff}{\"a\": 1}").unwrap(), serde_json::json!({"a": 1}));
        assert_eq!(parse("{\"a\": 1, \"a\": 2}").unwrap_err().to_string(), "key `a` comes twice at line 1 column 16");
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_BYTES + 1).unwrap();
        let said = read(file.path()).unwrap_err().to_string();
        assert_eq!(said, "expected at most 4194304 bytes, found 4194305");
    }
}

//! Text from a file or from stdin, as a model should see it: UTF-8, without a byte order mark, not empty.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result};

use crate::failure::UserError;
use crate::printer::Printer;

/// What a text is for, and its name in messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What the model answers: an empty one is a mistake.
    Prompt,
    /// What is measured.
    Text,
}

/// Longest text, in bytes. A tokenizer takes 130 bytes of memory for each.
const MAX_BYTES: u64 = 64 << 20;

/// What is there, up to one byte more than [`MAX_BYTES`]: `/dev/zero` has no end.
fn bounded(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file, or of stdin with `-`.
pub fn read(path: &Path, role: Role, printer: &Printer) -> Result<String> {
    let what = role.words();
    let (bytes, place) = if path.as_os_str() == "-" {
        let bytes = bounded(std::io::stdin()).with_context(|| format!("cannot read the {what} from stdin"))?;
        (bytes, "stdin".to_owned())
    } else {
        let kind = if role == Role::Prompt { "prompt file" } else { what };
        // A pipe or a device may be read as well.
        let bytes = std::fs::File::open(path)
            .and_then(bounded)
            .with_context(|| format!("cannot read the {kind} `{}`", path.display()))?;
        (bytes, format!("the file `{}`", path.display()))
    };
    text_of(bytes, role, &place, printer)
}

/// The text of bytes that were read, whole unless there are too many.
fn text_of(bytes: Vec<u8>, role: Role, place: &str, printer: &Printer) -> Result<String> {
    let what = role.words();
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("the {what} is too long: {place} has more than {} MiB", MAX_BYTES >> 20);
        return Err(UserError::error(message, format!("give a part of it, for example with `head -c {MAX_BYTES}`")));
    }
    let (text, marked) = decode(bytes, role, place)?;
    if marked {
        printer.info(format_args!("note: left out the byte order mark at the start of {place}"));
    }
    Ok(text)
}

/// What stdin holds, if it is a pipe or a file; `None` at a terminal, and for an empty one.
pub fn piped(printer: &Printer) -> Result<Option<String>> {
    if std::io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut first = [0];
    let read = std::io::stdin().read(&mut first).context("cannot read the prompt from stdin")?;
    if read == 0 {
        return Ok(None);
    }
    let rest = first.as_slice().chain(std::io::stdin());
    text_of(bounded(rest).context("cannot read the prompt from stdin")?, Role::Prompt, "stdin", printer).map(Some)
}

impl Role {
    fn words(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Text => "text",
        }
    }
}

/// UTF-8 without its mark, and whether there was one.
fn decode(mut bytes: Vec<u8>, role: Role, place: &str) -> Result<(String, bool)> {
    let marked = bytes.starts_with(b"\xef\xbb\xbf");
    if marked {
        bytes.drain(..3);
    }
    let what = role.words();
    if bytes.is_empty() && role == Role::Prompt {
        let hint = "write a text into it; `--prompt \"\"` lets the model begin by itself";
        return Err(UserError::error(format!("the {what} is empty: {place} has no text"), hint));
    }
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        let message = format!("the {what} is UTF-16, expected UTF-8: {place} begins with its byte order mark");
        return Err(UserError::error(message, "convert it, for example with `iconv -f UTF-16 -t UTF-8`"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("the {what} is not UTF-8: {place} has another byte at position {at}");
        UserError::error(message, "is it a text file, and in UTF-8?")
    })?;
    Ok((text, marked))
}

#[cfg(test)]
mod tests {
    use super::{Role, decode};

    #[test]
    fn marks_go_and_empty_texts_are_refused() {
        let of = |bytes: &[u8]| decode(bytes.to_vec(), Role::Prompt, "stdin").map_err(|e| e.to_string());
        assert_eq!(of(b"Hi"), Ok(("Hi".into(), false)));
        assert_eq!(of(b"\xef\xbb\xbfHi"), Ok(("Hi".into(), true)));
        // Inside a text the character is the writer's.
        assert_eq!(of("a\u{feff}b".as_bytes()), Ok(("a\u{feff}b".into(), false)));
        assert_eq!(of(b""), Err("the prompt is empty: stdin has no text".into()));
        assert_eq!(decode(Vec::new(), Role::Text, "stdin").map_err(|e| e.to_string()), Ok((String::new(), false)));
        assert_eq!(of(b"\xef\xbb\xbf"), Err("the prompt is empty: stdin has no text".into()));
        let utf16 = "the prompt is UTF-16, expected UTF-8: stdin begins with its byte order mark";
        assert_eq!(of(b"\xff\xfeH\0i\0"), Err(utf16.into()));
        assert_eq!(of(b"ab\xe4b"), Err("the prompt is not UTF-8: stdin has another byte at position 2".into()));
    }
}

//! Files of characters: JSON, web pages, plain text.

use super::file_kind::FileKind;
use super::json::JsonKind;

/// The kind of a text; `None` if the bytes are none.
pub(super) fn of(head: &[u8]) -> Option<FileKind> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if matches!(text.first(), Some(b'{' | b'[')) {
        return Some(FileKind::Json(JsonKind::Other));
    }
    let begins = |tag: &[u8]| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    if [&b"<!doctype html"[..], b"<html", b"<?xml", b"<error"].iter().any(|tag| begins(tag)) {
        return Some(FileKind::WebPage);
    }
    is_text(head).then_some(FileKind::Text)
}

/// UTF-8 without control characters but white space; a character may be cut at the end.
fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !valid.is_empty() && valid.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0c' | '\x1b'))
}

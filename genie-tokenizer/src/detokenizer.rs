//! Token by token to text, at a cost per token that does not grow with the text.
//!
//! Byte-level vocabularies: the entry's bytes go through a [`Utf8Stream`]. Others: a token's text is what it adds to
//! the decoding of the tokens just before it; byte tokens (`<0xE4>`) among them go through the stream, too.
//!
//! *Invariant*: all pushes and the finish together give the text of [`Tokenizer::decode`]. Once a sequence of bytes
//! cannot become a character any more it is replaced by U+FFFD and the stream goes on; libGenie stays silent.

use genie_types::TokenId;

use crate::byte_level;
use crate::decoders::Scheme;
use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;
use crate::utf8::Utf8Stream;

/// Longest neighbourhood that is decoded again for a token that adds nothing to the text.
const MAX_WINDOW: usize = 16;
/// A character has at most 4 bytes, so after this many tokens it is complete or never will be.
const MAX_HELD: usize = 4;

/// The state between two tokens.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    bytes: Utf8Stream,
    /// Last tokens; the first `n_shown` of them have been turned into text.
    window: Vec<u32>,
    n_shown: usize,
    scratch: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, bytes: Utf8Stream::default(), window: Vec::new(), n_shown: 0, scratch: Vec::new() }
    }

    /// Appends the text that `id` completes to `out`: possibly nothing. Special and unknown tokens have no text.
    ///
    /// # Errors
    /// The decoder refuses the token.
    pub fn push(&mut self, id: TokenId, out: &mut String) -> Result<(), TokenizerError> {
        if self.tokenizer.is_special(id) {
            return Ok(());
        }
        let Some(entry) = self.tokenizer.id_to_token(id) else { return Ok(()) };
        match self.tokenizer.scheme() {
            Scheme::ByteLevel => {
                byte_level::bytes_of(&entry, &mut self.scratch);
                self.bytes.push(&self.scratch, out);
                Ok(())
            }
            Scheme::Text { byte_fallback, splits_utf8 } => {
                // An ASCII byte at the very start is text like any other: the decoder may strip it.
                let at_start = self.window.is_empty();
                if let Some(byte) = byte_of(&entry).filter(|b| byte_fallback && !(at_start && b.is_ascii())) {
                    self.bytes.push(&[byte], out);
                    // What follows is not the start of the text, where a space would be stripped.
                    self.window.clear();
                    self.window.push(id.0);
                    self.n_shown = 1;
                    return Ok(());
                }
                self.bytes.finish(out);
                self.window.push(id.0);
                self.show(splits_utf8, out)
            }
        }
    }

    /// Nothing more will come: gives what was held back, incomplete characters as U+FFFD.
    ///
    /// # Errors
    /// The decoder refuses a token.
    pub fn finish(&mut self, out: &mut String) -> Result<(), TokenizerError> {
        self.bytes.finish(out);
        if self.n_shown < self.window.len() { self.show(false, out) } else { Ok(()) }
    }

    /// Whether a token has been taken whose text is not, or not all, given yet.
    pub fn has_pending(&self) -> bool {
        self.bytes.has_pending() || self.n_shown < self.window.len()
    }

    #[cfg(test)]
    pub(crate) fn window_len(&self) -> usize {
        self.window.len()
    }

    /// Gives what the tokens after `n_shown` add to those before.
    fn show(&mut self, may_hold: bool, out: &mut String) -> Result<(), TokenizerError> {
        let shown = self.tokenizer.decode_window(&self.window[..self.n_shown])?;
        let all = self.tokenizer.decode_window(&self.window)?;
        let added = &all[common_prefix(&shown, &all)..];
        let n_held = self.window.len() - self.n_shown;
        if may_hold && added.ends_with(char::REPLACEMENT_CHARACTER) && n_held < MAX_HELD {
            return Ok(());
        }
        if !added.is_empty() {
            out.push_str(added);
            self.window.drain(..self.n_shown);
        } else if self.window.len() > MAX_WINDOW {
            self.window.drain(..self.window.len() - MAX_WINDOW);
        }
        self.n_shown = self.window.len();
        Ok(())
    }
}

/// Bytes that two texts share at their start, whole characters only.
fn common_prefix(a: &str, b: &str) -> usize {
    if b.starts_with(a) {
        return a.len();
    }
    b.char_indices().zip(a.chars()).find(|((_, x), y)| x != y).map_or(a.len().min(b.len()), |((i, _), _)| i)
}

/// The byte of an entry such as `<0x0A>`.
pub(crate) fn byte_of(entry: &str) -> Option<u8> {
    let hex = entry.strip_prefix("<0x")?.strip_suffix('>')?;
    if hex.len() == 2 { u8::from_str_radix(hex, 16).ok() } else { None }
}

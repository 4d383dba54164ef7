//! The bytes that each id adds to a text: what a grammar over bytes needs to know of a vocabulary.
//!
//! *Traps*: where entries are text that depends on its neighbours, an id's bytes are those behind other text; at the start of a
//! text some decoders drop a leading space.

use genie_types::TokenId;

use crate::byte_level;
use crate::decoders::Scheme;
use crate::detokenizer::byte_of;
use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;

impl Tokenizer {
    /// The bytes of the ids from 0 on, `n` of them. Empty for control tokens, for ids outside of the vocabulary, and for
    /// entries that no decoder turns into text of their own.
    ///
    /// # Errors
    /// The decoder refuses a token.
    pub fn token_bytes(&self, n: usize) -> Result<Vec<Vec<u8>>, TokenizerError> {
        (0..u32::try_from(n).unwrap_or(u32::MAX)).map(|id| self.bytes_of_token(TokenId(id))).collect()
    }

    /// The bytes of one id, as [`token_bytes`](Self::token_bytes) gives them: where a character is cut into several tokens, each has
    /// its own part of it. A space in front of a word is kept.
    ///
    /// # Errors
    /// The decoder refuses the token.
    pub fn bytes_of_token(&self, id: TokenId) -> Result<Vec<u8>, TokenizerError> {
        let Some(entry) = self.id_to_token(id).filter(|_| !self.is_special(id)) else { return Ok(Vec::new()) };
        let byte_fallback = match self.scheme() {
            Scheme::ByteLevel | Scheme::Text { splits_utf8: true, .. } => {
                let mut bytes = Vec::new();
                byte_level::bytes_of(&entry, &mut bytes);
                return Ok(bytes);
            }
            Scheme::Text { byte_fallback, .. } => byte_fallback,
        };
        if let Some(byte) = byte_of(&entry).filter(|_| byte_fallback) {
            return Ok(vec![byte]);
        }
        let text = match self.text_before()? {
            Some((anchor, shown)) => {
                let all = self.decode_window(&[*anchor, id.0])?;
                all.strip_prefix(shown.as_str()).unwrap_or_default().to_owned()
            }
            None => self.decode_window(&[id.0])?,
        };
        Ok(text.into_bytes())
    }

    /// A token whose text stays what it is when others follow, and that text; looked for once.
    fn text_before(&self) -> Result<Option<&(u32, String)>, TokenizerError> {
        let known = self.known_text_before();
        match known.get() {
            Some(found) => Ok(found.as_ref()),
            None => {
                let found = self.find_text_before()?;
                Ok(known.get_or_init(|| found).as_ref())
            }
        }
    }

    fn find_text_before(&self) -> Result<Option<(u32, String)>, TokenizerError> {
        for id in 0..u32::try_from(self.vocab_size()).unwrap_or(u32::MAX) {
            if self.is_special(TokenId(id)) {
                continue;
            }
            let text = self.decode_window(&[id])?;
            let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
            if plain && self.decode_window(&[id, id])?.starts_with(&text) {
                return Ok(Some((id, text)));
            }
        }
        Ok(None)
    }
}

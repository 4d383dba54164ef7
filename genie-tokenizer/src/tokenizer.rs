//! Text to token ids and back.
//!
//! Special tokens are recognised in the input text (chat templates rely on it) unless the text is said to be plain, none are
//! added, and none appear in output text.
//!
//! *Traps*: truncation, padding and the post-processor that a `tokenizer.json` may ask for are not used; they would cut long
//! prompts and add tokens without a word. Where byte tokens do not form characters the replacement is that of
//! `String::from_utf8_lossy`, also for SentencePiece's byte fallback, where the `tokenizers` crate gives up the whole run
//! of bytes.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use genie_types::TokenId;

use crate::decoders::Scheme;
use crate::detokenizer::Detokenizer;
use crate::error::TokenizerError;
use crate::limits;
use crate::load::{Loaded, load};
use crate::model::Vocabulary;
use crate::parts::Found;
use crate::quiet::quietly;

struct Inner {
    loaded: Loaded,
    /// The file, or that it was bytes.
    origin: String,
    special: HashSet<u32>,
    /// The same without special tokens in texts; made when it is first asked for.
    plain: OnceLock<tokenizers::Tokenizer>,
    /// See `token_bytes.rs`; none: there is no such token.
    text_before: OnceLock<Option<(u32, String)>>,
}

/// A tokenizer. Clones share one vocabulary.
#[derive(Clone)]
pub struct Tokenizer(Arc<Inner>);

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("origin", &self.0.origin).field("entries", &self.vocab_size()).finish()
    }
}

impl Tokenizer {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a usable tokenizer: [`TokenizerError::Parse`] names the place in it, what was
    /// found and what was expected.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        Self::parse(&read(path)?, &path.display().to_string())
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// They are not a usable tokenizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenizerError> {
        Self::parse(bytes, "tokenizer.json")
    }

    /// As [`from_bytes`](Self::from_bytes), for bytes that come from elsewhere; errors name `origin`.
    ///
    /// # Errors
    /// They are not a usable tokenizer.
    pub fn parse(bytes: &[u8], origin: &str) -> Result<Self, TokenizerError> {
        let loaded = load(bytes).map_err(|fault| fault.of(origin))?;
        let special = loaded.special.iter().map(|(_, id)| *id).collect();
        Ok(Self(Arc::new(Inner {
            loaded,
            origin: origin.into(),
            special,
            plain: OnceLock::new(),
            text_before: OnceLock::new(),
        })))
    }

    /// Ids of `text`. No BOS or other special token is added; those written out in the text are recognised.
    ///
    /// # Errors
    /// The vocabulary has no way to write the text.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        encode_with(&self.0.loaded.hf, text)
    }

    /// Ids of a text in which control tokens are not recognised: foreign text cannot end a turn or begin one.
    ///
    /// # Errors
    /// The vocabulary has no way to write the text, or no other one than the control token.
    pub fn encode_plain(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        let plain = self.0.plain.get_or_init(|| {
            let mut plain = self.0.loaded.hf.clone();
            plain.set_encode_special_tokens(true);
            plain
        });
        let ids = encode_with(plain, text)?;
        // A model may have the text of a control token in its own vocabulary.
        for (token, id) in &self.0.loaded.special {
            if ids.contains(&TokenId(*id)) && text.contains(token.as_str()) {
                return Err(TokenizerError::NotPlain { token: token.clone(), id: TokenId(*id) });
            }
        }
        Ok(ids)
    }

    /// Text of the ids: what [`Detokenizer`] streams, in one piece. Ids that are not in the vocabulary have no text.
    ///
    /// # Errors
    /// The decoder refuses a token.
    pub fn decode(&self, ids: &[TokenId]) -> Result<String, TokenizerError> {
        let mut stream = self.detokenizer();
        let mut text = String::new();
        for id in ids {
            stream.push(*id, &mut text)?;
        }
        stream.finish(&mut text)?;
        Ok(text)
    }

    /// A stream at its start.
    pub fn detokenizer(&self) -> Detokenizer {
        Detokenizer::new(self.clone())
    }

    /// The id of an entry, written as in the vocabulary.
    pub fn token_to_id(&self, entry: &str) -> Option<TokenId> {
        self.0.loaded.hf.token_to_id(entry).map(TokenId)
    }

    /// The entry of an id, as written in the vocabulary.
    pub fn id_to_token(&self, id: TokenId) -> Option<String> {
        self.0.loaded.hf.id_to_token(id.0)
    }

    /// Whether the token is a control token that has no place in output text.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.0.special.contains(&id.0)
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.0.loaded.vocabulary.n_entries
    }

    /// Bytes of the longest entry: a text of n bytes has at least n divided by it tokens, if nothing is normalized away.
    pub fn longest_entry(&self) -> usize {
        self.0.loaded.vocabulary.longest
    }

    /// The file, or that it was bytes.
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    pub(crate) fn vocabulary(&self) -> &Vocabulary {
        &self.0.loaded.vocabulary
    }

    pub(crate) fn patterns(&self) -> &[Found] {
        &self.0.loaded.patterns
    }

    pub(crate) fn is_lossless(&self) -> bool {
        self.0.loaded.lossless
    }

    pub(crate) fn known_text_before(&self) -> &OnceLock<Option<(u32, String)>> {
        &self.0.text_before
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.0.loaded.scheme
    }

    /// The `tokenizers` crate's decoding of a few ids, none of them special.
    pub(crate) fn decode_window(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        // Some decoders of the crate count from the last token back.
        let Some(last) = ids.last().copied().map(TokenId) else { return Ok(String::new()) };
        let fail = |reason: String| TokenizerError::Decode { token: last, reason };
        let text = quietly(|| self.0.loaded.hf.decode(ids, false)).map_err(fail)?;
        text.map_err(|e| fail(e.to_string()))
    }

    #[cfg(test)]
    pub(crate) fn hf(&self) -> &tokenizers::Tokenizer {
        &self.0.loaded.hf
    }
}

fn encode_with(hf: &tokenizers::Tokenizer, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
    let fail = |reason: String| TokenizerError::Encode { n_bytes: text.len(), reason };
    let encoding = quietly(|| hf.encode_fast(text, false)).map_err(fail)?.map_err(|e| fail(e.to_string()))?;
    Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
}

/// Reads a regular file of bounded length; a fifo or a device would block or never end.
fn read(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    let failed = |source| TokenizerError::Read { path: path.into(), source };
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() {
        let found = if about.is_dir() { "a folder" } else { "a device or a fifo" };
        return Err(TokenizerError::NotAFile { path: path.into(), found });
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(limits::FILE + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > limits::FILE {
        let bytes = about.len().max(bytes.len() as u64);
        return Err(TokenizerError::TooLong { path: path.into(), bytes, limit: limits::FILE });
    }
    Ok(bytes)
}

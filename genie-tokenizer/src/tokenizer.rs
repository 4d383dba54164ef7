//! Text to token ids and back, on Hugging Face's `tokenizer.json`.
//!
//! [`Tokenizer`] wraps the `tokenizers` crate; [`Detokenizer`] gives text token by token without ever splitting a
//! character. Special tokens are recognised in the input text (chat templates rely on it), none are added, and none
//! appear in output text.
//!
//! *Traps*: truncation and padding that a `tokenizer.json` may ask for are turned off; they would cut long prompts
//! without a word. Where byte tokens do not form characters the replacement is that of `String::from_utf8_lossy`,
//! also for SentencePiece's byte fallback, where the `tokenizers` crate gives up the whole run of bytes.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use genie_types::TokenId;
use serde_json::Value;

use crate::decoders::{check_streams, decoder_chain};
use crate::detokenizer::Detokenizer;

/// Why a tokenizer could not be loaded or used. The cause is the `tokenizers` crate's own text.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("cannot read the tokenizer `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason the system gave.
        source: std::io::Error,
    },
    /// Not a `tokenizer.json`.
    #[error("`{origin}` is not a tokenizer that can be used: {reason}")]
    Parse {
        /// The file, or that it was bytes.
        origin: String,
        /// What was wrong.
        reason: String,
    },
    /// Text could not be encoded.
    #[error("cannot encode {n_bytes} bytes of text: {reason}")]
    Encode {
        /// Length of the text.
        n_bytes: usize,
        /// What was wrong.
        reason: String,
    },
    /// A token could not be turned into text.
    #[error("cannot decode token {token}: {reason}")]
    Decode {
        /// The token.
        token: TokenId,
        /// What was wrong.
        reason: String,
    },
}

/// How the text of a token follows from its entry in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Each character of the entry stands for a byte (GPT-2's alphabet).
    ByteLevel,
    /// The entry is text that may depend on its neighbours.
    Text {
        /// Entries such as `<0xE4>` are single bytes.
        byte_fallback: bool,
        /// Other decoders that work on bytes are in the chain: text may end in the middle of a character.
        splits_utf8: bool,
    },
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) hf: tokenizers::Tokenizer,
    scheme: Scheme,
    special: HashSet<u32>,
}

/// A tokenizer. Clones share one vocabulary.
#[derive(Clone, Debug)]
pub struct Tokenizer(pub(crate) Arc<Inner>);

impl Tokenizer {
    /// Loads a `tokenizer.json`.
    ///
    /// # Errors
    /// The file cannot be read, or is not a usable tokenizer.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, TokenizerError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| TokenizerError::Read { path: path.into(), source })?;
        Self::parse(&bytes, &path.display().to_string())
    }

    /// Reads the bytes of a `tokenizer.json`.
    ///
    /// # Errors
    /// They are not a usable tokenizer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenizerError> {
        Self::parse(bytes, "tokenizer.json")
    }

    fn parse(bytes: &[u8], origin: &str) -> Result<Self, TokenizerError> {
        let fail = |reason: String| TokenizerError::Parse { origin: origin.into(), reason };
        let mut hf = load(bytes).map_err(fail)?;
        hf.with_truncation(None).map_err(|e| fail(e.to_string()))?;
        hf.with_padding(None);
        let decoder = serde_json::to_value(hf.get_decoder()).map_err(|e| fail(e.to_string()))?;
        let scheme = scheme(&decoder).map_err(fail)?;
        let special = hf.get_added_tokens_decoder().into_iter().filter(|(_, t)| t.special).map(|(id, _)| id).collect();
        Ok(Self(Arc::new(Inner { hf, scheme, special })))
    }

    /// Ids of `text`. No BOS or other special token is added; those written out in the text are recognised.
    ///
    /// # Errors
    /// The vocabulary has no way to write the text.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        let fail = |e: tokenizers::Error| TokenizerError::Encode { n_bytes: text.len(), reason: e.to_string() };
        let encoding = self.0.hf.encode_fast(text, false).map_err(fail)?;
        Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
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
        self.0.hf.token_to_id(entry).map(TokenId)
    }

    /// The entry of an id, as written in the vocabulary.
    pub fn id_to_token(&self, id: TokenId) -> Option<String> {
        self.0.hf.id_to_token(id.0)
    }

    /// Whether the token is a control token that has no place in output text.
    pub fn is_special(&self, id: TokenId) -> bool {
        self.0.special.contains(&id.0)
    }

    /// Entries of the vocabulary, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.0.hf.get_vocab_size(true)
    }

    pub(crate) fn scheme(&self) -> Scheme {
        self.0.scheme
    }

    /// The `tokenizers` crate's decoding of a few ids, none of them special.
    pub(crate) fn decode_window(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let last = TokenId(ids.last().copied().unwrap_or_default());
        self.0.hf.decode(ids, false).map_err(|e| TokenizerError::Decode { token: last, reason: e.to_string() })
    }
}

/// The `tokenizers` crate panics on some damaged files: text that is no JSON is found before it looks, and whatever
/// else makes it panic becomes an error, too.
fn load(bytes: &[u8]) -> Result<tokenizers::Tokenizer, String> {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map_err(|e| e.to_string())?;
    match std::panic::catch_unwind(|| tokenizers::Tokenizer::from_bytes(bytes)) {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err("a part of it does not have the shape it should have".into()),
    }
}

/// Reads the decoder's chain. Absent: entries are words, joined by spaces.
pub(crate) fn scheme(decoder: &Value) -> Result<Scheme, String> {
    check_streams(decoder)?;
    let kinds: Vec<&str> = decoder_chain(decoder).iter().filter_map(|d| d.get("type")?.as_str()).collect();
    if kinds == ["ByteLevel"] {
        return Ok(Scheme::ByteLevel);
    }
    Ok(Scheme::Text { byte_fallback: kinds.contains(&"ByteFallback"), splits_utf8: kinds.contains(&"ByteLevel") })
}

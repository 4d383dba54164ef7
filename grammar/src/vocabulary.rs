//! A model's vocabulary as a grammar sees it: bytes of every token, in a trie.
//!
//! *Invariant*: the trie has one entry more than the model has logits, without bytes. Where it is allowed, the grammar may end.

use std::sync::Arc;

use genie_tokenizer::Tokenizer;
use genie_types::TokenId;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{ParserFactory, panic_utils};

use crate::GrammarError;

/// Longest token that is matched, in bytes; the trie has a bound of 1024.
const LONGEST: usize = 1000;

/// A vocabulary for any number of grammars. Clones share it.
#[derive(Clone)]
pub struct Vocabulary(Arc<Inner>);

struct Inner {
    factory: ParserFactory,
    tokenizer: Option<Tokenizer>,
    n_vocab: usize,
    /// Tokens that begin with white space.
    white: Vec<u32>,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vocabulary").field("n_vocab", &self.0.n_vocab).finish()
    }
}

impl Vocabulary {
    /// The vocabulary of a tokenizer, for rows of `n_vocab` logits. Control tokens never match.
    ///
    /// # Errors
    /// The tokenizer refuses to decode a token; no token has bytes.
    pub fn new(tokenizer: &Tokenizer, n_vocab: usize) -> Result<Self, GrammarError> {
        Self::build(tokenizer.token_bytes(n_vocab)?, Some(tokenizer.clone()))
    }

    /// A vocabulary by the bytes of its tokens, from id 0 on; empty for those that never match. Without a tokenizer nothing is
    /// known to be certain ahead: [`Constraint::forced`](crate::Constraint::forced) is empty.
    ///
    /// # Errors
    /// No token has bytes.
    pub fn from_bytes(tokens: Vec<Vec<u8>>) -> Result<Self, GrammarError> {
        Self::build(tokens, None)
    }

    fn build(mut tokens: Vec<Vec<u8>>, tokenizer: Option<Tokenizer>) -> Result<Self, GrammarError> {
        let n_vocab = tokens.len();
        // 0xFF begins no character, and the trie has a meaning of its own for it.
        for bytes in tokens.iter_mut().filter(|bytes| bytes.len() > LONGEST || bytes.first() == Some(&0xff)) {
            bytes.clear();
        }
        if tokens.iter().all(Vec::is_empty) {
            let message = format!("none of its {n_vocab} tokens has text");
            return Err(GrammarError::Vocabulary { message });
        }
        let is_white = |bytes: &[u8]| bytes.first().is_some_and(|b| b" \n\t\r".contains(b));
        let white = (0..).zip(&tokens).filter(|(_, bytes)| is_white(bytes)).map(|(id, _)| id).collect();
        tokens.push(Vec::new());
        let factory = panic_utils::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let info = TokRxInfo::new(tokens.len() as u32, n_vocab as u32);
            let trie: TokEnv = Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &tokens)));
            ParserFactory::new_simple(&trie)
        }));
        let mut factory = factory.map_err(|e| GrammarError::Vocabulary { message: e.to_string() })?;
        factory.quiet();
        Ok(Self(Arc::new(Inner { factory, tokenizer, n_vocab, white })))
    }

    /// How many tokens it has.
    pub fn n_vocab(&self) -> usize {
        self.0.n_vocab
    }

    pub(crate) fn factory(&self) -> &ParserFactory {
        &self.0.factory
    }

    /// The entry that stands for the grammar's end.
    pub(crate) fn end(&self) -> u32 {
        self.0.n_vocab as u32
    }

    pub(crate) fn white(&self) -> &[u32] {
        &self.0.white
    }

    pub(crate) fn bytes(&self, token: TokenId) -> &[u8] {
        let trie = self.0.factory.tok_env().tok_trie();
        if (token.0 as usize) < self.0.n_vocab { trie.token(token.0) } else { &[] }
    }

    /// The tokens that the tokenizer writes a text with, if they have exactly its bytes.
    pub(crate) fn tokens_of(&self, bytes: &[u8]) -> Option<Vec<TokenId>> {
        // The last character may be incomplete.
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).ok()?,
        };
        let tokens = self.0.tokenizer.as_ref()?.encode_plain(text).ok()?;
        let written: Vec<u8> = tokens.iter().flat_map(|token| self.bytes(*token)).copied().collect();
        (written == text.as_bytes()).then_some(tokens)
    }
}

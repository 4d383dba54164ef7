//! The tokens of a conversation, and which of them the model has processed.

use genie_types::TokenId;

/// The transcript: prompts with their special tokens, and what was generated.
///
/// *Invariant*: all but perhaps the last token are in the model's cache: `len == n_past + (last is unprocessed)`.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    tokens: Vec<TokenId>,
    /// Parallel to `tokens`: whether the model generated it.
    generated: Vec<bool>,
    n_past: usize,
}

impl History {
    /// A restored conversation, of which the model has processed `n_past` tokens.
    pub(super) fn restored(tokens: Vec<TokenId>, generated: Vec<bool>, n_past: usize) -> Self {
        Self { tokens, generated, n_past }
    }

    pub(super) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens in the cache.
    pub(super) fn n_past(&self) -> usize {
        self.n_past
    }

    /// The last sampled token, if the model has not processed it.
    pub(super) fn unprocessed(&self) -> Option<TokenId> {
        if self.n_past < self.tokens.len() { self.tokens.last().copied() } else { None }
    }

    /// Adds input that the model has just processed. The unprocessed token must be part of it, or dropped before.
    pub(super) fn processed(&mut self, input: &[TokenId]) {
        let known = self.tokens.len() - self.n_past;
        self.tokens.extend_from_slice(&input[known.min(input.len())..]);
        self.generated.resize(self.tokens.len(), false);
        self.n_past = self.tokens.len();
    }

    /// Adds a generated token.
    pub(super) fn push_generated(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.generated.push(true);
    }

    /// Forgets everything from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.generated.truncate(len);
        self.n_past = self.n_past.min(len);
    }

    /// The token at `index` if the model generated it.
    pub(super) fn generated_at(&self, index: usize) -> Option<TokenId> {
        if *self.generated.get(index)? { self.tokens.get(index).copied() } else { None }
    }

    /// How many tokens at the start are the same.
    pub(super) fn common_prefix(&self, list: &[TokenId]) -> usize {
        self.tokens.iter().zip(list).take_while(|(a, b)| a == b).count()
    }
}

//! The conversation so far: the model's transcript, and a last token that was drawn but not processed.

use engine::Transcript;
use genie_types::TokenId;

/// A view of the tokens; the model owns all but the last one drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct History<'m> {
    transcript: &'m Transcript,
    unprocessed: Option<TokenId>,
}

impl<'m> History<'m> {
    pub(super) fn new(transcript: &'m Transcript, unprocessed: Option<TokenId>) -> Self {
        Self { transcript, unprocessed }
    }

    /// All tokens, the unprocessed one last.
    pub(super) fn tokens(self) -> impl Iterator<Item = TokenId> + 'm {
        self.transcript.tokens().iter().copied().chain(self.unprocessed)
    }

    /// [`tokens`](Self::tokens) as a list.
    pub(super) fn to_vec(self) -> Vec<TokenId> {
        self.tokens().collect()
    }

    pub(super) fn len(self) -> usize {
        self.n_past() + usize::from(self.unprocessed.is_some())
    }

    pub(super) fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub(super) fn last(self) -> Option<TokenId> {
        self.unprocessed.or_else(|| self.transcript.tokens().last().copied())
    }

    /// Tokens that the model has processed.
    pub(super) fn n_past(self) -> usize {
        self.transcript.len()
    }

    /// The last token drawn, if the model has not processed it.
    pub(super) fn unprocessed(self) -> Option<TokenId> {
        self.unprocessed
    }

    /// The token at `index` if the model generated it.
    pub(super) fn generated_at(self, index: usize) -> Option<TokenId> {
        match self.transcript.tokens().get(index) {
            Some(token) => self.transcript.is_generated(index).then_some(*token),
            None => self.unprocessed.filter(|_| index == self.n_past()),
        }
    }

    /// How many tokens at the start are the same.
    pub(super) fn common_prefix(self, list: &[TokenId]) -> usize {
        self.tokens().zip(list).take_while(|(a, b)| a == *b).count()
    }
}

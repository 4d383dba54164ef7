//! The tokens of a conversation, and which of them the model has processed.

use genie_types::TokenId;

/// Everything said so far: prompts with their special tokens, and what was generated.
///
/// *Invariant*: all but perhaps the last token are in the model's cache: `len == n_past + (last is unprocessed)`.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    tokens: Vec<TokenId>,
    /// Parallel to `tokens`: whether the model said it.
    generated: Vec<bool>,
    n_past: usize,
}

impl History {
    /// Tokens with the lengths of their runs, the first of tokens that the model did not say; `None` if the numbers
    /// contradict each other.
    pub(super) fn restored(tokens: Vec<TokenId>, said_runs: &[usize], n_past: usize) -> Option<Self> {
        let total = said_runs.iter().try_fold(0usize, |sum, n| sum.checked_add(*n))?;
        if total != tokens.len() || n_past > tokens.len() || tokens.len() - n_past > 1 {
            return None;
        }
        let runs = said_runs.iter().enumerate();
        let generated = runs.flat_map(|(i, &n)| std::iter::repeat_n(i % 2 == 1, n)).collect();
        Some(Self { tokens, generated, n_past })
    }

    /// Lengths of the runs of tokens that the model did not say and did, in turns.
    pub(super) fn said_runs(&self) -> Vec<usize> {
        let mut runs = Vec::new();
        let mut said = false;
        let mut rest = self.generated.as_slice();
        while !rest.is_empty() {
            let n = rest.iter().take_while(|g| **g == said).count();
            runs.push(n);
            rest = &rest[n..];
            said = !said;
        }
        runs
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

    /// Adds a token that the model said.
    pub(super) fn said(&mut self, token: TokenId) {
        self.tokens.push(token);
        self.generated.push(true);
    }

    /// Forgets everything from `len` on.
    pub(super) fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.generated.truncate(len);
        self.n_past = self.n_past.min(len);
    }

    /// The token at `index` if the model said it.
    pub(super) fn said_at(&self, index: usize) -> Option<TokenId> {
        if *self.generated.get(index)? { self.tokens.get(index).copied() } else { None }
    }

    /// How many tokens at the start are the same.
    pub(super) fn common_prefix(&self, list: &[TokenId]) -> usize {
        self.tokens.iter().zip(list).take_while(|(a, b)| a == b).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_there_and_back() {
        let mut history = History::default();
        history.processed(&[1, 2, 3].map(TokenId));
        history.said(TokenId(4));
        history.processed(&[4, 5].map(TokenId));
        history.said(TokenId(6));
        assert_eq!(history.said_runs(), [3, 1, 1, 1]);
        let again = History::restored(history.tokens.clone(), &history.said_runs(), history.n_past).unwrap();
        assert_eq!(
            (again.tokens, again.generated, again.n_past),
            (history.tokens.clone(), history.generated.clone(), 5)
        );
        for (runs, n_past) in [(vec![3, 1], 5), (vec![6], 4), (vec![6], 7), (vec![usize::MAX, 7], 5)] {
            assert!(History::restored(history.tokens.clone(), &runs, n_past).is_none(), "{runs:?} {n_past}");
        }
    }
}

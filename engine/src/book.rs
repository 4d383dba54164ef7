//! What the engine remembers of a sequence: its tokens in the order they came, and the position of each.
//!
//! The cache knows positions only. Tokens are needed to process a dialog again (AR == CL, repair after a failure), to find
//! a common beginning, and to save. *Invariant*: `tokens` and `positions` are parallel.

use std::ops::Range;

use genie_types::TokenId;

/// One sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Book {
    tokens: Vec<TokenId>,
    positions: Vec<usize>,
}

impl Book {
    pub(crate) fn with_capacity(n: usize) -> Self {
        Self { tokens: Vec::with_capacity(n), positions: Vec::with_capacity(n) }
    }

    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens with their positions.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (TokenId, usize)> + '_ {
        self.tokens.iter().copied().zip(self.positions.iter().copied())
    }

    /// Whether token `i` stands at position `i`, for all: nothing was removed or moved.
    pub(crate) fn is_plain(&self) -> bool {
        self.positions.iter().enumerate().all(|(i, &pos)| i == pos)
    }

    pub(crate) fn push(&mut self, token: TokenId, pos: usize) {
        self.tokens.push(token);
        self.positions.push(pos);
    }

    /// Tokens from position `first` on.
    pub(crate) fn extend(&mut self, tokens: &[TokenId], first: usize) {
        self.tokens.extend_from_slice(tokens);
        self.positions.extend(first..first + tokens.len());
    }

    /// Keeps the first `n` tokens.
    pub(crate) fn truncate(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.positions.truncate(n);
    }

    pub(crate) fn clear(&mut self) {
        self.truncate(0);
    }

    /// Forgets the tokens at those positions.
    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        self.map(range, |_| None);
    }

    /// Moves positions of a range; a token without a new one is forgotten.
    pub(crate) fn map(&mut self, range: &Range<usize>, to: impl Fn(usize) -> Option<usize>) {
        let mut kept = 0;
        for i in 0..self.tokens.len() {
            let pos = self.positions[i];
            let Some(pos) = (if range.contains(&pos) { to(pos) } else { Some(pos) }) else { continue };
            (self.tokens[kept], self.positions[kept]) = (self.tokens[i], pos);
            kept += 1;
        }
        self.truncate(kept);
    }

    /// Takes over what another sequence has in a range, but for what is here already.
    pub(crate) fn take_from(&mut self, other: &Self, range: &Range<usize>) {
        for entry in other.entries().filter(|(_, pos)| range.contains(pos)) {
            if self.entries().all(|own| own != entry) {
                self.push(entry.0, entry.1);
            }
        }
    }

    /// Tokens at the beginning that stand where a list has the same.
    pub(crate) fn common_prefix(&self, list: &[TokenId]) -> usize {
        let same = |(i, ((token, pos), wanted)): (usize, ((TokenId, usize), &TokenId))| i == pos && token == *wanted;
        self.entries().zip(list).enumerate().take_while(|pair| same(*pair)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(book: &Book) -> Vec<(u32, usize)> {
        book.entries().map(|(t, p)| (t.0, p)).collect()
    }

    #[test]
    fn tokens_follow_their_positions() {
        let mut book = Book::default();
        book.extend(&[7, 8, 9, 10, 11].map(TokenId), 0);
        assert!(book.is_plain());
        assert_eq!(book.common_prefix(&[7, 8, 1].map(TokenId)), 2);
        book.remove(&(1..3));
        assert_eq!((entries(&book), book.is_plain()), (vec![(7, 0), (10, 3), (11, 4)], false));
        assert_eq!(book.common_prefix(&[7, 10].map(TokenId)), 1, "10 no longer stands at 1, nor did it ever");
        book.map(&(3..9), |pos| pos.checked_sub(2));
        assert_eq!((entries(&book), book.is_plain()), (vec![(7, 0), (10, 1), (11, 2)], true));
        let mut other = Book::default();
        other.take_from(&book, &(0..2));
        assert_eq!(entries(&other), [(7, 0), (10, 1)]);
        book.map(&(0..9), |pos| pos.checked_sub(1));
        assert_eq!(entries(&book), [(10, 0), (11, 1)]);
        book.clear();
        assert!(book.is_empty() && book.is_plain());
    }
}

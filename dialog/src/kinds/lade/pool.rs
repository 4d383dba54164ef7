//! The n-grams that the window has passed through, by the token that they follow.

use std::collections::HashMap;

use genie_types::TokenId;

/// For each token a ring of what followed it.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    rings: HashMap<TokenId, Ring>,
    capacity: usize,
}

#[derive(Clone, Debug, Default)]
struct Ring {
    ngrams: Vec<Vec<TokenId>>,
    /// Which one the next overwrites, once the ring is full.
    head: usize,
}

impl Pool {
    /// Keeps at most `capacity` for each token.
    pub(super) fn new(capacity: usize) -> Self {
        Self { rings: HashMap::new(), capacity }
    }

    /// Adds what followed a token, unless it is known; the oldest one goes if there are too many.
    pub(super) fn add(&mut self, token: TokenId, ngram: Vec<TokenId>) {
        if self.capacity == 0 {
            return;
        }
        let ring = self.rings.entry(token).or_default();
        if ring.ngrams.contains(&ngram) {
            return;
        }
        if ring.ngrams.len() < self.capacity {
            ring.ngrams.push(ngram);
        } else {
            ring.ngrams[ring.head] = ngram;
            ring.head = (ring.head + 1) % self.capacity;
        }
    }

    /// What followed a token, in the ring's order.
    pub(super) fn guesses(&self, token: TokenId) -> &[Vec<TokenId>] {
        self.rings.get(&token).map_or(&[], |ring| &ring.ngrams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes() {
        let mut pool = Pool::new(2);
        let guesses = |pool: &Pool| -> Vec<u32> { pool.guesses(TokenId(7)).iter().map(|g| g[0].0).collect() };
        for (added, expected) in
            [(1, vec![1]), (2, vec![1, 2]), (1, vec![1, 2]), (3, vec![3, 2]), (4, vec![3, 4]), (5, vec![5, 4])]
        {
            pool.add(TokenId(7), vec![TokenId(added)]);
            assert_eq!(guesses(&pool), expected, "after {added}");
        }
        assert!(pool.guesses(TokenId(8)).is_empty());
        let mut none = Pool::new(0);
        none.add(TokenId(7), vec![TokenId(1)]);
        assert!(guesses(&none).is_empty());
    }
}

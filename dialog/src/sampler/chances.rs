//! The distribution that a token is drawn from, and what two of them say about a drafted token.
//!
//! *Units*: probabilities are f64 and sum up to 1; a token that the filters cut off has none.

use genie_types::TokenId;

/// Tokens that may be drawn with their probabilities, by ascending id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chances {
    pub(super) entries: Vec<(u32, f64)>,
}

impl Chances {
    /// The probability of a token.
    pub fn of(&self, token: TokenId) -> f64 {
        let at = self.entries.binary_search_by_key(&token.0, |(id, _)| *id);
        at.map_or(0.0, |at| self.entries[at].1)
    }

    /// Becomes a mixture: of itself, and by `share` of the other.
    pub(super) fn mix(&mut self, other: &Chances, share: f64) {
        self.entries.iter_mut().for_each(|(_, p)| *p *= 1.0 - share);
        for (id, p) in &other.entries {
            match self.entries.binary_search_by_key(id, |(own, _)| *own) {
                Ok(at) => self.entries[at].1 += share * p,
                Err(at) => self.entries.insert(at, (*id, share * p)),
            }
        }
    }

    /// Draws from what `self` has more than `draft`, by inverse CDF in the order of ids. `None` where it has nothing more,
    /// which rounding can bring about.
    pub(super) fn draw_beyond(&self, draft: &Chances, u: f64) -> Option<TokenId> {
        let mut others = draft.entries.iter().copied().peekable();
        let mut beyond = self.entries.iter().map(|&(id, p)| {
            while others.peek().is_some_and(|(other, _)| *other < id) {
                others.next();
            }
            let q = others.peek().filter(|(other, _)| *other == id).map_or(0.0, |(_, q)| *q);
            (id, (p - q).max(0.0))
        });
        let list: Vec<(u32, f64)> = beyond.by_ref().filter(|(_, rest)| *rest > 0.0).collect();
        let total: f64 = list.iter().map(|(_, rest)| rest).sum();
        let mut sum = 0.0;
        let drawn = list.iter().find(|(_, rest)| {
            sum += rest;
            sum / total > u
        });
        drawn.or(list.last()).map(|(id, _)| TokenId(*id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chances(entries: &[(u32, f64)]) -> Chances {
        Chances { entries: entries.to_vec() }
    }

    #[test]
    fn what_is_left_is_drawn_in_the_order_of_ids() {
        let target = chances(&[(2, 0.5), (5, 0.3), (9, 0.2)]);
        let draft = chances(&[(1, 0.2), (5, 0.7), (9, 0.1)]);
        assert_eq!((target.of(TokenId(5)), target.of(TokenId(1))), (0.3, 0.0));
        // 2 has 0.5 more, 9 has 0.1 more: 5/6 and 1/6.
        for (u, wanted) in [(0.0, 2), (0.83, 2), (0.84, 9), (1.0, 9)] {
            assert_eq!(target.draw_beyond(&draft, u), Some(TokenId(wanted)), "{u}");
        }
        assert_eq!(target.draw_beyond(&target, 0.5), None);
    }
}

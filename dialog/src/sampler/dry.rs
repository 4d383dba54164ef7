//! DRY: tokens that would go on with a sequence that was there before become less likely, the longer it is the more.
//!
//! For the last tokens `t[..n]` and each `i < n - 1`: let `m` be how many tokens `t[..=i]` and `t[..n]` have in common at their
//! ends, at most those since the last breaker. If `m >= allowed_length`, the logit of `t[i + 1]` is lowered by
//! `multiplier * base ^ (m - allowed_length)`, with the largest `m` of that token.
//!
//! *Cost*: linear in the tokens looked at, by the Z function of the reversed tokens.

use std::collections::HashMap;
use std::sync::Arc;

use genie_tokenizer::Tokenizer;
use genie_types::TokenId;

use super::chain::Dry;

/// The most tokens behind the first of a breaker.
const LONGEST_TAIL: usize = 20;

/// Which tokens break a repetition: a first one, and what must follow it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakers(Arc<HashMap<TokenId, Vec<Vec<TokenId>>>>);

impl Breakers {
    /// Looks through a vocabulary: a token that contains a text breaks; one that ends as the text begins does if the rest follows.
    pub fn of_texts(texts: &[String], tokenizer: &Tokenizer) -> Self {
        let texts: Vec<&str> = texts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
        let mut heads: HashMap<TokenId, Vec<Vec<TokenId>>> = HashMap::new();
        for id in (0..tokenizer.vocab_size() as u32).map(TokenId) {
            let Ok(token) = tokenizer.decode(&[id]) else { continue };
            for text in &texts {
                if token.contains(text) {
                    heads.entry(id).or_default().push(Vec::new());
                    continue;
                }
                let begins = text.char_indices().map(|(at, _)| at).skip(1);
                for at in begins.filter(|at| token.ends_with(&text[..*at])) {
                    if let Ok(mut tail) = tokenizer.encode_plain(&text[at..]) {
                        tail.truncate(LONGEST_TAIL);
                        heads.entry(id).or_default().push(tail);
                    }
                }
            }
        }
        Self(Arc::new(heads))
    }

    /// How many of the last tokens stand behind the last breaker; all without one.
    fn n_behind(&self, tokens: &[TokenId]) -> usize {
        for (at, token) in tokens.iter().enumerate().rev() {
            let behind = &tokens[at + 1..];
            let tails = self.0.get(token).into_iter().flatten();
            if let Some(longest) = tails.filter(|tail| behind.starts_with(tail)).map(Vec::len).max() {
                return behind.len() - longest;
            }
        }
        tokens.len()
    }
}

/// The last tokens, and room for the penalties.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    tokens: Vec<TokenId>,
    reversed: Vec<TokenId>,
    z: Vec<usize>,
    longest: HashMap<TokenId, usize>,
}

impl Recent {
    pub(super) fn accept(&mut self, token: TokenId, rule: &Dry) {
        self.tokens.push(token);
        if let Some(most) = rule.last_n
            && self.tokens.len() > 2 * most
        {
            self.tokens.drain(..self.tokens.len() - most);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.tokens.clear();
    }

    /// Calls `lower` with each token that would go on with a repetition, and by how much.
    pub(super) fn penalties(&mut self, rule: &Dry, breakers: &Breakers, mut lower: impl FnMut(TokenId, f32)) {
        let from = self.tokens.len().saturating_sub(rule.last_n.unwrap_or(usize::MAX));
        let tokens = &self.tokens[from..];
        let most = breakers.n_behind(tokens);
        if most < rule.allowed_length {
            return;
        }
        self.reversed.clear();
        self.reversed.extend(tokens.iter().rev());
        common_beginnings(&self.reversed, &mut self.z);
        self.longest.clear();
        for k in 1..self.reversed.len() {
            let repeated = self.z[k].min(most);
            if repeated >= rule.allowed_length {
                let longest = self.longest.entry(self.reversed[k - 1]).or_insert(0);
                *longest = (*longest).max(repeated);
            }
        }
        for (token, n) in &self.longest {
            let exponent = (n - rule.allowed_length) as f64;
            let penalty = f64::from(rule.multiplier) * f64::from(rule.base).powf(exponent);
            lower(*token, penalty.min(f64::from(f32::MAX)) as f32);
        }
    }
}

/// `z[k]`: how many items `items` and `items[k..]` have in common at their beginnings.
fn common_beginnings(items: &[TokenId], z: &mut Vec<usize>) {
    z.clear();
    z.resize(items.len(), 0);
    let (mut left, mut right) = (0, 0);
    for k in 1..items.len() {
        let mut n = if k < right { z[k - left].min(right - k) } else { 0 };
        while k + n < items.len() && items[n] == items[k + n] {
            n += 1;
        }
        z[k] = n;
        if k + n > right {
            (left, right) = (k, k + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lowered(tokens: &[u32], rule: &Dry, breakers: &Breakers) -> Vec<(u32, f32)> {
        let mut recent = Recent::default();
        tokens.iter().for_each(|t| recent.accept(TokenId(*t), rule));
        let mut found = Vec::new();
        recent.penalties(rule, breakers, |token, by| found.push((token.0, by)));
        found.sort_by_key(|(token, _)| *token);
        found
    }

    /// The definition, by comparing every pair of ends.
    fn reference(tokens: &[u32], rule: &Dry, breakers: &[u32]) -> Vec<(u32, f32)> {
        let n = rule.last_n.unwrap_or(usize::MAX).min(tokens.len());
        let tokens = &tokens[tokens.len() - n..];
        let most = tokens.iter().rev().take_while(|t| !breakers.contains(t)).count();
        let mut longest = std::collections::BTreeMap::new();
        for i in 0..tokens.len().saturating_sub(1) {
            let same = (0..=i).take_while(|back| tokens[i - back] == tokens[tokens.len() - 1 - back]).count();
            let same = same.min(most);
            if same >= rule.allowed_length && most >= rule.allowed_length {
                let entry = longest.entry(tokens[i + 1]).or_insert(same);
                *entry = same.max(*entry);
            }
        }
        let by = |m: usize| rule.multiplier * rule.base.powi((m - rule.allowed_length) as i32);
        longest.into_iter().map(|(token, m)| (token, by(m))).collect()
    }

    fn single(ids: &[u32]) -> Breakers {
        Breakers(Arc::new(ids.iter().map(|id| (TokenId(*id), vec![Vec::new()])).collect()))
    }

    proptest! {
        #[test]
        fn the_penalties_are_those_of_the_definition(
            tokens in prop::collection::vec(0..4u32, 0..40), allowed in 0..4usize, last in 1..50usize, breaks: bool,
        ) {
            let rule = Dry { multiplier: 0.8, allowed_length: allowed, last_n: Some(last), ..Dry::default() };
            let ids: &[u32] = if breaks { &[3] } else { &[] };
            let (found, wanted) = (lowered(&tokens, &rule, &single(ids)), reference(&tokens, &rule, ids));
            prop_assert_eq!(found.len(), wanted.len());
            for ((a, x), (b, y)) in found.into_iter().zip(wanted) {
                prop_assert!(a == b && (x - y).abs() <= 1e-5 * y.abs(), "{} {} {} {}", a, x, b, y);
            }
        }
    }

    #[test]
    fn a_sequence_that_was_there_is_lowered_and_a_breaker_stops_it() {
        let rule = Dry { multiplier: 1.0, base: 2.0, ..Dry::default() };
        // 1 2 3 9 1 2 3: after 1 2 3 came 9; three tokens repeat, one more than the two that are free.
        assert_eq!(lowered(&[1, 2, 3, 9, 1, 2, 3], &rule, &Breakers::default()), [(9, 2.0)]);
        assert_eq!(lowered(&[1, 2, 3, 9, 1, 2, 3], &rule, &single(&[2])), []);
        // A breaker of two tokens: 2 and 3 together leave nothing behind them, 2 and 4 do not occur.
        let pair = |tail| Breakers(Arc::new(HashMap::from([(TokenId(2), vec![vec![TokenId(tail)]])])));
        assert_eq!(lowered(&[1, 2, 3, 9, 1, 2, 3], &rule, &pair(3)), []);
        assert_eq!(lowered(&[1, 2, 3, 9, 1, 2, 3], &rule, &pair(4)), [(9, 2.0)]);
    }
}

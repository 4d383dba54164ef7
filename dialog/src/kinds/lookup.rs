//! Prompt lookup: drafts are what followed the last tokens earlier in the conversation. No second model.
//!
//! *Search*: the longest n-gram, from `longest` down to `shortest` tokens, that ends the conversation and stands in it once
//! more; of several places the last one. What follows there is the draft; where that runs into the end of the conversation,
//! the text is taken to repeat itself, and the draft goes on with its own beginning.
//!
//! *Index*: for each n-gram size the last two places (one is the end itself) of each n-gram, brought up to date with the tokens that came since the
//! step before: a step costs a few look-ups whatever the length of the conversation is.

use std::collections::HashMap;
use std::time::Instant;

use genie_types::TokenId;

use super::time_budget::TimeBudget;
use super::{DialogKind, Models};
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::kpi::Speculation;

/// How prompt lookup drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupSettings {
    /// Fewest tokens that must be the same; at least 1.
    pub shortest: usize,
    /// Most tokens that are compared.
    pub longest: usize,
    /// Most tokens of a draft.
    pub draft_len: usize,
}

impl Default for LookupSettings {
    fn default() -> Self {
        Self { shortest: 2, longest: 4, draft_len: 7 }
    }
}

/// Prompt lookup, a kind that Genie does not have.
#[derive(Debug)]
pub struct Lookup {
    settings: LookupSettings,
    index: Index,
    budget: TimeBudget,
}

impl Lookup {
    /// Drafts with these settings. An n-gram has at least one token.
    pub fn new(settings: LookupSettings) -> Self {
        let shortest = settings.shortest.max(1);
        let settings = LookupSettings { shortest, longest: settings.longest.max(shortest), ..settings };
        let index = Index { sizes: vec![HashMap::new(); settings.longest - shortest + 1], tokens: Vec::new() };
        Self { settings, index, budget: TimeBudget::default() }
    }

    /// A draft of at most `most` tokens, whatever earlier ones gained.
    pub(crate) fn propose(&mut self, history: &[TokenId], most: usize) -> Vec<TokenId> {
        self.find(history, self.settings.draft_len.min(most))
    }

    /// `n` tokens by what followed the last tokens of `history` before; none if they are new.
    fn find(&mut self, history: &[TokenId], n: usize) -> Vec<TokenId> {
        let LookupSettings { shortest, longest, .. } = self.settings;
        self.index.follow(history, shortest);
        for size in (shortest..=longest.min(history.len().saturating_sub(1))).rev() {
            let places = self.index.sizes[size - shortest].get(&hash(&history[history.len() - size..]));
            let Some(places) = places else { continue };
            // Two n-grams may have one hash; and the end itself is no place to go on from.
            let is_it = |end: &usize| {
                *end < history.len() && *end >= size && history[end - size..*end] == history[history.len() - size..]
            };
            if let Some(end) = places.iter().copied().find(is_it) {
                return history[end..].iter().copied().cycle().take(n).collect();
            }
        }
        Vec::new()
    }
}

impl DialogKind for Lookup {
    fn name(&self) -> &'static str {
        "lookup"
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        two_rows("lookup", models)
    }

    fn speculation(&self) -> Option<Speculation> {
        Some(Speculation::default())
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        if !decoding.has_started() {
            return decoding.advance();
        }
        let began = Instant::now();
        let draft = match self.budget.room(decoding, self.settings.draft_len) {
            Some(n) => self.find(&decoding.history(), n),
            None => Vec::new(),
        };
        self.budget.step(began, decoding, &draft)
    }

    fn forget(&mut self) {
        self.budget.forget_gains();
    }
}

/// Refuses a model that cannot verify a draft of one token.
pub(super) fn two_rows(kind: &'static str, models: &Models<'_>) -> Result<(), DialogError> {
    let Some(widest) = models.main.widest_step().filter(|widest| *widest < 2) else { return Ok(()) };
    let expected = "graphs that give logits for 2 tokens at once".into();
    Err(DialogError::Kind { kind, expected, found: format!("graphs for {widest}") })
}

/// Where n-grams end.
#[derive(Debug)]
struct Index {
    /// For each size, by hash: the ends of the last two occurrences, the later one first.
    sizes: Vec<HashMap<u64, [usize; 2]>>,
    /// The tokens that are indexed.
    tokens: Vec<TokenId>,
}

impl Index {
    /// Indexes the tokens that are new. Tokens that are gone are forgotten with the whole index, which is rare: a rewind.
    fn follow(&mut self, history: &[TokenId], shortest: usize) {
        let common = self.tokens.iter().zip(history).take_while(|(a, b)| a == b).count();
        if common < self.tokens.len() {
            self.sizes.iter_mut().for_each(HashMap::clear);
            self.tokens.clear();
        }
        for end in self.tokens.len() + 1..=history.len() {
            self.tokens.push(history[end - 1]);
            for (i, places) in self.sizes.iter_mut().enumerate() {
                let Some(first) = end.checked_sub(shortest + i) else { break };
                // 0 is the end of no n-gram.
                let ends = places.entry(hash(&history[first..end])).or_default();
                *ends = [end, ends[0]];
            }
        }
    }
}

/// FNV-1a over the ids.
fn hash(tokens: &[TokenId]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |h, token| (h ^ u64::from(token.0)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &[u32]) -> Vec<TokenId> {
        list.iter().copied().map(TokenId).collect()
    }

    fn found(settings: LookupSettings, list: &[u32], n: usize) -> Vec<u32> {
        Lookup::new(settings).find(&ids(list), n).iter().map(|t| t.0).collect()
    }

    #[test]
    fn the_longest_ngram_counts_then_the_last_place() {
        let s = LookupSettings { shortest: 1, longest: 3, draft_len: 3 };
        // `1 2 3` stands at the beginning, `2 3` later, `3` later still.
        assert_eq!(found(s, &[1, 2, 3, 7, 7, 7, 9, 2, 3, 8, 5, 3, 6, 6, 6, 1, 2, 3], 3), [7, 7, 7]);
        assert_eq!(found(LookupSettings { longest: 2, ..s }, &[4, 2, 3, 7, 9, 2, 3, 8, 1, 6, 2, 3], 3), [8, 1, 6]);
        assert_eq!(found(s, &[1, 2, 3], 3), [0_u32; 0]);
        assert_eq!(found(LookupSettings { shortest: 2, longest: 2, ..s }, &[3, 1, 3], 3), [0_u32; 0]);
        assert_eq!(found(s, &[], 3), [0_u32; 0]);
        // A repetition goes on.
        assert_eq!(found(s, &[5, 5, 5, 5], 3), [5, 5, 5]);
        assert_eq!(found(s, &[9, 1, 2, 3, 1, 2, 3], 5), [1, 2, 3, 1, 2]);
    }

    #[test]
    fn tokens_that_are_gone_are_not_found() {
        let mut lookup = Lookup::new(LookupSettings { shortest: 1, longest: 2, draft_len: 4 });
        let list =
            |lookup: &mut Lookup, l: &[u32]| -> Vec<u32> { lookup.find(&ids(l), 4).iter().map(|t| t.0).collect() };
        assert_eq!(list(&mut lookup, &[1, 2, 9, 1, 2]), [9, 1, 2, 9]);
        assert_eq!(list(&mut lookup, &[1, 2, 8, 8, 1, 2]), [8, 8, 1, 2]);
        assert_eq!(list(&mut lookup, &[1, 2, 8, 8, 1]), [2, 8, 8, 1]);
    }
}

//! A draft by script, to measure speculation with: the reply is known beforehand, and a draft's tokens are those of it with a
//! wished probability.
//!
//! *Acceptance* is a token's: each is right with that probability, whatever those before it were, as long as the reply follows
//! the script. So a draft of n tokens has a + a^2 + .. + a^n right ones before its first wrong one on average.

use std::time::Instant;

use genie_types::TokenId;

use super::time_budget::TimeBudget;
use super::{DialogKind, Models, lookup};
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::kpi::Speculation;
use crate::sampler::Mt19937;

/// Seed of the errors.
const SEED: u32 = 1;

/// What a script drafts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The tokens of the reply; beyond its end nothing is drafted.
    pub reply: Vec<TokenId>,
    /// How many of 1,000 drafted tokens are those of the reply.
    pub right_per_mille: u32,
    /// Most tokens of a draft.
    pub draft_len: usize,
}

/// Drafts of a reply that is known, with errors put in.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    random: Mt19937,
    budget: TimeBudget,
}

impl Scripted {
    /// Drafts by this script; the errors are the same in each reply.
    pub fn new(script: Script) -> Self {
        Self { script, random: Mt19937::new(SEED), budget: TimeBudget::default() }
    }

    /// `n` tokens behind the first `place` of the reply.
    fn draft(&mut self, place: usize, n: usize, n_vocab: usize) -> Vec<TokenId> {
        let Script { reply, right_per_mille, .. } = &self.script;
        let right = reply.iter().skip(place).take(n);
        let random = &mut self.random;
        let n_vocab = u32::try_from(n_vocab).unwrap_or(u32::MAX).max(1);
        right
            .map(|token| match random.next_u32() % 1_000 < *right_per_mille {
                true => *token,
                false => TokenId((token.0 + 1) % n_vocab),
            })
            .collect()
    }
}

impl DialogKind for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        lookup::two_rows("scripted", models)
    }

    fn speculation(&self) -> Option<Speculation> {
        Some(Speculation::default())
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        if !decoding.has_started() {
            return decoding.advance();
        }
        let began = Instant::now();
        let draft = match self.budget.room(decoding, self.script.draft_len) {
            Some(n) => self.draft(decoding.n_delivered(), n, decoding.model().vocab_size()),
            None => Vec::new(),
        };
        self.budget.step(began, decoding, &draft)
    }

    fn forget(&mut self) {
        self.random = Mt19937::new(SEED);
        self.budget.forget_gains();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_right_as_often_as_wished() {
        let reply: Vec<TokenId> = (0..10_000).map(|i| TokenId(i % 50)).collect();
        for (right_per_mille, least, most) in
            [(0, 0, 0), (500, 4_800, 5_200), (800, 7_850, 8_150), (1_000, 10_000, 10_000)]
        {
            let mut scripted = Scripted::new(Script { reply: reply.clone(), right_per_mille, draft_len: 7 });
            let draft = scripted.draft(0, reply.len(), 50);
            let right = draft.iter().zip(&reply).filter(|(a, b)| a == b).count();
            assert!((least..=most).contains(&right) && draft.len() == reply.len(), "{right_per_mille}: {right}");
        }
        let mut scripted = Scripted::new(Script { reply, right_per_mille: 1_000, draft_len: 7 });
        assert_eq!(scripted.draft(9_998, 7, 50).len(), 2, "not beyond its end");
    }
}

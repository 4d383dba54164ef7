//! Lowers the logits of tokens that came lately, in the prompt or the reply.
//!
//! For each token in the window of the last `last_n` ones, with `count` occurrences:
//! `l = if l > 0 { l / repetition } else { l * repetition }`, then `l -= presence + frequency * count`.

use std::collections::{HashMap, VecDeque};

use genie_types::TokenId;

use super::settings::TokenPenalty;

/// The window and its counts, kept up to date token by token so that applying costs one step per distinct token.
#[derive(Clone, Debug)]
pub struct Penalties {
    rule: TokenPenalty,
    window: VecDeque<TokenId>,
    counts: HashMap<TokenId, u32>,
}

impl Penalties {
    /// An empty window.
    pub fn new(rule: TokenPenalty) -> Self {
        // The window may be asked to be 2^31 tokens long; let those grow as they fill.
        let room = rule.last_n.min(1024);
        Self { window: VecDeque::with_capacity(room + 1), counts: HashMap::with_capacity(room + 1), rule }
    }

    /// Adds a generated token and forgets the one that leaves the window.
    pub fn accept(&mut self, token: TokenId) {
        if self.rule.last_n == 0 {
            return;
        }
        self.window.push_back(token);
        *self.counts.entry(token).or_insert(0) += 1;
        if self.window.len() > self.rule.last_n
            && let Some(old) = self.window.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
    }

    /// False when the rule or the window is empty, and [`Penalties::apply`] would change nothing.
    pub fn is_active(&self) -> bool {
        !self.window.is_empty()
    }

    /// Changes the logits in place; `logits[id]` belongs to token `id`. Tokens beyond the row are left out.
    pub fn apply(&self, logits: &mut [f32]) {
        for (&token, &count) in &self.counts {
            if let Some(l) = logits.get_mut(token.0 as usize) {
                *l = self.lowered(*l, count);
            }
        }
    }

    fn lowered(&self, logit: f32, count: u32) -> f32 {
        let l = if logit > 0.0 { logit / self.rule.repetition } else { logit * self.rule.repetition };
        l - (self.rule.presence + self.rule.frequency * count as f32)
    }

    /// Each token of the window with what becomes of its logit.
    pub(super) fn each(&self, mut change: impl FnMut(TokenId, &dyn Fn(f32) -> f32)) {
        for (&token, &count) in &self.counts {
            change(token, &|logit| self.lowered(logit, count));
        }
    }

    /// Empties the window.
    pub fn clear(&mut self) {
        self.window.clear();
        self.counts.clear();
    }
}

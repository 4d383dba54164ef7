//! Lookahead for a reply beside others: the steps are shared, so the window is filled by steps that also draw a token.

use genie_types::TokenId;

use super::lookahead::{LastLevel, Lookahead};
use super::settings::LadeSettings;
use crate::conversation::trees::DraftTree;
use crate::kinds::tree_drafts::{RowDraw, TreeDrafts};
use crate::sampler::most_likely;

/// Trees of one reply.
#[derive(Debug)]
pub(crate) struct LadeTrees {
    ahead: Lookahead,
    /// Levels of the window that are filled; none before the first tree.
    n_filled: usize,
    last: TokenId,
    last_level: LastLevel,
    /// What the last level's rows gave.
    outputs: Vec<TokenId>,
    n_drawn: usize,
}

impl LadeTrees {
    pub(crate) fn new(settings: LadeSettings) -> Self {
        let ahead = Lookahead::new(settings);
        Self { ahead, n_filled: 0, last: TokenId(0), last_level: Vec::new(), outputs: Vec::new(), n_drawn: 0 }
    }
}

impl TreeDrafts for LadeTrees {
    fn tree(&mut self, history: &[TokenId], n_vocab: usize) -> DraftTree {
        if self.n_filled == 0 {
            self.ahead.begin(history, n_vocab);
            self.n_filled = 1;
        }
        self.ahead.pool_text(history);
        (self.outputs, self.n_drawn) = (Vec::new(), 0);
        self.last = history.last().copied().unwrap_or(TokenId(0));
        let (tree, last_level) = self.ahead.tree(self.last, self.n_filled);
        self.last_level = last_level;
        tree
    }

    fn drew(&mut self, draw: &RowDraw<'_>) {
        self.ahead.drew(draw.token);
        if self.n_drawn == 0 {
            self.outputs = self.last_level.iter().map(|&row| most_likely(draw.logits[row])).collect();
        }
        self.n_drawn += 1;
    }

    fn verified(&mut self, _history: &[TokenId]) {
        let outputs = std::mem::take(&mut self.outputs);
        if outputs.is_empty() {
            return;
        }
        if self.n_filled < self.ahead.n_levels() {
            self.ahead.set_level(self.n_filled, outputs);
            self.n_filled += 1;
            if self.n_filled == self.ahead.n_levels() {
                self.ahead.set_first(self.last);
            }
        } else {
            self.ahead.advance(outputs, self.n_drawn.saturating_sub(1));
        }
    }

    fn most_gained(&self) -> usize {
        self.ahead.n_levels()
    }
}

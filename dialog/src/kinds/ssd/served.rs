//! Forecasts for a reply beside others.

use genie_types::TokenId;

use super::branches::Branches;
use super::forecasts::{ForecastRows, Forecasts};
use crate::conversation::trees::DraftTree;
use crate::kinds::tree_drafts::{RowDraw, TreeDrafts};
use crate::sampler::SamplerRules;

/// Trees of one reply.
#[derive(Debug)]
pub(crate) struct SsdTrees {
    forecasts: Forecasts,
    n_levels: usize,
    rows: ForecastRows,
    candidates: Option<Vec<Vec<TokenId>>>,
}

impl SsdTrees {
    pub(crate) fn new(branches: Branches, first_forecast: TokenId) -> Self {
        let n_levels = branches.n_levels();
        Self { forecasts: Forecasts::new(branches, first_forecast), n_levels, rows: Vec::new(), candidates: None }
    }
}

impl TreeDrafts for SsdTrees {
    fn tree(&mut self, history: &[TokenId], _n_vocab: usize) -> DraftTree {
        let last = history.last().copied().unwrap_or(TokenId(0));
        let (tree, rows) = self.forecasts.tree(last, history.len() - 1);
        (self.rows, self.candidates) = (rows, None);
        tree
    }

    fn drew(&mut self, draw: &RowDraw<'_>) {
        let candidates = self.forecasts.candidates(&self.rows, draw.row, draw.logits, SamplerRules::default());
        self.candidates = Some(candidates);
    }

    fn verified(&mut self, history: &[TokenId]) {
        self.forecasts.set(history.len() - 1, self.candidates.take());
    }

    fn most_gained(&self) -> usize {
        self.n_levels
    }
}

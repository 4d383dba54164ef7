//! What the model forecasts, and the tree that comes of it.

use engine::TreeRow;
use genie_types::TokenId;
use session_store::ForecastPrefix;

use super::branches::Branches;
use crate::conversation::trees::DraftTree;
use crate::sampler::SamplerRules;

/// A tree's nodes, each with the rows of its forecast tokens.
pub(super) type ForecastRows = Vec<(usize, Vec<usize>)>;

/// What may follow the newest token.
#[derive(Clone, Debug)]
pub(super) struct Forecasts {
    branches: Branches,
    first_forecast: TokenId,
    /// Best first, by level; and where the dialog stood then.
    next: Option<(usize, Vec<Vec<TokenId>>)>,
}

impl Forecasts {
    pub(super) fn new(branches: Branches, first_forecast: TokenId) -> Self {
        Self { branches, first_forecast, next: None }
    }

    pub(super) fn is_known(&self) -> bool {
        self.next.is_some()
    }

    pub(super) fn forget(&mut self) {
        self.next = None;
    }

    /// What was forecast for a dialog of `n_past` processed tokens.
    pub(super) fn set(&mut self, n_past: usize, candidates: Option<Vec<Vec<TokenId>>>) {
        self.next = candidates.map(|candidates| (n_past, candidates));
    }

    /// The tree behind a token, and for each of its nodes the forecast rows.
    pub(super) fn tree(&self, last: TokenId, n_past: usize) -> (DraftTree, ForecastRows) {
        let mut tree = DraftTree::new(last);
        if let Some((_, candidates)) = self.next.as_ref().filter(|(at, _)| *at == n_past) {
            self.branches.grow(&mut tree, candidates);
        }
        let first = self.first_forecast.0;
        let forecasts = (0..tree.n_rows()).map(|node| {
            let mut behind = node;
            let rows = (0..self.branches.n_levels() as u32).map(|i| {
                // Beyond all ids there is no embedding either, which the model says.
                let token = TokenId(first.saturating_add(i));
                behind = tree.probe(TreeRow::new(token, Some(behind)).seeing(ForecastPrefix::SEQ));
                behind
            });
            (node, rows.collect())
        });
        let forecasts = forecasts.collect();
        // libGenie does not count a reply's first step, which has forecasts only.
        (if tree.n_offers() == 0 { tree.uncounted() } else { tree }, forecasts)
    }

    /// The best tokens by the forecast rows of a node.
    pub(super) fn candidates(
        &self,
        forecasts: &ForecastRows,
        node: usize,
        logits: &[&[f32]],
        rules: SamplerRules,
    ) -> Vec<Vec<TokenId>> {
        let rows = forecasts.iter().find(|(at, _)| *at == node).map_or(&[][..], |(_, rows)| rows);
        self.branches.candidates(rows.iter().map(|&row| logits[row]), self.first_forecast.0 as usize, rules)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BranchMode;
    use super::*;

    #[test]
    fn forecast_tokens_end_at_the_last_id() {
        let branches = Branches::new(vec![2, 1, 1], BranchMode::Top1);
        let forecasts = Forecasts::new(branches, TokenId(u32::MAX - 1));
        let (tree, rows) = forecasts.tree(TokenId(5), 3);
        let tokens: Vec<u32> = tree.rows().iter().map(|row| row.token.0).collect();
        assert_eq!((tokens, rows), (vec![5, u32::MAX - 1, u32::MAX, u32::MAX], vec![(0, vec![1, 2, 3])]));
    }
}

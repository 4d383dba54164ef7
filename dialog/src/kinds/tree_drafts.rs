//! Trees of drafts for a reply beside others, whose steps someone else runs.
//!
//! A kind that drafts trees without a model of its own has two forms: a [`DialogKind`](super::DialogKind), which runs its steps, and
//! one of these, which is asked for the tree of the next step and shown what was drawn from it. Tokens are drawn along the offers as
//! without a tree, so replies are those of `basic`; what a form of these drafts never draws from the sampler.

use std::fmt::Debug;

use genie_types::TokenId;

use crate::conversation::trees::DraftTree;

/// A token that was drawn from a row of a tree.
#[derive(Debug)]
pub(crate) struct RowDraw<'a> {
    pub(crate) row: usize,
    pub(crate) token: TokenId,
    /// Logits of all rows; empty for rows without.
    pub(crate) logits: &'a [&'a [f32]],
}

/// Where the trees of one reply come from.
pub(crate) trait TreeDrafts: Send + Debug {
    /// The tree behind the last token of the history, which has one at least. One that does not run is asked for again.
    fn tree(&mut self, history: &[TokenId], n_vocab: usize) -> DraftTree;

    /// A token was drawn from the tree.
    fn drew(&mut self, draw: &RowDraw<'_>);

    /// No more is drawn from the tree; the history has the tokens drawn.
    fn verified(&mut self, history: &[TokenId]);

    /// Most offers of a tree that can hold.
    fn most_gained(&self) -> usize;
}

//! Trees of a smaller model that works on hidden states, for the replies of a scheduler.
//!
//! *Invariant*: a draft is no more than an offer. Where the draft model fails it is left aside, and replies go on without drafts.

use dialog::conversation::DraftTree;
use dialog::kinds::{EagletTrees, TreeWish};
use engine::TokenModel;
use genie_types::TokenId;

use crate::active::Active;

/// A model that proposes trees for another.
pub(crate) struct TreeModel {
    draft: Box<dyn TokenModel>,
    trees: EagletTrees,
    is_left_aside: bool,
}

impl TreeModel {
    pub(crate) fn new(draft: Box<dyn TokenModel>, trees: EagletTrees) -> Self {
        Self { draft, trees, is_left_aside: false }
    }

    /// Trees are asked for from now on for another step.
    pub(crate) fn begin_step(&mut self) {
        self.trees.begin_step();
    }

    /// Most rows of a tree.
    pub(crate) fn n_rows(&self) -> usize {
        self.trees.n_rows()
    }

    /// Most tokens that a tree gives beyond the one of every step.
    pub(crate) fn most_gained(&self) -> usize {
        self.trees.most_gained()
    }

    /// The tree of a reply, `None` where there is none now.
    pub(crate) fn tree(&mut self, target: &mut dyn TokenModel, request: &Active) -> Option<DraftTree> {
        let seq = request.seq.filter(|_| !self.is_left_aside)?;
        let end_tokens: Vec<TokenId> = request.reply.end_tokens().collect();
        let wish = TreeWish {
            seq,
            history: request.reply.history(),
            most_levels: request.reply.n_wanted().saturating_sub(1),
            top_p: request.reply.top_p(),
            end_tokens: &end_tokens,
        };
        self.trees.tree(target, &mut *self.draft, &wish).unwrap_or_else(|error| {
            tracing::warn!(%error, "the draft model is left aside");
            self.is_left_aside = true;
            None
        })
    }
}

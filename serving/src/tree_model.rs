//! Trees of a smaller model that works on hidden states, for the replies of a scheduler.
//!
//! *Invariant*: a draft is no more than an offer. Where the draft model fails the scheduler leaves it aside, and replies go on without drafts.

use dialog::DialogError;
use dialog::conversation::DraftTree;
use dialog::kinds::{EagletTrees, TreeWish};
use engine::TokenModel;
use genie_types::TokenId;

use crate::active::Active;

/// A model that proposes trees for another.
pub(crate) struct TreeModel {
    draft: Box<dyn TokenModel>,
    trees: EagletTrees,
}

impl TreeModel {
    pub(crate) fn new(draft: Box<dyn TokenModel>, trees: EagletTrees) -> Self {
        Self { draft, trees }
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

    /// The tree of each of some replies, `None` where there is none now.
    ///
    /// # Errors
    /// A model refuses: it is to be left aside.
    pub(crate) fn trees(
        &mut self,
        target: &mut dyn TokenModel,
        requests: &[&Active],
    ) -> Result<Vec<Option<DraftTree>>, DialogError> {
        let mut trees = vec![None; requests.len()];
        let end_tokens: Vec<Vec<TokenId>> =
            requests.iter().map(|request| request.reply.end_tokens().collect()).collect();
        let wish = |at: usize| {
            let reply = &requests[at].reply;
            let wish = TreeWish {
                seq: requests[at].seq?,
                history: reply.history(),
                most_levels: reply.n_wanted().saturating_sub(1),
                top_p: reply.top_p(),
                end_tokens: &end_tokens[at],
            };
            Some((at, wish))
        };
        let (places, wishes): (Vec<usize>, Vec<TreeWish<'_>>) = (0..requests.len()).filter_map(wish).unzip();
        let found = self.trees.trees(target, &mut *self.draft, &wishes)?;
        places.into_iter().zip(found).for_each(|(at, tree)| trees[at] = tree);
        Ok(trees)
    }
}

//! Trees of drafts for one request beside others: asked for before a step, drawn from behind it.

use genie_types::TokenId;

use super::error::DialogError;
use super::request::{Drafter, RequestReply};
use super::trees::DraftTree;
use crate::kinds::tree_drafts::{RowDraw, TreeDrafts, TreeKind};

/// Steps without a tree after which trees are thought of as at the beginning again, about.
const FORGETS: f64 = 256.0;
/// What the newest tree says of the next one.
const NEWEST: f64 = 0.25;

/// Trees of one reply, and what they gain.
#[derive(Debug)]
pub(super) struct Trees {
    drafts: Box<dyn TreeDrafts>,
    /// Tokens that a tree gives beyond the one that every step gives, about. Begins with the most there can be: what has not been tried
    /// is.
    gain: f64,
}

impl Trees {
    pub(super) fn of(kind: &TreeKind) -> Self {
        let drafts = kind.drafts();
        Self { gain: drafts.most_gained() as f64, drafts }
    }

    /// Takes in a tree that ran, also one without offers, unless it was there only for the next one.
    fn ran(&mut self, tree: &DraftTree, history: &[TokenId], n_accepted: usize) {
        self.drafts.verified(history);
        if tree.counts() {
            self.gain += (n_accepted as f64 - self.gain) * NEWEST;
        }
    }
}

impl RequestReply {
    /// A tree of at most `most` rows for the step of the last token, with what it is expected to gain: tokens beyond the one that a step
    /// without it gives. None where the request drafts no trees, near its end, and where trees have not held, for a while. Asked once a step.
    pub fn tree(&mut self, most: usize, n_vocab: usize) -> Option<(DraftTree, f64)> {
        let (wanted, is_over) = (self.n_wanted(), self.stop.is_some());
        let (Drafter::Trees(trees), backoff) = self.drafter.as_mut()? else { return None };
        if is_over || wanted < 2 || backoff.rests() {
            return None;
        }
        let tree = trees.drafts.tree(&self.history, n_vocab);
        (tree.n_rows() > 1 && tree.n_rows() <= most).then_some((tree, trees.gain))
    }

    /// Says that its tree was not worth the rows: it is again, after many steps.
    pub fn left_tree(&mut self) {
        if let Some((Drafter::Trees(trees), _)) = &mut self.drafter {
            trees.gain += (trees.drafts.most_gained() as f64 - trees.gain) / FORGETS;
        }
    }

    /// Draws tokens from the logits of a tree's rows (empty for those without), along the offers that hold them, and one more. Returns the
    /// rows that hold, the last token's first: the model is to keep these.
    ///
    /// # Errors
    /// As [`take`](Self::take); the rows that hold are those before it.
    pub fn take_tree(&mut self, tree: &DraftTree, logits: &[&[f32]]) -> (Vec<usize>, Result<(), DialogError>) {
        // Several offers may begin alike: all of them are followed, the first is taken.
        let mut rows = vec![0];
        let drawn = loop {
            let row = rows[0];
            let token = match self.take(logits[row]) {
                Ok(Some(token)) => token,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if let Some((Drafter::Trees(trees), _)) = &mut self.drafter {
                trees.drafts.drew(&RowDraw { row, token, logits });
            }
            let next = tree.offers_behind(&rows, token);
            if next.is_empty() || self.stop.is_some() {
                break Ok(());
            }
            rows = next;
        };
        let path = tree.path(rows[0]);
        if let Some((Drafter::Trees(trees), _)) = &mut self.drafter {
            trees.ran(tree, &self.history, path.len() - 1);
        }
        self.drafted(tree.n_offers(), path.len() - 1);
        (path, drawn)
    }
}

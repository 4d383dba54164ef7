//! Trees of drafts for one request beside others: asked for before a step, drawn from behind it.

use genie_types::TokenId;

use super::error::DialogError;
use super::request::{Drafter, RequestReply};
use super::trees::{DraftTree, Next};
use crate::kinds::TreeKind;
use crate::kinds::tree_drafts::{RowDraw, TreeDrafts};
use crate::kpi::Speculation;

/// Steps without a tree after which trees are thought of as at the beginning again, about.
const FORGETS: f64 = 256.0;
/// What the newest tree says of the next one.
const NEWEST: f64 = 0.25;

/// Tokens that a tree gives beyond the one that every step gives, about. Begins with the most there can be: what has not been tried is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gain {
    now: f64,
    most: f64,
}

impl Gain {
    fn new(most: usize) -> Self {
        Self { now: most as f64, most: most as f64 }
    }

    fn saw(&mut self, n_accepted: usize) {
        self.now += (n_accepted as f64 - self.now) * NEWEST;
    }

    fn forget(&mut self) {
        self.now += (self.most - self.now) / FORGETS;
    }
}

/// Where the trees of one reply come from.
#[derive(Debug)]
pub(super) struct Trees {
    /// `None`: the scheduler has them made.
    drafts: Option<Box<dyn TreeDrafts>>,
    gain: Gain,
}

impl Trees {
    pub(super) fn of(kind: &TreeKind) -> Self {
        let drafts = kind.drafts();
        Self { gain: Gain::new(drafts.most_gained()), drafts: Some(drafts) }
    }

    /// Takes in a tree that ran, also one without offers, unless it was there only for the next one.
    fn ran(&mut self, tree: &DraftTree, history: &[TokenId], n_accepted: usize) {
        if let Some(drafts) = &mut self.drafts {
            drafts.verified(history);
        }
        if tree.counts() {
            self.gain.saw(n_accepted);
        }
    }
}

impl RequestReply {
    /// From now on its trees are made by whoever asks [`wants_tree`](Self::wants_tree), unless it drafts by itself. `most_gained`: tokens that a
    /// tree can give beyond the one of every step.
    pub fn take_trees(&mut self, most_gained: usize) {
        if self.drafter.is_none() {
            let trees = Trees { drafts: None, gain: Gain::new(most_gained) };
            self.drafter = Some((Drafter::Trees(trees), Default::default()));
            self.query.kpis.speculation = Some(Speculation::OF_HIDDEN_STATES);
        }
    }

    /// What a tree that someone else makes is expected to gain now; `None` where none is wanted: near the end, and where trees have not held, for
    /// a while. Asked once a step.
    pub fn wants_tree(&mut self) -> Option<f64> {
        self.rests_or_gains(false)
    }

    /// A tree of at most `most` rows for the step of the last token, with what it is expected to gain: tokens beyond the one that a step
    /// without it gives. None where the request makes no trees, and as [`wants_tree`](Self::wants_tree). Asked once a step.
    pub fn tree(&mut self, most: usize, n_vocab: usize) -> Option<(DraftTree, f64)> {
        let gain = self.rests_or_gains(true)?;
        let Some((Drafter::Trees(Trees { drafts: Some(drafts), .. }), _)) = &mut self.drafter else { return None };
        let tree = drafts.tree(&self.history, n_vocab);
        (tree.n_rows() > 1 && tree.n_rows() <= most).then_some((tree, gain))
    }

    fn rests_or_gains(&mut self, by_itself: bool) -> Option<f64> {
        let (wanted, is_over) = (self.n_wanted(), self.stop.is_some());
        let (Drafter::Trees(trees), backoff) = self.drafter.as_mut()? else { return None };
        let is_asked = trees.drafts.is_some() == by_itself && !is_over && wanted >= 2;
        (is_asked && !backoff.rests()).then_some(trees.gain.now)
    }

    /// Says that its tree was not worth the rows: it is again, after many steps.
    pub fn left_tree(&mut self) {
        if let Some((Drafter::Trees(trees), _)) = &mut self.drafter {
            trees.gain.forget();
        }
    }

    /// Says that its draft had no rows in the step: that is as if it had not held, so that drafts for which there is no room become rare.
    pub fn draft_had_no_rows(&mut self) {
        if let Some((_, backoff)) = &mut self.drafter {
            backoff.saw(1, 0);
        }
    }

    /// Of its sampler.
    pub fn top_p(&self) -> f32 {
        self.sampler.settings().top_p()
    }

    /// Tokens that end it.
    pub fn end_tokens(&self) -> impl Iterator<Item = TokenId> + '_ {
        self.base.end_tokens()
    }

    /// Draws tokens from the logits of a tree's rows (empty for those without), along the offers that hold them, and one more. Returns the
    /// rows that hold, the last token's first: the model is to keep these.
    ///
    /// # Errors
    /// As [`take`](Self::take); the rows that hold are those before it.
    pub fn take_tree(&mut self, tree: &DraftTree, logits: &[&[f32]]) -> (Vec<usize>, Result<(), DialogError>) {
        let mut drawn = Ok(());
        let path = tree.follow(|_, row| {
            let token = match self.take(logits[row]) {
                Ok(Some(token)) => token,
                Ok(None) => return Next::Over,
                Err(error) => {
                    drawn = Err(error);
                    return Next::Over;
                }
            };
            if let Some((Drafter::Trees(Trees { drafts: Some(drafts), .. }), _)) = &mut self.drafter {
                drafts.drew(&RowDraw { row, token, logits });
            }
            if self.stop.is_some() { Next::Over } else { Next::Behind(token) }
        });
        if let Some((Drafter::Trees(trees), _)) = &mut self.drafter {
            trees.ran(tree, &self.history, path.len() - 1);
        }
        self.drafted(tree.n_offers(), path.len() - 1);
        (path, drawn)
    }
}

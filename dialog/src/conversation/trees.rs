//! Trees of drafts: several continuations of the last token, verified in one step.
//!
//! The step's rows are the last token, offers that may become the reply, and probes whose logits a kind wants for its next
//! drafts. Tokens are drawn from the last token's row, then from the offer that holds the token drawn, and so on: the draws
//! are those of [`Decoding::advance`], so a tree cannot change the reply.

use engine::{EngineError, SeqId, TreeRow};
use genie_types::TokenId;

use super::codes::StopReason;
use super::decoding::{Decoding, Drawn, Verified};
use super::error::DialogError;
use crate::sampler::Sampler;

/// Rows of a step: the last token, then offers and probes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftTree {
    rows: Vec<TreeRow>,
    /// Which rows are offers.
    offered: Vec<bool>,
    /// It counts as a round that verifies drafts.
    counts: bool,
    /// Behind the end of the reply the offers are followed on, and stay in the cache.
    whole_path: bool,
}

impl DraftTree {
    /// Only the last token of the dialog, as row 0.
    pub fn new(last: TokenId) -> Self {
        Self { rows: vec![TreeRow::new(last, None)], offered: vec![false], counts: true, whole_path: false }
    }

    /// A token that the reply may go on with behind a row; returns its row.
    pub fn offer(&mut self, parent: usize, token: TokenId) -> usize {
        self.push(TreeRow::new(token, Some(parent)), true)
    }

    /// A row that is there for its logits, or as the past of other probes; returns its number.
    pub fn probe(&mut self, row: TreeRow) -> usize {
        self.push(row, false)
    }

    /// The same; it is no round in the KPIs, since it verifies nothing.
    #[must_use]
    pub fn uncounted(self) -> Self {
        Self { counts: false, ..self }
    }

    /// The same; the tokens behind the end of the reply are drawn too and stay in the cache, as libGenie has it for some kinds.
    #[must_use]
    pub fn whole_path(self) -> Self {
        Self { whole_path: true, ..self }
    }

    /// The same, with logits for these rows too.
    #[must_use]
    pub fn with_logits_of(mut self, rows: &[usize]) -> Self {
        rows.iter().for_each(|&row| self.rows[row].logits = true);
        self
    }

    fn push(&mut self, row: TreeRow, offered: bool) -> usize {
        self.rows.push(row);
        self.offered.push(offered);
        self.rows.len() - 1
    }

    /// Rows, the last token's among them.
    pub fn n_rows(&self) -> usize {
        self.rows.len()
    }

    /// The rows.
    pub fn rows(&self) -> &[TreeRow] {
        &self.rows
    }

    /// Offers.
    pub fn n_offers(&self) -> usize {
        self.offered.iter().filter(|offered| **offered).count()
    }

    /// Whether it is a round that verifies drafts.
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// Follows the offers that hold the tokens drawn, as long as there are some and `draw` says how to go on. It is given how many
    /// tokens were drawn before, and the row to draw from. Returns the rows that hold, the last token's first.
    pub(super) fn follow(&self, mut draw: impl FnMut(usize, usize) -> Next) -> Vec<usize> {
        // Several offers may begin alike: all of them are followed, the first is taken.
        let (mut rows, mut n_before) = (vec![0], 0);
        while let Next::Behind(token) = draw(n_before, rows[0]) {
            let next = self.offers_behind(&rows, token);
            if next.is_empty() {
                break;
            }
            (rows, n_before) = (next, n_before + 1);
        }
        self.path(rows[0])
    }

    /// Offers of a token right behind one of the rows.
    fn offers_behind(&self, rows: &[usize], token: TokenId) -> Vec<usize> {
        let follows = |row: &TreeRow| row.token == token && row.parent.is_some_and(|parent| rows.contains(&parent));
        (0..self.rows.len()).filter(|&row| self.offered[row] && follows(&self.rows[row])).collect()
    }

    /// A row with its ancestors, the first of them first.
    fn path(&self, row: usize) -> Vec<usize> {
        let mut path: Vec<_> = std::iter::successors(Some(row), |&at| self.rows[at].parent).collect();
        path.reverse();
        path
    }
}

/// How a tree is followed on.
pub(super) enum Next {
    /// Behind offers of this token.
    Behind(TokenId),
    /// No further.
    Over,
}

/// What a kind sees of a tree each time that a token was drawn.
#[derive(Debug)]
pub struct TreeDraw<'a> {
    /// Tokens drawn from this tree before.
    pub n_before: usize,
    /// The row that the token was drawn from.
    pub row: usize,
    /// The token.
    pub token: TokenId,
    /// Logits of all rows; empty for rows without.
    pub logits: &'a [&'a [f32]],
    /// The dialog's sampler, for a kind that draws what it drafts.
    pub sampler: &'a mut Sampler,
}

impl Decoding<'_> {
    /// The token that was delivered last, if the model has not processed it.
    pub fn last(&self) -> Option<TokenId> {
        *self.unprocessed
    }

    /// Processes a tree of drafts behind the token delivered last, and delivers the tokens that the sampler draws along the
    /// offers that hold them, and one more. `see` is shown every draw. A tree that fits neither graphs nor context, and one
    /// before the first token, is [`advance`](Self::advance): `see` is not asked then.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses; the model has no graphs for a tree; `see` refuses.
    pub fn verify_tree(
        &mut self,
        tree: &DraftTree,
        see: &mut dyn FnMut(TreeDraw<'_>) -> Result<(), DialogError>,
    ) -> Result<Verified, DialogError> {
        let n_most = self.max_tokens().saturating_sub(self.reply.query.n_counted()).min(self.n_left());
        if !self.has_started() || n_most == 0 || self.last() != tree.rows.first().map(|row| row.token) {
            return Ok(Verified { n_accepted: 0, stop: self.advance()? });
        }
        let n_past = self.model.n_past();
        let (mut drawn, mut path) = (Drawn::default(), Vec::new());
        let sequences = self.model.sequences().ok_or(EngineError::Unsupported {
            what: "a tree of drafts on this model".into(),
            hint: "; use a dialog of type `basic`",
        })?;
        let ran = sequences.process_tree(SeqId(0), &tree.rows, &mut |logits| {
            let mut n_drawn = 0;
            path = tree.follow(|n_before, row| {
                let place = n_past + n_before + 1;
                let token = if drawn.is_over() || n_before >= n_most {
                    self.reply.sample(logits[row]).ok()
                } else {
                    drawn.draw(&mut self.reply, place, logits[row]);
                    drawn.last.filter(|(at, _)| *at == place).map(|(_, token)| token)
                };
                let Some(token) = token else { return Next::Over };
                let seen = see(TreeDraw { n_before, row, token, logits, sampler: &mut *self.reply.sampler });
                if let Err(e) = seen {
                    drawn.over = Some(Err(e));
                    return Next::Over;
                }
                n_drawn = n_before + 1;
                match (drawn.is_over() || n_drawn >= n_most) && !tree.whole_path {
                    true => Next::Over,
                    false => Next::Behind(token),
                }
            });
            if tree.whole_path && (drawn.is_over() || n_drawn >= n_most) {
                drawn.keep_whole(n_past + path.len());
            }
            path.clone()
        });
        match ran {
            Err(e) if e.does_not_fit() => return Ok(Verified { n_accepted: 0, stop: self.advance()? }),
            Err(EngineError::Stopped { .. }) => {
                let stop: StopReason = self.aborted();
                return Ok(Verified { n_accepted: 0, stop: Some(stop) });
            }
            ran => ran?,
        };
        let n_accepted = path.len().saturating_sub(1);
        if let Some(counts) = self.reply.query.kpis.speculation.as_mut().filter(|_| tree.counts) {
            counts.n_rounds += 1;
            counts.n_drafted += tree.n_offers();
            counts.n_accepted += n_accepted;
        }
        Ok(Verified { stop: self.apply(n_past, path.len(), drawn)?, n_accepted })
    }

    /// Runs a tree for its logits alone: nothing of it is kept, nothing is drawn. False where it does not fit, or was stopped.
    ///
    /// # Errors
    /// The model refuses.
    pub fn try_tree(&mut self, tree: &DraftTree, see: &mut dyn FnMut(&[&[f32]])) -> Result<bool, DialogError> {
        let Some(sequences) = self.model.sequences() else { return Ok(false) };
        let ran = sequences.process_tree(SeqId(0), &tree.rows, &mut |logits| {
            see(logits);
            Vec::new()
        });
        match ran {
            Ok(_) => Ok(true),
            Err(e) if e.does_not_fit() || matches!(e, EngineError::Stopped { .. }) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

//! Trees for several replies of one target, drafted by one model from the target's hidden states.
//!
//! The draft model has a sequence for each of the target's that has a reply. It does not learn what becomes of a request: what its
//! sequence has in common with the request's tokens is compared, and the rest is processed, of a long prompt a piece at a time. Hidden
//! states that it has taken are forgotten; where some are unknown, behind a prefix that was shared or restored, it begins where they
//! are known again.
//!
//! *Sequences* of the draft model: those of replies from 0 on, then those of a tree's nodes, which are free again once it has grown.

use engine::{EngineError, FeatureModel, SeqId, TokenModel};
use genie_types::TokenId;

use super::growth::{Growth, Row, featured, offer, offered_only, run_plain};
use super::settings::{EagletSettings, MOST_SEQUENCES, NAME};
use crate::conversation::error::DialogError;
use crate::conversation::trees::DraftTree;
use crate::kinds::{Models, VocabularyMap};

/// Most tokens of a prompt that the draft model takes at once.
const PIECE: usize = 64;

/// A reply that would have a tree.
#[derive(Clone, Copy, Debug)]
pub struct TreeWish<'a> {
    /// Its sequence in the target.
    pub seq: SeqId,
    /// Prompt and reply so far.
    pub history: &'a [TokenId],
    /// Most levels of the tree: tokens that are wanted beyond the next.
    pub most_levels: usize,
    /// Of the request's sampler.
    pub top_p: f32,
    /// Tokens that nothing follows.
    pub end_tokens: &'a [TokenId],
}

/// Draws trees from hidden states, for replies beside each other.
#[derive(Debug)]
pub struct EagletTrees {
    settings: EagletSettings,
    map: Option<VocabularyMap>,
    n_vocab: usize,
    places: Vec<Place>,
    /// The step that is drafted for, and whether a piece of a long prompt was taken in it.
    step: u64,
    has_piece: bool,
}

/// A sequence of the draft model.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Whose it is, in the target.
    of: Option<SeqId>,
    /// The token that its first hidden states belong to.
    base: usize,
    /// When it was asked for last.
    used: u64,
}

impl EagletTrees {
    /// For a target and its draft model; the target keeps its hidden states from now on.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: settings that [`Eaglet::new`](super::Eaglet::new) refuses, models that do not go together, a draft model whose cache has one
    /// sequence at a time.
    pub fn new(
        settings: EagletSettings,
        map: Option<VocabularyMap>,
        target: &mut dyn TokenModel,
        draft: &mut dyn TokenModel,
    ) -> Result<Self, DialogError> {
        settings.check()?;
        settings.check_models(map.as_ref(), &Models { main: &*target, second: Some(&*draft) })?;
        if !draft.sequences().is_some_and(|model| model.runs_together()) {
            let expected = "a draft model whose cache keeps several sequences beside each other".to_owned();
            let found = "one that has one at a time".to_owned();
            return Err(DialogError::Kind { kind: NAME, expected, found });
        }
        draft.reset()?;
        featured(Some(&mut *target))?.keep_features(true)?;
        let n_nodes = settings.n_branches * (settings.draft_len - 1);
        let places = vec![Place::default(); MOST_SEQUENCES + 1 - n_nodes];
        Ok(Self { settings, map, n_vocab: target.vocab_size(), places, step: 0, has_piece: false })
    }

    /// Most rows of a tree.
    pub fn n_rows(&self) -> usize {
        self.settings.max_rows
    }

    /// Most tokens that a tree gives beyond the one of every step.
    pub fn most_gained(&self) -> usize {
        self.settings.draft_len
    }

    /// Trees are asked for from now on for another step.
    pub fn begin_step(&mut self) {
        (self.step, self.has_piece) = (self.step + 1, false);
    }

    /// The tree of a reply; `None` where the draft model is not that far yet, or has nothing to draft from.
    ///
    /// # Errors
    /// A model refuses.
    pub fn tree(
        &mut self,
        target: &mut dyn TokenModel,
        draft: &mut dyn TokenModel,
        wish: &TreeWish<'_>,
    ) -> Result<Option<DraftTree>, DialogError> {
        let (Some(last), true) = (wish.history.last(), wish.most_levels > 0) else { return Ok(None) };
        let (target, draft) = (featured(Some(target))?, featured(Some(draft))?);
        let Some(at) = self.place(draft, wish.seq)? else { return Ok(None) };
        let Some(root) = self.follow(target, draft, (at, wish.seq), wish.history)? else { return Ok(None) };
        let growth = Growth {
            settings: &self.settings,
            map: self.map.as_ref(),
            n_vocab: self.n_vocab,
            top_p: wish.top_p,
            n_levels: self.settings.draft_len.min(wish.most_levels),
            is_stop: &|token| wish.end_tokens.contains(&token),
            as_genie: false,
            first_free: self.places.len() as u8,
        };
        let nodes = growth.nodes(draft, root)?;
        let mut tree = DraftTree::new(*last);
        offer(&mut tree, &nodes, self.settings.max_rows);
        Ok(Some(tree))
    }

    /// The draft model's sequence for one of the target's; that of a reply which was not asked for in this step or the one before is taken.
    fn place(&mut self, draft: &mut dyn FeatureModel, seq: SeqId) -> Result<Option<usize>, DialogError> {
        let own = self.places.iter().position(|place| place.of == Some(seq));
        let oldest = (0..self.places.len()).min_by_key(|&at| self.places[at].used);
        let Some(at) =
            own.or(oldest.filter(|&at| self.places[at].used + 1 < self.step || self.places[at].of.is_none()))
        else {
            return Ok(None);
        };
        if own.is_none() {
            forget(draft, at)?;
            self.places[at] = Place { of: Some(seq), ..Place::default() };
        }
        self.places[at].used = self.step;
        Ok(Some(at))
    }

    /// The draft model's sequence takes what the reply has beyond it; returns the row of the newest token, `None` where there is none yet.
    fn follow(
        &mut self,
        target: &mut dyn FeatureModel,
        draft: &mut dyn FeatureModel,
        (at, seq): (usize, SeqId),
        history: &[TokenId],
    ) -> Result<Option<Row>, DialogError> {
        let Some(n_pairs) = history.len().checked_sub(1).filter(|n| *n > 0) else { return Ok(None) };
        let own_seq = SeqId(at as u8);
        let wanted = history.get(self.places[at].base + 1..).unwrap_or_default();
        let (common, n_past) = draft.transcript_of(own_seq).map_or((0, 0), |own| {
            let most = wanted.len().saturating_sub(1);
            let same = own.tokens().iter().zip(wanted).take_while(|(a, b)| a == b).count().min(most);
            (if own.is_plain() { same } else { 0 }, own.len())
        });
        if common < n_past {
            draft.remove(own_seq, common..usize::MAX)?;
        }
        if common == 0 {
            // Of a request that had the sequence before.
            self.places[at].base = 0;
        }
        let known = (0..n_pairs).rev().take_while(|&i| target.feature_of(seq, i).is_some()).count();
        let mut from = self.places[at].base + common;
        if from < n_pairs - known {
            forget(draft, at)?;
            self.places[at].base = n_pairs - known;
            from = self.places[at].base;
        }
        while from < n_pairs {
            let is_long = n_pairs - from > PIECE;
            let until = if is_long { from + PIECE } else { n_pairs };
            if is_long && std::mem::replace(&mut self.has_piece, true) {
                return Ok(None);
            }
            let rows = (from..until).filter_map(|i| target.feature_of(seq, i));
            let features: Vec<f32> = rows.flatten().copied().collect();
            match run_plain(draft, own_seq, &history[from + 1..=until], &features) {
                // A token that only the target knows: the draft begins behind it.
                Err(EngineError::TokenOutOfRange { place, .. }) if from + place + 1 < n_pairs => {
                    forget(draft, at)?;
                    self.places[at].base = from + place + 1;
                    from = self.places[at].base;
                }
                Err(EngineError::Overflow(_) | EngineError::Plan(_)) => {
                    // No room: what belongs to others goes, and there are trees again from the next step on.
                    draft.reset()?;
                    self.places.fill(Place::default());
                    return Ok(None);
                }
                ran => {
                    let row = offered_only(ran)?;
                    if row.is_some() {
                        // The newest row is taken again where the next tree is rejected.
                        target.forget_features_before(seq, until.saturating_sub(1));
                    }
                    return Ok(row.filter(|_| !is_long));
                }
            }
        }
        Ok(None)
    }
}

fn forget(draft: &mut dyn FeatureModel, at: usize) -> Result<(), EngineError> {
    draft.remove(SeqId(at as u8), 0..usize::MAX).map(drop)
}

//! Trees for several replies of one target, drafted by one model from the target's hidden states.
//!
//! The draft model has a sequence for each of the target's that has a reply ([`Following`]); of a long prompt it takes a piece in a step.
//! Hidden states that it has taken are forgotten.
//!
//! *Sequences* of the draft model: those of replies from 0 on, then those of a tree's nodes, which are free again once it has grown.

use engine::{EngineError, FeatureModel, SeqId, TokenModel};
use genie_types::TokenId;

use super::following::{Following, Pair};
use super::growth::{Growth, Row, Start, featured, offer, offered_only};
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
    /// Trees that grow at once.
    at_once: usize,
    /// The step that is drafted for, and whether a piece of a long prompt was taken in it.
    step: u64,
    has_piece: bool,
}

/// A sequence of the draft model.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Whose it is, in the target.
    of: Option<SeqId>,
    following: Following,
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
        let n_nodes = settings.n_nodes();
        // Half of the sequences at most are nodes', unless those of one tree are more.
        let at_once = (MOST_SEQUENCES / 2 / n_nodes.max(1)).max(1);
        let places = vec![Place::default(); MOST_SEQUENCES + 1 - at_once * n_nodes];
        Ok(Self { settings, map, n_vocab: target.vocab_size(), places, at_once, step: 0, has_piece: false })
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

    /// The tree of each reply; `None` where the draft model is not that far yet, or has nothing to draft from. A level of several trees is one
    /// batch of the draft model.
    ///
    /// # Errors
    /// A model refuses.
    pub fn trees(
        &mut self,
        target: &mut dyn TokenModel,
        draft: &mut dyn TokenModel,
        wishes: &[TreeWish<'_>],
    ) -> Result<Vec<Option<DraftTree>>, DialogError> {
        let (target, draft) = (featured(Some(target))?, featured(Some(draft))?);
        let mut roots: Vec<Option<Row>> = Vec::with_capacity(wishes.len());
        let (n_nodes, most_rows) = (self.settings.n_nodes(), draft.rows().total);
        let mut n_rows = 0;
        for wish in wishes {
            // As many replies as fit beside each other, the first ones.
            let n_own = wish.history.len() + n_nodes;
            let fits = wish.most_levels > 0 && n_rows + n_own <= most_rows;
            n_rows += if fits { n_own } else { 0 };
            let place = if fits { self.place(draft, wish.seq)? } else { None };
            let followed = match place {
                Some(at) => self.follow(target, draft, (at, wish.seq), wish.history)?,
                None => Followed::NotYet,
            };
            match followed {
                Followed::Newest(row) => roots.push(Some(row)),
                Followed::NotYet => roots.push(None),
                // The rows of those before are gone too.
                Followed::NoRoom => {
                    roots.iter_mut().for_each(|root| *root = None);
                    roots.push(None);
                }
            }
        }
        let growth = Growth {
            settings: &self.settings,
            map: self.map.as_ref(),
            n_vocab: self.n_vocab,
            as_genie: false,
            first_free: self.places.len() as u8,
        };
        let stops: Vec<_> = wishes.iter().map(|wish| |token: TokenId| wish.end_tokens.contains(&token)).collect();
        let mut starts = Vec::new();
        for (at, root) in roots.into_iter().enumerate() {
            let Some(root) = root else { continue };
            let wish = &wishes[at];
            let n_levels = self.settings.draft_len.min(wish.most_levels);
            starts.push((at, Start { root, n_levels, top_p: wish.top_p, is_stop: &stops[at] }));
        }
        let mut trees: Vec<Option<DraftTree>> = vec![None; wishes.len()];
        while !starts.is_empty() {
            let (places, group): (Vec<usize>, Vec<_>) = starts.drain(..self.at_once.min(starts.len())).unzip();
            for (at, nodes) in places.into_iter().zip(growth.nodes(draft, group)?) {
                let Some(last) = wishes[at].history.last() else { continue };
                let mut tree = DraftTree::new(*last);
                offer(&mut tree, &nodes, self.settings.max_rows);
                trees[at] = Some(tree);
            }
        }
        Ok(trees)
    }

    /// The draft model's sequence for one of the target's; that of a reply which was not asked for in this step or the one before is taken.
    fn place(&mut self, draft: &mut dyn FeatureModel, seq: SeqId) -> Result<Option<usize>, DialogError> {
        let own = self.places.iter().position(|place| place.of == Some(seq));
        let oldest = (0..self.places.len()).min_by_key(|&at| (self.places[at].of.is_some(), self.places[at].used));
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

    /// The draft model's sequence takes what the reply has beyond it.
    fn follow(
        &mut self,
        target: &mut dyn FeatureModel,
        draft: &mut dyn FeatureModel,
        (at, seq): (usize, SeqId),
        history: &[TokenId],
    ) -> Result<Followed, DialogError> {
        let own = SeqId(at as u8);
        let has_piece = &mut self.has_piece;
        // Of a long prompt one piece in a step.
        let mut allowed = |n_rows: usize| match n_rows > PIECE {
            true if std::mem::replace(has_piece, true) => 0,
            true => PIECE,
            false => n_rows,
        };
        let following = &mut self.places[at].following;
        let ran = following.catch_up(Pair { target, seq, draft, own }, history, true, &mut allowed);
        if let Err(EngineError::Overflow(_) | EngineError::Plan(_)) = ran {
            // No room: what belongs to others goes, and there are trees again from the next step on.
            draft.reset()?;
            self.places.fill(Place::default());
            return Ok(Followed::NoRoom);
        }
        // The newest row is taken again where the next tree is rejected.
        target.forget_features_before(seq, following.reached(draft, own).saturating_sub(1));
        Ok(offered_only(ran)?.map_or(Followed::NotYet, Followed::Newest))
    }
}

/// What became of following a reply.
enum Followed {
    /// The row of its newest token.
    Newest(Row),
    /// There is none yet.
    NotYet,
    /// All sequences of the draft model were given up.
    NoRoom,
}

fn forget(draft: &mut dyn FeatureModel, at: usize) -> Result<(), EngineError> {
    draft.remove(SeqId(at as u8), 0..usize::MAX).map(drop)
}

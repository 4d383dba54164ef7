//! Drafts of a smaller model, for several replies in one go.
//!
//! It has a cache of its own, with a sequence for each of the first model's. It does not learn what becomes of a request: what its
//! sequence has in common with the request's tokens is compared, it goes back to there, and processes the rest; of a long prompt a
//! piece in each step of the first model, so that replies do not wait for it.
//!
//! *Vocabularies*: the same ids, or a map of the draft model's ids to the first model's. It is given the tokens that it knows; behind one
//! that it does not know it drafts nothing.
//!
//! *Invariant*: a draft is no more than an offer. Where the draft model fails it is left aside, and replies go on without drafts.

use std::borrow::Cow;

use dialog::kinds::VocabularyMap;
use dialog::sampler::most_likely;
use engine::{EngineError, LogitsRequest, SeqId, SeqRows, SequenceModel, TokenModel};
use genie_types::TokenId;

use crate::ServeError;

/// Most tokens of prompts that it processes beside a step of the first model.
const PIECE: usize = 64;

/// A request that would have a draft.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// Its sequence in the first model.
    pub(crate) seq: SeqId,
    /// Prompt and reply so far.
    pub(crate) history: &'a [TokenId],
    /// Most tokens of a draft.
    pub(crate) most: usize,
}

/// A model that proposes tokens for another.
pub(crate) struct DraftModel {
    model: Box<dyn TokenModel>,
    len: usize,
    n_vocab: usize,
    map: Option<VocabularyMap>,
    is_left_aside: bool,
}

impl std::fmt::Debug for DraftModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DraftModel").field("len", &self.len).finish_non_exhaustive()
    }
}

impl DraftModel {
    /// Drafts of up to `len` tokens for a model with `n_vocab` of them; of a larger vocabulary, and of ids that `map` does not have, the
    /// additional tokens are never drafted.
    pub(crate) fn new(
        mut model: Box<dyn TokenModel>,
        len: usize,
        n_vocab: usize,
        map: Option<VocabularyMap>,
    ) -> Result<Self, ServeError> {
        let own = model.vocab_size();
        if let Some(map) = &map {
            map.check("spd", n_vocab, own)?;
        } else if own < n_vocab {
            let expected = "a draft model with a vocabulary at least as large as the first model's";
            let found = format!("{own} tokens beside {n_vocab}");
            return Err(ServeError::Setting { key: "draft model", expected, found });
        }
        model.reset()?;
        if !Self::suits(&mut *model) {
            let expected = "a draft model whose cache keeps several sequences beside each other";
            let found = "one that has one at a time".to_owned();
            return Err(ServeError::Setting { key: "draft model", expected, found });
        }
        Ok(Self { model, len, n_vocab, map, is_left_aside: false })
    }

    /// Its cache keeps several sequences beside each other.
    pub(crate) fn suits(model: &mut dyn TokenModel) -> bool {
        model.sequences().is_some_and(|model| model.runs_together() && !model.runs_in_pairs())
    }

    /// Tokens that may come next, for each wish; none where there is no room, or the prompt is not processed yet.
    pub(crate) fn drafts(&mut self, wishes: &[Wish<'_>]) -> Vec<Vec<TokenId>> {
        let mut drafts = vec![Vec::new(); wishes.len()];
        if self.is_left_aside || self.len == 0 || wishes.iter().all(|wish| wish.most == 0) {
            return drafts;
        }
        match self.draft_into(wishes, &mut drafts) {
            // It has no room: what belongs to others is given up, and there are drafts again from the next step on.
            Err(EngineError::Overflow(_) | EngineError::Plan(_)) => self.forget_all(),
            // The program stops.
            Err(EngineError::Stopped { .. }) | Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "the draft model is left aside");
                self.is_left_aside = true;
                drafts.iter_mut().for_each(Vec::clear);
            }
        }
        drafts
    }

    fn forget_all(&mut self) {
        if let Err(error) = self.model.reset() {
            tracing::warn!(%error, "the draft model is left aside");
            self.is_left_aside = true;
        }
    }

    fn draft_into(&mut self, wishes: &[Wish<'_>], drafts: &mut [Vec<TokenId>]) -> Result<(), EngineError> {
        let (n_vocab, most, limit) = (self.n_vocab, self.len, self.model.context_size());
        let map = self.map.as_ref();
        let Some(model) = self.model.sequences() else { return Ok(()) };
        let mut ready = Vec::with_capacity(wishes.len());
        let mut pieces_left = PIECE;
        let mut taken = Vec::with_capacity(wishes.len());
        let mut n_rows = 0;
        for (at, wish) in wishes.iter().enumerate() {
            let Some(history) = in_its_ids(map, wish.history) else { continue };
            // The last token's row and those of the draft have to fit, beside those of the replies before.
            let n_own = history.len() + wish.most.min(most);
            if wish.most == 0 || n_own > limit || n_rows + n_own > model.rows().total {
                continue;
            }
            n_rows += n_own;
            taken.push((at, wish.seq, history));
        }
        let n_own: usize = model.own_rows(&taken.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>());
        if n_rows + model.rows().used.saturating_sub(n_own) > model.rows().total {
            // Sequences of which nothing is wanted now make room.
            for seq in (0..SeqId::COUNT as u8).map(SeqId).filter(|seq| taken.iter().all(|(_, own, _)| own != seq)) {
                if model.transcript_of(seq).is_some_and(|own| !own.is_empty()) {
                    model.remove(seq, 0..usize::MAX)?;
                }
            }
        }
        for (at, seq, history) in taken {
            let mut rest = &history[go_back(model, seq, &history)?..];
            while rest.len() > PIECE && pieces_left > 0 {
                let piece = SeqRows { seq, tokens: &rest[..PIECE], wanted: LogitsRequest::Nothing, prompt: false };
                model.process_mixed(&[piece], &mut |_, _, _| ())?;
                (rest, pieces_left) = (&rest[PIECE..], pieces_left.saturating_sub(PIECE));
            }
            if rest.len() <= PIECE {
                ready.push((at, rest.to_vec()));
            }
        }
        while !ready.is_empty() {
            let rows: Vec<_> = ready
                .iter()
                .map(|(at, tokens): &(usize, Vec<TokenId>)| SeqRows {
                    seq: wishes[*at].seq,
                    tokens,
                    wanted: LogitsRequest::Last,
                    prompt: false,
                })
                .collect();
            let mut next = vec![None; rows.len()];
            model.process_mixed(&rows, &mut |input, _, row| {
                next[input] = Some(match map {
                    Some(map) => most_likely(&map.row(row, n_vocab)),
                    None => most_likely(&row[..row.len().min(n_vocab)]),
                });
            })?;
            let drawn = ready.iter().zip(next).filter_map(|(&(at, _), token)| Some((at, token?)));
            ready = drawn
                .filter_map(|(at, token)| {
                    drafts[at].push(token);
                    let own = map.map_or(Some(token), |map| map.draft_id(token))?;
                    (drafts[at].len() < wishes[at].most.min(most)).then(|| (at, vec![own]))
                })
                .collect();
        }
        Ok(())
    }
}

/// A request's tokens as the draft model's; `None` where it does not know the last one.
fn in_its_ids<'a>(map: Option<&VocabularyMap>, history: &'a [TokenId]) -> Option<Cow<'a, [TokenId]>> {
    let Some(map) = map else { return Some(history.into()) };
    map.draft_id(*history.last()?)?;
    Some(map.draft_ids(history).into())
}

/// Forgets what the sequence has that the tokens do not begin with, and their last one; returns how much is left.
fn go_back(model: &mut dyn SequenceModel, seq: SeqId, tokens: &[TokenId]) -> Result<usize, EngineError> {
    let Some(own) = model.transcript_of(seq) else { return Ok(0) };
    let common = if own.is_plain() { own.common_prefix(&tokens[..tokens.len().saturating_sub(1)]) } else { 0 };
    if common < own.len() {
        model.remove(seq, common..usize::MAX)?;
    }
    Ok(common)
}

//! How a sequence of the draft model keeps up with a sequence of the target, of a dialog or of one reply beside others.
//!
//! *Rows*: the draft's token i is the target's token `base + 1 + i`, with the target's hidden states of the token before it. `base`
//! is 0 unless the first of them are unknown, behind a prefix that was restored or shared say.
//!
//! The draft model does not learn what becomes of the target's tokens: what both have in common is compared each time.

use engine::{EngineError, FeatureModel, SeqId, Transcript};
use genie_types::TokenId;

use super::growth::{Row, run_plain};

/// A sequence of the target with the draft's that follows it.
pub(super) struct Pair<'m> {
    pub(super) target: &'m dyn FeatureModel,
    pub(super) seq: SeqId,
    pub(super) draft: &'m mut dyn FeatureModel,
    pub(super) own: SeqId,
}

/// Where the draft's sequence begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Following {
    /// The target's token that the draft's first hidden states belong to.
    base: usize,
}

impl Following {
    /// Goes back to what the draft has in common with the target's tokens, and takes the rest: all of it, or as many of these rows as
    /// `allowed` says, once. Returns the row of the newest token where it is wanted; `None` as well where the draft is not there yet,
    /// and where there are no hidden states for it.
    ///
    /// # Errors
    /// A model refuses.
    pub(super) fn catch_up(
        &mut self,
        pair: Pair<'_>,
        tokens: &[TokenId],
        wants_row: bool,
        allowed: &mut dyn FnMut(usize) -> usize,
    ) -> Result<Option<Row>, EngineError> {
        let Pair { target, seq, draft, own } = pair;
        let Some(n_pairs) = tokens.len().checked_sub(1).filter(|n| *n > 0) else { return Ok(None) };
        let wanted = tokens.get(self.base + 1..).unwrap_or_default();
        let (common, n_past) = draft.transcript_of(own).map_or((0, 0), |transcript| {
            let most = wanted.len().saturating_sub(usize::from(wants_row));
            (if transcript.is_plain() { transcript.common_prefix(&wanted[..most]) } else { 0 }, transcript.len())
        });
        let mut from = self.base + common;
        if common < n_past && draft.remove(own, common..usize::MAX).is_err() {
            // Rows that it would go back to were evicted.
            draft.reset()?;
            from = self.base;
        }
        let is_other = n_past > 0 && from == self.base;
        if is_other || self.base >= n_pairs {
            (from, self.base) = (0, 0);
        }
        // Without the rows in between it begins where they are known again.
        let n_known = (0..n_pairs).rev().take_while(|&i| target.feature_of(seq, i).is_some()).count();
        if from < n_pairs - n_known {
            from = self.begin_at(n_pairs - n_known, draft, own)?;
        }
        while from < n_pairs {
            let until = from + allowed(n_pairs - from).min(n_pairs - from);
            let rows = (from..until).filter_map(|i| target.feature_of(seq, i));
            let features: Vec<f32> = rows.flatten().copied().collect();
            if until == from {
                return Ok(None);
            }
            match run_plain(draft, own, &tokens[from + 1..=until], &features) {
                // A token that only the target knows, of an image say: the draft begins behind it.
                Err(EngineError::TokenOutOfRange { place, .. }) if from + place + 1 < n_pairs => {
                    from = self.begin_at(from + place + 1, draft, own)?;
                }
                ran => return Ok(ran?.filter(|_| until == n_pairs)),
            }
        }
        Ok(None)
    }

    /// The target's tokens that the draft has, the newest and those before [`base`](Self::base) not counted.
    pub(super) fn reached(&self, draft: &dyn FeatureModel, own: SeqId) -> usize {
        self.base + draft.transcript_of(own).map_or(0, Transcript::len)
    }

    /// The draft's sequence is empty, and its first row will be that of a token; returns where that is.
    fn begin_at(&mut self, base: usize, draft: &mut dyn FeatureModel, own: SeqId) -> Result<usize, EngineError> {
        draft.remove(own, 0..usize::MAX).map(drop).or_else(|_| draft.reset())?;
        self.base = base;
        Ok(base)
    }
}

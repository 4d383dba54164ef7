//! `spd`: a draft model proposes tokens, the target takes them in one step and keeps those that pass.
//!
//! *Rounds*: the draft goes on from where the dialog is for `draft-len` tokens, one at a time; the target processes the last
//! token and the draft at once; the accepted ones and one more are delivered. Greedy replies are those of `basic`, sampled
//! ones have its distribution.
//!
//! *By libGenie's rules* (those of the sampler) drafts have their full length also where the reply ends earlier, and the
//! draft model processes the prompt before the target does and is level with it at the end of each reply. Otherwise it
//! catches up when it is asked, and is asked less where its tokens are rejected.
//!
//! *Back-off*: by measured time where the most likely token is taken; by count where tokens are drawn, since the draws depend on where
//! drafts begin, and a seed must give the same reply again.
//!
//! *Source*: libGenie 1.21, docs/speculation.md.

use std::time::Instant;

use genie_types::TokenId;

use super::backoff::Backoff;
use super::time_budget::TimeBudget;
use super::{DialogKind, Models, VocabularyMap};
use crate::conversation::codes::{SentenceCode, StopReason};
use crate::conversation::decoding::Decoding;
use crate::conversation::drafting::{Draft, is_no_draft, no_second_model};
use crate::conversation::error::DialogError;
use crate::conversation::second::keep_up;
use crate::kpi::Speculation;
use crate::sampler::SamplerRules;

/// Genie's `spd` dialog.
#[derive(Debug)]
pub struct Spd {
    draft_len: usize,
    draft: Draft,
    /// For replies that are drawn.
    backoff: Backoff,
    /// For the others.
    budget: TimeBudget,
    is_always: bool,
    /// The draft model has a vocabulary of its own.
    map: Option<VocabularyMap>,
}

impl Spd {
    /// Drafts of this length; with 0 the target answers alone.
    pub fn new(draft_len: usize) -> Self {
        let (draft, backoff, budget) = (Draft::default(), Backoff::default(), TimeBudget::default());
        Self { draft_len, draft, backoff, budget, is_always: false, map: None }
    }

    /// The same without a back-off: every step verifies a whole draft, whatever that costs.
    #[must_use]
    pub fn always(self) -> Self {
        Self { is_always: true, budget: self.budget.free(), ..self }
    }

    /// The same with a draft model whose ids are others than the target's. A token that it lacks is left out of what it sees.
    #[must_use]
    pub fn with_map(self, map: Option<VocabularyMap>) -> Self {
        Self { map, ..self }
    }
}

impl DialogKind for Spd {
    fn name(&self) -> &'static str {
        "spd"
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        let refuse = |expected: String, found: String| Err(DialogError::Kind { kind: "spd", expected, found });
        if let Some(widest) = models.main.widest_step().filter(|widest| self.draft_len >= *widest) {
            let expected = format!("graphs that give logits for {} tokens at once", self.draft_len.saturating_add(1));
            return refuse(expected, format!("at most {widest}: a `draft-len` of up to {} fits", widest - 1));
        }
        let Some(draft) = models.second else { return Ok(()) };
        let (wanted, found) = (models.main.vocab_size(), draft.vocab_size());
        if let Some(map) = &self.map {
            return map.check("spd", wanted, found);
        }
        if found < wanted {
            let expected = format!("a draft model that knows all {wanted} tokens of the target");
            return refuse(expected, format!("one with a vocabulary of {found}"));
        }
        Ok(())
    }

    fn first_code(&self) -> SentenceCode {
        // libGenie's callback never sees BEGIN.
        SentenceCode::Continue
    }

    fn speculation(&self) -> Option<Speculation> {
        Some(Speculation::OF_DRAFT_MODEL)
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let as_genie = decoding.rules() == SamplerRules::Genie;
        if !decoding.has_started() {
            if as_genie {
                let input = decoding.input().to_vec();
                level(decoding, &input, self.map.as_ref())?;
            }
            return decoding.advance();
        }
        if !as_genie && decoding.reply.sampler.settings().is_argmax() {
            return self.measured_step(decoding);
        }
        if !as_genie && !self.is_always && self.backoff.rests() {
            return decoding.advance();
        }
        let most = if as_genie { decoding.n_left() } else { decoding.n_wanted() }.saturating_sub(1);
        decoding.draft(self.draft_len.min(most), self.map.as_ref(), &mut self.draft)?;
        let verified = decoding.verify_draft(&self.draft)?;
        self.backoff.saw(self.draft.tokens().len(), verified.n_accepted);
        Ok(verified.stop)
    }

    fn prefilled(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        if decoding.rules() == SamplerRules::Genie { level(decoding, &[], self.map.as_ref()) } else { Ok(()) }
    }

    fn finished(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        if decoding.rules() == SamplerRules::Genie { level(decoding, &[], self.map.as_ref()) } else { Ok(()) }
    }

    fn forget(&mut self) {
        self.backoff = Backoff::default();
        self.budget.forget_gains();
    }
}

impl Spd {
    /// A round, or a plain step where the time budget asks for one.
    fn measured_step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let began = Instant::now();
        let Some(n) = self.budget.room(decoding, self.draft_len).filter(|n| *n > 0) else {
            return self.budget.plain_step(began, decoding);
        };
        decoding.draft(n, self.map.as_ref(), &mut self.draft)?;
        let n_drafted = self.draft.tokens().len();
        if n_drafted == 0 {
            return self.budget.plain_step(Instant::now(), decoding);
        }
        let verified = decoding.verify_draft(&self.draft)?;
        self.budget.round(began.elapsed(), n_drafted, verified.n_accepted);
        Ok(verified.stop)
    }
}

/// Brings the draft model to what the target has processed, and to the input that it is about to process.
fn level(decoding: &mut Decoding<'_>, input: &[TokenId], map: Option<&VocabularyMap>) -> Result<(), DialogError> {
    let mut tokens = decoding.processed().to_vec();
    tokens.extend_from_slice(input);
    if let Some(map) = map {
        tokens = map.draft_ids(&tokens);
    }
    let second = decoding.second().ok_or_else(no_second_model)?;
    match keep_up(second, &tokens) {
        // The target meets the same, and says so, or goes on without a draft.
        Err(error) if is_no_draft(&error) => Ok(()),
        done => Ok(done?),
    }
}

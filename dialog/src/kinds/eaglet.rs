//! `eaglet`: drafts of a small model that works on the hidden states of the model that it drafts for.
//!
//! The draft model takes a token together with the hidden states of the token before it: those of the target where the target
//! has processed it, its own where it has only drafted it. From the newest token it grows a tree, level by level: of each
//! level the best nodes run in one step of the draft model, each in a sequence of its own. The best nodes of all levels are
//! offered to the target, which verifies them in one step; what it accepts goes into the draft's cache once more, now with the
//! target's hidden states.
//!
//! *Files*: `tree` says which nodes there are, `growth` how the draft model runs them, `drafter` how it follows a dialog, `served` how it
//! follows several replies beside each other.
//!
//! *Source*: libGenie 1.21, docs/speculation.md; the method is that of Li et al., "EAGLE: speculative sampling requires
//! rethinking feature uncertainty" (2024), and its successors.

mod drafter;
mod following;
mod growth;
mod served;
mod settings;
mod tree;

use std::time::Instant;

use engine::TokenModel;

use super::time_budget::TimeBudget;
use super::{DialogKind, Models, VocabularyMap};
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::kpi::Speculation;
use crate::sampler::SamplerRules;

use drafter::Drafter;
pub use served::{EagletTrees, TreeWish};
pub use settings::EagletSettings;
use settings::NAME;
pub use tree::EarlyStop;

/// Genie's `eaglet` dialog.
#[derive(Debug)]
pub struct Eaglet {
    settings: EagletSettings,
    drafter: Drafter,
    budget: TimeBudget,
    /// The draft model gives logits for other ids than the target; it is fed the target's.
    map: Option<VocabularyMap>,
}

impl Eaglet {
    /// A dialog kind with these settings.
    ///
    /// # Errors
    /// [`DialogError::Kind`]: no levels, no branches, or more nodes at once than a cache has sequences.
    pub fn new(settings: EagletSettings) -> Result<Self, DialogError> {
        settings.check()?;
        let budget = TimeBudget::of_rows(settings.max_rows);
        Ok(Self { settings, drafter: Drafter::default(), budget, map: None })
    }

    /// The same without a back-off: every step verifies a tree, whatever that costs.
    #[must_use]
    pub fn always(self) -> Self {
        Self { budget: self.budget.free(), ..self }
    }

    /// The same with a draft model that gives logits for a vocabulary of its own. Its tokens and embeddings are the target's.
    #[must_use]
    pub fn with_map(self, map: Option<VocabularyMap>) -> Self {
        Self { map, ..self }
    }
}

impl DialogKind for Eaglet {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        self.settings.check_models(self.map.as_ref(), models)
    }

    fn prepare(&mut self, model: &mut dyn TokenModel) -> Result<(), DialogError> {
        match model.features() {
            Some(model) => Ok(model.keep_features(true)?),
            None => Ok(()),
        }
    }

    fn takes_tokens(&self, as_genie: bool) -> bool {
        !as_genie
    }

    fn begins_empty(&self, as_genie: bool) -> bool {
        as_genie
    }

    fn turns_begin_with_bos(&self, as_genie: bool) -> bool {
        as_genie
    }

    fn speculation(&self) -> Option<Speculation> {
        Some(Speculation::OF_HIDDEN_STATES)
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let as_genie = decoding.rules() == SamplerRules::Genie;
        if !decoding.has_started() {
            self.drafter.begin(decoding.model().n_past());
            return decoding.advance();
        }
        let began = Instant::now();
        if !as_genie && (decoding.n_wanted() < 2 || !self.budget.may_draft()) {
            return self.budget.plain_step(began, decoding);
        }
        let Some(tree) = self.drafter.grow(decoding, &self.settings, self.map.as_ref())? else {
            return self.budget.plain_step(Instant::now(), decoding);
        };
        let drafter = &mut self.drafter;
        let verified = decoding.verify_tree(&tree, &mut |draw| {
            drafter.saw(draw.token);
            Ok(())
        })?;
        self.budget.round(began.elapsed(), tree.n_rows() - 1, verified.n_accepted);
        Ok(verified.stop)
    }

    fn prefilled(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        self.drafter.keep_up(decoding)
    }

    fn finished(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        self.drafter.keep_up(decoding)
    }

    fn forget(&mut self) {
        self.drafter = Drafter::default();
        self.budget.forget_gains();
    }
}

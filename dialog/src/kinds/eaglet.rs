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

/// Most sequences beside the dialog's.
const MOST_SEQUENCES: usize = 63;

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
        let EagletSettings { draft_len, n_branches, max_rows, .. } = settings;
        let n_nodes = n_branches.saturating_mul(draft_len.saturating_sub(1));
        if draft_len == 0 || n_branches == 0 || max_rows == 0 || n_nodes > MOST_SEQUENCES {
            let expected = format!(
                "`draft-len`, `n-branches` and `max-tokens-target-can-evaluate` of at least 1, and `n-branches` * (`draft-len` - 1) \
                 of at most {MOST_SEQUENCES}"
            );
            return Err(DialogError::Kind {
                kind: NAME,
                expected,
                found: format!("{draft_len}, {n_branches}, {max_rows}"),
            });
        }
        Ok(Self { settings, drafter: Drafter::default(), budget: TimeBudget::of_rows(max_rows), map: None })
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
        check_models(&self.settings, self.map.as_ref(), models)
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
        Some(Speculation { with_first: true, ..Speculation::default() })
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

/// Refuses models that do not go together.
fn check_models(
    settings: &EagletSettings,
    map: Option<&VocabularyMap>,
    models: &Models<'_>,
) -> Result<(), DialogError> {
    let refuse =
        |expected: &str, found: String| Err(DialogError::Kind { kind: NAME, expected: expected.to_owned(), found });
    let Some(width) = models.main.feature_widths().given else {
        return refuse(
            "a target whose graphs all have an output `last_hidden_states` with a row for each token",
            "one without".into(),
        );
    };
    if let Some(widest) = models.main.widest_step().filter(|widest| settings.max_rows > *widest) {
        let expected = format!("graphs of the target that give logits for {} tokens at once", settings.max_rows);
        return refuse(&expected, format!("at most {widest}: lower `max-tokens-target-can-evaluate`"));
    }
    let Some(draft) = models.second else { return Ok(()) };
    if let Some(map) = map {
        map.check(NAME, models.main.vocab_size(), draft.vocab_size())?;
    }
    let found = draft.feature_widths();
    if (found.taken, found.given) == (Some(width), Some(width)) {
        return Ok(());
    }
    let words = |width: Option<usize>| width.map_or("none".to_owned(), |n| format!("{n} numbers wide"));
    refuse(
        &format!(
            "a draft model with an input `target_hidden_states` and an output `last_hidden_states`, both {width} numbers wide"
        ),
        format!("input {}, output {}", words(found.taken), words(found.given)),
    )
}

//! What an `eaglet` dialog takes from its config.

use super::tree::EarlyStop;
use crate::config::DialogConfig;
use crate::conversation::error::DialogError;
use crate::kinds::{Models, VocabularyMap};

/// Most sequences beside the dialog's.
pub(super) const MOST_SEQUENCES: usize = 63;

/// The kind's name.
pub(super) const NAME: &str = "eaglet";

/// The settings of an `eaglet` dialog.
#[derive(Clone, Debug, PartialEq)]
pub struct EagletSettings {
    /// Levels of the tree.
    pub draft_len: usize,
    /// Most children of a node, and most nodes of a level that have any.
    pub n_branches: usize,
    /// Most tokens of a step of the target: the newest one and the nodes offered.
    pub max_rows: usize,
    /// Ends a tree before its last level.
    pub early_stop: Option<EarlyStop>,
}

impl Default for EagletSettings {
    fn default() -> Self {
        Self { draft_len: 4, n_branches: 3, max_rows: 8, early_stop: None }
    }
}

impl EagletSettings {
    /// The same with no more rows than a step of the target has.
    #[must_use]
    pub fn fitting(self, widest: usize) -> Self {
        Self { max_rows: self.max_rows.min(widest), ..self }
    }

    /// Those of a config's block `eaglet`; the defaults without one.
    pub fn of_config(config: &DialogConfig) -> Self {
        let Some(block) = &config.kind_blocks().eaglet else { return Self::default() };
        Self {
            draft_len: block.draft_len,
            n_branches: block.n_branches,
            max_rows: block.max_tokens_target_can_evaluate,
            early_stop: block
                .early_stop
                .map(|stop| EarlyStop { entropy: stop.entropy_threshold, min_levels: stop.min_draft_levels }),
        }
    }

    /// Most nodes that the draft model runs for a tree.
    pub(super) fn n_nodes(&self) -> usize {
        self.n_branches.saturating_mul(self.draft_len.saturating_sub(1))
    }

    /// Refuses settings that no tree has.
    pub(super) fn check(&self) -> Result<(), DialogError> {
        let EagletSettings { draft_len, n_branches, max_rows, .. } = *self;
        if draft_len == 0 || n_branches == 0 || max_rows == 0 || self.n_nodes() > MOST_SEQUENCES {
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
        Ok(())
    }

    /// Refuses models that do not go together.
    pub(super) fn check_models(&self, map: Option<&VocabularyMap>, models: &Models<'_>) -> Result<(), DialogError> {
        let refuse =
            |expected: &str, found: String| Err(DialogError::Kind { kind: NAME, expected: expected.to_owned(), found });
        let Some(width) = models.main.feature_widths().given else {
            return refuse(
                "a target whose graphs all have an output `last_hidden_states` with a row for each token",
                "one without".into(),
            );
        };
        if let Some(widest) = models.main.widest_step().filter(|widest| self.max_rows > *widest) {
            let expected = format!("graphs of the target that give logits for {} tokens at once", self.max_rows);
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
}

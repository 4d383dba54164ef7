//! What an `eaglet` dialog takes from its config.

use super::tree::EarlyStop;
use crate::config::DialogConfig;

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
}

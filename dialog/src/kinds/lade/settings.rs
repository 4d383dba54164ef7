//! What a `lade` dialog takes from its config.

use super::window::UpdateMode;
use crate::config::DialogConfig;

/// How far and how broadly `lade` looks ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadeSettings {
    /// What the window does when guesses were accepted.
    pub update_mode: UpdateMode,
    /// Columns, at least 1.
    pub window: usize,
    /// Length of the n-grams, at least 2: a guess has one token less.
    pub ngram: usize,
    /// Most guesses for a token.
    pub gcap: usize,
}

impl Default for LadeSettings {
    /// Genie's values where a config has none.
    fn default() -> Self {
        Self { update_mode: UpdateMode::AlwaysForwardOne, window: 8, ngram: 3, gcap: 8 }
    }
}

impl LadeSettings {
    /// Those of a config's block `lade`, Genie's where it has none.
    pub fn of_config(config: &DialogConfig) -> Self {
        let block = config.kind_blocks().lade.clone().unwrap_or_default();
        let default = Self::default();
        Self {
            update_mode: block.update_mode.as_deref().and_then(UpdateMode::from_name).unwrap_or(default.update_mode),
            window: block.window.unwrap_or(default.window),
            ngram: block.ngram.unwrap_or(default.ngram),
            gcap: block.gcap.unwrap_or(default.gcap),
        }
    }

    /// Most rows of a step.
    pub fn n_rows(&self) -> usize {
        self.window.saturating_add(self.gcap).saturating_mul(self.ngram.saturating_sub(1))
    }
}

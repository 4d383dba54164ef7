//! Context shift: where the context is full, the oldest tokens behind the reserved ones go, and the others move up.
//!
//! Positions stay below the context size, so a dialog goes on without end within the positions that the model knows. Keys
//! are turned to their new places, which costs precision; so a good part of the context goes at once, not a token at a
//! time. What the rows that stay were computed from is not changed: they still know of the tokens that went.

use genie_types::TokenId;
use kvmanager::{SeqId, Variants};

use crate::{Engine, EngineConfig, EngineError, Executor, TokenModel};

/// How a full context goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextShift {
    /// Tokens at the beginning that never go.
    pub sinks: usize,
    /// Tokens that go at once, where as many are there; `None` for a quarter of the context.
    pub n_drop: Option<usize>,
}

impl ContextShift {
    /// Refuses what these graphs cannot do. `keys_turn`: their positions are rotary.
    pub(crate) fn check(
        config: &EngineConfig,
        variants: &Variants,
        keys_turn: bool,
    ) -> Result<Option<Self>, EngineError> {
        let Some(shift) = config.context_shift else { return Ok(None) };
        let bad = |expected, found: String| Err(EngineError::Config { what: "context shift", expected, found });
        let limit = variants.limit();
        if variants.groups()[0].evicts() {
            return bad("a default cache group that keeps everything", "one that drops rows by itself".into());
        }
        if !keys_turn {
            return bad("graphs with rotary positions, whose keys can be turned", "graphs without".into());
        }
        if variants.is_full_context_only() {
            return bad("graphs with a past", "graphs that process the whole dialog each time".into());
        }
        let moved = shift.sinks.saturating_add(shift.n_drop.unwrap_or(1).max(1));
        if moved > limit.max(1) - 1 {
            let found = format!("{} reserved tokens and {} to drop", shift.sinks, shift.n_drop.unwrap_or(1));
            return bad("fewer reserved and dropped tokens than the context holds", format!("{found} of {limit}"));
        }
        Ok(Some(shift))
    }
}

impl<X: Executor> Engine<X> {
    /// See [`TokenModel::make_room`].
    pub(crate) fn shift_for(&mut self, tokens: &[TokenId]) -> Result<usize, EngineError> {
        let Some(ContextShift { sinks, n_drop }) = self.context_shift else { return Ok(0) };
        let at_once = n_drop.unwrap_or(self.kv.variants().limit() / 4).max(1);
        let mut n_done = 0;
        loop {
            let (fits, left) = (self.admission().n_fit, tokens.len() - n_done);
            if left <= fits {
                return Ok(n_done);
            }
            let (lacking, may_go) = (left - fits, self.n_past().saturating_sub(sinks));
            if lacking <= may_go {
                self.shift_out(SeqId(0), sinks, at_once.max(lacking).min(may_go))?;
                continue;
            }
            // More than the context holds beside the reserved tokens: its beginning is processed, and goes in its turn.
            if may_go > 0 {
                self.shift_out(SeqId(0), sinks, at_once.min(may_go))?;
            }
            let part = self.admission().n_fit.min(left - 1);
            if part == 0 {
                // Rows of other sequences fill the cache; the caller's own call says so.
                return Ok(n_done);
            }
            self.prefill(&tokens[n_done..n_done + part]).map_err(|error| match error {
                EngineError::Stopped { n_processed, .. } => {
                    EngineError::Stopped { n_processed: n_done + n_processed, n_new: tokens.len() }
                }
                error => error,
            })?;
            n_done += part;
        }
    }
}

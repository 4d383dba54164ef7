//! The seam between tokens and everything below: what a dialog needs of a model.

use genie_types::TokenId;
use kvmanager::Admission;
use session_store::{CacheSchema, Snapshot};

use crate::{EngineError, StepLog};

/// A model with a cache: tokens in, logits out. [`Engine`](crate::Engine) is one; tests of the layers above have theirs.
///
/// *Units*: tokens; logits are f32, one for each vocabulary entry. A call that fails leaves `n_past` as it was, unless its
/// error says otherwise.
pub trait TokenModel {
    /// Entries of the vocabulary, by the logits of the graphs.
    fn vocab_size(&self) -> usize;

    /// Most tokens a dialog may hold.
    fn context_size(&self) -> usize;

    /// Tokens processed so far.
    fn n_past(&self) -> usize;

    /// Processes new tokens and answers the logits of the last.
    ///
    /// # Errors
    ///
    /// [`EngineError::NoTokens`], [`EngineError::TokenOutOfRange`], [`EngineError::ContextExceeded`] before anything
    /// runs; [`EngineError::Execute`], [`EngineError::NotFinite`] and cache errors.
    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError>;

    /// Processes new tokens and wants no logits; no tokens are fine.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError>;

    /// Processes new tokens and hands out the logits of each, by its place in `tokens`.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    fn process_rows(&mut self, tokens: &[TokenId], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), EngineError> {
        for (place, token) in tokens.iter().enumerate() {
            each(place, self.process(std::slice::from_ref(token))?);
        }
        Ok(())
    }

    /// Forgets all tokens from `n_past` on.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if `n_past` lies ahead, or if the rows before it are gone.
    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError>;

    /// Forgets all tokens and clears the cache. The step log stays.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] if a worker thread is gone.
    fn reset(&mut self) -> Result<(), EngineError>;

    /// How many tokens can still be taken, and what stops the next; `None` if the model does not know.
    fn admission(&self) -> Option<Admission> {
        None
    }

    /// What a saved cache must match to be restored here.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`]; [`EngineError::Unsupported`] for a model that cannot be saved.
    fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        Err(EngineError::Unsupported { what: "saving this model".into(), hint: "" })
    }

    /// The cache with its tokens as plain values.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`]; [`EngineError::Unsupported`] for a model that cannot be saved.
    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Err(EngineError::Unsupported { what: "saving this model".into(), hint: "" })
    }

    /// Replaces cache and tokens by a snapshot's.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`] and others: nothing has changed.
    fn restore_snapshot(&mut self, _snapshot: &Snapshot) -> Result<(), EngineError> {
        Err(EngineError::Unsupported { what: "restoring this model".into(), hint: "" })
    }

    /// The graphs executed so far, in order.
    fn steps(&self) -> &StepLog;
}

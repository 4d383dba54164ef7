//! Prompt prefixes kept on disk, so that a new dialog does not process a known beginning again.

use genie_types::TokenId;
use session_store::PrefixStore;

use crate::{EngineError, TokenModel};

/// A store of prefixes and the rule of which ones are kept: at `min_tokens`, at twice as many and so on, and at the
/// prompt's end. Whoever processes the first prompt of a dialog asks it instead of the model.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    store: PrefixStore,
    min_tokens: usize,
}

impl PrefixCache {
    /// Keeps prefixes of at least `min_tokens` in a store that was opened with the model's hash.
    pub fn new(store: PrefixStore, min_tokens: usize) -> Self {
        Self { store, min_tokens: min_tokens.max(1) }
    }

    /// Processes a prompt and returns the logits of its last token. A model that has tokens already, and a prompt that is
    /// too short or too long to be kept, are processed as without a cache.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; an empty model is then empty again, except after [`EngineError::Stopped`], where the
    /// tokens processed so far stay and are stored. A store that fails is only slower.
    pub fn process(&self, model: &mut dyn TokenModel, prompt: &[TokenId]) -> Result<Vec<f32>, EngineError> {
        self.run(model, prompt, |model, rest| Ok(model.process(rest)?.to_vec()))
    }

    /// Processes a prompt whose logits are not wanted.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    pub fn prefill(&self, model: &mut dyn TokenModel, prompt: &[TokenId]) -> Result<(), EngineError> {
        self.run(model, prompt, |model, rest| model.prefill(rest))
    }

    fn run<T>(
        &self,
        model: &mut dyn TokenModel,
        prompt: &[TokenId],
        last: impl Fn(&mut dyn TokenModel, &[TokenId]) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        if model.n_past() > 0 || prompt.len() < self.min_tokens || prompt.len() > model.context_size() {
            return last(model, prompt);
        }
        let done = self.run_from_prefix(model, prompt, last);
        match done {
            // What was processed before a stop is a prefix like any other.
            Err(EngineError::Stopped { .. }) => {
                if model.n_past() >= self.min_tokens {
                    self.keep(model);
                }
                done
            }
            Err(e) if model.n_past() > 0 => Err(model.reset().err().unwrap_or(e)),
            done => done,
        }
    }

    fn run_from_prefix<T>(
        &self,
        model: &mut dyn TokenModel,
        prompt: &[TokenId],
        last: impl Fn(&mut dyn TokenModel, &[TokenId]) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let found = self.restore_longest(model, prompt);
        let mut at = found;
        // The last token is processed in any case: its logits are wanted.
        if at == prompt.len() {
            at -= 1;
            model.rewind(at)?;
        }
        let lengths = std::iter::successors(Some(self.min_tokens), |n| n.checked_mul(2));
        for n in lengths.take_while(|&n| n < prompt.len()).filter(|&n| n > found) {
            model.prefill(&prompt[at..n])?;
            at = n;
            self.keep(model);
        }
        let result = last(model, &prompt[at..])?;
        if found < prompt.len() {
            self.keep(model);
        }
        Ok(result)
    }

    /// Restores the longest stored prefix and returns its length; a store that fails is only slower.
    fn restore_longest(&self, model: &mut dyn TokenModel, prompt: &[TokenId]) -> usize {
        match self.store.find(prompt, self.min_tokens) {
            Ok(None) => 0,
            Ok(Some(snapshot)) => match model.restore_snapshot(&snapshot) {
                Ok(()) => snapshot.tokens().len(),
                Err(error) => {
                    tracing::warn!(%error, "a stored prefix does not fit");
                    0
                }
            },
            Err(error) => {
                tracing::warn!(%error, "the prefix store cannot be read");
                0
            }
        }
    }

    fn keep(&self, model: &mut dyn TokenModel) {
        match model.snapshot().and_then(|snapshot| Ok(self.store.insert(&snapshot)?)) {
            Ok(true) => {}
            Ok(false) => tracing::warn!("the prefix is larger than the whole store"),
            Err(error) => tracing::warn!(%error, "the prefix was not stored"),
        }
    }
}

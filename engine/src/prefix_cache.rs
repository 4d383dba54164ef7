//! Prompt prefixes kept on disk, so that a new dialog does not process a known beginning again.
//!
//! *Invariant*: the cache only makes prompts faster. A store that fails is left aside from then on, and the first failure is
//! kept for the caller to tell ([`PrefixCache::fault`]).

use std::sync::{Arc, OnceLock};

use genie_types::TokenId;
use kvmanager::SeqId;
use session_store::{PrefixStore, Snapshot, StoreError};

use crate::{EngineError, TokenModel};

/// A store of prefixes and the rule of which ones are kept: at `min_tokens`, at twice as many and so on, and at the
/// prompt's end. Whoever processes the first prompt of a dialog asks it instead of the model.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    store: PrefixStore,
    min_tokens: usize,
    fault: Arc<OnceLock<PrefixCacheFault>>,
}

/// Why prompts are processed without the prefix cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixCacheFault {
    /// The folder cannot be read.
    #[error("the prefix cache cannot be read")]
    Read(#[source] StoreError),
    /// A stored prefix is not accepted by the model.
    #[error("a prefix in the prefix cache does not fit the model")]
    Restore(#[source] EngineError),
    /// A prefix cannot be stored.
    #[error("the prompt's prefixes cannot be stored in the prefix cache")]
    Store(#[source] EngineError),
    /// A prefix takes more bytes than the whole store may.
    #[error("a prefix of {n_tokens} tokens takes more than the {max_bytes} bytes that the prefix cache may")]
    TooLarge {
        /// Tokens of the prefix.
        n_tokens: usize,
        /// The store's limit.
        max_bytes: u64,
    },
}

/// What came of a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FromPrefix<T> {
    /// The model's answer.
    pub value: T,
    /// Tokens at the prompt's beginning that were restored and not processed.
    pub n_restored: usize,
}

impl PrefixCache {
    /// Keeps prefixes of at least `min_tokens` in a store that was opened with the model's hash.
    pub fn new(store: PrefixStore, min_tokens: usize) -> Self {
        Self { store, min_tokens: min_tokens.max(1), fault: Arc::default() }
    }

    /// The store, and the fewest tokens of a prefix that is kept.
    pub fn into_parts(self) -> (PrefixStore, usize) {
        (self.store, self.min_tokens)
    }

    /// The first failure of the store, after which it is not asked any more.
    pub fn fault(&self) -> Option<&PrefixCacheFault> {
        self.fault.get()
    }

    /// Processes a prompt and returns the logits of its last token. A model that has tokens already, and a prompt that is
    /// too short or too long to be kept, are processed as without a cache.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; an empty model is then empty again, except after [`EngineError::Stopped`], where the
    /// tokens processed so far stay and are stored. A store that fails is only slower.
    pub fn process(&self, model: &mut dyn TokenModel, prompt: &[TokenId]) -> Result<FromPrefix<Vec<f32>>, EngineError> {
        self.run(model, prompt, |model, rest| Ok(model.process(rest)?.to_vec()))
    }

    /// Processes a prompt whose logits are not wanted.
    ///
    /// # Errors
    ///
    /// As [`process`](Self::process).
    pub fn prefill(&self, model: &mut dyn TokenModel, prompt: &[TokenId]) -> Result<FromPrefix<()>, EngineError> {
        self.run(model, prompt, |model, rest| model.prefill(rest))
    }

    fn run<T>(
        &self,
        model: &mut dyn TokenModel,
        prompt: &[TokenId],
        last: impl Fn(&mut dyn TokenModel, &[TokenId]) -> Result<T, EngineError>,
    ) -> Result<FromPrefix<T>, EngineError> {
        // An id beyond the vocabulary stands for a row of embeddings, and for another one in another run.
        let plain = prompt.iter().all(|token| (token.0 as usize) < model.vocab_size());
        let fits = plain && prompt.len() >= self.min_tokens && prompt.len() <= model.context_size();
        if model.n_past() > 0 || !fits || self.fault().is_some() {
            return Ok(FromPrefix { value: last(model, prompt)?, n_restored: 0 });
        }
        // Rows that adapters had a part in are theirs alone, as are those that a rule for long contexts has left.
        let store = self.store.with_adapters(&model.lora_label()).with_settings(&model.cache_settings());
        let this = Self { store, ..self.clone() };
        let done = this.run_from_prefix(model, prompt, last);
        match done {
            // What was processed before a stop is a prefix like any other.
            Err(EngineError::Stopped { .. }) => {
                if model.n_past() >= self.min_tokens {
                    this.keep(model);
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
    ) -> Result<FromPrefix<T>, EngineError> {
        let found = self.restore_longest(model, prompt);
        let mut at = found;
        // The last token is processed in any case: its logits are wanted.
        if at == prompt.len() {
            at -= 1;
            // What the token before the last needs may have been dropped by long context.
            if model.rewind(at).is_err() {
                model.reset()?;
                at = self.restore_longest(model, &prompt[..at]);
            }
        }
        let n_restored = at;
        let lengths = std::iter::successors(Some(self.min_tokens), |n| n.checked_mul(2));
        for n in lengths.take_while(|&n| n < prompt.len()).filter(|&n| n > found) {
            model.prefill(&prompt[at..n])?;
            at = n;
            self.keep(model);
        }
        let value = last(model, &prompt[at..])?;
        if found < prompt.len() {
            self.keep(model);
        }
        Ok(FromPrefix { value, n_restored })
    }

    /// Restores the longest stored prefix and returns its length; a store that fails is only slower.
    fn restore_longest(&self, model: &mut dyn TokenModel, prompt: &[TokenId]) -> usize {
        match self.store.find(prompt, self.min_tokens) {
            Ok(None) => 0,
            Ok(Some(snapshot)) => match restore(model, &snapshot) {
                Ok(()) => snapshot.tokens().len(),
                Err(error) => self.leave_aside(PrefixCacheFault::Restore(error)),
            },
            Err(error) => self.leave_aside(PrefixCacheFault::Read(error)),
        }
    }

    /// The dialog alone, as other sequences are no part of a prefix.
    fn keep(&self, model: &mut dyn TokenModel) {
        if self.fault().is_some() {
            return;
        }
        let snapshot = match model.sequences() {
            Some(sequences) => sequences.snapshot_of(SeqId(0)),
            None => model.snapshot(),
        };
        match snapshot.and_then(|snapshot| Ok((self.store.insert(&snapshot)?, snapshot.tokens().len()))) {
            Ok((true, _)) => {}
            Ok((false, n_tokens)) => {
                let max_bytes = self.store.max_bytes();
                self.leave_aside(PrefixCacheFault::TooLarge { n_tokens, max_bytes });
            }
            Err(error) => {
                self.leave_aside(PrefixCacheFault::Store(error));
            }
        }
    }

    /// Keeps the first fault; returns that nothing was restored.
    fn leave_aside(&self, fault: PrefixCacheFault) -> usize {
        tracing::debug!(%fault, "the prefix cache is left aside");
        let _ = self.fault.set(fault); // a later one changes nothing
        0
    }
}

/// The dialog's sequence, beside those that its kind may have.
fn restore(model: &mut dyn TokenModel, snapshot: &Snapshot) -> Result<(), EngineError> {
    match model.sequences() {
        Some(sequences) => sequences.restore_sequence(SeqId(0), snapshot),
        None => model.restore_snapshot(snapshot),
    }
}

//! Rows that are there already: of requests that are over and of those that run, and of a store of prefixes.
//!
//! *Invariant*: what is found is only less to process; a store that fails is left aside, and the first failure is kept. One that another
//! process has locked, or rows that there is no room for, are no failure.

use engine::{SeqId, SequenceModel, Snapshot, Transcript};
use genie_types::TokenId;
use session_store::{PrefixStore, StoreError};

/// Fewer tokens in common are not worth a shared row.
const LEAST_SHARED: usize = 4;

/// The sequence that begins most like a prompt, and how many tokens they have in common; the last one of the prompt is processed in
/// any case.
pub(crate) fn longest(
    model: &dyn SequenceModel,
    seqs: impl Iterator<Item = SeqId>,
    prompt: &[TokenId],
) -> Option<(SeqId, usize)> {
    let most = prompt.len().saturating_sub(1);
    let found = seqs.filter_map(|seq| {
        let transcript = model.transcript_of(seq).filter(|transcript| Transcript::is_plain(transcript))?;
        Some((seq, transcript.common_prefix(&prompt[..most])))
    });
    found.max_by_key(|(_, n)| *n).filter(|(_, n)| *n >= LEAST_SHARED.min(most.max(1)))
}

/// A store of prefixes on disk.
#[derive(Debug)]
pub(crate) struct StoredPrefixes {
    store: PrefixStore,
    min_tokens: usize,
    fault: Option<String>,
}

impl StoredPrefixes {
    pub(crate) fn new(store: PrefixStore, min_tokens: usize) -> Self {
        Self { store, min_tokens: min_tokens.max(1), fault: None }
    }

    /// Why the store is no longer asked.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn of(&self, model: &dyn SequenceModel) -> PrefixStore {
        self.store.with_adapters(&model.lora_label()).with_settings(&model.cache_settings())
    }

    /// The longest stored prefix of a prompt with more than `better_than` tokens.
    pub(crate) fn find(
        &mut self,
        model: &dyn SequenceModel,
        prompt: &[TokenId],
        better_than: usize,
    ) -> Option<Snapshot> {
        let fits = prompt.len() >= self.min_tokens && prompt.len() <= model.context_size();
        if self.fault.is_some() || !fits {
            return None;
        }
        let found = self.of(model).find(prompt, self.min_tokens.max(better_than + 1));
        found.unwrap_or_else(|error| {
            self.leave_aside(&error);
            None
        })
    }

    /// Keeps the rows of a prompt that was just processed.
    pub(crate) fn keep(&mut self, model: &mut dyn SequenceModel, seq: SeqId, n_prompt: usize) {
        if self.fault.is_some() || n_prompt < self.min_tokens {
            return;
        }
        if model.transcript_of(seq).is_some_and(|transcript| self.of(model).touch(transcript.tokens())) {
            return;
        }
        let snapshot = match model.snapshot_of(seq) {
            Ok(snapshot) => snapshot,
            Err(error) => return self.leave_aside(&error),
        };
        // Replies wait meanwhile: a lock is not waited for.
        match self.of(model).try_insert(&snapshot) {
            Ok(true) => {}
            Ok(false) => {
                let max_bytes = self.store.max_bytes();
                tracing::warn!(
                    n_prompt,
                    max_bytes,
                    "a prompt is not kept: it is larger than the whole store of prefixes"
                );
            }
            // Another process writes: this prompt is kept the next time.
            Err(error @ StoreError::Locked { .. }) => tracing::info!(%error, "a prompt is not kept"),
            Err(error) => self.leave_aside(&error),
        }
    }

    /// Does without the store from now on.
    pub(crate) fn leave_aside(&mut self, fault: &dyn std::error::Error) {
        tracing::warn!(%fault, "the store of prefixes is left aside");
        self.fault = Some(fault.to_string());
    }
}

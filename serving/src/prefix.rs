//! Rows that are there already: of requests that are over and of those that run, and of a store of prefixes.
//!
//! *Invariant*: what is found is only less to process; a store that fails is left aside, and the first failure is kept.

use engine::{EngineError, SeqId, SequenceModel, Transcript};
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
    let common = |transcript: &Transcript| {
        transcript.tokens().iter().zip(&prompt[..most]).take_while(|(own, wanted)| own == wanted).count()
    };
    let found = seqs.filter_map(|seq| {
        let transcript = model.transcript_of(seq).filter(|transcript| transcript.is_plain())?;
        Some((seq, common(transcript)))
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
        self.store.with_adapters(&model.lora_label())
    }

    /// Restores the longest stored prefix with more than `better_than` tokens into an empty sequence; returns how many tokens the
    /// sequence then has.
    pub(crate) fn restore(
        &mut self,
        model: &mut dyn SequenceModel,
        seq: SeqId,
        prompt: &[TokenId],
        better_than: usize,
    ) -> usize {
        let fits = prompt.len() >= self.min_tokens && prompt.len() <= model.context_size();
        if self.fault.is_some() || !fits {
            return 0;
        }
        let done =
            self.of(model).find(prompt, self.min_tokens.max(better_than + 1)).map_err(Fault::Store).and_then(|found| {
                let Some(snapshot) = found else { return Ok(0) };
                model.restore_sequence(seq, &snapshot)?;
                let n = snapshot.tokens().len();
                let most = prompt.len() - 1;
                if n > most {
                    model.remove(seq, most..usize::MAX)?;
                }
                Ok(n.min(most))
            });
        done.unwrap_or_else(|fault| self.leave_aside(&fault))
    }

    /// Keeps the rows of a prompt that was just processed.
    pub(crate) fn keep(&mut self, model: &mut dyn SequenceModel, seq: SeqId, n_prompt: usize) {
        if self.fault.is_some() || n_prompt < self.min_tokens {
            return;
        }
        let done = model
            .snapshot_of(seq)
            .map_err(Fault::from)
            .and_then(|snapshot| self.of(model).insert(&snapshot).map_err(Fault::Store).map(|_| 0));
        if let Err(fault) = done {
            self.leave_aside(&fault);
        }
    }

    fn leave_aside(&mut self, fault: &Fault) -> usize {
        tracing::warn!(%fault, "the store of prefixes is left aside");
        self.fault = Some(fault.to_string());
        0
    }
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Store(StoreError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

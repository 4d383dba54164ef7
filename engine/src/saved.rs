//! The cache with its sequences as a [`Snapshot`], and back. Files are `session-store`'s.
//!
//! *Invariant*: whatever is refused, the live cache is as it was.

use std::path::PathBuf;

use kvmanager::{Overflow, SeqId};
use session_store::{CacheSchema, ModelHash, SavedSequence, SavedToken, Snapshot};

use crate::transcript::Transcript;
use crate::{Engine, EngineConfig, EngineError, Executor};

/// Which model this is: the configuration's hash, else one of the binaries, computed when it is first asked for.
#[derive(Debug)]
pub(crate) struct ModelIdentity {
    hash: Option<ModelHash>,
    bundle: String,
    ctx_bins: Vec<PathBuf>,
}

impl ModelIdentity {
    pub(crate) fn new(config: &EngineConfig) -> Self {
        Self { hash: config.model_hash, bundle: config.bundle_name.clone(), ctx_bins: config.ctx_bins.clone() }
    }

    /// The configuration's hash, else that of the binaries.
    pub(crate) fn hash(&mut self) -> Result<ModelHash, session_store::StoreError> {
        if let Some(hash) = self.hash {
            return Ok(hash);
        }
        let hash = ModelHash::of_binaries(&self.ctx_bins)?;
        Ok(*self.hash.insert(hash))
    }

    /// The bundle's name, for messages.
    pub(crate) fn bundle(&self) -> &str {
        &self.bundle
    }
}

impl<X: Executor> Engine<X> {
    /// Identifies the model in saved caches: the configuration's hash, else lengths and samples of the binaries.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`] if a binary cannot be read.
    pub fn model_hash(&mut self) -> Result<ModelHash, EngineError> {
        Ok(self.identity.hash()?)
    }

    /// What a saved cache must match to be restored here.
    ///
    /// # Errors
    ///
    /// As [`model_hash`](Self::model_hash); [`EngineError::Kv`].
    pub fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        Ok(CacheSchema { model: self.model_hash()?, tensors: self.kv.geometry()? })
    }

    /// The cache with all sequences and their tokens.
    ///
    /// # Errors
    ///
    /// [`EngineError::Kv`] for a cache without rows (AR == CL).
    pub fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        // Their positions are not in a saved dialog.
        self.check_no_grids("saving")?;
        if self.lockstep.is_some() {
            self.check_no_batch("saving several prompts")?;
        }
        let model = self.model_hash()?;
        let image = self.kv.export()?;
        let sequences = self.sequences.all().iter().enumerate().filter(|(_, transcript)| !transcript.is_empty());
        let sequences = sequences.map(|(seq, transcript)| {
            let token = |(i, (token, position))| SavedToken { token, position, generated: transcript.is_generated(i) };
            SavedSequence { seq: SeqId(seq as u8), tokens: transcript.entries().enumerate().map(token).collect() }
        });
        let (sequences, bundle) = (sequences.collect(), self.identity.bundle.clone());
        let adapters = Some(self.lora_label());
        Ok(Snapshot { model, image, sequences, bundle, adapters, ..Snapshot::default() })
    }

    /// Replaces cache and sequences by a snapshot's.
    ///
    /// # Errors
    ///
    /// [`EngineError::Saved`], [`EngineError::Kv`], [`EngineError::TokenOutOfRange`], [`EngineError::Overflow`]
    /// for another model's, or one that is too long or contradicts itself.
    pub fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        let mut transcripts = vec![Transcript::default(); SeqId::COUNT];
        for saved in &snapshot.sequences {
            let transcript = &mut transcripts[usize::from(saved.seq.0)];
            for (i, token) in saved.tokens.iter().enumerate() {
                transcript.push(token.token, token.position);
                if token.generated {
                    transcript.mark_generated(i);
                }
            }
            // Rows of embeddings are not saved; what the cache has of them is.
            let rows = self.graphs.writers.extra.as_ref();
            let known = transcript.tokens().iter().enumerate();
            let mut known = known.filter(|(_, token)| rows.is_none_or(|rows| !rows.is_extra(**token)));
            known.try_for_each(|(_, token)| self.check_tokens(std::slice::from_ref(token)))?;
        }
        // Tokens, not positions: a shift may have led beyond the limit.
        let n_tokens = snapshot.sequences.iter().map(|saved| saved.tokens.len()).max().unwrap_or(0);
        let limit = self.kv.variants().limit();
        if n_tokens > limit {
            return Err(Overflow::ContextExceeded { n_past: 0, n_new: n_tokens, limit }.into());
        }
        snapshot.check_model(self.model_hash()?)?;
        if !self.as_genie() {
            snapshot.check_adapters(&self.lora_label())?;
        }
        self.kv.import(&snapshot.image)?;
        self.graphs.writers.grids.truncate(0);
        if let Some(rows) = &mut self.graphs.writers.extra {
            transcripts.iter().flat_map(Transcript::tokens).for_each(|token| rows.leave_out(*token));
        }
        self.sequences.replace(transcripts);
        self.lockstep = None;
        Ok(())
    }
}

//! The cache with its sequences as a [`Snapshot`], and back. Files are `session-store`'s.
//!
//! *Invariant*: whatever is refused, the live cache is as it was.

use std::path::PathBuf;

use genie_types::{RopeConfig, RopeScaling};
use kvmanager::{Eviction, KvError, Overflow, SeqId};
use session_store::{CacheSchema, ModelHash, SavedSequence, SavedToken, Snapshot};

use crate::transcript::Transcript;
use crate::{Engine, EngineConfig, EngineError, Executor};

/// Which model this is: the configuration's hash, else one of the binaries, computed when it is first asked for.
#[derive(Debug)]
pub(crate) struct ModelIdentity {
    hash: Option<ModelHash>,
    /// Keys are turned by the factors of `longrope` for long contexts: other rows than those of a short context.
    long_factors: bool,
    bundle: String,
    ctx_bins: Vec<PathBuf>,
}

impl ModelIdentity {
    /// `limit`: the longest context of the graphs.
    pub(crate) fn new(config: &EngineConfig, limit: usize) -> Self {
        let size = config.context_size.unwrap_or(limit);
        let is_long = |rope: &RopeConfig| match &rope.scaling {
            Some(RopeScaling::LongRope(factors)) => size as f64 > factors.original_max_position,
            _ => false,
        };
        let mut ropes = config.rope.iter().chain(config.prefixed_ropes.iter().map(|(_, rope)| rope));
        Self {
            hash: config.model_hash,
            long_factors: ropes.any(is_long),
            bundle: config.bundle_name.clone(),
            ctx_bins: config.ctx_bins.clone(),
        }
    }

    /// The configuration's hash, else that of the binaries.
    pub(crate) fn hash(&mut self) -> Result<ModelHash, session_store::StoreError> {
        let hash = match self.hash {
            Some(hash) => hash,
            None => *self.hash.insert(ModelHash::of_binaries(&self.ctx_bins)?),
        };
        Ok(if self.long_factors { hash.with_other_rope_factors() } else { hash })
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

    /// The rules by which groups of the cache drop rows; empty where none does.
    pub fn cache_settings(&self) -> String {
        let rules = self.kv.variants().groups().iter().filter(|group| group.evicts());
        rules.map(|group| format!("{:?};", group.long)).collect()
    }

    /// Refuses an image without rows that this cache never drops: it was saved under a rule that does.
    fn check_rows(&self, snapshot: &Snapshot) -> Result<(), EngineError> {
        for (at, (group, saved)) in self.kv.variants().groups().iter().zip(&snapshot.image.groups).enumerate() {
            for sequence in snapshot.sequences.iter().filter(|_| group.long == Eviction::None) {
                let (bit, n_tokens) = (sequence.seq.bit(), sequence.tokens.len());
                let found = saved.cells.iter().filter(|cell| cell.seqs & bit != 0).count();
                if found < n_tokens {
                    let why = format!(
                        "group {at} has rows of {found} of {n_tokens} tokens: it was saved under another rule for long contexts"
                    );
                    return Err(KvError::Foreign { why }.into());
                }
            }
        }
        Ok(())
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
        self.check_rows(snapshot)?;
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

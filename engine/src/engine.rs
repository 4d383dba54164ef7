//! A loaded model with its cache, and what it reports of itself. The loop is in `run`, one step in `graphs`, the cache's
//! operations in `sequences`.

use std::ops::Range;
use std::sync::Arc;

use genie_types::TokenId;
use kvmanager::{
    Admission, KeyDiff, KeyScorer, KvCache, KvOptions, LogitsRequest, ModeKind, Policy, SeqId, Variants, admit,
};
use nsp_graph::ModelLayout;
use session_store::{CacheSchema, Snapshot};

use crate::cache;
use crate::cache_memory::CacheMemory;
use crate::config::EngineConfig;
use crate::dump::Dump;
use crate::executor::Executor;
use crate::extra_rows::ExtraRows;
use crate::features::{FeatureModel, FeatureWidths, Features};
use crate::graphs::Graphs;
use crate::grids::Grid;
use crate::head::Head;
use crate::head_weight;
use crate::input_writer::InputWriters;
use crate::io::{BufferRole, IoBuffers};
use crate::lockstep::Lockstep;
use crate::lora::Lora;
use crate::model::no_embeddings;
use crate::positions;
use crate::quant::QuantParams;
use crate::run::{Scratch, SeqTokens};
use crate::saved::ModelIdentity;
use crate::transcript::{Sequences, Transcript};
use crate::{
    ChoosePaths, ContextShift, EngineError, GroupCells, LoraModel, QnnExecutor, RowBudget, SeqRows, SeqTree,
    SequenceModel, StepLog, StopFlag, TokenModel,
};

/// Tokens of most dialogs: what lists of tokens and steps have room for from the start. A context may have any number.
const USUAL_TOKENS: usize = 1 << 16;

/// A loaded model with its cache.
///
/// *Invariant*: `sequences` holds the tokens whose rows are in the cache.
#[derive(Debug)]
pub struct Engine<X = QnnExecutor> {
    pub(crate) graphs: Graphs<X>,
    pub(crate) kv: KvCache,
    pub(crate) sequences: Sequences,
    /// Whose tokens the slots hold, where sequences are rows of a batch.
    pub(crate) lockstep: Option<Lockstep>,
    pub(crate) policy: Policy,
    pub(crate) context_shift: Option<ContextShift>,
    pub(crate) scratch: Scratch,
    pub(crate) vocab_size: usize,
    pub(crate) identity: ModelIdentity,
    pub(crate) lora: Lora,
    pub(crate) stop: StopFlag,
}

impl<X: Executor> Engine<X> {
    /// Puts a layout and its executor together. `select_graphs` of the configuration is not looked at, and of `ctx_bins` only the
    /// folders, for weights that are inputs.
    ///
    /// # Errors
    ///
    /// Settings that do not fit the graphs; graphs that need what this engine cannot do.
    pub fn with_executor(layout: ModelLayout, executor: X, config: &EngineConfig) -> Result<Self, EngineError> {
        if let Some(n) = config.batch_size.filter(|n| *n != layout.batch) {
            let found = format!("{n}, and the graphs have {}", layout.batch);
            return Err(EngineError::Config {
                what: "batch-size",
                expected: "the batch dimension of the graphs",
                found,
            });
        }
        let groups = cache::groups(&layout, config)?;
        let variants = Variants::with_groups(layout.variants.iter().copied(), groups, config.context_size)?;
        let gives = |variant| layout.variant_index(variant).is_some_and(|index| layout.gives_logits[index]);
        let variants = variants.giving_logits(gives)?;
        let limit = variants.limit();
        positions::check(&layout, config)?;
        let options = KvOptions {
            mode: cache::mode(&layout, config.kv_mode)?,
            n_threads: config.n_threads,
            holes: config.holes,
            rope: positions::key_rotation(&layout, config, limit),
            scorer: config.anchor_alpha.map(|alpha| Box::new(KeyDiff::running(alpha)) as _),
            memory: config.shared_memory.as_ref().map(|memory| Arc::new(CacheMemory(memory.clone())) as _),
            ..KvOptions::default()
        };
        let context_shift = ContextShift::check(config, &variants, options.rope.is_some())?;
        let kv = KvCache::new(&cache::geometry(&layout), variants, options)?;
        let mut io = IoBuffers::new(&layout, config.shared_memory.as_ref(), config.data_alignment)?;
        head_weight::load(&layout, &mut io, config)?;
        let mut writers = InputWriters::new(&layout, &io, config, &kv)?;
        for wanted in io.roles() {
            if let BufferRole::Logits(dtype, quant) = wanted
                && QuantParams::of(*dtype, quant).is_none()
            {
                return Err(EngineError::Unsupported { what: format!("a model with {dtype} logits"), hint: "" });
            }
        }
        let lora = Lora::new(config.lora.clone(), &layout, &mut io, matches!(config.policy, Policy::Genie))?;
        let features = Features::new(&layout, &io)?;
        // A model that drafts may draw from fewer tokens than it is fed.
        let most = if layout.features_in.is_some() { usize::MAX } else { layout.vocab_size };
        let vocab_size = writers.n_embeddings().map_or(layout.vocab_size, |n| n.min(most));
        if config.pad_token.0 as usize >= vocab_size {
            return Err(EngineError::PadToken { found: config.pad_token, vocab_size });
        }
        let infos = || layout.splits.iter().flat_map(|s| s.graphs.iter().map(|g| &g.info));
        let dump = config.dump.as_ref().map(|dump| Dump::new(dump, infos(), writers.rope_tables(&layout, &io)));
        let graphs = infos().map(|g| g.name.clone());
        let usual = limit.min(USUAL_TOKENS);
        let log = StepLog::new(graphs.collect(), (usual + 64) * layout.splits.len());
        let log_base = layout.splits.iter().scan(0, |base, split| {
            let here = *base;
            *base += split.graphs.len();
            Some(here)
        });
        Ok(Self {
            scratch: Scratch::with_capacity(kv.variants().ar_max()),
            kv,
            sequences: Sequences::new(usual),
            lockstep: None,
            policy: config.policy.clone(),
            context_shift,
            vocab_size,
            identity: ModelIdentity::new(config, limit),
            lora,
            stop: StopFlag::default(),
            graphs: Graphs {
                executor,
                head: Head::new(&layout, &io),
                features,
                io,
                writers,
                dump,
                logits: vec![0.0; layout.vocab_size],
                log,
                anchors: None,
                log_base: log_base.collect(),
                layout,
            },
        })
    }

    /// What the graphs mean.
    pub fn layout(&self) -> &ModelLayout {
        &self.graphs.layout
    }

    /// The variants that are planned with: form, limit and groups as the graphs and the configuration have them.
    pub fn variants(&self) -> &Variants {
        self.kv.variants()
    }

    /// The policy that is planned by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Plans by another policy from now on. What cache groups drop stays as it was when the engine was made.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Ranks keys by another scorer from now on, where a cache group drops rows by `KeyDiff`.
    pub fn set_scorer(&mut self, scorer: Box<dyn KeyScorer>) {
        self.kv.set_scorer(scorer);
    }

    /// The executor, for tests that look at what it was given.
    pub fn executor(&self) -> &X {
        &self.graphs.executor
    }

    /// The executor, to be changed.
    pub fn executor_mut(&mut self) -> &mut X {
        &mut self.graphs.executor
    }

    /// The tokens of the dialog that are in the cache, in the order they came.
    pub fn history(&self) -> &[TokenId] {
        self.sequences.of(SeqId(0)).tokens()
    }

    /// The tokens of a sequence with their positions; `None` for a number that no cache has.
    pub fn transcript_of(&self, seq: SeqId) -> Option<&Transcript> {
        self.sequences.all().get(usize::from(seq.0))
    }

    /// How cache rows lie and move: as the configuration says, else as the bundle's tensors ask for.
    pub fn kv_mode(&self) -> ModeKind {
        self.kv.mode()
    }

    fn run_dialog(&mut self, tokens: &[TokenId], request: LogitsRequest) -> Result<(), EngineError> {
        self.run(&[SeqTokens { seq: SeqId(0), tokens }], request.into(), &mut |_, _, _| ())
    }

    /// How many tokens the dialog can still take, and what stops it.
    pub fn admission(&self) -> Admission {
        admit(&self.kv.state(), self.kv.variants())
    }

    /// Forgets the step log.
    pub fn clear_steps(&mut self) {
        self.graphs.log.clear();
    }
}

impl<X: Executor> TokenModel for Engine<X> {
    fn vocab_size(&self) -> usize {
        self.graphs.layout.vocab_size
    }

    fn widest_step(&self) -> Option<usize> {
        Some(self.kv.variants().with_logits().ar_max())
    }

    fn context_size(&self) -> usize {
        self.kv.variants().limit()
    }

    fn n_past(&self) -> usize {
        self.kv.next_pos(SeqId(0))
    }

    fn transcript(&self) -> &Transcript {
        self.sequences.of(SeqId(0))
    }

    fn mark_generated(&mut self, index: usize) {
        self.sequences.of_mut(SeqId(0)).mark_generated(index);
    }

    fn embedding_width(&self) -> Option<usize> {
        self.graphs.writers.extra.as_ref().map(ExtraRows::width)
    }

    fn add_embeddings(&mut self, rows: &[f32]) -> Result<Range<u32>, EngineError> {
        match &mut self.graphs.writers.extra {
            Some(extra) => extra.add(rows),
            None => Err(no_embeddings()),
        }
    }

    fn decode_embeddings(&self, bytes: &[u8]) -> Result<Vec<f32>, EngineError> {
        self.graphs.writers.decode_embeddings(bytes).unwrap_or_else(|| Err(no_embeddings()))
    }

    fn forget_embeddings(&mut self) {
        if let Some(extra) = &mut self.graphs.writers.extra {
            extra.clear();
        }
    }

    fn place_grid(&mut self, first: usize, grid: Grid) -> Result<(), EngineError> {
        self.place(first, grid)
    }

    fn forget_unreached_grids(&mut self) {
        self.graphs.writers.grids.truncate(self.kv.next_pos(SeqId(0)));
    }

    fn sequences(&mut self) -> Option<&mut dyn SequenceModel> {
        Some(self)
    }

    fn admission(&self) -> Option<Admission> {
        Some(Engine::admission(self))
    }

    fn shifts_context(&self) -> bool {
        self.context_shift.is_some()
    }

    fn make_room(&mut self, tokens: &[TokenId]) -> Result<usize, EngineError> {
        self.shift_for(tokens)
    }

    fn feature_widths(&self) -> FeatureWidths {
        self.graphs.features.widths()
    }

    fn features(&mut self) -> Option<&mut dyn FeatureModel> {
        Some(self)
    }

    fn lora(&mut self) -> Option<&mut dyn LoraModel> {
        Some(self)
    }

    fn lora_label(&self) -> String {
        Engine::lora_label(self)
    }

    fn cache_settings(&self) -> String {
        Engine::cache_settings(self)
    }

    fn stop_flag(&self) -> Option<StopFlag> {
        Some(self.stop.clone())
    }

    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        self.run_dialog(tokens, LogitsRequest::Last)?;
        Ok(&self.graphs.logits)
    }

    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        self.run_dialog(tokens, LogitsRequest::Nothing)
    }

    fn process_rows(&mut self, tokens: &[TokenId], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), EngineError> {
        let inputs = [SeqTokens { seq: SeqId(0), tokens }];
        self.run(&inputs, LogitsRequest::Each.into(), &mut |_, place, logits| each(place, logits))
    }

    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
        if self.lockstep.is_some() {
            self.check_no_batch("going back after several prompts")?;
        }
        self.kv.rewind(SeqId(0), n_past)?;
        self.sequences.of_mut(SeqId(0)).remove(&(n_past..usize::MAX));
        self.graphs.writers.grids.truncate(n_past);
        self.graphs.features.truncate(SeqId(0), n_past);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.kv.clear()?;
        self.sequences.clear();
        self.lockstep = None;
        self.graphs.writers.grids.truncate(0);
        self.graphs.features.clear();
        Ok(())
    }

    fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        Engine::cache_schema(self)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Engine::snapshot(self)
    }

    fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        Engine::restore_snapshot(self, snapshot)?;
        self.graphs.features.clear();
        Ok(())
    }

    fn steps(&self) -> &StepLog {
        &self.graphs.log
    }
}

impl<X: Executor> SequenceModel for Engine<X> {
    fn transcript_of(&self, seq: SeqId) -> Option<&Transcript> {
        Engine::transcript_of(self, seq)
    }

    fn most_sequences(&self) -> usize {
        if self.graphs.layout.batch > 1 { self.graphs.layout.batch } else { SeqId::COUNT }
    }

    fn is_batched(&self) -> bool {
        self.graphs.layout.batch > 1
    }

    fn process_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        Engine::process_batch(self, inputs, each)
    }

    fn process_mixed(
        &mut self,
        inputs: &[SeqRows<'_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        Engine::process_mixed(self, inputs, each)
    }

    fn runs_together(&self) -> bool {
        Engine::runs_together(self)
    }

    fn takes_trees(&self) -> bool {
        !self.is_batched() && !self.kv.variants().is_full_context_only()
    }

    fn takes_back(&self) -> bool {
        !self.kv.variants().groups().iter().any(|group| group.evicts())
    }

    fn rows(&self) -> RowBudget {
        Engine::rows(self)
    }

    fn own_rows(&self, seqs: &[SeqId]) -> usize {
        Engine::own_rows(self, seqs)
    }

    fn cells_of_groups(&self) -> Vec<GroupCells> {
        Engine::cells_of_groups(self)
    }

    fn widths(&self) -> Vec<usize> {
        Engine::widths(self)
    }

    fn snapshot_of(&mut self, seq: SeqId) -> Result<Snapshot, EngineError> {
        Engine::snapshot_of(self, seq)
    }

    fn rows_to_restore(&self, snapshot: &Snapshot) -> usize {
        Engine::rows_to_restore(self, snapshot)
    }

    fn restore_sequence(&mut self, seq: SeqId, snapshot: &Snapshot) -> Result<(), EngineError> {
        Engine::restore_sequence(self, seq, snapshot)
    }

    fn verify_draft(
        &mut self,
        draft: SeqTokens<'_>,
        judge: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        Engine::verify_draft(self, draft, judge)
    }

    fn process_trees(&mut self, trees: &[SeqTree<'_>], choose: ChoosePaths<'_>) -> Result<(), EngineError> {
        Engine::process_trees(self, trees, choose)
    }

    fn share(&mut self, src: SeqId, dst: SeqId, range: Range<usize>) -> Result<(), EngineError> {
        Engine::share(self, src, dst, range)
    }

    fn merge(&mut self, from: &[SeqId], dst: SeqId) -> Result<(), EngineError> {
        Engine::merge(self, from, dst)
    }

    fn remove(&mut self, seq: SeqId, range: Range<usize>) -> Result<usize, EngineError> {
        Engine::remove(self, seq, range)
    }

    fn keep(&mut self, seq: SeqId) -> Result<(), EngineError> {
        Engine::keep(self, seq)
    }
}

//! A loaded model with its cache, and what it tells about itself. The loop is in `run`, the cache's operations in
//! `sequences` and `batch`.

use genie_types::TokenId;
use kvmanager::{Admission, Holes, KvCache, KvOptions, ModeKind, Plan, Policy, SeqId, Variants, admit};
use nsp_graph::ModelLayout;
use session_store::{CacheSchema, Snapshot};

use crate::book::Book;
use crate::cache;
use crate::codes::Encoding;
use crate::config::EngineConfig;
use crate::executor::Executor;
use crate::feed::Feeds;
use crate::head::Head;
use crate::io::{Io, Use};
use crate::rope;
use crate::run::Want;
use crate::saved::ModelIdentity;
use crate::{EngineError, QnnExecutor, StepLog, TokenModel};

/// A loaded model with its cache.
///
/// *Invariant*: `books` holds the tokens of each sequence in the cache; that of the dialog is sequence 0.
#[derive(Debug)]
pub struct Engine<X = QnnExecutor> {
    pub(crate) layout: ModelLayout,
    pub(crate) executor: X,
    pub(crate) kv: KvCache,
    pub(crate) io: Io,
    pub(crate) feeds: Feeds,
    pub(crate) head: Head,
    pub(crate) policy: Policy,
    /// The last plan, whose list the next one is written to.
    pub(crate) strategy: Plan,
    /// By sequence.
    pub(crate) books: Vec<Book>,
    /// Nothing but the dialog, in order, has been in the cache since it was cleared: its rows are the first ones.
    pub(crate) plain: bool,
    pub(crate) holes: Holes,
    pub(crate) logits: Vec<f32>,
    pub(crate) log: StepLog,
    /// Index in the log of each split's first graph.
    pub(crate) log_base: Vec<usize>,
    pub(crate) vocab_size: usize,
    pub(crate) identity: ModelIdentity,
}

impl<X: Executor> Engine<X> {
    /// Puts a layout and its executor together. `ctx_bins` and `select_graphs` of the configuration are not looked at.
    ///
    /// # Errors
    ///
    /// Settings that do not fit the graphs; graphs that need what this engine cannot do.
    pub fn with_executor(layout: ModelLayout, executor: X, config: &EngineConfig) -> Result<Self, EngineError> {
        let groups = cache::groups(&layout, config)?;
        let variants = Variants::with_groups(layout.variants.iter().copied(), groups, config.context_size)?;
        let limit = variants.limit();
        let options = KvOptions { mode: cache::mode(&layout, config.kv_mode)?, n_threads: config.n_threads };
        let mut kv = KvCache::new(&cache::geometry(&layout, &variants, options.mode)?, variants, options)?;
        if let Some(rope) = config.rope.as_ref().filter(|_| layout.rope_dim.is_some()) {
            kv.set_rope(rope::spec(rope));
        }
        let io = Io::new(&layout);
        let feeds = Feeds::new(&layout, &io, config, &kv)?;
        for wanted in io.uses() {
            if let Use::Logits(dtype, quant) = wanted
                && Encoding::of(*dtype, quant).is_none()
            {
                return Err(EngineError::Unsupported { what: format!("a model with {dtype} logits"), hint: "" });
            }
        }
        let vocab_size = feeds.n_embeddings().map_or(layout.vocab_size, |n| n.min(layout.vocab_size));
        if config.pad_token.0 as usize >= vocab_size {
            let found = config.pad_token.to_string();
            return Err(EngineError::Config { what: "pad token", expected: "an entry of the vocabulary", found });
        }
        let graphs = layout.splits.iter().flat_map(|s| s.graphs.iter().map(|g| g.info.name.clone()));
        let log = StepLog::new(graphs.collect(), (limit + 64) * layout.splits.len());
        let log_base = layout.splits.iter().scan(0, |base, split| {
            let here = *base;
            *base += split.graphs.len();
            Some(here)
        });
        Ok(Self {
            log_base: log_base.collect(),
            executor,
            kv,
            head: Head::new(&layout, &io),
            io,
            feeds,
            policy: config.policy.clone(),
            strategy: Plan::default(),
            books: std::iter::once(Book::with_capacity(limit))
                .chain((1..SeqId::COUNT).map(|_| Book::default()))
                .collect(),
            plain: true,
            holes: Holes::Close,
            identity: ModelIdentity::new(config),
            logits: vec![0.0; layout.vocab_size],
            log,
            vocab_size,
            layout,
        })
    }

    /// What the graphs mean.
    pub fn layout(&self) -> &ModelLayout {
        &self.layout
    }

    /// The shapes that are planned with: form, limit and groups as the graphs and the configuration have them.
    pub fn variants(&self) -> &Variants {
        self.kv.variants()
    }

    /// The policy that is planned by.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Plans by another policy from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// The executor, for tests that look at what it was given.
    pub fn executor(&self) -> &X {
        &self.executor
    }

    /// The executor, to be told things.
    pub fn executor_mut(&mut self) -> &mut X {
        &mut self.executor
    }

    /// The tokens of the dialog that are in the cache, in the order they came.
    pub fn history(&self) -> &[TokenId] {
        self.books[0].tokens()
    }

    /// How cache rows lie and move: as the configuration says, else as the bundle's tensors ask for.
    pub fn kv_mode(&self) -> ModeKind {
        self.kv.mode()
    }

    /// How many tokens the dialog can still take, and what stops it.
    pub fn admission(&self) -> Admission {
        admit(&self.kv.state(), self.kv.variants())
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.plain && self.holes == Holes::Close
    }

    /// Forgets the step log.
    pub fn clear_steps(&mut self) {
        self.log.clear();
    }
}

impl<X: Executor> TokenModel for Engine<X> {
    fn vocab_size(&self) -> usize {
        self.layout.vocab_size
    }

    fn context_size(&self) -> usize {
        self.kv.variants().limit()
    }

    fn n_past(&self) -> usize {
        self.kv.next_pos(SeqId(0))
    }

    fn admission(&self) -> Option<Admission> {
        Some(Engine::admission(self))
    }

    fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        if tokens.is_empty() {
            return Err(EngineError::NoTokens);
        }
        self.run(tokens, Want::Last)?;
        Ok(&self.logits)
    }

    fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
        self.run(tokens, Want::Nothing)
    }

    fn process_rows(&mut self, tokens: &[TokenId], each: &mut dyn FnMut(usize, &[f32])) -> Result<(), EngineError> {
        self.run(tokens, Want::Each(each))
    }

    fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
        self.kv.rewind(n_past)?;
        self.books[0].remove(&(n_past..usize::MAX));
        Ok(())
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.kv.clear()?;
        self.books.iter_mut().for_each(Book::clear);
        self.plain = true;
        Ok(())
    }

    fn cache_schema(&mut self) -> Result<CacheSchema, EngineError> {
        Engine::cache_schema(self)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        Engine::snapshot(self)
    }

    fn restore_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), EngineError> {
        Engine::restore_snapshot(self, snapshot)
    }

    fn steps(&self) -> &StepLog {
        &self.log
    }
}

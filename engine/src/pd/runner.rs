//! The sequences of a fused pair, and single steps over two of them.

use genie_types::TokenId;
use kvmanager::{KvTensor, RowStore, SeqId};
use nsp_graph::pd::PairLayout;

use super::PairConfig;
use super::feeds::Half;
use super::plan::{PairLimits, PairStep};
use super::step::{Graphs, Stores};
use crate::saved::ModelIdentity;
use crate::{EngineConfig, EngineError, Executor, QnnExecutor, StepLog, StopFlag, Transcript};

/// Runs the graphs of a fused pair for up to [`SeqId::COUNT`] sequences, each with rows of its own.
///
/// *Invariant*: a sequence has as many rows as its transcript has tokens, row = position.
#[derive(Debug)]
pub struct PairRunner<X = QnnExecutor> {
    pub(super) graphs: Graphs,
    pub(super) executor: X,
    pub(super) limits: PairLimits,
    pub(super) sequences: Vec<Sequence>,
    /// Stores that no sequence uses, to be taken again. One more is bound for a half that is not active.
    pub(super) free: Vec<RowStore>,
    idle: RowStore,
    pub(super) tensors: Vec<KvTensor>,
    pub(super) identity: ModelIdentity,
    pub(super) context_size: usize,
    pub(super) vocab_size: usize,
    pub(super) log: StepLog,
    pub(super) stop: StopFlag,
    pub(super) marks: Vec<(SeqId, usize)>,
    /// Which row of logits belongs to the request that ended last.
    pub(super) last_was_decode: bool,
}

/// One sequence; without a store until it has tokens.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    pub(super) transcript: Transcript,
    pub(super) store: Option<RowStore>,
}

impl<X: Executor> PairRunner<X> {
    /// Puts a layout and its executor together; the executor's only split has the graphs in the layout's order.
    ///
    /// # Errors
    ///
    /// Settings that leave no graph, logits that are no numbers, too little memory.
    pub fn with_executor(layout: PairLayout, executor: X, config: &EngineConfig) -> Result<Self, EngineError> {
        let pair = config.pd.unwrap_or_default();
        let PairConfig { total_len, prefill_len, in_place, .. } = pair;
        let totals: Vec<usize> = layout.pairs.iter().map(|g| g.rows).collect();
        let limits = PairLimits::new(layout.context, &totals, layout.updates, &pair);
        if limits.totals.is_empty() {
            return Err(EngineError::Config {
                what: "`total_len` of the fused graphs",
                expected: "at least the rows of the narrowest one",
                found: total_len.unwrap_or(0).to_string(),
            });
        }
        if prefill_len == Some(0) {
            let (what, expected) = ("`prefill_len` of the fused graphs", "at least 1 row of a prompt");
            return Err(EngineError::Config { what, expected, found: "0".into() });
        }
        let limit = limits.limit();
        let tensors: Vec<KvTensor> = layout.tensors.iter().map(|t| t.tensor).collect();
        let names: Vec<String> = layout.graphs().map(|g| g.info.name.clone()).collect();
        let vocab_size = layout.vocab_size;
        Ok(Self {
            idle: RowStore::new(&tensors, limit)?,
            graphs: Graphs::new(layout, in_place)?,
            executor,
            sequences: (0..SeqId::COUNT).map(|_| Sequence::default()).collect(),
            free: Vec::new(),
            tensors,
            context_size: config.context_size.map_or(limit, |size| size.min(limit)),
            limits,
            vocab_size,
            identity: ModelIdentity::new(config, limit),
            log: StepLog::new(names, limit + 64),
            stop: StopFlag::default(),
            marks: Vec::with_capacity(SeqId::COUNT),
            last_was_decode: false,
        })
    }

    /// What the graphs mean.
    pub fn layout(&self) -> &PairLayout {
        &self.graphs.layout
    }

    /// Bytes of caches that a step of the widest graph writes beside those of the sequences, from where its new rows are copied: 0 where the graphs
    /// write in place, and where they do not update the cache.
    pub fn bytes_written_aside(&self) -> usize {
        self.graphs.bytes_aside()
    }

    /// What the graphs can take.
    pub fn limits(&self) -> &PairLimits {
        &self.limits
    }

    /// The executor, to be changed.
    pub fn executor_mut(&mut self) -> &mut X {
        &mut self.executor
    }

    /// Tokens of a sequence in the cache.
    pub fn n_past_of(&self, seq: SeqId) -> usize {
        self.sequences.get(usize::from(seq.0)).map_or(0, |s| s.transcript.len())
    }

    /// Rows in use of a cache tensor (key 0, value 0, key 1, ...) of a sequence, line after line; none for a sequence without tokens.
    pub fn rows_of(&self, seq: SeqId, tensor: usize) -> Vec<u8> {
        let store = self.sequences.get(usize::from(seq.0)).and_then(|s| s.store.as_ref());
        store.map_or_else(Vec::new, |store| store.rows(tensor))
    }

    /// Bytes of caches that are held, in use or to be taken again.
    pub fn cache_bytes(&self) -> usize {
        let used = self.sequences.iter().filter_map(|s| s.store.as_ref());
        used.chain(&self.free).chain([&self.idle]).map(RowStore::size_bytes).sum()
    }

    /// Bytes that changes between graphs have moved so far.
    pub fn moved_bytes(&self) -> u64 {
        let used = self.sequences.iter().filter_map(|s| s.store.as_ref());
        used.chain(&self.free).map(RowStore::moved_bytes).sum()
    }

    /// Forgets the step log.
    pub fn clear_steps(&mut self) {
        self.log.clear();
    }

    /// Sequences that have tokens.
    pub fn n_sequences(&self) -> usize {
        self.sequences.iter().filter(|s| s.store.is_some()).count()
    }

    /// Runs one step: the first tokens of `prompt`, as many as the step says, and the first of `decode`, another sequence's. Logits of the chunk's last
    /// token and of the decode row are in [`Self::logits`] then.
    ///
    /// # Errors
    ///
    /// [`EngineError::Execute`], [`EngineError::NotFinite`], [`EngineError::Kv`]: no sequence has changed.
    pub(super) fn run_step(
        &mut self,
        step: PairStep,
        prompt: Option<(SeqId, &[TokenId])>,
        decode: Option<(SeqId, &[TokenId])>,
    ) -> Result<(), EngineError> {
        let (index, prompt, decode) = match step {
            PairStep::Fused { graph, chunk, decodes } => (
                graph,
                prompt.map(|(seq, tokens)| (seq, &tokens[..chunk])),
                decode.filter(|_| decodes).map(|(seq, tokens)| (seq, &tokens[..1])),
            ),
            PairStep::Decode => (self.graphs.single(), None, decode.map(|(seq, tokens)| (seq, &tokens[..1]))),
            PairStep::PromptToken => (self.graphs.single(), None, prompt.map(|(seq, tokens)| (seq, &tokens[..1]))),
        };
        tracing::trace!(?step, graph = %self.graphs.graph(index).info.name, "fused step");
        for (seq, _) in prompt.iter().chain(&decode) {
            self.give_store(*seq)?;
        }
        let half = |runner: &Self, request: Option<(SeqId, &[TokenId])>| request.map(|(seq, _)| runner.n_past_of(seq));
        let (at_prompt, at_decode) = (half(self, prompt), half(self, decode));
        let halves = (
            prompt.zip(at_prompt).map(|((_, tokens), n_past)| Half { n_past, tokens }),
            decode.zip(at_decode).map(|((_, tokens), n_past)| Half { n_past, tokens }),
        );
        // A half that is not active has a store as well, which stays empty.
        let taken = [prompt, decode].map(|request| {
            let (seq, _) = request?;
            self.sequences[usize::from(seq.0)].store.take()
        });
        let [mut of_prompt, mut of_decode] = taken;
        let idle = &mut self.idle;
        let (prefill, decoding) = match (&mut of_prompt, &mut of_decode) {
            (Some(prefill), Some(decode)) => (prefill, decode),
            (Some(prefill), None) => (prefill, idle),
            (None, Some(decode)) => (idle, decode),
            (None, None) => return Ok(()),
        };
        let mut stores = Stores { prefill, decode: decoding };
        let done = self.graphs.run(&mut self.executor, index, halves, &mut stores);
        for (request, store) in [(prompt, of_prompt), (decode, of_decode)] {
            if let Some((seq, _)) = request {
                self.sequences[usize::from(seq.0)].store = store;
            }
        }
        done?;
        for (seq, tokens) in prompt.iter().chain(&decode) {
            let transcript = &mut self.sequences[usize::from(seq.0)].transcript;
            let first = transcript.len();
            transcript.extend(tokens, first);
        }
        self.log.push(index);
        Ok(())
    }

    /// Logits of the last step: of its chunk's last token, and of its decode row (also where that was a prompt's token).
    pub fn logits(&self, decode: bool) -> &[f32] {
        &self.graphs.rows[usize::from(decode)]
    }

    /// Gives a sequence a store, and its transcript room: steps allocate nothing from then on.
    pub(super) fn give_store(&mut self, seq: SeqId) -> Result<(), EngineError> {
        let sequence = self.sequences.get_mut(usize::from(seq.0)).ok_or_else(|| no_sequence(seq))?;
        if sequence.store.is_none() {
            let store = match self.free.pop() {
                Some(mut store) => {
                    // It may have rows, and the form of the graph that ran last; an empty one moves no byte.
                    store.truncate(0);
                    store.set_past(self.limits.limit())?;
                    store
                }
                None => RowStore::new(&self.tensors, self.limits.limit())?,
            };
            sequence.store = Some(store);
            sequence.transcript.make_room(self.limits.limit());
        }
        Ok(())
    }

    /// Drops the tokens of a sequence from `n` on; one without tokens gives its store back.
    pub(super) fn cut(&mut self, seq: SeqId, n: usize) {
        let sequence = &mut self.sequences[usize::from(seq.0)];
        sequence.transcript.truncate(n);
        if let Some(store) = &mut sequence.store {
            store.truncate(n);
        }
        if n == 0 {
            self.free.extend(sequence.store.take());
        }
    }
}

/// A number that no sequence has.
pub(super) fn no_sequence(seq: SeqId) -> EngineError {
    const { assert!(SeqId::COUNT == 64) };
    EngineError::Config { what: "the number of a sequence", expected: "0 to 63", found: seq.0.to_string() }
}

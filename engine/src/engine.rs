//! The run loop: plan, fill, execute split by split, keep the new rows, hand out logits.
//!
//! While split `i + 1` executes, the KV manager's workers copy the new rows of split `i`; a split waits for its own rows
//! only. LM heads run only where logits are wanted. After construction a decode step allocates nothing here.

use genie_types::{SplitIdx, TokenId, VariantSpec};
use kvmanager::{InferenceStep, KvManager, KvOptions, MaskCol, PlanError, Policy, Strategy, Variants};
use nsp_graph::{GraphKind, ModelLayout};

use crate::cache;
use crate::codes::{self, Encoding};
use crate::config::EngineConfig;
use crate::executor::Executor;
use crate::feed::Feeds;
use crate::io::{Io, Use};
use crate::{EngineError, QnnExecutor, StepLog, TokenModel};

/// A loaded model with its cache.
///
/// *Invariant*: `history` holds the `n_past` tokens of the dialog.
#[derive(Debug)]
pub struct Engine<X = QnnExecutor> {
    layout: ModelLayout,
    executor: X,
    kv: KvManager,
    io: Io,
    feeds: Feeds,
    policy: Policy,
    /// The last plan, whose list the next one is written to.
    strategy: Strategy,
    history: Vec<TokenId>,
    logits: Vec<f32>,
    log: StepLog,
    /// Index in the log of each split's first graph.
    log_base: Vec<usize>,
    vocab_size: usize,
}

/// Which logits a call wants.
enum Want<'a> {
    Nothing,
    Last,
    Each(&'a mut dyn FnMut(usize, &[f32])),
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
        let options = KvOptions { mode: config.kv_mode, n_threads: config.n_threads };
        let kv = KvManager::new(&cache::geometry(&layout)?, variants, options)?;
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
            io,
            feeds,
            policy: config.policy.clone(),
            strategy: Strategy::default(),
            history: Vec::with_capacity(limit),
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

    /// The tokens processed so far.
    pub fn history(&self) -> &[TokenId] {
        &self.history
    }

    /// Forgets the step log.
    pub fn clear_steps(&mut self) {
        self.log.clear();
    }

    /// Processes a whole dialog from nothing and answers the logits of its last token: the reference that cached
    /// generation is held against. Uses a graph without past (AR == CL) if one is wide enough, else replays by plan.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; the state before the call is gone in any case.
    pub fn recompute(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.reset()?;
        let fits = |spec: &&VariantSpec| spec.is_full_context() && spec.variant().get() >= tokens.len();
        let limit = self.context_size();
        let whole = self.layout.variants.iter().find(fits).copied();
        let evicts = self.kv.variants().groups().iter().any(|g| g.evicts());
        match whole.filter(|_| !evicts && !tokens.is_empty() && tokens.len() <= limit) {
            None => self.process(tokens),
            Some(spec) => {
                self.check_tokens(tokens)?;
                self.history.extend_from_slice(tokens);
                let step = InferenceStep {
                    spec,
                    n_past: 0,
                    n_valid_kv: 0,
                    n_process: tokens.len(),
                    past_idx: MaskCol(0),
                    new_idx: MaskCol(0),
                };
                let done = self.step(&step, 0, true, None).and_then(|()| self.read_logits(&step, tokens.len() - 1));
                done.map_err(|e| self.restore(0, e))?;
                Ok(&self.logits)
            }
        }
    }

    fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), EngineError> {
        match tokens.iter().position(|t| t.0 as usize >= self.vocab_size) {
            None => Ok(()),
            Some(place) => {
                Err(EngineError::TokenOutOfRange { token: tokens[place], place, vocab_size: self.vocab_size })
            }
        }
    }

    fn run(&mut self, tokens: &[TokenId], want: Want<'_>) -> Result<(), EngineError> {
        self.check_tokens(tokens)?;
        let before = self.history.len();
        let mut strategy = std::mem::take(&mut self.strategy);
        match self.kv.plan_into(tokens.len(), &self.policy, &mut strategy) {
            Err(PlanError::GenieGivesUp { n_past, n_piece }) => {
                self.strategy = strategy;
                return Err(self.give_up(tokens, n_past, n_piece));
            }
            planned => planned?,
        }
        self.history.extend_from_slice(tokens);
        let done = self.run_steps(strategy.steps(), strategy.first(), before, want);
        self.strategy = strategy;
        done.map_err(|e| self.restore(before, e))
    }

    /// What the real one does before it answers status 4: the pieces that fit, then the one that does not, on the largest
    /// CL; nobody sees its logits. Then back to where the call began, which the real one does not do.
    fn give_up(&mut self, tokens: &[TokenId], n_past: usize, n_piece: usize) -> EngineError {
        let before = self.history.len();
        self.history.extend_from_slice(tokens);
        let done = self.run_doomed(before, n_past, n_piece);
        self.restore(before, done.err().unwrap_or(EngineError::GenieGivesUp { n_past, n_piece }))
    }

    fn run_doomed(&mut self, before: usize, n_past: usize, n_piece: usize) -> Result<(), EngineError> {
        let fitting = self.kv.plan(n_past - before, &Policy::GenieStrict)?;
        self.run_steps(fitting.steps(), fitting.first(), before, Want::Nothing)?;
        // Where even the start of the piece lies beyond that graph's past, the real one reads nonsense; ours leaves it.
        let whole = self.kv.plan(n_piece, &Policy::Genie)?;
        let doomed = doomed_variant(&self.layout.variants, n_piece);
        match whole.steps() {
            [step, ..] if step.n_process == n_piece && Some(step.spec) == doomed => {
                let is_last = n_past + n_piece == self.history.len();
                self.step(step, n_past, is_last, None)
            }
            _ => Ok(()),
        }
    }

    /// `first`: position of the steps' first token; `before`: tokens of the dialog that are not new.
    fn run_steps(
        &mut self,
        steps: &[InferenceStep],
        first: usize,
        before: usize,
        mut want: Want<'_>,
    ) -> Result<(), EngineError> {
        let mut at = first;
        for (i, step) in steps.iter().enumerate() {
            let last = i + 1 == steps.len();
            let wanted = match want {
                Want::Nothing => false,
                Want::Last => last,
                Want::Each(_) => at + step.n_process > before,
            };
            self.step(step, at, wanted, steps.get(i + 1).map(|next| next.spec))?;
            match &mut want {
                Want::Nothing => {}
                Want::Last if last => self.read_logits(step, step.n_process - 1)?,
                Want::Last => {}
                Want::Each(each) => {
                    for row in before.saturating_sub(at)..step.n_process {
                        self.read_logits(step, row)?;
                        each(at + row - before, &self.logits);
                    }
                }
            }
            at += step.n_process;
        }
        Ok(())
    }

    /// One step through all splits; its tokens are `history[at..at + n_process]`.
    fn step(
        &mut self,
        step: &InferenceStep,
        at: usize,
        want_logits: bool,
        next: Option<VariantSpec>,
    ) -> Result<(), EngineError> {
        tracing::trace!(%step, want_logits, "step");
        let variant = self.layout.variant_index(step.spec).expect("the planner picks from the layout's variants");
        self.kv.prepare(step)?;
        self.feeds.fill(&mut self.io, &self.kv, variant, step, &self.history[at..at + step.n_process])?;
        for (s, split) in self.layout.splits.iter().enumerate() {
            if split.kind == GraphKind::LmHead && !want_logits {
                continue;
            }
            let g = split.by_variant[variant];
            let mut guard = self.kv.split(SplitIdx(s))?;
            let ran = self.executor.execute(s, g, &mut self.io.bind(s, g, guard.views()));
            ran.map_err(|source| EngineError::Execute { graph: split.graphs[g].info.name.clone(), source })?;
            self.log.push(self.log_base[s] + g);
            if split.kv.is_empty() {
                continue;
            }
            match next.filter(|next| *next != step.spec) {
                Some(next) => self.kv.commit_and_set(SplitIdx(s), step, next)?,
                None => self.kv.commit(SplitIdx(s), step)?,
            }
        }
        self.kv.advance(step)?;
        Ok(())
    }

    /// Turns a row of the last step's logits into numbers.
    fn read_logits(&mut self, step: &InferenceStep, row: usize) -> Result<(), EngineError> {
        let variant = self.layout.variant_index(step.spec).expect("the step has just run");
        let last = self.layout.splits.len() - 1;
        let g = self.layout.splits[last].by_variant[variant];
        let buffer = self.io.logits(last, g).expect("the layout's last split has logits");
        let Use::Logits(dtype, quant) = &self.io.uses()[buffer] else { unreachable!("asked for logits") };
        let encoding = Encoding::of(*dtype, quant).expect("checked when the engine was made");
        let row_bytes = self.layout.vocab_size * encoding.size_bytes();
        encoding.decode(&self.io.buffers[buffer].bytes()[row * row_bytes..(row + 1) * row_bytes], &mut self.logits);
        match codes::not_finite(&self.logits) {
            None => Ok(()),
            Some((index, what)) => Err(EngineError::NotFinite {
                graph: self.layout.splits[last].graphs[g].info.name.clone(),
                what,
                index,
                position: step.n_past + row,
            }),
        }
    }

    /// After a failure: back to the first `before` tokens, by processing them again if their rows cannot be had cheaper.
    fn restore(&mut self, before: usize, e: EngineError) -> EngineError {
        self.history.truncate(before);
        // Rows of nonsense must not even stay hidden: a share of zero times NaN is NaN.
        let scrub = matches!(e, EngineError::NotFinite { .. });
        if !scrub && self.kv.rewind(before).and_then(|()| self.kv.settle()).is_ok() {
            return e;
        }
        match self.replay() {
            Ok(()) => e,
            Err(lost) => {
                tracing::warn!(%lost, "the cache could not be put back");
                self.history.clear();
                match self.kv.clear() {
                    Ok(()) => EngineError::StateLost { source: Box::new(e) },
                    Err(worse) => worse.into(),
                }
            }
        }
    }

    /// Fills a cleared cache from the history.
    fn replay(&mut self) -> Result<(), EngineError> {
        self.kv.clear()?;
        let n = self.history.len();
        let strategy = self.kv.plan(n, &self.policy)?;
        self.run_steps(strategy.steps(), strategy.first(), n, Want::Nothing)
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
        self.history.len()
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
        self.history.truncate(n_past);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.kv.clear()?;
        self.history.clear();
        Ok(())
    }

    fn steps(&self) -> &StepLog {
        &self.log
    }
}

/// The graph that the real one takes for a piece that fits none: of the largest CL, the smallest AR that holds the piece,
/// else the largest.
fn doomed_variant(variants: &[VariantSpec], n_piece: usize) -> Option<VariantSpec> {
    let cl = variants.iter().map(|v| v.ctx_size()).max()?;
    let of_cl = || variants.iter().copied().filter(|v| v.ctx_size() == cl);
    let holds = of_cl().filter(|v| v.variant().get() >= n_piece).min_by_key(|v| v.variant());
    holds.or_else(|| of_cl().max_by_key(|v| v.variant()))
}

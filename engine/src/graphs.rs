//! One step through all splits: inputs written, graphs executed, new rows committed, logits read.
//!
//! While split `i + 1` executes, the cache's workers copy the new rows of split `i`; a split waits for its own rows only.
//! LM heads run only where logits are wanted, for the rows that are. A decode step allocates nothing.

use genie_types::{SplitIdx, TokenId, Variant};
use kvmanager::{InferenceStep, Keep, KvCache, Step, Tree};
use nsp_graph::{GraphKind, ModelLayout};

use crate::anchors::AnchorBuffers;
use crate::dump::Dump;
use crate::features::Features;
use crate::head::{Head, Place};
use crate::input_writer::{InputWriters, StepInputs};
use crate::io::{BufferRole, IoBuffers};
use crate::lockstep::BatchStep;
use crate::quant::{self, QuantParams};
use crate::{Binding, EngineError, Executor, StepLog};

/// The model's graphs with everything that an execution takes, except the cache.
#[derive(Debug)]
pub(crate) struct Graphs<X> {
    pub(crate) layout: ModelLayout,
    pub(crate) executor: X,
    pub(crate) io: IoBuffers,
    pub(crate) writers: InputWriters,
    pub(crate) dump: Option<Dump>,
    pub(crate) head: Head,
    pub(crate) features: Features,
    /// The row of logits read last.
    pub(crate) logits: Vec<f32>,
    pub(crate) log: StepLog,
    /// Anchors that steps hand on, where a network scores keys.
    pub(crate) anchors: Option<AnchorBuffers>,
    /// Index in the log of each split's first graph.
    pub(crate) log_base: Vec<usize>,
}

/// What one step is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRun<'a> {
    pub(crate) planned: &'a InferenceStep,
    /// By column.
    pub(crate) tokens: &'a [TokenId],
    /// Hidden states of another model, by column; empty where the graphs take none.
    pub(crate) features: &'a [f32],
    /// The variant of the step after it.
    pub(crate) next: Option<Variant>,
    /// An LM head may be narrower than its step.
    pub(crate) narrow_head: bool,
    /// Inputs that libGenie writes wrong are written as it writes them.
    pub(crate) as_genie: bool,
    /// Which rows see which, if they do not follow each other.
    pub(crate) tree: Option<&'a Tree>,
    /// What each row of a batch is fed, if sequences are rows.
    pub(crate) batch: Option<&'a BatchStep>,
}

/// Says which columns of a step are kept, once all its graphs have run.
pub(crate) type Judge<'j, X> = &'j mut dyn FnMut(&mut Graphs<X>) -> Result<Vec<bool>, EngineError>;

impl<X: Executor> Graphs<X> {
    /// Runs a step and keeps its rows: each split's as soon as it has run, or with a judge those it selects. `rows`:
    /// columns whose logits are wanted, rising. A step that fails is rolled back.
    pub(crate) fn run_step(
        &mut self,
        kv: &mut KvCache,
        run: StepRun<'_>,
        rows: impl Iterator<Item = usize>,
        judge: Option<Judge<'_, X>>,
    ) -> Result<(), EngineError> {
        let StepRun { planned, tokens, features, next, narrow_head, as_genie, tree, batch } = run;
        tracing::trace!(step = %planned, "step");
        let variant = self.layout.variant_index(planned.variant).expect("the planner picks from the layout's variants");
        let mut step = kv.begin(planned)?;
        if let Some(next) = next.filter(|next| *next != planned.variant) {
            step.then(next)?;
        }
        if let Some(tree) = tree {
            step.attend(tree)?;
        }
        if let Some(dump) = &mut self.dump {
            dump.begin();
        }
        self.writers.fill(&mut self.io, &step, &StepInputs { variant, planned, tokens, features, as_genie, batch })?;
        if let Some(anchors) = &self.anchors {
            anchors.fill(&mut self.io);
        }
        self.head.ask(rows);
        let n_splits = self.layout.splits.len();
        // libGenie keeps the rows of an input's last step once its anchors have moved on, unless it has one token.
        let late = as_genie && self.anchors.is_some() && judge.is_none() && next.is_none() && tokens.len() > 1;
        for s in 0..n_splits {
            let has_rows = self.execute(&mut step, s, variant, narrow_head)?;
            if has_rows && judge.is_none() && !late {
                step.commit(SplitIdx(s), Keep::All)?;
            }
        }
        if let Some(anchors) = self.anchors.as_ref().filter(|_| late) {
            let before = anchors.shared().lock().clone();
            anchors.take(&self.layout, &self.io, variant);
            let mut kept = (0..n_splits).map(|s| step.commit(SplitIdx(s), Keep::All));
            if let Err(e) = kept.try_for_each(|kept| kept) {
                *anchors.shared().lock() = before;
                return Err(e.into());
            }
        }
        if self.head.is_asked() && self.dump.as_ref().is_some_and(Dump::wants_logits) {
            self.dump_logits(planned.n_process());
        }
        if let Some(judge) = judge {
            let keep = judge(self)?;
            (0..n_splits).try_for_each(|s| step.commit(SplitIdx(s), Keep::Rows(&keep)))?;
        }
        step.finish()?;
        if let Some(anchors) = self.anchors.as_ref().filter(|_| !late) {
            anchors.take(&self.layout, &self.io, variant);
        }
        Ok(())
    }

    /// Runs a split's graph, unless it is an LM head that is asked for nothing. True if there are rows to keep.
    fn execute(
        &mut self,
        step: &mut Step<'_>,
        s: usize,
        variant: usize,
        narrow_head: bool,
    ) -> Result<bool, EngineError> {
        let split = &self.layout.splits[s];
        if split.kind == GraphKind::LmHead && !self.head.is_asked() {
            return Ok(false);
        }
        let mut g = split.by_variant[variant];
        if s + 1 == self.layout.splits.len() {
            let ar = self.layout.variants[variant].ar().get();
            g = self.head.choose(g, ar, narrow_head, &mut self.io);
        }
        let mut guard = step.split(SplitIdx(s))?;
        let info = &split.graphs[g].info;
        let failed = |source| EngineError::Execute { graph: info.name.clone(), source };
        let mut bound = self.io.bind(s, g, guard.views());
        match self.dump.as_mut().filter(|dump| dump.wants_tensors()) {
            None => self.executor.execute(s, g, &mut bound).map_err(failed)?,
            Some(dump) => {
                let mut bound: Vec<Binding<'_>> = bound.collect();
                let mut again = bound.iter_mut().map(Binding::reborrow);
                self.executor.execute(s, g, &mut again).map_err(failed)?;
                dump.tensors(info, &bound);
            }
        }
        self.log.push(self.log_base[s] + g);
        Ok(!split.kv.is_empty())
    }

    /// Writes the rows of logits that the step's head has computed.
    fn dump_logits(&mut self, n_process: usize) {
        let last = self.layout.splits.len() - 1;
        let (graph, n_rows) = self.head.rows_ran(n_process);
        let (Some(buffer), Some(dump)) = (self.io.logits(last, graph), &mut self.dump) else { return };
        let bytes = self.io.bound_bytes(last, graph, buffer).unwrap_or(0);
        let row_bytes = bytes / self.layout.splits[last].graphs[graph].ar.get();
        dump.logits(&self.io.buffers[buffer].bytes()[..n_rows * row_bytes]);
    }

    /// Where the logits of a row of the last step are; a head that is narrower than the rows asked for runs again.
    fn place_of(&mut self, row: usize) -> Result<(usize, usize), EngineError> {
        let last = self.layout.splits.len() - 1;
        loop {
            match self.head.place_of(row) {
                Place::At { graph, row } => return Ok((graph, row)),
                Place::Later { graph, first } => {
                    self.head.again(graph, first, &mut self.io);
                    let no_cache = std::iter::empty();
                    let ran = self.executor.execute(last, graph, &mut self.io.bind(last, graph, no_cache));
                    let name = || self.layout.splits[last].graphs[graph].info.name.clone();
                    ran.map_err(|source| EngineError::Execute { graph: name(), source })?;
                    self.log.push(self.log_base[last] + graph);
                }
            }
        }
    }

    /// Reads a row of the last step's logits, one that was asked for, into `logits`. `position`: of its token.
    pub(crate) fn read_logits(&mut self, row: usize, position: usize) -> Result<(), EngineError> {
        let last = self.layout.splits.len() - 1;
        let (g, row) = self.place_of(row)?;
        let buffer = self.io.logits(last, g).expect("the layout's last split has logits");
        let BufferRole::Logits(dtype, quant) = &self.io.roles()[buffer] else { unreachable!("asked for logits") };
        let encoding = QuantParams::of(*dtype, quant).expect("checked when the engine was made");
        let row_bytes = self.layout.vocab_size * encoding.size_bytes();
        encoding.decode(&self.io.buffers[buffer].bytes()[row * row_bytes..(row + 1) * row_bytes], &mut self.logits);
        match quant::not_finite(&self.logits) {
            None => Ok(()),
            Some((index, what)) => Err(EngineError::NotFinite {
                graph: self.layout.splits[last].graphs[g].info.name.clone(),
                what,
                index,
                position,
            }),
        }
    }
}

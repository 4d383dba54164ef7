//! The cache of a model: buffers by split, the jobs on them, and the state the planner starts from.
//!
//! The life of a step: [`prepare`](KvManager::prepare) gives the cache the step's shape; for each split, the guard
//! from [`split`](KvManager::split) lends past and new columns to the graph, and [`commit`](KvManager::commit) starts
//! the copy of the new columns on worker threads, while the next split runs; [`advance`](KvManager::advance) ends it.
//! A guard waits for its own split's jobs and for no other's. No step allocates once the buffers stand.

mod guard;
#[cfg(test)]
mod tests;

pub use guard::{SplitGuard, TensorView};

use crate::geometry::KvGeometry;
use crate::mode::{CacheMode, ModeKind};
use crate::plan::{InferenceStep, KvState, PlanError, Policy, Strategy, Variants, plan};
use crate::tensor_buf::{Columns, Op, Run, TensorBuf};
use crate::worker::{Job, Pool, Shard};
use crate::{KvError, KvForm};
use crossbeam::channel::{Receiver, Sender, bounded};
use genie_types::{SplitIdx, VariantSpec};

/// How a cache is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvOptions {
    /// How rows lie and move.
    pub mode: ModeKind,
    /// Threads for the moves; 0 runs them where they are asked for.
    pub n_threads: usize,
}

/// A split's tensors, at home or with a worker.
#[derive(Debug)]
struct Split {
    shards: Vec<Shard>,
    /// Shards that workers have.
    n_away: usize,
    home: Receiver<Shard>,
    done: Sender<Shard>,
    n_tensors: usize,
    /// Rows once the jobs under way are done.
    rows: usize,
    /// Past length once the jobs under way are done.
    past_len: usize,
    /// AR once the jobs under way are done.
    ar: usize,
}

/// The KV cache of a model. See the [module](self).
#[derive(Debug)]
pub struct KvManager {
    // Before the splits: dropping it ends the workers.
    pool: Pool,
    splits: Vec<Split>,
    variants: Variants,
    mode: &'static dyn CacheMode,
    n_past: usize,
    rows: usize,
    spec: Option<VariantSpec>,
    /// False when every shape has AR == CL: there is nothing to keep.
    keeps_rows: bool,
}

impl KvManager {
    /// Allocates all buffers, filled with the pad value, and starts the workers.
    ///
    /// # Errors
    /// [`KvError::Geometry`], [`KvError::Worker`].
    pub fn new(geometry: &KvGeometry, variants: Variants, options: KvOptions) -> Result<Self, KvError> {
        let mode = options.mode.mode();
        let keeps_rows = !variants.is_full_context_only();
        // A step may leave more rows than its own past holds, at most its context: see `commit`.
        let max_past = if keeps_rows { variants.max_ctx() } else { 0 };
        let mut splits = Vec::with_capacity(geometry.splits.len());
        for split in &geometry.splits {
            if let Some(bad) = split.tensors.iter().find(|t| t.n_lines() == 0 || t.head_dim == 0) {
                let name = bad.name();
                return Err(KvError::Geometry(format!("`{name}` has no rows: heads and head_dim must be at least 1")));
            }
            let n_tensors = split.tensors.len();
            let n_shards = options.n_threads.clamp(1, n_tensors.max(1));
            let (done, home) = bounded(n_shards);
            let mut shards: Vec<Shard> = Vec::with_capacity(n_shards);
            for index in 0..n_shards {
                let part = index * n_tensors / n_shards..(index + 1) * n_tensors / n_shards;
                let tensors =
                    split.tensors[part].iter().map(|&t| TensorBuf::new(t, mode, max_past, variants.ar_max())).collect();
                shards.push(Shard { index, tensors, failed: None });
            }
            splits.push(Split { shards, n_away: 0, home, done, n_tensors, rows: 0, past_len: 0, ar: 0 });
        }
        let pool = Pool::new(options.n_threads, splits.iter().map(|s| s.shards.len()).sum())?;
        Ok(Self { pool, splits, variants, mode, n_past: 0, rows: 0, spec: None, keeps_rows })
    }

    /// The shapes it was made for.
    pub fn variants(&self) -> &Variants {
        &self.variants
    }

    /// The mode it runs in.
    pub fn mode(&self) -> &'static dyn CacheMode {
        self.mode
    }

    /// Worker threads.
    pub fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    /// Splits, those without cache tensors included.
    pub fn n_splits(&self) -> usize {
        self.splits.len()
    }

    /// Where the dialog stands.
    pub fn state(&self) -> KvState {
        KvState { n_past: self.n_past, n_valid_kv: self.rows, variant: self.spec }
    }

    /// Bytes of all buffers. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn buffer_bytes(&mut self) -> Result<usize, KvError> {
        self.settle()?;
        Ok(self.splits.iter().flat_map(|s| &s.shards).flat_map(|s| &s.tensors).map(TensorBuf::bytes).sum())
    }

    /// Plans `n_inputs` new tokens from here, with the mask columns of this mode.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn plan(&self, n_inputs: usize, policy: &Policy) -> Result<Strategy, PlanError> {
        plan(&self.state(), &self.variants, n_inputs, policy).map(|strategy| strategy.for_mode(self.mode, self.form()))
    }

    /// Gives the cache the shape of a step and checks that the step belongs here. A step from position 0 (the history
    /// is processed again) drops the rows there are.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`], and as [`set_variant`](Self::set_variant).
    pub fn prepare(&mut self, step: &InferenceStep) -> Result<(), KvError> {
        if step.n_past == 0 && self.n_past != 0 {
            self.rewind_to(0)?;
        }
        same("n_past", self.n_past, step.n_past)?;
        same("n_valid_kv", self.rows, step.n_valid_kv)?;
        self.set_variant(step.spec)
    }

    /// Takes the shape of a graph: rows move to the new stride in place, on the workers. Nothing moves when the shape
    /// is the current one.
    ///
    /// # Errors
    /// [`KvError::UnknownVariant`], [`KvError::PastTooLong`], [`KvError::Worker`].
    pub fn set_variant(&mut self, spec: VariantSpec) -> Result<(), KvError> {
        let past_len = self.past_len_for(spec)?;
        let ar = spec.variant().get();
        for at in 0..self.splits.len() {
            let split = &mut self.splits[at];
            if (split.past_len, split.ar) != (past_len, ar) {
                (split.past_len, split.ar) = (past_len, ar);
                self.start(at, [Some(Op::Shape { past_len, ar }), None])?;
            }
        }
        self.spec = Some(spec);
        Ok(())
    }

    /// Lends a split's tensors for one execution. Waits for this split's jobs.
    ///
    /// # Errors
    /// [`KvError::UnknownSplit`], [`KvError::NotPrepared`], [`KvError::Worker`].
    pub fn split(&mut self, split: SplitIdx) -> Result<SplitGuard<'_>, KvError> {
        let at = self.check(split)?;
        let (n_rows, held) = (self.splits[at].rows, self.splits[at].past_len);
        let wanted = self.spec.map(|spec| self.form().past_len(spec));
        if wanted != Some(held) {
            let detail = match self.spec {
                None => "no shape chosen yet".to_owned(),
                Some(spec) => format!("widened to {held} beyond the past of {spec}"),
            };
            return Err(KvError::NotPrepared { split, n_rows, detail });
        }
        self.collect(at)?;
        Ok(SplitGuard::new(&mut self.splits[at].shards, self.mode))
    }

    /// Starts keeping the first `step.n_process` new columns of a split behind its rows.
    ///
    /// When they do not fit the past of the step's own graph (the last step of a full context, or the last before a
    /// promotion), the split widens to the graph's CL; the next [`set_variant`](Self::set_variant) narrows it again.
    ///
    /// # Errors
    /// [`KvError::UnknownSplit`], [`KvError::StepMismatch`], [`KvError::Worker`].
    pub fn commit(&mut self, split: SplitIdx, step: &InferenceStep) -> Result<(), KvError> {
        let at = self.check_step(split, step)?;
        self.append(at, Columns::First(step.n_process), None)
    }

    /// As [`commit`](Self::commit), then takes the shape of the next step in the same job (Genie's update-and-set).
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`KvError::UnknownVariant`], [`KvError::PastTooLong`] before anything is kept.
    /// The shape counts for the manager once [`set_variant`](Self::set_variant) is called with it, which moves nothing.
    pub fn commit_and_set(&mut self, split: SplitIdx, step: &InferenceStep, next: VariantSpec) -> Result<(), KvError> {
        let at = self.check_step(split, step)?;
        let past_len = self.past_len_for_rows(next, step.n_valid_kv + step.n_process)?;
        let shape = Op::Shape { past_len, ar: next.variant().get() };
        self.append(at, Columns::First(step.n_process), Some(shape))?;
        (self.splits[at].past_len, self.splits[at].ar) = (past_len, next.variant().get());
        Ok(())
    }

    /// As [`commit`](Self::commit), but keeps only the selected columns, in order (speculation). `selected[i]` says
    /// whether new column `i` is kept; follow it with [`advance_by`](Self::advance_by).
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`KvError::StepMismatch`] when the mask is longer than the step.
    pub fn commit_selected(&mut self, split: SplitIdx, step: &InferenceStep, selected: &[bool]) -> Result<(), KvError> {
        let at = self.check_step(split, step)?;
        if selected.len() > step.n_process {
            same("length of the selection", step.n_process, selected.len())?;
        }
        self.append(at, Columns::Runs(runs(selected).into()), None)
    }

    /// Ends a step: all splits have committed it, the dialog stands `n_process` tokens further.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] when a split has not committed.
    pub fn advance(&mut self, step: &InferenceStep) -> Result<(), KvError> {
        same("n_past", self.n_past, step.n_past)?;
        self.advance_by(step.n_process)
    }

    /// Ends a step of which `n` rows were kept.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] when a split holds another number of rows.
    pub fn advance_by(&mut self, n: usize) -> Result<(), KvError> {
        let rows = if self.keeps_rows { self.rows + n } else { 0 };
        for split in self.splits.iter_mut() {
            if split.n_tensors == 0 {
                split.rows = rows;
            }
            same("rows of a split after commit", rows, split.rows)?;
        }
        self.rows = rows;
        self.n_past += n;
        Ok(())
    }

    /// Goes back to the first `n_past` tokens.
    ///
    /// # Errors
    /// [`KvError::Rewind`] forward, or once rows before that point were evicted; [`KvError::Worker`].
    pub fn rewind(&mut self, n_past: usize) -> Result<(), KvError> {
        let refuse = |why| Err(KvError::Rewind { to: n_past, n_past: self.n_past, n_valid_kv: self.rows, why });
        if n_past > self.n_past {
            return refuse("; only backwards is possible");
        }
        if self.keeps_rows && self.rows != self.n_past && n_past != 0 {
            return refuse("; long context has evicted rows");
        }
        self.rewind_to(n_past)
    }

    /// Forgets everything; all buffers hold the pad value again. Also recovers from a failed worker.
    ///
    /// # Errors
    /// [`KvError::Worker`] when a job of this very call fails.
    pub fn clear(&mut self) -> Result<(), KvError> {
        for at in 0..self.splits.len() {
            self.gather(at);
            self.splits[at].shards.iter_mut().for_each(|s| s.failed = None);
            self.splits[at].rows = 0;
            self.start(at, [Some(Op::Clear), None])?;
        }
        (self.n_past, self.rows) = (0, 0);
        Ok(())
    }

    /// Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`] when one has failed.
    pub fn settle(&mut self) -> Result<(), KvError> {
        (0..self.splits.len()).try_for_each(|at| self.collect(at))
    }

    fn form(&self) -> KvForm {
        self.variants.form()
    }

    fn rewind_to(&mut self, n_past: usize) -> Result<(), KvError> {
        let n_rows = if self.keeps_rows { n_past } else { 0 };
        for at in 0..self.splits.len() {
            if self.splits[at].rows != n_rows {
                self.splits[at].rows = n_rows;
                self.start(at, [Some(Op::Truncate { n_rows }), None])?;
            }
        }
        (self.n_past, self.rows) = (n_past, n_rows);
        Ok(())
    }

    fn past_len_for(&self, spec: VariantSpec) -> Result<usize, KvError> {
        self.past_len_for_rows(spec, self.rows)
    }

    fn past_len_for_rows(&self, spec: VariantSpec, n_rows: usize) -> Result<usize, KvError> {
        if !self.variants.contains(spec) {
            let known: Vec<_> = self.variants.specs().iter().map(|s| s.to_string()).collect();
            return Err(KvError::UnknownVariant { spec, known: known.join(", ") });
        }
        let past_len = self.form().past_len(spec);
        if n_rows > past_len && self.keeps_rows {
            return Err(KvError::PastTooLong { spec, past_len, n_rows });
        }
        Ok(past_len)
    }

    fn check(&self, split: SplitIdx) -> Result<usize, KvError> {
        let n_splits = self.splits.len();
        if split.0 < n_splits { Ok(split.0) } else { Err(KvError::UnknownSplit { split, n_splits }) }
    }

    fn check_step(&self, split: SplitIdx, step: &InferenceStep) -> Result<usize, KvError> {
        let at = self.check(split)?;
        if self.spec != Some(step.spec) {
            let expected = self.spec.map_or("none yet".to_owned(), |s| s.to_string());
            return Err(KvError::StepMismatch { what: "shape", expected, found: step.spec.to_string() });
        }
        if self.splits[at].n_tensors > 0 {
            // Also catches a second commit of the same step.
            same("n_valid_kv", self.splits[at].rows, step.n_valid_kv)?;
        }
        if step.n_process > step.variant() {
            same("n_process, at most AR", step.variant(), step.n_process)?;
        }
        Ok(at)
    }

    fn append(&mut self, at: usize, columns: Columns, then: Option<Op>) -> Result<(), KvError> {
        if !self.keeps_rows {
            return self.start(at, [then, None]);
        }
        let spill_len = self.spec.map_or(0, |s| s.ctx_size().get());
        let split = &mut self.splits[at];
        split.rows += columns.len();
        if split.rows > split.past_len {
            split.past_len = spill_len.max(split.rows); // as the job will do
        }
        self.start(at, [Some(Op::Append { columns, spill_len }), then])
    }

    /// Sends a split's tensors out with a job, once those of the job before are back.
    fn start(&mut self, at: usize, ops: [Option<Op>; 2]) -> Result<(), KvError> {
        if ops.iter().all(Option::is_none) || self.splits[at].n_tensors == 0 {
            return Ok(());
        }
        self.collect(at)?;
        let split = &mut self.splits[at];
        for i in 0..split.shards.len() {
            let shard = std::mem::take(&mut split.shards[i]);
            split.n_away += 1;
            self.pool.run(Job { shard, ops: ops.clone(), mode: self.mode, done: split.done.clone() });
        }
        Ok(())
    }

    /// Brings a split's tensors home.
    fn gather(&mut self, at: usize) {
        let split = &mut self.splits[at];
        while split.n_away > 0 {
            // The split keeps a sender itself, so the channel cannot close.
            let shard = split.home.recv().expect("the split holds a sender of its own channel");
            let index = shard.index;
            split.shards[index] = shard;
            split.n_away -= 1;
        }
    }

    fn collect(&mut self, at: usize) -> Result<(), KvError> {
        self.gather(at);
        match self.splits[at].shards.iter().find_map(|s| s.failed.as_ref()) {
            Some(text) => Err(KvError::Worker(format!("a job on split {at} failed: {text}; `clear` starts afresh"))),
            None => Ok(()),
        }
    }
}

/// Runs of kept columns.
fn runs(selected: &[bool]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (col, _) in selected.iter().enumerate().filter(|&(_, &keep)| keep) {
        match runs.last_mut() {
            Some(run) if run.col + run.len == col => run.len += 1,
            _ => runs.push(Run { col, len: 1 }),
        }
    }
    runs
}

fn same(what: &'static str, expected: usize, found: usize) -> Result<(), KvError> {
    if expected == found {
        return Ok(());
    }
    Err(KvError::StepMismatch { what, expected: expected.to_string(), found: found.to_string() })
}

//! Worker threads for the byte moves. A shard of a split travels to a worker through a channel and back through a queue,
//! with the memory it owns: whoever holds it may move its bytes, no other thread can, and so there is nothing to lock and
//! nothing to race for.

use crate::KvError;
use crate::buffer::AlignedBytes;
use crate::group::MAX_GROUPS;
use crate::memory::MemorySource;
use crate::mode::{CacheMode, ModeKind};
use crate::returns::ReturnTo;
use crate::series::Series;
use crate::tensor_buf::{Op, Run, TensorBuf};
use crossbeam::channel::{Receiver, Sender, bounded};
use genie_types::SplitIdx;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A job begins or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEvent {
    /// The split whose tensors it moves.
    pub split: SplitIdx,
    /// Which part of them.
    pub shard: usize,
    /// Whether it has ended.
    pub ended: bool,
}

/// Called with the events of jobs, on the thread that does them.
pub type JobWatch = Arc<dyn Fn(JobEvent) + Send + Sync>;

/// Some tensors of a split in one block of memory, moved as one.
#[derive(Debug, Default)]
pub(crate) struct Shard {
    /// Its place among the split's shards.
    pub(crate) index: usize,
    tensors: Vec<TensorBuf>,
    series: Vec<Series>,
    block: AlignedBytes,
    /// The message of a job that panicked.
    pub(crate) failed: Option<String>,
}

impl Shard {
    /// The tensors one behind the other, all pad.
    pub(crate) fn new(
        index: usize,
        tensors: Vec<TensorBuf>,
        memory: Option<&dyn MemorySource>,
    ) -> Result<Self, KvError> {
        let block = AlignedBytes::from_source(memory, tensors.iter().map(TensorBuf::block_bytes).sum())?;
        let mut shard = Self { index, series: Series::of(&tensors), tensors, block, failed: None };
        shard.parts_mut().for_each(|(tensor, bytes)| tensor.pad(bytes));
        Ok(shard)
    }

    pub(crate) fn tensors(&self) -> &[TensorBuf] {
        &self.tensors
    }

    /// Each tensor with its part of the block.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&TensorBuf, &[u8])> {
        let mut rest = self.block.as_slice();
        self.tensors.iter().map(move |tensor| {
            let (own, tail) = rest.split_at(tensor.block_bytes());
            rest = tail;
            (tensor, own)
        })
    }

    /// Makes a move in all tensors.
    pub(crate) fn apply(&mut self, op: &Op, mode: &dyn CacheMode) {
        if let Op::Append { group, runs, extent, past_len } = op
            && mode.rows_stay()
            && self.append(mode, *group, runs.as_slice(), (*extent, *past_len))
        {
            return;
        }
        self.parts_mut().for_each(|(tensor, bytes)| tensor.apply(bytes, op, mode));
    }

    /// Keeps new columns in all tensors of a group, series by series; false if rows have to move before.
    fn append(&mut self, mode: &dyn CacheMode, group: usize, runs: &[Run], (extent, past_len): (usize, usize)) -> bool {
        let mut own = self.tensors.iter_mut().filter(|tensor| tensor.spec.group == group).peekable();
        // An op goes to all tensors of a group: they have one shape.
        let Some(first) = own.peek().filter(|tensor| tensor.past_len() == past_len) else { return false };
        let ar = first.ar();
        let n = runs.iter().map(|run| run.len).sum();
        own.for_each(|tensor| tensor.appended(n, extent));
        let block = self.block.as_mut_slice();
        self.series
            .iter()
            .filter(|series| series.group() == group)
            .for_each(|series| series.append(block, mode, runs, (past_len, ar)));
        true
    }

    /// The same, to be changed.
    pub(crate) fn parts_mut(&mut self) -> impl Iterator<Item = (&mut TensorBuf, &mut [u8])> {
        let mut rest = self.block.as_mut_slice();
        self.tensors.iter_mut().map(move |tensor| {
            let (own, tail) = std::mem::take(&mut rest).split_at_mut(tensor.block_bytes());
            rest = tail;
            (tensor, own)
        })
    }
}

/// Moves to make in order; at most an append and a change of variant for each group, so no heap is needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ops {
    ops: [Option<Op>; 2 * MAX_GROUPS],
    n: usize,
}

impl Ops {
    pub(crate) fn one(op: Op) -> Self {
        let mut ops = Self::default();
        ops.push(op);
        ops
    }

    pub(crate) fn push(&mut self, op: Op) {
        assert!(self.n < self.ops.len(), "at most two moves per group");
        self.ops[self.n] = Some(op);
        self.n += 1;
    }

    pub(crate) fn extend(&mut self, more: Ops) {
        more.ops.into_iter().flatten().for_each(|op| self.push(op));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.n == 0
    }
}

/// What to do to a shard, and where it goes afterwards.
pub(crate) struct Job {
    pub(crate) split: SplitIdx,
    pub(crate) shard: Shard,
    pub(crate) ops: Ops,
    pub(crate) mode: ModeKind,
    pub(crate) done: ReturnTo,
    pub(crate) watch: Option<JobWatch>,
}

impl Job {
    fn report(&self, ended: bool) {
        if let Some(watch) = &self.watch {
            watch(JobEvent { split: self.split, shard: self.shard.index, ended });
        }
    }

    fn run(mut self) {
        self.report(false);
        let (shard, ops, mode) = (&mut self.shard, &self.ops, self.mode);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for op in ops.ops.iter().flatten() {
                shard.apply(op, mode.mode());
            }
        }));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a job panicked");
            self.shard.failed = Some(text.to_owned());
        }
        self.report(true);
        self.done.send(self.shard);
    }
}

/// The threads; none means that jobs run where they are handed in.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// `n_shards`: the most jobs that can be under way.
    pub(crate) fn new(n_threads: usize, n_shards: usize) -> Result<Self, KvError> {
        if n_threads == 0 {
            return Ok(Self::default());
        }
        let (jobs, inbox): (_, Receiver<Job>) = bounded(n_shards.max(1));
        let mut pool = Self { jobs: Some(jobs), threads: Vec::with_capacity(n_threads) };
        for i in 0..n_threads {
            let inbox = inbox.clone();
            let thread = std::thread::Builder::new()
                .name(format!("kv-{i}"))
                .spawn(move || inbox.iter().for_each(Job::run))
                .map_err(|e| KvError::Worker(format!("cannot start thread {i} of {n_threads}: {e}")))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub(crate) fn n_threads(&self) -> usize {
        self.threads.len()
    }

    pub(crate) fn run(&self, job: Job) {
        match &self.jobs {
            // The threads live as long as the pool, and they only end when the pool drops its side.
            Some(jobs) => jobs.send(job).expect("workers outlive the pool"),
            None => job.run(),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // Jobs catch their panics, so a thread only ends in order.
            let _ = thread.join();
        }
    }
}

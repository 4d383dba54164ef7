//! Splits and their jobs: tensors leave for the workers with moves to make and come home when someone needs them.

use super::KvCache;
use crate::KvError;
use crate::group::MAX_GROUPS;
use crate::tensor_buf::{Op, TensorBuf};
use crate::worker::{Job, Ops, Shard};
use crossbeam::channel::{Receiver, Sender, bounded};
use genie_types::SplitIdx;

/// A past input begins elsewhere than the last time its split was lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebind {
    /// The split.
    pub split: SplitIdx,
    /// The tensor's index in the split's geometry.
    pub tensor: usize,
    /// Byte of the tensor's buffer at which the past input now begins.
    pub offset_bytes: usize,
}

/// A split's tensors, at home or with a worker, and what they will be once the jobs under way are done.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) shards: Vec<Shard>,
    pub(super) n_tensors: usize,
    n_away: usize,
    home: Receiver<Shard>,
    done: Sender<Shard>,
    pub(super) past_len: [usize; MAX_GROUPS],
    pub(super) extent: [usize; MAX_GROUPS],
    pub(super) ar: usize,
    /// The step under way is kept here.
    pub(super) committed: bool,
    /// Byte at which each past input began when last lent.
    bound: Vec<usize>,
}

impl Split {
    pub(super) fn new(
        n_shards: usize,
        n_tensors: usize,
        mut tensor: impl FnMut(usize) -> TensorBuf,
    ) -> Result<Self, KvError> {
        let (done, home) = bounded(n_shards);
        let part = |index: usize| index * n_tensors / n_shards..(index + 1) * n_tensors / n_shards;
        let shards = (0..n_shards)
            .map(|index| Shard::new(index, part(index).map(&mut tensor).collect()))
            .collect::<Result<_, _>>()?;
        let (past_len, extent, bound) = ([0; MAX_GROUPS], [0; MAX_GROUPS], vec![0; n_tensors]);
        Ok(Self { shards, n_tensors, n_away: 0, home, done, past_len, extent, ar: 0, committed: false, bound })
    }
}

impl KvCache {
    /// Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`] when one has failed.
    pub fn settle(&mut self) -> Result<(), KvError> {
        (0..self.splits.len()).try_for_each(|at| self.collect(at))
    }

    /// Sends a split's tensors out with moves to make, once those of the job before are back.
    pub(super) fn start(&mut self, at: usize, ops: Ops) -> Result<(), KvError> {
        if ops.is_empty() || self.splits[at].n_tensors == 0 {
            return Ok(());
        }
        self.collect(at)?;
        let split = &mut self.splits[at];
        for i in 0..split.shards.len() {
            let shard = std::mem::take(&mut split.shards[i]);
            split.n_away += 1;
            self.pool.run(Job {
                split: SplitIdx(at),
                shard,
                ops: ops.clone(),
                mode: self.options.mode,
                done: split.done.clone(),
                watch: self.watch.clone(),
            });
        }
        Ok(())
    }

    /// Sends a move to all splits.
    pub(super) fn start_all(&mut self, op: &Op) -> Result<(), KvError> {
        (0..self.splits.len()).try_for_each(|at| self.start(at, Ops::one(op.clone())))
    }

    /// Tells all splits how many rows of each group are in use.
    pub(super) fn sync_extents(&mut self) -> Result<(), KvError> {
        for at in 0..self.splits.len() {
            let mut ops = Ops::default();
            for group in 0..self.groups.len() {
                let extent = self.groups[group].cells.extent();
                if std::mem::replace(&mut self.splits[at].extent[group], extent) != extent {
                    ops.push(Op::Extent { group, extent });
                }
            }
            self.start(at, ops)?;
        }
        Ok(())
    }

    /// Brings a split's tensors home.
    pub(super) fn gather(&mut self, at: usize) {
        let split = &mut self.splits[at];
        while split.n_away > 0 {
            let shard = split.home.recv().expect("the split holds a sender of its own channel");
            let index = shard.index;
            split.shards[index] = shard;
            split.n_away -= 1;
        }
    }

    /// The same, and reports a job that failed.
    pub(super) fn collect(&mut self, at: usize) -> Result<(), KvError> {
        self.gather(at);
        match self.splits[at].shards.iter().find_map(|s| s.failed.as_ref()) {
            Some(text) => Err(KvError::Worker(format!("a job on split {at} failed: {text}; `clear` starts afresh"))),
            None => Ok(()),
        }
    }

    /// Calls back for the past inputs that begin elsewhere than before.
    pub(super) fn rebind(&mut self, at: usize) {
        let Some(callback) = &mut self.on_rebind else { return };
        let split = &mut self.splits[at];
        let tensors = split.shards.iter().flat_map(Shard::tensors);
        for (tensor, (buf, bound)) in tensors.zip(&mut split.bound).enumerate() {
            let offset_bytes = buf.view_offset(self.options.mode.mode());
            if std::mem::replace(bound, offset_bytes) != offset_bytes {
                callback(Rebind { split: SplitIdx(at), tensor, offset_bytes });
            }
        }
    }
}

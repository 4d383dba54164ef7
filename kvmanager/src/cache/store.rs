//! The bytes of all splits, and the jobs on them. Ownership of a split's tensors moves to a worker for each job and returns
//! before the next access: a split waits for its own jobs and for no other's.

use super::group_state::GroupState;
use crate::KvError;
use crate::geometry::KvGeometry;
use crate::group::MAX_GROUPS;
use crate::memory::MemorySource;
use crate::mode::ModeKind;
use crate::returns::Returns;
use crate::tensor_buf::{Op, TensorBuf};
use crate::worker::{Job, JobWatch, Ops, Pool, Shard};
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

/// Called with each [`Rebind`].
pub type OnRebind = Box<dyn FnMut(Rebind) + Send>;

/// A split's tensors, here or with a worker, and what they will be once the jobs under way are done.
#[derive(Debug)]
pub(super) struct Split {
    pub(super) shards: Vec<Shard>,
    pub(super) n_tensors: usize,
    n_away: usize,
    returned: Returns,
    pub(super) past_len: [usize; MAX_GROUPS],
    pub(super) extent: [usize; MAX_GROUPS],
    pub(super) ar: usize,
    /// The step under way is kept here.
    pub(super) committed: bool,
    /// Byte at which each past input began when last lent.
    bound: Vec<usize>,
}

impl Split {
    fn new(
        n_shards: usize,
        n_tensors: usize,
        mut tensor: impl FnMut(usize) -> TensorBuf,
        memory: Option<&dyn MemorySource>,
    ) -> Result<Self, KvError> {
        let part = |index: usize| index * n_tensors / n_shards..(index + 1) * n_tensors / n_shards;
        let shards = (0..n_shards)
            .map(|index| Shard::new(index, part(index).map(&mut tensor).collect(), memory))
            .collect::<Result<_, _>>()?;
        let (past_len, extent, bound) = ([0; MAX_GROUPS], [0; MAX_GROUPS], vec![0; n_tensors]);
        Ok(Self {
            shards,
            n_tensors,
            n_away: 0,
            returned: Returns::new(n_shards),
            past_len,
            extent,
            ar: 0,
            committed: false,
            bound,
        })
    }
}

/// All splits, and the workers that move their bytes.
pub(super) struct Store {
    // Before the splits: dropping it ends the workers.
    pool: Pool,
    pub(super) splits: Vec<Split>,
    pub(super) mode: ModeKind,
    on_rebind: Option<OnRebind>,
    pub(super) watch: Option<JobWatch>,
}

impl Store {
    /// `lengths`: for each group the longest past and the capacity, in rows.
    pub(super) fn new(
        geometry: &KvGeometry,
        lengths: &[(usize, usize)],
        ar_max: usize,
        (mode, n_threads): (ModeKind, usize),
        on_rebind: Option<OnRebind>,
        memory: Option<&dyn MemorySource>,
    ) -> Result<Self, KvError> {
        let split = |tensors: &[crate::KvTensor]| {
            let n_shards = n_threads.clamp(1, tensors.len().max(1));
            let tensor = |i: usize| {
                let (max_past, capacity) = lengths[tensors[i].group];
                TensorBuf::new(tensors[i], mode.mode(), max_past, capacity, ar_max)
            };
            Split::new(n_shards, tensors.len(), tensor, memory)
        };
        let splits = geometry.splits.iter().map(|s| split(&s.tensors)).collect::<Result<Vec<_>, _>>()?;
        let pool = Pool::new(n_threads, splits.iter().map(|s| s.shards.len()).sum())?;
        Ok(Self { pool, splits, mode, on_rebind, watch: None })
    }

    pub(super) fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    /// All tensors; those with workers are missing.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &TensorBuf> {
        self.splits.iter().flat_map(|s| &s.shards).flat_map(Shard::tensors)
    }

    /// Waits for all jobs.
    pub(super) fn wait_all(&mut self) -> Result<(), KvError> {
        (0..self.splits.len()).try_for_each(|at| self.wait_split(at))
    }

    /// Receives a split's tensors from its workers.
    pub(super) fn recv_shards(&mut self, at: usize) {
        let split = &mut self.splits[at];
        while split.n_away > 0 {
            let shard = split.returned.recv();
            let index = shard.index;
            split.shards[index] = shard;
            split.n_away -= 1;
        }
    }

    /// The same, and reports a job that failed.
    pub(super) fn wait_split(&mut self, at: usize) -> Result<(), KvError> {
        self.recv_shards(at);
        match self.splits[at].shards.iter().find_map(|s| s.failed.as_ref()) {
            Some(text) => Err(KvError::Worker(format!("a job on split {at} failed: {text}; call `clear` to recover"))),
            None => Ok(()),
        }
    }

    /// Sends a split's tensors to the workers with moves to make, once those of the job before are back.
    pub(super) fn start(&mut self, at: usize, ops: Ops) -> Result<(), KvError> {
        if ops.is_empty() || self.splits[at].n_tensors == 0 {
            return Ok(());
        }
        self.wait_split(at)?;
        let split = &mut self.splits[at];
        // The last job takes the moves, the others copies of them.
        for (i, ops) in std::iter::repeat_n(ops, split.shards.len()).enumerate() {
            let shard = std::mem::take(&mut split.shards[i]);
            split.n_away += 1;
            self.pool.run(Job {
                split: SplitIdx(at),
                shard,
                ops,
                mode: self.mode,
                done: split.returned.address(),
                watch: self.watch.clone(),
            });
        }
        Ok(())
    }

    /// Sends a move to all splits.
    pub(super) fn start_all(&mut self, op: &Op) -> Result<(), KvError> {
        (0..self.splits.len()).try_for_each(|at| self.start(at, Ops::one(op.clone())))
    }

    /// Sends all splits the rows in use of each group, where they differ from what the split holds.
    pub(super) fn sync_extents(&mut self, groups: &[GroupState]) -> Result<(), KvError> {
        for at in 0..self.splits.len() {
            let mut ops = Ops::default();
            for (group, state) in groups.iter().enumerate() {
                let extent = state.cells.extent();
                if std::mem::replace(&mut self.splits[at].extent[group], extent) != extent {
                    ops.push(Op::Extent { group, extent });
                }
            }
            self.start(at, ops)?;
        }
        Ok(())
    }

    /// Calls back for the past inputs that begin elsewhere than before.
    pub(super) fn report_rebinds(&mut self, at: usize) {
        let Some(callback) = &mut self.on_rebind else { return };
        let split = &mut self.splits[at];
        let tensors = split.shards.iter().flat_map(Shard::tensors);
        for (tensor, (buf, bound)) in tensors.zip(&mut split.bound).enumerate() {
            let offset_bytes = buf.view_offset(self.mode.mode());
            if std::mem::replace(bound, offset_bytes) != offset_bytes {
                callback(Rebind { split: SplitIdx(at), tensor, offset_bytes });
            }
        }
    }
}

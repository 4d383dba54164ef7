//! The cache of a model: buffers by split, the jobs on them, and the state the planner starts from.
//!
//! The life of a step: [`prepare`](KvCache::prepare) gives the cache the step's shape; for each split, the guard
//! from [`split`](KvCache::split) lends past and new columns to the graph, and [`commit`](KvCache::commit) starts
//! the copy of the new columns on worker threads, while the next split runs; [`advance`](KvCache::advance) ends it.
//! A guard waits for its own split's jobs and for no other's. A plain decode step allocates nothing once the buffers
//! stand.
//!
//! The request modes of Genie's older manager, which its logs and its documents still name, are found here under those
//! names too (search for them):
//!
//! | request | here |
//! |---|---|
//! | `CLEAR` | [`clear`](KvCache::clear) |
//! | `SET_VARIANT` | [`set_variant`](KvCache::set_variant), or with checks [`prepare`](KvCache::prepare) |
//! | `UPDATE_OUTPUT` | [`commit`](KvCache::commit), [`commit_selected`](KvCache::commit_selected); going back is [`rewind`](KvCache::rewind) |
//! | `UPDATE_AND_SET` | [`commit_and_set`](KvCache::commit_and_set) |

mod guard;
mod image;
mod jobs;
mod long;
mod mask;
mod ops;
mod step;
#[cfg(test)]
mod tests;

pub use guard::{SplitGuard, TensorView};
pub use image::{GroupImage, KvImage};
pub use jobs::Rebind;

use crate::cells::{CellTable, SeqId};
use crate::geometry::{KvGeometry, KvKind};
use crate::group::CacheGroup;
use crate::keydiff::{HeadId, KeyDiff, KeyScorer, Queue};
use crate::mode::ModeKind;
use crate::plan::{KvState, Plan, PlanError, Policy, Variants, plan_into};
use crate::rope::{RopeSpec, ShiftLoss};
use crate::tensor_buf::{Run, Runs, TensorBuf};
use crate::worker::{JobWatch, Pool, Shard};
use crate::{KvError, KvForm};
use genie_types::Variant;
use jobs::Split;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What to do with holes that a removal leaves in a group that keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// Fill them at once with rows from the end: the valid rows are always `0..n_valid_kv`.
    #[default]
    Close,
    /// Leave them, and fill them with new rows later; masks then have to come from
    /// [`fill_mask`](KvCache::fill_mask).
    Keep,
}

/// How a cache is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvOptions {
    /// How rows lie and move.
    pub mode: ModeKind,
    /// Threads for the moves; 0 runs them where they are asked for.
    pub n_threads: usize,
}

/// Bytes of rows that were moved or copied, whatever for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Of keys.
    pub keys: u64,
    /// Of values.
    pub values: u64,
}

/// One token of a step, for steps that mix sequences or verify a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchToken {
    /// Its sequence.
    pub seq: SeqId,
    /// Its position.
    pub pos: usize,
}

/// One cache group at work.
#[derive(Debug)]
struct GroupState {
    rule: CacheGroup,
    cells: CellTable,
    /// Rows its buffers can hold.
    capacity: usize,
    /// Where the kept columns of the step under way go: `(slot, token)`.
    placed: Vec<(usize, BatchToken)>,
    runs: Runs,
    /// Rows in use once the step under way is kept.
    extent_after: usize,
    /// First slot of the block that a scatter graph writes.
    block: usize,
    /// Rows that `KeyDiff` drops before the step's rows come in.
    n_evict: usize,
    /// Heads no longer hold the same tokens.
    mixed: bool,
    /// `KeyDiff`: who goes next in each head, and steps since that was settled.
    queues: BTreeMap<HeadId, Queue>,
    age: usize,
    /// The step under way ranks all keys anew.
    rescore: bool,
}

/// The KV cache of a model. See the [module](self).
pub struct KvCache {
    // Before the splits: dropping it ends the workers.
    pool: Pool,
    splits: Vec<Split>,
    groups: Vec<GroupState>,
    variants: Variants,
    options: KvOptions,
    holes: Holes,
    spec: Option<Variant>,
    /// Next position of each sequence; that of sequence 0 is `n_past`.
    next: [usize; SeqId::COUNT],
    /// The tokens of the prepared step.
    tokens: Vec<BatchToken>,
    /// The tokens were given one by one, so that their positions count, whatever columns are kept.
    batch: bool,
    /// Columns kept by the step under way; `None` between steps.
    kept: Option<usize>,
    kept_columns: Vec<usize>,
    // Reused, so that a step allocates nothing.
    slots: Vec<usize>,
    column_scratch: Vec<usize>,
    run_scratch: Vec<Run>,
    min_head_dim: Option<usize>,
    /// False when every shape has AR == CL: there is nothing to keep.
    keeps_rows: bool,
    rope: Option<Arc<RopeSpec>>,
    scorer: Box<dyn KeyScorer>,
    on_rebind: Option<Box<dyn FnMut(Rebind) + Send>>,
    watch: Option<JobWatch>,
}

impl std::fmt::Debug for KvCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("KvCache");
        out.field("state", &self.state()).field("mode", &self.options.mode.name());
        out.field("n_splits", &self.splits.len()).finish_non_exhaustive()
    }
}

impl KvCache {
    /// Allocates all buffers, filled with the pad value, and starts the workers.
    ///
    /// # Errors
    /// [`KvError::Geometry`], [`KvError::Refused`] when the mode cannot keep a tensor, [`KvError::Worker`].
    pub fn new(geometry: &KvGeometry, variants: Variants, options: KvOptions) -> Result<Self, KvError> {
        let keeps_rows = !variants.is_full_context_only();
        let groups: Vec<_> =
            variants.groups().iter().map(|rule| GroupState::new(rule, &variants, keeps_rows)).collect();
        let lengths: Vec<_> =
            groups.iter().map(|g| (longest_past(&g.rule, &variants, keeps_rows), g.capacity)).collect();
        check(geometry, &options, &variants)?;
        let splits: Vec<_> = geometry
            .splits
            .iter()
            .map(|split| {
                let n_shards = options.n_threads.clamp(1, split.tensors.len().max(1));
                Split::new(n_shards, split.tensors.len(), |i| {
                    let tensor = split.tensors[i];
                    let (max_past, capacity) = lengths[tensor.group];
                    TensorBuf::new(tensor, options.mode.mode(), max_past, capacity, variants.ar_max())
                })
            })
            .collect::<Result<_, _>>()?;
        let pool = Pool::new(options.n_threads, splits.iter().map(|s| s.shards.len()).sum())?;
        let ar_max = variants.ar_max();
        Ok(Self {
            pool,
            splits,
            groups,
            variants,
            options,
            holes: Holes::Close,
            spec: None,
            next: [0; SeqId::COUNT],
            tokens: Vec::with_capacity(ar_max),
            batch: false,
            kept: None,
            kept_columns: Vec::with_capacity(ar_max),
            slots: Vec::with_capacity(ar_max),
            column_scratch: Vec::with_capacity(ar_max),
            run_scratch: Vec::with_capacity(ar_max),
            min_head_dim: geometry.splits.iter().flat_map(|s| &s.tensors).map(|t| t.head_dim).min(),
            keeps_rows,
            rope: None,
            scorer: Box::new(KeyDiff::default()),
            on_rebind: None,
            watch: None,
        })
    }

    /// Tells how keys were embedded, so that positions can be shifted.
    pub fn set_rope(&mut self, rope: RopeSpec) {
        self.rope = Some(Arc::new(rope));
    }

    /// What to do with holes from now on; [`Holes::Close`] unless told otherwise.
    pub fn set_holes(&mut self, holes: Holes) {
        self.holes = holes;
    }

    /// Replaces the scorer of `KeyDiff` groups.
    pub fn set_scorer(&mut self, scorer: Box<dyn KeyScorer>) {
        self.scorer = scorer;
    }

    /// Calls back whenever a split is lent whose past inputs begin elsewhere than last time (`PointerShift`).
    pub fn on_rebind(&mut self, callback: Box<dyn FnMut(Rebind) + Send>) {
        self.on_rebind = Some(callback);
    }

    /// Tells of every job as it begins and ends, on the thread that does it; a slow listener holds that job up.
    pub fn watch_jobs(&mut self, watch: JobWatch) {
        self.watch = Some(watch);
    }

    /// The shapes and groups it was made for.
    pub fn variants(&self) -> &Variants {
        &self.variants
    }

    /// The mode it runs in.
    pub fn mode(&self) -> ModeKind {
        self.options.mode
    }

    /// Worker threads.
    pub fn n_threads(&self) -> usize {
        self.pool.n_threads()
    }

    /// Splits, those without cache tensors included.
    pub fn n_splits(&self) -> usize {
        self.splits.len()
    }

    /// Where the dialog (sequence 0) stands.
    pub fn state(&self) -> KvState {
        KvState { n_past: self.next[0], n_valid_kv: self.groups[0].cells.n_used(), variant: self.spec }
    }

    /// Position of a sequence's next token.
    pub fn next_pos(&self, seq: SeqId) -> usize {
        self.next.get(usize::from(seq.0)).copied().unwrap_or(0)
    }

    /// Which slot of a group holds what; `None` for a group the cache lacks.
    pub fn cells(&self, group: usize) -> Option<&CellTable> {
        self.groups.get(group).map(|g| &g.cells)
    }

    /// Bytes that all buffers of a cache would take, before any is allocated.
    pub fn required_bytes(geometry: &KvGeometry, variants: &Variants, mode: ModeKind) -> usize {
        let keeps_rows = !variants.is_full_context_only();
        let tensors = geometry.splits.iter().flat_map(|s| &s.tensors);
        let bytes = tensors.map(|tensor| {
            let rule = variants.groups().get(tensor.group).unwrap_or(&variants.groups()[0]);
            let past = longest_past(rule, variants, keeps_rows);
            let capacity = capacity(rule, variants, keeps_rows);
            TensorBuf::new(*tensor, mode.mode(), past, capacity, variants.ar_max()).bytes()
        });
        bytes.sum()
    }

    /// Bytes of all buffers. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn buffer_bytes(&mut self) -> Result<usize, KvError> {
        self.settle()?;
        Ok(self.tensors().map(TensorBuf::bytes).sum())
    }

    /// Bytes of rows moved or copied since the last `clear`: what the mode's promises cost in truth. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn moved_bytes(&mut self) -> Result<MovedBytes, KvError> {
        self.settle()?;
        let of = |kind| self.tensors().filter(|t| t.spec.kind == kind).map(|t| t.moved).sum();
        Ok(MovedBytes { keys: of(KvKind::Key), values: of(KvKind::Value) })
    }

    /// What shifting positions has cost since the last `clear`. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn shift_loss(&mut self) -> Result<ShiftLoss, KvError> {
        self.settle()?;
        Ok(self.tensors().fold(ShiftLoss::default(), |sum, t| sum.and(&t.loss)))
    }

    /// Plans `n_inputs` new tokens of the dialog from here, with the mask columns of this mode.
    ///
    /// # Errors
    /// [`PlanError`]; [`PlanError::Shared`] when other sequences have rows in a group that evicts, or when only a graph
    /// without past could go on.
    pub fn plan(&self, n_inputs: usize, policy: &Policy) -> Result<Plan, PlanError> {
        let mut strategy = Plan::default();
        self.plan_into(n_inputs, policy, &mut strategy)?;
        Ok(strategy)
    }

    /// The same into a strategy that is there already, so that a decode step allocates nothing.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_into(&self, n_inputs: usize, policy: &Policy, strategy: &mut Plan) -> Result<(), PlanError> {
        let has_company = |g: &&GroupState| g.cells.n_used_without(SeqId(0)) > 0;
        plan_into(&self.state(), &self.variants, n_inputs, policy, strategy)?;
        let evicts = self.groups.iter().filter(has_company).any(|g| g.rule.evicts());
        let has_no_past = strategy.steps().iter().any(|s| s.spec.is_full_context());
        if evicts || (has_no_past && self.groups.iter().any(|g| has_company(&g))) {
            return Err(PlanError::Shared);
        }
        strategy.set_mode(self.options.mode.mode(), &self.groups[0].rule);
        Ok(())
    }

    /// All tensors; those with workers are missing.
    fn tensors(&self) -> impl Iterator<Item = &TensorBuf> {
        self.splits.iter().flat_map(|s| &s.shards).flat_map(Shard::tensors)
    }
}

impl GroupState {
    fn new(rule: &CacheGroup, variants: &Variants, keeps_rows: bool) -> Self {
        let capacity = capacity(rule, variants, keeps_rows);
        Self {
            rule: rule.clone(),
            cells: CellTable::new(capacity),
            capacity,
            placed: Vec::with_capacity(variants.ar_max()),
            runs: Runs::new(&[]),
            extent_after: 0,
            block: 0,
            n_evict: 0,
            mixed: false,
            queues: BTreeMap::new(),
            age: 0,
            rescore: false,
        }
    }

    /// No rows, no queues.
    fn clear(&mut self) {
        self.cells.clear();
        self.placed.clear();
        self.queues.clear();
        self.mixed = false;
    }
}

/// Rows a group's buffers hold: a step may leave more rows than its own past holds, at most its context.
fn capacity(rule: &CacheGroup, variants: &Variants, keeps_rows: bool) -> usize {
    let longest = variants.specs().iter().map(|&s| rule.ctx_of(s)).max().unwrap_or(0);
    if keeps_rows { longest } else { 0 }
}

/// The longest past input among the group's graphs.
fn longest_past(rule: &CacheGroup, variants: &Variants, keeps_rows: bool) -> usize {
    let longest = variants.specs().iter().map(|&s| rule.past_len(s)).max().unwrap_or(0);
    if keeps_rows { longest } else { 0 }
}

fn check(geometry: &KvGeometry, options: &KvOptions, variants: &Variants) -> Result<(), KvError> {
    let n_groups = variants.groups().len();
    for tensor in geometry.splits.iter().flat_map(|s| &s.tensors) {
        let name = tensor.name();
        if tensor.n_lines() == 0 || tensor.head_dim == 0 {
            return Err(KvError::Geometry(format!("`{name}` has no rows: heads and head_dim must be at least 1")));
        }
        if tensor.group >= n_groups {
            let group = tensor.group;
            return Err(KvError::Geometry(format!("`{name}` belongs to group {group}, but there are {n_groups}")));
        }
        let scatter = variants.groups()[tensor.group].form == KvForm::Scatter;
        if scatter && matches!(options.mode, ModeKind::ShiftConcat(_) | ModeKind::PointerShift(_)) {
            let why = format!("`{name}`: a scatter graph writes behind its rows, so these must lie at the left");
            return Err(KvError::Refused { mode: options.mode.name(), op: "the scatter form", why });
        }
        options.mode.mode().check(tensor).map_err(|why| KvError::Refused {
            mode: options.mode.name(),
            op: "this geometry",
            why: format!("`{name}`: {why}"),
        })?;
    }
    Ok(())
}

//! The cache of a model: the bytes of all splits, the rows of all sequences, and the step under way.
//!
//! The life of a step: [`begin`](KvCache::begin) takes a planned [`InferenceStep`](crate::InferenceStep) and returns a
//! [`Step`]; for each split, [`Step::split`] lends past and new columns to the graph, and [`Step::commit`] starts the copy
//! of the new columns on worker threads, while the next split runs; [`Step::finish`] ends it. A split waits for its own
//! jobs only. A decode step allocates nothing once the buffers stand.
//!
//! | file | holds |
//! |---|---|
//! | `mod` | [`KvCache`]: options, plans, what the cache reports of itself |
//! | [`step`] | [`Step`]: begin, lend, commit, finish or roll back |
//! | `sequences` | rewind, remove, keep, share, copy, shift, compact |
//! | `rows` | which slots new rows take, which rows are dropped |
//! | `mask` | masks from the cells |
//! | `positions`, `group_state`, `store` | the parts: where sequences stand; a group's cells; bytes and jobs |
//! | `image`, `scored` | [`KvImage`]: the cache as plain values; what `KeyDiff` drops next |
//!
//! The request modes of Genie's older manager, which its logs and its documents still name, are found here under those
//! names too (search for them):
//!
//! | request | here |
//! |---|---|
//! | `CLEAR` | [`clear`](KvCache::clear) |
//! | `SET_VARIANT` | [`begin`](KvCache::begin), without a step [`set_variant`](KvCache::set_variant) |
//! | `UPDATE_OUTPUT` | [`Step::commit`]; going back is [`rewind`](KvCache::rewind) |
//! | `UPDATE_AND_SET` | [`Step::then`] |

mod convert;
mod group_state;
mod image;
mod image_parts;
mod mask;
mod positions;
mod rows;
mod scored;
mod sequences;
pub mod step;
mod store;
#[cfg(test)]
mod tests;
mod views;

pub use convert::{OwnRows, check_shapes};
pub use image::{GroupImage, KvImage};
pub use mask::VisibleColumn;
pub use scored::{ScoredHead, ScoredRows};
pub use step::{Keep, Step};
pub use store::{OnRebind, Rebind};
pub use views::SplitGuard;

use crate::cells::{CellTable, SeqId};
use crate::error::{KvError, Reason};
use crate::geometry::{KvForm, KvGeometry, KvKind, KvTensor};
use crate::group::Eviction;
use crate::keydiff::{KeyDiff, KeyScorer};
use crate::memory::MemorySource;
use crate::mode::ModeKind;
use crate::plan::{GroupRows, KvState, LogitsRequest, Plan, PlanError, Policy, Request, Variants, plan_into};
use crate::rope::{RopeSpec, ShiftLoss};
use crate::tensor_buf::TensorBuf;
use crate::worker::JobWatch;
use genie_types::Variant;
use group_state::{GroupState, capacity, longest_past};
use positions::Positions;
use std::sync::Arc;
use step::StepBuffers;
use store::Store;

/// What to do with holes that a removal leaves in a group that keeps everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolePolicy {
    /// Fill them at once with rows from the end: the valid rows are always `0..n_valid_kv`.
    #[default]
    Close,
    /// Leave them, and fill them with new rows later; masks then come from the cells. Each sequence fills pages of
    /// [`PAGE`](crate::PAGE) slots by itself while there are free ones.
    Keep,
}

/// How a cache is run.
#[derive(Default)]
pub struct KvOptions {
    /// How rows lie and move.
    pub mode: ModeKind,
    /// Threads for the moves; 0 runs them where they are asked for.
    pub n_threads: usize,
    /// What to do with holes.
    pub holes: HolePolicy,
    /// How keys were embedded, so that positions can be shifted.
    pub rope: Option<RopeSpec>,
    /// Scores the keys of `KeyDiff` groups; [`KeyDiff`] by default.
    pub scorer: Option<Box<dyn KeyScorer>>,
    /// Called whenever a split is lent whose past inputs begin elsewhere than last time (`PointerShift`).
    pub on_rebind: Option<OnRebind>,
    /// Where the blocks of rows are to be; otherwise in memory of this process.
    pub memory: Option<Arc<dyn MemorySource>>,
}

impl std::fmt::Debug for KvOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { mode, n_threads, holes, rope, .. } = self;
        let mut out = f.debug_struct("KvOptions");
        out.field("mode", mode).field("n_threads", n_threads).field("holes", holes).field("rope", rope);
        out.finish_non_exhaustive()
    }
}

/// Bytes of rows that were moved or copied, whatever for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// Of keys.
    pub keys: u64,
    /// Of values.
    pub values: u64,
}

/// What is settled when a cache is made.
struct Settings {
    holes: HolePolicy,
    rope: Option<Arc<RopeSpec>>,
    scorer: Box<dyn KeyScorer>,
    min_head_dim: Option<usize>,
    /// Keys are in blocks with scales: rows can be moved, not read.
    in_blocks: bool,
    /// False when every variant has AR == CL: there is nothing to keep.
    keeps_rows: bool,
}

/// The KV cache of a model. See the [module](self).
pub struct KvCache {
    store: Store,
    groups: Vec<GroupState>,
    variants: Variants,
    settings: Settings,
    /// The variant that the tensors are laid out for.
    variant: Option<Variant>,
    positions: Positions,
    step: StepBuffers,
    /// Rows that long-context rules have dropped.
    n_dropped: u64,
}

impl std::fmt::Debug for KvCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("KvCache");
        out.field("state", &self.state()).field("mode", &self.mode().name());
        out.field("n_splits", &self.n_splits()).finish_non_exhaustive()
    }
}

impl KvCache {
    /// Allocates all buffers, filled with the pad value, and starts the workers.
    ///
    /// # Errors
    /// [`KvError::Geometry`], [`KvError::UnfitTensor`], [`KvError::Memory`], [`KvError::Worker`].
    pub fn new(geometry: &KvGeometry, variants: Variants, options: KvOptions) -> Result<Self, KvError> {
        let KvOptions { mode, n_threads, holes, rope, scorer, on_rebind, memory } = options;
        let keeps_rows = !variants.is_full_context_only();
        let groups: Vec<_> =
            variants.groups().iter().map(|rule| GroupState::new(rule, &variants, keeps_rows)).collect();
        let lengths: Vec<_> =
            groups.iter().map(|g| (longest_past(&g.rule, &variants, keeps_rows), g.capacity)).collect();
        check(geometry, mode, &variants)?;
        let ar_max = variants.ar_max();
        let tensors = || geometry.splits.iter().flat_map(|s| &s.tensors);
        let min_head_dim = tensors().filter(|t| !t.kind.is_scale()).map(|t| t.head_dim).min();
        let in_blocks = tensors().any(|t| t.kind == KvKind::KeyScale);
        let scorer = scorer.unwrap_or_else(|| Box::new(KeyDiff::default()));
        Ok(Self {
            store: Store::new(geometry, &lengths, ar_max, (mode, n_threads), on_rebind, memory.as_deref())?,
            groups,
            variants,
            settings: Settings { holes, rope: rope.map(Arc::new), scorer, min_head_dim, in_blocks, keeps_rows },
            variant: None,
            positions: Positions::default(),
            step: StepBuffers::with_capacity(ar_max),
            n_dropped: 0,
        })
    }

    /// Reports every job as it begins and ends, on the thread that does it; a slow listener holds that job up.
    pub fn watch_jobs(&mut self, watch: JobWatch) {
        self.store.watch = Some(watch);
    }

    /// Ranks keys by another scorer from the next scoring on.
    pub fn set_scorer(&mut self, scorer: Box<dyn KeyScorer>) {
        self.settings.scorer = scorer;
        for group in &mut self.groups {
            group.queues.clear();
        }
    }

    /// The variants and groups it was made for.
    pub fn variants(&self) -> &Variants {
        &self.variants
    }

    /// The mode it runs in.
    pub fn mode(&self) -> ModeKind {
        self.store.mode
    }

    /// Worker threads.
    pub fn n_threads(&self) -> usize {
        self.store.n_threads()
    }

    /// Splits, those without cache tensors included.
    pub fn n_splits(&self) -> usize {
        self.store.splits.len()
    }

    /// Where sequence 0 stands, which a dialog uses unless it has others.
    pub fn state(&self) -> KvState {
        self.state_of(SeqId(0))
    }

    /// Where a sequence stands among the rows of all.
    pub fn state_of(&self, seq: SeqId) -> KvState {
        let shared = !self.positions.is_alone(seq) && self.groups.iter().any(|g| g.cells.n_used_without(seq) > 0);
        let n_valid_kv = self.groups[0].cells.n_used();
        let own_rows = if shared { self.own_rows(seq) } else { GroupRows::NONE };
        let other_rows = if shared { self.rows_beside(|g| own_rows.of(g)) } else { GroupRows::NONE };
        KvState { n_past: self.next_pos(seq), n_valid_kv, variant: self.variant, shared, other_rows, own_rows }
    }

    /// Rows that are a sequence's alone, in the groups with a window.
    fn own_rows(&self, seq: SeqId) -> GroupRows {
        let own = |group: &GroupState| group.cells.used().filter(|(_, cell)| cell.seqs == seq.bit()).count();
        GroupRows::by_group(|g| self.window_group(g).map_or(0, own))
    }

    /// The other rows of the groups with a window.
    fn rows_beside(&self, own: impl Fn(usize) -> usize) -> GroupRows {
        GroupRows::by_group(|g| self.window_group(g).map_or(0, |group| group.cells.n_used() - own(g)))
    }

    fn window_group(&self, g: usize) -> Option<&GroupState> {
        self.groups.get(g).filter(|group| group.rule.long.window().is_some())
    }

    /// Position of a sequence's next token.
    pub fn next_pos(&self, seq: SeqId) -> usize {
        self.positions.next.get(usize::from(seq.0)).copied().unwrap_or(0)
    }

    /// Which slot of a group holds what; `None` for a group the cache lacks.
    pub fn cells(&self, group: usize) -> Option<&CellTable> {
        self.groups.get(group).map(|g| &g.cells)
    }

    /// Rows that long-context rules have dropped since the cache was made. A step that is rolled back does not bring them
    /// back; compare this number to know whether it has lost any.
    pub fn n_dropped(&self) -> u64 {
        self.n_dropped
    }

    /// Bytes that all buffers of a cache would take, before any is allocated.
    pub fn required_bytes(geometry: &KvGeometry, variants: &Variants, mode: ModeKind) -> usize {
        let keeps_rows = !variants.is_full_context_only();
        let bytes = |tensor: &KvTensor| {
            let rule = variants.groups().get(tensor.group).unwrap_or(&variants.groups()[0]);
            let past = longest_past(rule, variants, keeps_rows);
            let capacity = capacity(rule, variants, keeps_rows);
            TensorBuf::new(*tensor, mode.mode(), past, capacity, variants.ar_max()).bytes()
        };
        geometry.splits.iter().flat_map(|s| &s.tensors).map(bytes).sum()
    }

    /// Bytes of all buffers. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn buffer_bytes(&mut self) -> Result<usize, KvError> {
        self.wait_all()?;
        Ok(self.store.tensors().map(TensorBuf::bytes).sum())
    }

    /// Bytes of cache rows moved or copied since the last `clear`, for benchmarks. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn moved_bytes(&mut self) -> Result<MovedBytes, KvError> {
        self.wait_all()?;
        let of = |kind: KvKind| -> u64 { self.store.tensors().filter(|t| t.spec.kind == kind).map(|t| t.moved).sum() };
        let with_scales = |kind: KvKind| of(kind) + kind.scales().map_or(0, of);
        Ok(MovedBytes { keys: with_scales(KvKind::Key), values: with_scales(KvKind::Value) })
    }

    /// What shifting positions has cost since the last `clear`. Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn shift_loss(&mut self) -> Result<ShiftLoss, KvError> {
        self.wait_all()?;
        Ok(self.store.tensors().fold(ShiftLoss::default(), |sum, t| sum.and(&t.loss)))
    }

    /// Waits for all jobs.
    ///
    /// # Errors
    /// [`KvError::Worker`] when one has failed.
    pub fn wait_all(&mut self) -> Result<(), KvError> {
        self.store.wait_all()
    }

    /// Plans new tokens: how many of which sequence. Those that decode come before those that prefill.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn plan(&self, tokens: &[(SeqId, usize)], policy: &Policy) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        self.plan_into(tokens, policy, LogitsRequest::Last, &mut plan)?;
        Ok(plan)
    }

    /// The same into a plan that exists, so that a decode step allocates nothing. `wanted`: the tokens whose logits the
    /// steps must give, which matters where some variants have none.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_into(
        &self,
        tokens: &[(SeqId, usize)],
        policy: &Policy,
        wanted: LogitsRequest,
        plan: &mut Plan,
    ) -> Result<(), PlanError> {
        for (second, &(seq, _)) in tokens.iter().enumerate() {
            if usize::from(seq.0) >= SeqId::COUNT {
                return Err(PlanError::UnknownSequence { seq });
            }
            if let Some(first) = tokens[..second].iter().position(|&(other, _)| other == seq) {
                return Err(PlanError::SequenceTwice { seq, first, second });
            }
        }
        match tokens {
            [] => *plan = Plan::default(),
            &[(seq, n_new)] => {
                let state = self.state_of(seq);
                let request = Request { seq, n_past: state.n_past, n_new, own_rows: state.own_rows };
                plan_into(&state, &[request], &self.variants, policy, wanted, plan)?;
            }
            several => {
                let request = |&(seq, n_new): &(SeqId, usize)| Request {
                    seq,
                    n_past: self.next_pos(seq),
                    n_new,
                    own_rows: self.own_rows(seq),
                };
                let requests: Vec<_> = several.iter().map(request).collect();
                let other_rows = self.rows_beside(|g| requests.iter().map(|r| r.own_rows.of(g)).sum());
                let state = KvState { other_rows, ..self.state_of(several[0].0) };
                plan_into(&state, &requests, &self.variants, policy, wanted, plan)?;
            }
        }
        plan.set_mode(self.mode().mode(), &self.groups[0].rule);
        Ok(())
    }
}

fn check(geometry: &KvGeometry, mode: ModeKind, variants: &Variants) -> Result<(), KvError> {
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
        if scatter && matches!(mode, ModeKind::ShiftConcat(_) | ModeKind::PointerShift(_)) {
            return Err(KvError::UnfitTensor { mode: mode.name(), tensor: name, why: Reason::ScatterForm });
        }
        if tensor.kind == KvKind::KeyScale {
            let scored = matches!(variants.groups()[tensor.group].long, Eviction::KeyDiff { .. });
            if scored || matches!(mode, ModeKind::NativeKv(_)) {
                return Err(KvError::UnfitTensor { mode: mode.name(), tensor: name, why: Reason::KeysInBlocks });
            }
        }
        mode.mode().check(tensor).map_err(|why| KvError::UnfitTensor { mode: mode.name(), tensor: name, why })?;
    }
    Ok(())
}

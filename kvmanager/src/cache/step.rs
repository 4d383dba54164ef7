//! The step under way: a guard that lends the splits, keeps their new rows, and ends in [`finish`](Step::finish) or
//! [`rollback`](Step::rollback).
//!
//! The guard borrows the cache, so nothing else can happen to the cache meanwhile, and what it lends ends with its next
//! call. A wrong order does not compile:
//!
//! ```compile_fail,E0382
//! # fn wrong(kv: &mut kvmanager::KvCache, next: &kvmanager::InferenceStep) -> Result<(), kvmanager::KvError> {
//! let mut step = kv.begin(next)?;
//! step.finish()?;
//! step.commit(genie_types::SplitIdx(0), kvmanager::Keep::All) // commit after finish
//! # }
//! ```
//!
//! ```compile_fail,E0382
//! # fn wrong(kv: &mut kvmanager::KvCache, next: &kvmanager::InferenceStep) -> Result<(), kvmanager::KvError> {
//! let step = kv.begin(next)?;
//! step.finish()?;
//! step.finish() // finish twice
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn wrong(kv: &mut kvmanager::KvCache, next: &kvmanager::InferenceStep) -> Result<(), kvmanager::KvError> {
//! let first = kv.begin(next)?;
//! let second = kv.begin(next)?; // two steps at once
//! first.finish()?;
//! second.finish()
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn wrong(kv: &mut kvmanager::KvCache, next: &kvmanager::InferenceStep) -> Result<(), kvmanager::KvError> {
//! let step = kv.begin(next)?;
//! kv.compact(1)?; // an operation on rows while a step is under way
//! step.finish()
//! # }
//! ```
//!
//! ```compile_fail,E0499
//! # fn wrong(kv: &mut kvmanager::KvCache, next: &kvmanager::InferenceStep) -> Result<(), kvmanager::KvError> {
//! # let split = genie_types::SplitIdx(0);
//! let mut step = kv.begin(next)?;
//! let mut lent = step.split(split)?;
//! step.commit(split, kvmanager::Keep::All)?; // commit while a graph may still write
//! lent.views().for_each(|view| view.new.fill(0));
//! # step.finish()
//! # }
//! ```

use super::group_state::GroupState;
use super::{KvCache, SplitGuard, VisibleColumn};
use crate::KvError;
use crate::cells::{CellTable, SeqId};
use crate::error::{Reason, same};
use crate::geometry::KvForm;
use crate::group::Eviction;
use crate::plan::{Column, Columns, InferenceStep, MaskCol, Tree, Variants};
use crate::tensor_buf::{Op, Run, Runs};
use crate::worker::Ops;
use genie_types::{SplitIdx, Variant};

/// Which columns of a step a [`commit`](Step::commit) keeps.
#[derive(Clone, Copy, Debug)]
pub enum Keep<'a> {
    /// All columns.
    All,
    /// Column `i` where the mask's entry `i` is true; columns beyond the mask's end are dropped. Rows close up, positions
    /// do not: a kept row stays at its column's position, to which its keys are rotated.
    Rows(&'a [bool]),
}

impl Keep<'_> {
    fn has(&self, column: usize) -> bool {
        match self {
            Self::All => true,
            Self::Rows(mask) => mask.get(column).copied().unwrap_or(false),
        }
    }
}

/// What the step under way has, in buffers that are reused: a decode step allocates nothing.
#[derive(Debug, Default)]
pub(super) struct StepBuffers {
    pub(super) columns: Vec<Column>,
    /// Every column sees exactly the valid rows of the default group, which lie in order, and the columns before it.
    whole_past: bool,
    /// Which columns see which, if they do not follow each other.
    pub(super) tree: Tree,
    /// The first commit has settled which columns are kept.
    pub(super) kept: bool,
    pub(super) kept_columns: Vec<usize>,
    /// The variant that the commits leave the tensors in.
    next: Option<Variant>,
    pub(super) slots: Vec<usize>,
    pub(super) columns_placed: Vec<usize>,
    pub(super) runs: Vec<Run>,
}

impl StepBuffers {
    pub(super) fn with_capacity(n: usize) -> Self {
        Self {
            columns: Vec::with_capacity(n),
            kept_columns: Vec::with_capacity(n),
            slots: Vec::with_capacity(n),
            columns_placed: Vec::with_capacity(n),
            runs: Vec::with_capacity(n),
            ..Self::default()
        }
    }

    fn clear(&mut self) {
        (self.kept, self.next) = (false, None);
        self.columns.clear();
        self.tree = Tree::default();
    }
}

/// A step under way. Dropping it rolls it back. See the [module](self).
#[derive(Debug)]
#[must_use = "a step that is dropped is rolled back"]
pub struct Step<'a> {
    cache: &'a mut KvCache,
    variant: Variant,
    ended: bool,
}

impl KvCache {
    /// A step of the caller's own columns for the cache as it is: a tree of drafts, say. [`begin`](Self::begin) checks it.
    pub fn step(&self, variant: Variant, columns: Columns) -> InferenceStep {
        let group = &self.groups[0];
        let n_valid_kv = self.n_rows_without(self.restarted(&columns));
        let past_len = group.rule.past_len(variant);
        let new_idx = match group.rule.form {
            KvForm::Concat => variant.past_capacity(),
            KvForm::Scatter if past_len == 0 => 0,
            KvForm::Scatter => n_valid_kv,
        };
        let past_idx = MaskCol(self.store.mode.mode().past_idx(past_len, n_valid_kv));
        InferenceStep { variant, columns, n_valid_kv, past_idx, new_idx: MaskCol(new_idx) }
    }

    /// Begins a step: the cache takes its variant, rows that the long-context rule drops are dropped, pending shifts
    /// applied, holes closed as far as the variant needs it. A sequence whose columns start at position 0 although it has
    /// begun is processed again: its rows are dropped first.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] for a step that does not continue its sequences or was planned for another number of
    /// rows; [`KvError::UnknownVariant`], [`KvError::PastTooLong`], [`KvError::Worker`]. Rows may have been dropped then.
    #[doc(alias = "SET_VARIANT")]
    pub fn begin(&mut self, step: &InferenceStep) -> Result<Step<'_>, KvError> {
        // Of a guard that was leaked.
        self.rollback_step()?;
        self.check_columns(step)?;
        let again = self.restarted(&step.columns);
        self.check_scored(step, again)?;
        for seq in (0..SeqId::COUNT as u8).map(SeqId).filter(|seq| again & seq.bit() != 0) {
            self.rewind_to(seq, 0)?;
        }
        if self.settings.keeps_rows {
            self.make_room(step.variant, &step.columns)?;
            // Before keys are rotated, which costs precision: a variant that is refused must not. Only scoring is earlier.
            self.check_variant(step.variant, 0)?;
            self.apply_shifts()?;
        }
        self.set_variant(step.variant)?;
        self.step.clear();
        self.step.columns.extend(step.columns.iter());
        let plain_rows = self.is_dense(0) && !self.groups[0].rule.evicts();
        let alone = self.positions.is_alone(self.step.columns[0].seq);
        self.step.whole_past = step.columns.contiguous() && plain_rows && alone;
        Ok(Step { cache: self, variant: step.variant, ended: false })
    }

    /// Rows move to the stride of a variant in place, on the workers. Nothing moves when it is the current one. A step
    /// does it by itself.
    ///
    /// # Errors
    /// [`KvError::UnknownVariant`], [`KvError::PastTooLong`], [`KvError::Worker`].
    pub fn set_variant(&mut self, variant: Variant) -> Result<(), KvError> {
        self.check_variant(variant, 0)?;
        for at in 0..self.store.splits.len() {
            let ops = self.variant_ops(at, variant);
            self.store.start(at, ops)?;
        }
        self.variant = Some(variant);
        Ok(())
    }

    fn check_columns(&self, step: &InferenceStep) -> Result<(), KvError> {
        let (ar, n) = (step.ar(), step.n_process());
        if !self.variants.contains(step.variant) {
            return Err(self.unknown_variant(step.variant));
        }
        if n == 0 || n > ar {
            same("columns, at least one and at most AR", ar, n)?;
        }
        for (i, slice) in step.columns.slices().enumerate() {
            let seq = usize::from(slice.seq.0);
            if seq >= SeqId::COUNT {
                same("sequence number, below", SeqId::COUNT, seq)?;
            }
            let begins = step.columns.slices().take(i).all(|earlier| earlier.seq != slice.seq);
            if begins && slice.first != 0 {
                same("n_past", self.positions.next[seq], slice.first)?;
            }
        }
        // A group that evicts knows how many rows it has left only once it has made room; masks come from the cells then.
        if !self.groups[0].rule.evicts() {
            same("n_valid_kv", self.n_rows_without(self.restarted(&step.columns)), step.n_valid_kv)?;
        }
        Ok(())
    }

    /// Eviction by score makes rows of different tokens neighbours in each head, so that only a count of them is left:
    /// they can be no one's but one sequence's.
    fn check_scored(&self, step: &InferenceStep, again: u64) -> Result<(), KvError> {
        let largest = step.variant.cl().get() == self.variants.max_ctx();
        let mixes = |state: &GroupState| {
            let room = state.rule.room(step.variant);
            let limit = if largest { room } else { state.rule.ctx_of(step.variant) };
            state.mixes_sequences(&step.columns, again, room, limit)
        };
        if self.groups.iter().any(mixes) { Err(self.refused("the step", Reason::SeveralSequences)) } else { Ok(()) }
    }

    /// The sequences, as a bit set, that columns take from position 0 although they have begun.
    fn restarted(&self, columns: &Columns) -> u64 {
        let again = columns.slices().filter(|s| s.first == 0 && self.next_pos(s.seq) > 0);
        again.fold(0, |set, slice| set | slice.seq.bit())
    }

    fn n_rows_without(&self, seqs: u64) -> usize {
        let cells = &self.groups[0].cells;
        if seqs == 0 { cells.n_used() } else { cells.used().filter(|(_, c)| c.seqs & !seqs != 0).count() }
    }

    fn unknown_variant(&self, variant: Variant) -> KvError {
        let known: Vec<_> = self.variants.all().iter().map(|s| s.to_string()).collect();
        KvError::UnknownVariant { variant, known: known.join(", ") }
    }

    fn check_variant(&self, variant: Variant, n_more: usize) -> Result<(), KvError> {
        if !self.variants.contains(variant) {
            return Err(self.unknown_variant(variant));
        }
        for group in self.groups.iter().filter(|_| self.settings.keeps_rows) {
            // A step that comes closes holes as it begins.
            let held = if n_more > 0 { group.cells.n_used() } else { group.n_held() };
            let (n_rows, past_len) = (held + n_more, group.rule.room(variant));
            // Its steps write over rows rather than find no room.
            let writes_over = || {
                let fits = n_rows <= group.rule.ctx_of(variant);
                matches!(group.rule.long, Eviction::FirstFit { .. }) && fits && group.is_of_one(None)
            };
            if n_rows > past_len && !writes_over() && !(n_more > 0 && group.rule.evicts()) {
                return Err(KvError::PastTooLong { variant, past_len, n_rows });
            }
        }
        Ok(())
    }

    fn variant_ops(&mut self, at: usize, variant: Variant) -> Ops {
        let ar = variant.ar().get();
        let split = &mut self.store.splits[at];
        let mut ops = Ops::default();
        for (group, state) in self.groups.iter().enumerate() {
            let past_len = if self.settings.keeps_rows { state.rule.past_len(variant) } else { 0 };
            if (split.past_len[group], split.ar) != (past_len, ar) {
                split.past_len[group] = past_len;
                ops.push(Op::Shape { group, past_len, ar });
            }
        }
        split.ar = ar;
        ops
    }

    fn check_split(&self, split: SplitIdx) -> Result<usize, KvError> {
        let n_splits = self.store.splits.len();
        if split.0 >= n_splits {
            return Err(KvError::UnknownSplit { split, n_splits });
        }
        if self.store.splits[split.0].committed { Err(KvError::Committed { split }) } else { Ok(split.0) }
    }

    /// Settles, once per step, which columns are kept and where they go.
    fn keep_columns(&mut self, keep: Keep<'_>) -> Result<(), KvError> {
        let n = self.step.columns.len();
        if let Keep::Rows(mask) = keep
            && mask.len() > n
        {
            same("length of the mask of kept columns, at most", n, mask.len())?;
        }
        let wanted = (0..n).filter(|&col| keep.has(col));
        if self.step.kept {
            let n_wanted = wanted.clone().count();
            return if wanted.eq(self.step.kept_columns.iter().copied()) {
                Ok(())
            } else {
                same("columns kept, the same in all splits", self.step.kept_columns.len(), n_wanted)
            };
        }
        self.step.kept_columns.clear();
        self.step.kept_columns.extend(wanted);
        self.step.kept = true;
        if self.settings.keeps_rows {
            (0..self.groups.len()).try_for_each(|group| self.place(group))?;
        }
        Ok(())
    }

    fn append(&mut self, at: usize, variant: Variant) -> Result<(), KvError> {
        self.store.splits[at].committed = true;
        let mut ops = Ops::default();
        for group in 0..self.groups.len() {
            if !self.settings.keeps_rows {
                break;
            }
            self.evict_by_score(at, group, true)?;
            let (state, split) = (&self.groups[group], &mut self.store.splits[at]);
            let extent = state.extent_after;
            if extent > split.past_len[group] {
                split.past_len[group] = state.rule.ctx_of(variant).max(extent);
            }
            split.extent[group] = extent;
            ops.push(Op::Append { group, runs: state.runs.clone(), extent, past_len: split.past_len[group] });
        }
        if let Some(next) = self.step.next
            && self.groups.iter().all(|g| g.extent_after <= g.rule.room(next))
        {
            let reshape = self.variant_ops(at, next);
            ops.extend(reshape);
        }
        self.store.start(at, ops)
    }

    fn finish_step(&mut self) -> Result<(), KvError> {
        if let Some(at) = self.store.splits.iter().position(|s| s.n_tensors > 0 && !s.committed) {
            return Err(KvError::NotCommitted { split: SplitIdx(at) });
        }
        if !self.step.kept {
            // No split has cache tensors.
            self.keep_columns(Keep::All)?;
        }
        let StepBuffers { columns, kept_columns, .. } = &self.step;
        kept_columns.iter().for_each(|&column| self.positions.advance(columns[column]));
        for group in &mut self.groups {
            group.n_evict = 0;
            for (slot, column) in group.placed.drain(..) {
                group.cells.put_one(slot, column.pos, column.seq);
            }
        }
        self.end_step();
        Ok(())
    }

    /// Forgets the step under way: rows that some splits have kept already are dropped.
    fn rollback_step(&mut self) -> Result<(), KvError> {
        let kept = self.step.kept;
        self.groups.iter_mut().for_each(|g| g.placed.clear());
        // What the first commit has dropped by score goes from the splits that did not commit as well.
        let evicted = (0..self.groups.len()).try_for_each(|group| self.evict_in_all_splits(group));
        self.end_step();
        evicted?;
        if kept { self.store.sync_extents(&self.groups) } else { Ok(()) }
    }

    pub(super) fn end_step(&mut self) {
        self.step.clear();
        self.store.splits.iter_mut().for_each(|s| s.committed = false);
    }
}

impl Step<'_> {
    /// Lets the commits leave the tensors in the variant of the next step, in the same job as the new rows, so that rows
    /// move once. The next [`begin`](KvCache::begin) with that variant then moves nothing.
    ///
    /// # Errors
    /// [`KvError::UnknownVariant`], [`KvError::PastTooLong`]; [`KvError::Committed`] after a commit. The step goes on.
    #[doc(alias = "UPDATE_AND_SET")]
    pub fn then(&mut self, next: Variant) -> Result<(), KvError> {
        self.before_commits()?;
        self.cache.check_variant(next, self.cache.step.columns.len())?;
        self.cache.step.next = Some(next);
        Ok(())
    }

    /// Lets the columns attend as those of a tree from now on: each sees its ancestors instead of all columns before it. Trees of
    /// several sequences may be beside each other.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] for a tree of other columns; [`KvError::Committed`] after a commit. The step goes on.
    pub fn attend(&mut self, tree: &Tree) -> Result<(), KvError> {
        self.before_commits()?;
        let columns = &self.cache.step.columns;
        same("columns of the tree", columns.len(), tree.len())?;
        for (i, column) in columns.iter().enumerate() {
            let (seq, pos) = match tree.parent(i) {
                Some(parent) => (columns[parent].seq, columns[parent].pos + 1),
                // Where the sequence goes on, as its first column does.
                None => {
                    columns.iter().find(|first| first.seq == column.seq).map_or((column.seq, 0), |c| (c.seq, c.pos))
                }
            };
            same("position of a column of the tree", pos, column.pos)?;
            same("sequence of a column of the tree", usize::from(seq.0), usize::from(column.seq.0))?;
        }
        self.cache.step.tree = tree.clone();
        self.cache.step.whole_past = false;
        Ok(())
    }

    /// The variant it runs.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.cache.step.columns
    }

    /// Whether each column sees exactly the valid rows of the default group, and those are rows `0..n_valid_kv` in order.
    /// The mask of such a step follows from the numbers of its [`InferenceStep`].
    pub fn sees_whole_past(&self) -> bool {
        self.cache.step.whole_past
    }

    /// The variants and groups of the cache.
    pub fn variants(&self) -> &Variants {
        &self.cache.variants
    }

    /// Which slot of a group holds what; `None` for a group the cache lacks.
    pub fn cells(&self, group: usize) -> Option<&CellTable> {
        self.cache.cells(group)
    }

    /// The cache index of a group: where its scatter graph writes the new columns.
    pub fn cache_index(&self, group: usize) -> usize {
        self.cache.groups.get(group).map_or(0, |g| g.block)
    }

    /// Columns of a group's mask.
    pub fn mask_width(&self, group: usize) -> usize {
        self.cache.groups.get(group).map_or(0, |g| g.rule.ctx_of(self.variant))
    }

    /// Writes a group's mask. Each column sees the rows of its own sequence up to its position, as far as the group's window
    /// goes, the new columns of its sequence before it (in a [tree](Self::attend) its ancestors), and itself; padding sees
    /// nothing.
    ///
    /// *Shape*: `[AR, CL]` of the group, row-major: past at `past_idx + slot`, new columns at `CL - AR + i` (concat) or
    /// `cache_index + i` (scatter).
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] when `out` has another size than `AR * CL` of the group; [`KvError::Committed`] after the
    /// step's first commit, when rows that it saw may have gone.
    pub fn fill_mask<T: Copy>(&self, group: usize, hidden: T, visible: T, out: &mut [T]) -> Result<(), KvError> {
        self.before_commits()?;
        self.cache.fill_mask(self.variant, group, hidden, visible, out)
    }

    /// Hands out every column that [`fill_mask`](Self::fill_mask) shows, with the position of its key: row by row, the past
    /// before the new columns.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] for a group that is none; [`KvError::Committed`] after the step's first commit.
    pub fn each_visible(&self, group: usize, each: impl FnMut(VisibleColumn)) -> Result<(), KvError> {
        self.before_commits()?;
        self.cache.each_visible(self.variant, group, each)
    }

    /// Splits, those without cache tensors included.
    pub fn n_splits(&self) -> usize {
        self.cache.n_splits()
    }

    /// Lends a split's tensors for one execution. Waits for this split's jobs.
    ///
    /// # Errors
    /// [`KvError::UnknownSplit`], [`KvError::Committed`], [`KvError::Worker`].
    pub fn split(&mut self, split: SplitIdx) -> Result<SplitGuard<'_>, KvError> {
        let at = self.cache.check_split(split)?;
        let store = &mut self.cache.store;
        store.wait_split(at)?;
        store.report_rebinds(at);
        Ok(SplitGuard::new(&mut store.splits[at].shards, store.mode))
    }

    /// Starts keeping new columns of a split as rows; the same columns in every split. A worker copies them while the next
    /// split runs.
    ///
    /// When they do not fit the past of the step's own graph (the last step of a full context, or the last before a
    /// promotion), the split widens to the graph's CL; the next step narrows it again.
    ///
    /// # Errors
    /// [`KvError::UnknownSplit`], [`KvError::Committed`], [`KvError::StepMismatch`] for a mask that is longer than the step
    /// or another than that of the split before, [`KvError::Worker`].
    #[doc(alias = "UPDATE_OUTPUT")]
    pub fn commit(&mut self, split: SplitIdx, keep: Keep<'_>) -> Result<(), KvError> {
        let at = self.cache.check_split(split)?;
        self.cache.keep_columns(keep)?;
        self.cache.append(at, self.variant)
    }

    /// Ends the step: all splits have committed it, its sequences go on behind the columns kept.
    ///
    /// # Errors
    /// [`KvError::NotCommitted`] when a split with cache tensors has not committed; the step is then rolled back.
    pub fn finish(mut self) -> Result<(), KvError> {
        self.cache.finish_step()?;
        self.ended = true;
        Ok(())
    }

    /// Takes the step back: no column is kept. Rows that [`begin`](KvCache::begin) or a group's rule at the first commit has
    /// dropped stay dropped.
    ///
    /// # Errors
    /// [`KvError::Worker`].
    pub fn rollback(mut self) -> Result<(), KvError> {
        self.ended = true;
        self.cache.rollback_step()
    }

    /// A job of the test's own.
    #[cfg(test)]
    pub(super) fn start_job(&mut self, at: usize, ops: Ops) -> Result<(), KvError> {
        self.cache.store.start(at, ops)
    }

    fn before_commits(&self) -> Result<(), KvError> {
        match self.cache.store.splits.iter().position(|s| s.committed) {
            Some(at) => Err(KvError::Committed { split: SplitIdx(at) }),
            None => Ok(()),
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // A job that failed is reported by the next call that needs its split.
            let _ = self.cache.rollback_step();
        }
    }
}

/// Runs of columns that go to slots that follow each other.
pub(super) fn runs(pairs: impl Iterator<Item = (usize, usize)>, out: &mut Vec<Run>) -> Runs {
    out.clear();
    for (col, slot) in pairs {
        match out.last_mut() {
            Some(run) if (run.col + run.len, run.slot + run.len) == (col, slot) => run.len += 1,
            _ => out.push(Run { col, slot, len: 1 }),
        }
    }
    Runs::new(out)
}

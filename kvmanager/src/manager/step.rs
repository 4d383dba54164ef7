//! One step: prepare, lend, commit, advance.

use super::{BatchToken, Holes, KvCache, SplitGuard};
use crate::cells::SeqId;
use crate::plan::InferenceStep;
use crate::tensor_buf::{Op, Run, Runs};
use crate::worker::Ops;
use crate::{KvError, KvForm};
use genie_types::{SplitIdx, Variant};

impl KvCache {
    /// Gives the cache the shape of a step of the dialog and checks that it belongs here: rows that the long-context
    /// rule drops are dropped, pending shifts applied, holes closed as far as the shape needs it. A step from position
    /// 0 (the history is processed again) drops all rows.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`], [`KvError::Refused`] while another step is under way, and as
    /// [`set_variant`](Self::set_variant).
    pub fn prepare(&mut self, step: &InferenceStep) -> Result<(), KvError> {
        self.idle("preparing a step")?;
        let again = step.n_past == 0 && self.next[0] != 0;
        let (cells, n_past) = (&self.groups[0].cells, if again { 0 } else { self.next[0] });
        let rows = if again { cells.n_used_without(SeqId(0)) } else { cells.n_used() };
        same("n_past", n_past, step.n_past)?;
        // A group that evicts says how many rows it has left when it has made room; plans foretell it for an
        // undisturbed dialog only, and masks come from the cells anyway.
        if !self.groups[0].rule.evicts() {
            same("n_valid_kv", rows, step.n_valid_kv)?;
        }
        if again {
            self.rewind_to(0)?;
        }
        self.shape_for(step.spec)?;
        self.batch = false;
        self.tokens.clear();
        self.tokens.extend((0..step.n_process).map(|i| BatchToken { seq: SeqId(0), pos: step.n_past + i }));
        Ok(())
    }

    /// The same for a step that mixes sequences, or whose tokens do not follow each other (a tree): token `i` is
    /// column `i` of the graph. Masks come from [`fill_mask`](Self::fill_mask).
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare), but any positions are taken; [`KvError::StepMismatch`] when there are more
    /// tokens than columns, or none.
    pub fn prepare_batch(&mut self, spec: Variant, tokens: &[BatchToken]) -> Result<(), KvError> {
        self.idle("preparing a step")?;
        if tokens.is_empty() || tokens.len() > spec.ar().get() {
            same("tokens of the batch, at most AR", spec.ar().get(), tokens.len())?;
        }
        if let Some(bad) = tokens.iter().find(|t| usize::from(t.seq.0) >= SeqId::COUNT) {
            same("sequence number, below", SeqId::COUNT, usize::from(bad.seq.0))?;
        }
        self.shape_for(spec)?;
        self.tokens.clear();
        self.tokens.extend_from_slice(tokens);
        self.batch = true;
        Ok(())
    }

    /// Takes the shape of a graph: rows move to the new stride in place, on the workers. Nothing moves when the shape
    /// is the current one.
    ///
    /// # Errors
    /// [`KvError::UnknownVariant`], [`KvError::PastTooLong`], [`KvError::Worker`].
    #[doc(alias = "SET_VARIANT")]
    pub fn set_variant(&mut self, spec: Variant) -> Result<(), KvError> {
        self.check_shape(spec, 0)?;
        for at in 0..self.splits.len() {
            let ops = self.shape_ops(at, spec);
            self.start(at, ops)?;
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
        let not_prepared = |detail| Err(KvError::NotPrepared { split, n_rows: self.splits[at].extent[0], detail });
        let Some(spec) = self.spec else { return not_prepared("no shape chosen yet".to_owned()) };
        let groups = self.groups.iter().zip(&self.splits[at].past_len);
        let wide = groups.map(|(group, &held)| (group.rule.past_len(spec), held)).find(|(wanted, held)| wanted != held);
        if let Some((_, held)) = wide.filter(|_| self.keeps_rows && self.splits[at].n_tensors > 0) {
            return not_prepared(format!("widened to {held} beyond the past of {spec}"));
        }
        self.collect(at)?;
        self.rebind(at);
        Ok(SplitGuard::new(&mut self.splits[at].shards, self.options.mode))
    }

    /// Starts keeping the first `step.n_process` new columns of a split behind its rows.
    ///
    /// When they do not fit the past of the step's own graph (the last step of a full context, or the last before a
    /// promotion), the split widens to the graph's CL; the next [`set_variant`](Self::set_variant) narrows it again.
    ///
    /// # Errors
    /// [`KvError::UnknownSplit`], [`KvError::StepMismatch`], [`KvError::Worker`].
    #[doc(alias = "UPDATE_OUTPUT")]
    pub fn commit(&mut self, split: SplitIdx, step: &InferenceStep) -> Result<(), KvError> {
        let at = self.check_step(split, step)?;
        self.keep_columns(step.n_process, |_| true)?;
        self.append(at, None)
    }

    /// As [`commit`](Self::commit), then takes the shape of the next step in the same job (Genie's update-and-set).
    /// The shape counts for the manager once [`prepare`](Self::prepare) is called with that step, which moves nothing.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`KvError::UnknownVariant`], [`KvError::PastTooLong`] before anything is kept.
    #[doc(alias = "UPDATE_AND_SET")]
    pub fn commit_and_set(&mut self, split: SplitIdx, step: &InferenceStep, next: Variant) -> Result<(), KvError> {
        let at = self.check_step(split, step)?;
        if self.kept.is_none() {
            self.check_shape(next, step.n_process)?;
        }
        self.keep_columns(step.n_process, |_| true)?;
        let fits = self.groups.iter().all(|g| g.extent_after <= g.rule.room(next));
        self.append(at, Some(next).filter(|_| fits))
    }

    /// As [`commit`](Self::commit), but keeps only the selected columns, in order (speculation). `selected[i]` says
    /// whether new column `i` is kept; follow it with [`advance_by`](Self::advance_by).
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`KvError::StepMismatch`] when the mask is longer than the step, or keeps another
    /// number of columns than that of the split before.
    pub fn commit_selected(&mut self, split: SplitIdx, step: &InferenceStep, selected: &[bool]) -> Result<(), KvError> {
        let at = self.check_step(split, step)?;
        if selected.len() > step.n_process {
            same("length of the selection", step.n_process, selected.len())?;
        }
        self.keep_columns(step.n_process, |col| selected.get(col).copied().unwrap_or(false))?;
        self.append(at, None)
    }

    /// Ends a step: all splits have committed it, the dialog stands `n_process` tokens further.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] when a split has not committed.
    pub fn advance(&mut self, step: &InferenceStep) -> Result<(), KvError> {
        same("n_past", self.next[0], step.n_past)?;
        self.advance_by(step.n_process)
    }

    /// Ends a step of which `n` columns were kept.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] when a split has not committed, or another number was kept.
    pub fn advance_by(&mut self, n: usize) -> Result<(), KvError> {
        if let Some(at) = self.splits.iter().position(|s| s.n_tensors > 0 && !s.committed) {
            return Err(KvError::StepMismatch {
                what: "the step's last commit",
                expected: "one for every split".to_owned(),
                found: format!("none for split {at}"),
            });
        }
        same("columns kept", self.kept.unwrap_or(n), n)?;
        if self.kept.is_none() {
            // No split has cache tensors.
            self.keep_columns(n, |_| true)?;
        }
        let first = self.next[0];
        for i in 0..self.kept_columns.len() {
            let token = self.token(i, first);
            let next = &mut self.next[usize::from(token.seq.0)];
            *next = (*next).max(token.pos + 1);
        }
        for group in &mut self.groups {
            group.age = group.age.saturating_add(1);
            for (slot, token) in group.placed.drain(..) {
                group.cells.put_one(slot, token.pos, token.seq);
            }
        }
        self.end_step();
        Ok(())
    }

    /// The token of kept column `i`, when the dialog stands at `first`.
    pub(super) fn token(&self, i: usize, first: usize) -> BatchToken {
        let given = if self.batch { self.tokens.get(self.kept_columns[i]).copied() } else { None };
        given.unwrap_or(BatchToken { seq: SeqId(0), pos: first + i })
    }

    /// Forgets the step under way: rows that some splits have kept already are dropped.
    pub(super) fn abandon(&mut self) -> Result<(), KvError> {
        let any = self.splits.iter().any(|s| s.committed);
        self.groups.iter_mut().for_each(|g| g.placed.clear());
        self.end_step();
        if any { self.sync_extents() } else { Ok(()) }
    }

    pub(super) fn end_step(&mut self) {
        self.kept = None;
        self.batch = false;
        self.tokens.clear();
        self.splits.iter_mut().for_each(|s| s.committed = false);
    }

    /// Refuses while a step is under way.
    pub(super) fn idle(&self, op: &'static str) -> Result<(), KvError> {
        match self.kept {
            None => Ok(()),
            Some(_) => {
                let why = "a step is under way; `advance` ends it, `rewind` or `clear` abandons it".to_owned();
                Err(KvError::Refused { mode: self.options.mode.name(), op, why })
            }
        }
    }

    fn shape_for(&mut self, spec: Variant) -> Result<(), KvError> {
        if self.keeps_rows {
            self.make_room(spec)?;
            // Before keys turn, which costs precision: a shape that is refused must not.
            self.check_shape(spec, 0)?;
            self.apply_shifts()?;
        }
        self.set_variant(spec)
    }

    fn shape_ops(&mut self, at: usize, spec: Variant) -> Ops {
        let ar = spec.ar().get();
        let split = &mut self.splits[at];
        let mut ops = Ops::default();
        for (group, state) in self.groups.iter().enumerate() {
            let past_len = if self.keeps_rows { state.rule.past_len(spec) } else { 0 };
            if (split.past_len[group], split.ar) != (past_len, ar) {
                split.past_len[group] = past_len;
                ops.push(Op::Shape { group, past_len, ar });
            }
        }
        split.ar = ar;
        ops
    }

    fn check_shape(&self, spec: Variant, n_more: usize) -> Result<(), KvError> {
        if !self.variants.contains(spec) {
            let known: Vec<_> = self.variants.specs().iter().map(|s| s.to_string()).collect();
            return Err(KvError::UnknownVariant { spec, known: known.join(", ") });
        }
        for group in self.groups.iter().filter(|_| self.keeps_rows) {
            let held = if group.rule.form == KvForm::Concat { group.cells.extent() } else { group.cells.n_used() };
            let (n_rows, room) = (held + n_more, group.rule.room(spec));
            if n_rows > room && !(n_more > 0 && group.rule.evicts()) {
                return Err(KvError::PastTooLong { spec, past_len: room, n_rows });
            }
        }
        Ok(())
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
        if self.splits[at].committed {
            return Err(KvError::StepMismatch {
                what: "commits of this step",
                expected: "one a split".to_owned(),
                found: format!("a second one of split {at}"),
            });
        }
        if !self.batch {
            same("n_past", self.next[0], step.n_past)?;
        }
        if step.n_process > step.ar() {
            same("n_process, at most AR", step.ar(), step.n_process)?;
        }
        Ok(at)
    }

    /// Settles, once a step, which columns are kept and where they go.
    fn keep_columns(&mut self, n: usize, keep: impl Fn(usize) -> bool) -> Result<(), KvError> {
        let wanted = (0..n).filter(|&col| keep(col));
        if self.kept.is_some() {
            let n_wanted = wanted.clone().count();
            return if wanted.eq(self.kept_columns.iter().copied()) {
                Ok(())
            } else {
                same("columns kept, the same in all splits", self.kept_columns.len(), n_wanted)
            };
        }
        self.kept_columns.clear();
        self.kept_columns.extend(wanted);
        self.kept = Some(self.kept_columns.len());
        if self.keeps_rows {
            (0..self.groups.len()).try_for_each(|group| self.place(group))?;
        }
        Ok(())
    }

    fn append(&mut self, at: usize, then: Option<Variant>) -> Result<(), KvError> {
        self.splits[at].committed = true;
        let mut ops = Ops::default();
        for group in 0..self.groups.len() {
            if !self.keeps_rows {
                break;
            }
            self.evict_by_score(at, group)?;
            let (state, split) = (&self.groups[group], &mut self.splits[at]);
            let extent = state.extent_after;
            if extent > split.past_len[group] {
                split.past_len[group] = self.spec.map_or(extent, |s| state.rule.ctx_of(s)).max(extent);
            }
            split.extent[group] = extent;
            ops.push(Op::Append { group, runs: state.runs.clone(), extent, past_len: split.past_len[group] });
        }
        if let Some(next) = then {
            let shape = self.shape_ops(at, next);
            ops.extend(shape);
        }
        self.start(at, ops)
    }

    /// Whether a group's rows are always `0..n`.
    pub(super) fn is_dense(&self, group: usize) -> bool {
        use crate::group::LongContext::{KeyDiff, None};
        let long = self.groups[group].rule.long;
        matches!(long, KeyDiff { .. }) || (long == None && self.holes == Holes::Close)
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

pub(super) fn same(what: &'static str, expected: usize, found: usize) -> Result<(), KvError> {
    if expected == found {
        return Ok(());
    }
    Err(KvError::StepMismatch { what, expected: expected.to_string(), found: found.to_string() })
}

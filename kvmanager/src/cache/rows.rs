//! Where rows go: what the long-context rules drop, which slots new rows take, and how holes are closed.
//!
//! Rows are dropped when a step is kept, never while it runs, so every step sees what the rule promises it: a ring
//! all its slots, a window exactly its last keys. What another variant cannot hold is dropped as a step begins.

use super::group_state::GroupState;
use super::step::runs;
use super::{HolePolicy, KvCache};
use crate::KvError;
use crate::cells::RowMove;
use crate::geometry::{KvForm, KvKind};
use crate::group::Eviction;
use crate::keydiff::{self, HeadKeys, Queue};
use crate::plan::Columns;
use crate::tensor_buf::Op;
use crate::worker::Shard;
use genie_types::Variant;

impl KvCache {
    /// Brings every group into what a step of that variant can see, with a free block for a scatter graph.
    pub(super) fn make_room(&mut self, variant: Variant, columns: &Columns) -> Result<(), KvError> {
        for group in 0..self.groups.len() {
            let state = &mut self.groups[group];
            let (room, before) = (state.rule.room(variant), state.cells.n_used());
            let excess = state.cells.n_used().saturating_sub(room);
            match state.rule.long {
                Eviction::None => {}
                Eviction::Window { size, sinks } => state.expire(size, sinks, &self.positions.next),
                Eviction::FirstFit { size, sinks } => {
                    state.counts_rows = is_alone(state, columns);
                    if state.counts_rows {
                        state.keep_newest(size - 1, sinks);
                    } else {
                        state.expire(size, sinks, &self.positions.next);
                    }
                }
                Eviction::Ring { sinks } => {
                    state.drop_oldest(excess, sinks);
                }
                Eviction::KeyDiff { sinks, update_every } if excess > 0 => {
                    // Scores are those of keys at their positions, and once heads differ a cell no longer tells its key's.
                    self.apply_shifts()?;
                    self.groups[group].drop_by_score(excess, sinks, update_every);
                    self.evict_in_all_splits(group)?;
                }
                Eviction::KeyDiff { .. } => {}
            }
            // A window's rows that no coming token sees are no loss.
            if self.groups[group].rule.long.window().is_none() {
                self.n_dropped += (before - self.groups[group].cells.n_used()) as u64;
            }
            if !self.take_first_fit(group, variant, columns.len())? {
                self.close_holes(group, variant)?;
            }
        }
        self.store.sync_extents(&self.groups)
    }

    /// Finds the block of a step in a group that has libGenie's rule. False for other groups, and where several sequences share
    /// it: none of them loses what its window has.
    fn take_first_fit(&mut self, group: usize, variant: Variant, n: usize) -> Result<bool, KvError> {
        let state = &mut self.groups[group];
        if !state.counts_rows {
            return Ok(false);
        }
        let (ctx, before) = (state.rule.ctx_of(variant), state.cells.n_used());
        // Rows that a graph with more slots has left beyond those of this one.
        let moves = if state.cells.extent() > ctx { state.cells.compact(ctx, usize::MAX) } else { Vec::new() };
        state.block = state.first_fit(n, ctx);
        self.n_dropped += (before - state.cells.n_used()) as u64;
        self.move_rows(group, moves)?;
        Ok(true)
    }

    fn close_holes(&mut self, group: usize, variant: Variant) -> Result<(), KvError> {
        let dense = self.is_dense(group);
        let state = &mut self.groups[group];
        let (room, ar) = (state.rule.room(variant), variant.ar().get());
        let moves = match state.rule.form {
            _ if dense => state.cells.compact(0, usize::MAX),
            KvForm::Concat => state.cells.compact(room, usize::MAX),
            KvForm::Scatter => {
                // The graph writes a block of AR columns, padding included: all of it must be free.
                let ctx = state.rule.ctx_of(variant);
                let mut moves = state.cells.compact(ctx, usize::MAX);
                if state.cells.find_slots(ar, ctx, true, &mut self.step.slots) {
                    state.block = self.step.slots.first().copied().unwrap_or(0);
                } else {
                    moves.extend(state.cells.compact(0, usize::MAX));
                    state.block = state.cells.extent();
                }
                moves
            }
        };
        if dense {
            state.block = state.cells.extent();
        }
        self.move_rows(group, moves)
    }

    /// Moves rows of a group in all splits. Afterwards the caller syncs the extents.
    pub(super) fn move_rows(&mut self, group: usize, moves: Vec<RowMove>) -> Result<(), KvError> {
        if moves.is_empty() {
            return Ok(());
        }
        self.store.start_all(&Op::Move { group, moves: moves.into() })
    }

    /// Finds slots for the kept columns of the step under way in a group, dropping rows by the group's rule.
    pub(super) fn place(&mut self, group: usize) -> Result<(), KvError> {
        let Some(variant) = self.variant else { return Ok(()) };
        let dense = self.is_dense(group);
        let largest = variant.cl().get() == self.variants.max_ctx();
        let mut after = self.positions.next;
        for &column in &self.step.kept_columns {
            let column = self.step.columns[column];
            let next = &mut after[usize::from(column.seq.0)];
            *next = (*next).max(column.pos + 1);
        }
        let n = self.step.kept_columns.len();
        let state = &mut self.groups[group];
        // Beyond the past of this variant there is still its context, unless it is the last.
        let (room, ctx) = (state.rule.room(variant), state.rule.ctx_of(variant));
        let excess = (state.cells.n_used() + n).saturating_sub(if largest { room } else { ctx });
        let n_before = state.cells.n_used();
        state.n_evict = 0;
        let mut skip_oldest = 0;
        match state.rule.long {
            Eviction::None => {}
            Eviction::Window { size, sinks } => state.expire(size, sinks, &after),
            // Room was made as the step began; rows go behind the window as the next one begins.
            Eviction::FirstFit { .. } => {}
            Eviction::Ring { sinks } => skip_oldest = excess - state.drop_oldest(excess, sinks),
            Eviction::KeyDiff { sinks, update_every } => {
                skip_oldest = excess - state.drop_by_score(excess, sinks, update_every);
            }
        }
        let (long, used) = (self.groups[group].rule.long, self.groups[group].cells.n_used());
        self.n_dropped += (n_before - used) as u64;
        let mut placed = std::mem::take(&mut self.groups[group].placed);
        placed.clear();
        let mut columns = std::mem::take(&mut self.step.columns_placed);
        columns.clear();
        for &kept in &self.step.kept_columns {
            let column = self.step.columns[kept];
            let stays = match long {
                Eviction::None | Eviction::FirstFit { .. } => true,
                Eviction::Window { size, sinks } => {
                    column.pos < sinks || column.pos + size > after[usize::from(column.seq.0)]
                }
                Eviction::Ring { sinks } | Eviction::KeyDiff { sinks, .. } => {
                    let skip = column.pos >= sinks && skip_oldest > 0;
                    skip_oldest -= usize::from(skip);
                    !skip
                }
            };
            if stays {
                placed.push((0, column));
                columns.push(kept);
            }
        }
        let state = &mut self.groups[group];
        let slots = &mut self.step.slots;
        slots.clear();
        let in_block = matches!(long, Eviction::FirstFit { .. })
            && (state.block..state.block + placed.len()).all(|slot| slot < ctx && state.cells.cell(slot).is_free());
        if in_block {
            slots.extend(state.block..state.block + placed.len());
        } else if dense {
            let start = state.cells.extent();
            slots.extend(start..start + placed.len());
        } else {
            let limit = if state.rule.form == KvForm::Concat { room } else { ctx };
            let cells = &mut state.cells;
            // Where nothing is evicted, rows of a sequence stay together, so that others need not read them.
            let seqs = || placed.iter().map(|(_, column)| column.seq);
            let found = if long == Eviction::None && state.rule.form == KvForm::Concat {
                cells.find_pages(seqs(), limit, slots) || cells.find_pages(seqs(), state.capacity, slots)
            } else {
                cells.find_slots(placed.len(), limit, false, slots)
                    || cells.find_slots(placed.len(), state.capacity, false, slots)
            };
            if !found {
                let n_rows = state.cells.n_used() + placed.len();
                return Err(KvError::PastTooLong { variant, past_len: state.capacity, n_rows });
            }
        }
        placed.iter_mut().zip(slots.iter()).for_each(|((slot, _), &found)| *slot = found);
        state.extent_after = slots.iter().map(|s| s + 1).fold(state.cells.extent(), usize::max);
        state.runs = runs(columns.iter().copied().zip(slots.iter().copied()), &mut self.step.runs);
        state.placed = placed;
        self.step.columns_placed = columns;
        Ok(())
    }

    /// What `KeyDiff` has counted as dropped goes from the splits that have not committed yet.
    pub(super) fn evict_in_all_splits(&mut self, group: usize) -> Result<(), KvError> {
        for at in 0..self.store.splits.len() {
            if !self.store.splits[at].committed {
                self.evict_by_score(at, group, false)?;
            }
        }
        self.groups[group].n_evict = 0;
        Ok(())
    }

    /// `KeyDiff` on one split: in each head the rows with the worst keys go, and rows from the end take their place. `written`: the graph
    /// has run, and its new rows are to be kept.
    pub(super) fn evict_by_score(&mut self, at: usize, group: usize, written: bool) -> Result<(), KvError> {
        let n_evict = self.groups[group].n_evict;
        if n_evict == 0 || self.store.splits[at].n_tensors == 0 {
            return Ok(());
        }
        if self.groups[group].rescore && !self.groups[group].scored && self.settings.scorer.takes_group() {
            self.score_group(group)?;
        }
        self.store.wait_split(at)?;
        let mode = self.store.mode.mode();
        let split = &mut self.store.splits[at];
        let n = split.extent[group];
        let state = &mut self.groups[group];
        let mut victims = Vec::new();
        for (tensor, bytes) in split.shards.iter().flat_map(Shard::parts) {
            if tensor.spec.group == group && tensor.spec.kind == KvKind::Key {
                for head in 0..tensor.spec.n_heads {
                    let id = (tensor.spec.layer, tensor.spec.head, head);
                    let queue = state.queues.entry(id).or_default();
                    if state.rescore && !state.scored {
                        let keys = keydiff::read_keys(tensor, bytes, mode, head, n);
                        *queue = Queue::score(self.settings.scorer.as_mut(), &id, &keys, n, &state.sinks_at);
                    }
                    victims.push((id, queue.evict(n_evict, n, &state.sinks_at)));
                }
            }
        }
        let parts = split.shards.iter_mut().flat_map(Shard::parts_mut);
        for (tensor, bytes) in parts.filter(|(t, _)| t.spec.group == group) {
            for head in 0..tensor.spec.n_heads {
                let dims = (tensor.spec.layer, tensor.spec.head, head);
                if let Some((_, moves)) = victims.iter().find(|(d, _)| *d == dims) {
                    moves.iter().for_each(|&m| tensor.move_rows(bytes, mode, Some(head), m));
                }
            }
            tensor.retract(bytes, mode, n - n_evict, written);
        }
        split.extent[group] = n - n_evict;
        Ok(())
    }

    /// Scores the keys of all splits in one call, before any split has dropped rows.
    fn score_group(&mut self, group: usize) -> Result<(), KvError> {
        for at in 0..self.store.splits.len() {
            self.store.wait_split(at)?;
        }
        let mode = self.store.mode.mode();
        let (mut ids, mut heads) = (Vec::new(), Vec::new());
        for split in &self.store.splits {
            let n = split.extent[group];
            let parts = split.shards.iter().flat_map(Shard::parts);
            for (tensor, bytes) in parts.filter(|(t, _)| t.spec.group == group && t.spec.kind == KvKind::Key) {
                for head in 0..tensor.spec.n_heads {
                    let keys = keydiff::read_keys(tensor, bytes, mode, head, n);
                    let (layer, own) = (tensor.spec.layer, tensor.spec.head);
                    ids.push((layer, own, head));
                    heads.push(HeadKeys { layer, head: own.unwrap_or(head), keys, scores: vec![0.0; n] });
                }
            }
        }
        self.settings.scorer.score_group(&mut heads).map_err(|why| KvError::Scorer { why })?;
        let state = &mut self.groups[group];
        for (id, head) in ids.into_iter().zip(&heads) {
            state.queues.insert(id, Queue::of_scores(&head.scores, &state.sinks_at));
        }
        state.scored = true;
        Ok(())
    }

    /// Whether a group's rows are always `0..n`.
    pub(super) fn is_dense(&self, group: usize) -> bool {
        let long = self.groups[group].rule.long;
        matches!(long, Eviction::KeyDiff { .. }) || (long == Eviction::None && self.settings.holes == HolePolicy::Close)
    }
}

/// Whether a group's rows and a step's columns are of one sequence.
fn is_alone(state: &GroupState, columns: &Columns) -> bool {
    let mut seqs = columns.slices().map(|slice| slice.seq);
    let first = seqs.next();
    seqs.all(|seq| Some(seq) == first) && state.is_of_one(first)
}

//! Room for the next rows: what the long-context rules drop, where new rows go, and how holes are closed.
//!
//! Rows are dropped when a step is kept, never while it runs, so every step sees what the rule promises it: a ring
//! all its slots, a window exactly its last keys. What a changed shape cannot hold is dropped as a step is prepared.

use super::step::runs;
use super::{GroupState, KvCache};
use crate::cells::{Cell, CellTable, RowMove, SeqId};
use crate::geometry::KvKind;
use crate::group::LongContext;
use crate::keydiff::{self, Queue};
use crate::tensor_buf::Op;
use crate::worker::Shard;
use crate::{KvError, KvForm};
use genie_types::Variant;

impl KvCache {
    /// Brings every group into what a step of that shape can see, with a free block for a scatter graph.
    pub(super) fn make_room(&mut self, spec: Variant) -> Result<(), KvError> {
        for group in 0..self.groups.len() {
            let state = &mut self.groups[group];
            let room = state.rule.room(spec);
            let excess = state.cells.n_used().saturating_sub(room);
            match state.rule.long {
                LongContext::None => {}
                LongContext::Window { size, sinks } => state.expire(size, sinks, &self.next),
                LongContext::Ring { sinks } => {
                    state.drop_oldest(excess, sinks);
                }
                LongContext::KeyDiff { sinks, update_every } if excess > 0 => {
                    state.drop_last(excess.min(state.cells.n_used().saturating_sub(sinks)), update_every);
                    for at in 0..self.splits.len() {
                        self.evict_by_score(at, group)?;
                    }
                    self.groups[group].n_evict = 0;
                }
                LongContext::KeyDiff { .. } => {}
            }
            self.close_holes(group, spec)?;
        }
        self.sync_extents()
    }

    fn close_holes(&mut self, group: usize, spec: Variant) -> Result<(), KvError> {
        let dense = self.is_dense(group);
        let state = &mut self.groups[group];
        let (room, ar) = (state.rule.room(spec), spec.ar().get());
        let moves = match state.rule.form {
            _ if dense => state.cells.compact(0, usize::MAX),
            KvForm::Concat => state.cells.compact(room, usize::MAX),
            KvForm::Scatter => {
                // The graph writes a block of AR columns, padding included: all of it must be free.
                let ctx = state.rule.ctx_of(spec);
                let mut moves = state.cells.compact(ctx, usize::MAX);
                if state.cells.find_slots(ar, ctx, true, &mut self.slots) {
                    state.block = self.slots.first().copied().unwrap_or(0);
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
        self.start_all(&Op::Move { group, moves: moves.into() })
    }

    /// Finds slots for the kept columns of the step under way in a group, dropping rows by the group's rule.
    pub(super) fn place(&mut self, group: usize) -> Result<(), KvError> {
        let Some(spec) = self.spec else { return Ok(()) };
        let (first, dense) = (self.next[0], self.is_dense(group));
        let largest = spec.cl().get() == self.variants.max_ctx();
        let mut after = self.next;
        for i in 0..self.kept_columns.len() {
            let token = self.token(i, first);
            let next = &mut after[usize::from(token.seq.0)];
            *next = (*next).max(token.pos + 1);
        }
        let n = self.kept_columns.len();
        let state = &mut self.groups[group];
        // Beyond the past of this shape there is still its context, unless it is the last.
        let (room, ctx) = (state.rule.room(spec), state.rule.ctx_of(spec));
        let excess = (state.cells.n_used() + n).saturating_sub(if largest { room } else { ctx });
        state.n_evict = 0;
        let mut skip_oldest = 0;
        match state.rule.long {
            LongContext::None => {}
            LongContext::Window { size, sinks } => state.expire(size, sinks, &after),
            LongContext::Ring { sinks } => skip_oldest = excess - state.drop_oldest(excess, sinks),
            LongContext::KeyDiff { sinks, update_every } if excess > 0 => {
                let n_evict = excess.min(state.cells.n_used().saturating_sub(sinks));
                state.drop_last(n_evict, update_every);
                skip_oldest = excess - n_evict;
            }
            LongContext::KeyDiff { .. } => {}
        }
        let long = self.groups[group].rule.long;
        let mut placed = std::mem::take(&mut self.groups[group].placed);
        placed.clear();
        let mut columns = std::mem::take(&mut self.column_scratch);
        columns.clear();
        for i in 0..n {
            let token = self.token(i, first);
            let stays = match long {
                LongContext::None => true,
                LongContext::Window { size, sinks } => {
                    token.pos < sinks || token.pos + size > after[usize::from(token.seq.0)]
                }
                LongContext::Ring { sinks } | LongContext::KeyDiff { sinks, .. } => {
                    let skip = token.pos >= sinks && skip_oldest > 0;
                    skip_oldest -= usize::from(skip);
                    !skip
                }
            };
            if stays {
                placed.push((0, token));
                columns.push(self.kept_columns[i]);
            }
        }
        let state = &mut self.groups[group];
        self.slots.clear();
        if dense {
            let start = state.cells.extent();
            self.slots.extend(start..start + placed.len());
        } else {
            let limit = if state.rule.form == KvForm::Concat { room } else { ctx };
            let cells = &mut state.cells;
            let found = cells.find_slots(placed.len(), limit, false, &mut self.slots)
                || cells.find_slots(placed.len(), state.capacity, false, &mut self.slots);
            if !found {
                let n_rows = state.cells.n_used() + placed.len();
                return Err(KvError::PastTooLong { spec, past_len: state.capacity, n_rows });
            }
        }
        placed.iter_mut().zip(&self.slots).for_each(|((slot, _), &found)| *slot = found);
        state.extent_after = self.slots.iter().map(|s| s + 1).fold(state.cells.extent(), usize::max);
        state.runs = runs(columns.iter().copied().zip(self.slots.iter().copied()), &mut self.run_scratch);
        state.placed = placed;
        self.column_scratch = columns;
        Ok(())
    }

    /// `KeyDiff` on one split: in each head the rows with the worst keys go, and rows from the end take their place.
    pub(super) fn evict_by_score(&mut self, at: usize, group: usize) -> Result<(), KvError> {
        let n_evict = self.groups[group].n_evict;
        if n_evict == 0 || self.splits[at].n_tensors == 0 {
            return Ok(());
        }
        let LongContext::KeyDiff { sinks, .. } = self.groups[group].rule.long else { return Ok(()) };
        self.collect(at)?;
        let mode = self.options.mode.mode();
        let split = &mut self.splits[at];
        let n = split.extent[group];
        let state = &mut self.groups[group];
        let mut victims = Vec::new();
        for (tensor, bytes) in split.shards.iter().flat_map(Shard::parts) {
            if tensor.spec.group == group && tensor.spec.kind == KvKind::Key {
                for head in 0..tensor.spec.n_heads {
                    let id = (tensor.spec.layer, tensor.spec.head, head);
                    let queue = state.queues.entry(id).or_default();
                    if state.rescore {
                        let keys = keydiff::read_keys(tensor, bytes, mode, head, n);
                        *queue = Queue::score(self.scorer.as_mut(), &id, &keys, n, sinks);
                    }
                    victims.push((id, queue.evict(n_evict, n)));
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
            tensor.retract(bytes, mode, n - n_evict);
        }
        split.extent[group] = n - n_evict;
        Ok(())
    }
}

impl GroupState {
    /// Drops the rows that no coming token sees through a window.
    fn expire(&mut self, size: usize, sinks: usize, next: &[usize; SeqId::COUNT]) {
        let expired = |cell: &Cell| {
            let owners = (0..SeqId::COUNT).filter(|&s| cell.has(SeqId(s as u8)));
            cell.pos >= sinks && owners.map(|s| next[s]).all(|next| cell.pos + size <= next)
        };
        for slot in 0..self.cells.extent() {
            let cell = self.cells.cell(slot);
            if !cell.is_free() && expired(&cell) {
                self.cells.free(slot);
            }
        }
    }

    /// Drops up to `n` rows, oldest position first; returns how many there were to drop.
    fn drop_oldest(&mut self, n: usize, sinks: usize) -> usize {
        let candidates = |cells: &CellTable| -> Vec<(usize, usize)> {
            cells.used().filter(|(_, c)| c.pos >= sinks).map(|(slot, c)| (c.pos, slot)).collect()
        };
        match n {
            0 => 0,
            // The decode step's case: one look, no list.
            1 => {
                let oldest = self.cells.used().filter(|(_, c)| c.pos >= sinks).min_by_key(|(_, c)| c.pos);
                let Some((slot, _)) = oldest else { return 0 };
                self.cells.free(slot);
                1
            }
            _ => {
                let mut rows = candidates(&self.cells);
                let n = n.min(rows.len());
                if n < rows.len() {
                    rows.select_nth_unstable(n);
                }
                rows[..n].iter().for_each(|&(_, slot)| self.cells.free(slot));
                n
            }
        }
    }

    /// Counts `n` rows as gone; which they are, each head's queue says, settled anew every
    /// `update_every` steps or when one runs out.
    fn drop_last(&mut self, n: usize, update_every: usize) {
        let used = self.cells.n_used();
        (used - n..used).for_each(|slot| self.cells.free(slot));
        self.n_evict = n;
        self.mixed |= n > 0;
        let short = self.queues.is_empty() || self.queues.values().any(|q| q.len() < n);
        self.rescore = short || self.age >= update_every;
        if self.rescore {
            self.age = 0;
        }
    }
}

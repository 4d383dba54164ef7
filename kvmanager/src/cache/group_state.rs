//! One cache group at work: its cells, where the rows of the step under way go, and which rows its rule drops.

use crate::cells::{Cell, CellTable, SeqId};
use crate::geometry::KvForm;
use crate::group::{CacheGroup, Eviction};
use crate::keydiff::{HeadId, Queue};
use crate::plan::{Column, Columns, Variants};
use crate::tensor_buf::Runs;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) rule: CacheGroup,
    pub(super) cells: CellTable,
    /// Rows its buffers can hold.
    pub(super) capacity: usize,
    /// Where the kept columns of the step under way go: `(slot, column)`.
    pub(super) placed: Vec<(usize, Column)>,
    pub(super) runs: Runs,
    /// Rows in use once the step under way is kept.
    pub(super) extent_after: usize,
    /// First slot of the block that a scatter graph writes.
    pub(super) block: usize,
    /// The step under way counts the rows of its window (`FirstFit` of one sequence) instead of going by positions.
    pub(super) counts_rows: bool,
    /// Rows that `KeyDiff` drops before the step's rows come in.
    pub(super) n_evict: usize,
    /// The sinks among the rows that `KeyDiff` last dropped from, ascending.
    pub(super) sinks_at: Vec<usize>,
    /// Heads no longer hold the same tokens.
    pub(super) per_head_rows: bool,
    /// `KeyDiff`: which row of each head is dropped next, and how many were dropped since the last scoring.
    pub(super) queues: BTreeMap<HeadId, Queue>,
    pub(super) age: usize,
    /// The step under way scores all keys again.
    pub(super) rescore: bool,
    /// It has scored them, all heads at once.
    pub(super) scored: bool,
}

impl GroupState {
    pub(super) fn new(rule: &CacheGroup, variants: &Variants, keeps_rows: bool) -> Self {
        let capacity = capacity(rule, variants, keeps_rows);
        Self {
            rule: rule.clone(),
            cells: CellTable::new(capacity),
            capacity,
            placed: Vec::with_capacity(variants.ar_max()),
            runs: Runs::new(&[]),
            extent_after: 0,
            block: 0,
            counts_rows: false,
            n_evict: 0,
            sinks_at: Vec::new(),
            per_head_rows: false,
            queues: BTreeMap::new(),
            age: 0,
            rescore: false,
            scored: false,
        }
    }

    /// No rows, no queues.
    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.placed.clear();
        self.n_evict = 0;
        self.queues.clear();
        self.per_head_rows = false;
    }

    /// Drops the rows that no coming token sees through a window.
    pub(super) fn expire(&mut self, size: usize, sinks: usize, next: &[usize; SeqId::COUNT]) {
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

    /// Drops all but the newest rows, the sinks apart.
    pub(super) fn keep_newest(&mut self, n: usize, sinks: usize) {
        let held = self.cells.used().filter(|(_, c)| c.pos >= sinks).count();
        // One after the other: the last step's rows are few, and this allocates nothing.
        (n..held).for_each(|_| _ = self.drop_oldest(1, sinks));
    }

    /// The first slots in a row for `n` new rows of the only sequence that has rows, by libGenie's rule, once the rows behind the
    /// window have gone. Where none are free it takes the first slots of all and drops what they hold.
    pub(super) fn first_fit(&mut self, n: usize, slots: usize) -> usize {
        let mut free = 0;
        for slot in 0..slots {
            free = if self.cells.cell(slot).is_free() { free + 1 } else { 0 };
            if free == n {
                return slot + 1 - n;
            }
        }
        for slot in 0..n {
            if !self.cells.cell(slot).is_free() {
                self.cells.free(slot);
            }
        }
        0
    }

    /// Whether its rows are of one sequence alone, and of that one if one is named.
    pub(super) fn is_of_one(&self, seq: Option<SeqId>) -> bool {
        let first = seq.map(SeqId::bit).or_else(|| self.cells.used().next().map(|(_, cell)| cell.seqs));
        first.is_none_or(|first| self.cells.used().all(|(_, cell)| cell.seqs == first))
    }

    /// Drops up to `n` rows, oldest position first; returns how many there were to drop.
    pub(super) fn drop_oldest(&mut self, n: usize, sinks: usize) -> usize {
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

    /// Counts up to `n` rows as dropped, and returns how many there were to drop. Each head's queue decides which they are;
    /// a scoring serves `update_every` rows, or at least one call; then the queues are scored again. From then on a cell is a
    /// count, except for the sinks, which come first in every head.
    pub(super) fn drop_by_score(&mut self, n: usize, sinks: usize, update_every: usize) -> usize {
        self.n_evict = 0;
        if n == 0 {
            return 0;
        }
        let Self { cells, sinks_at, .. } = self;
        sinks_at.clear();
        sinks_at.extend(cells.used().filter(|(_, c)| c.pos < sinks).map(|(slot, _)| slot));
        let used = cells.n_used();
        let n = n.min(used - sinks_at.len());
        if n == 0 {
            return 0;
        }
        sinks_at.iter().enumerate().for_each(|(place, &sink)| cells.swap(place, sink));
        (used - n..used).for_each(|slot| cells.free(slot));
        self.n_evict = n;
        self.per_head_rows = true;
        let short = self.queues.is_empty() || self.queues.values().any(|q| q.len() < n);
        self.rescore = short || self.age.saturating_add(n) > update_every;
        self.scored = false;
        self.age = if self.rescore { n } else { self.age + n };
        n
    }

    /// Whether a step of those columns would make `KeyDiff` evict, or meet rows that it has left, of more than one sequence.
    /// `again`: the sequences that begin again, so that their rows are gone by then. `limit`: rows once the step is kept.
    pub(super) fn mixes_sequences(&self, columns: &Columns, again: u64, room: usize, limit: usize) -> bool {
        if !matches!(self.rule.long, Eviction::KeyDiff { .. }) {
            return false;
        }
        let owners = || self.cells.used().map(|(_, c)| c.seqs & !again).filter(|seqs| *seqs != 0);
        let n_rows = if again == 0 { self.cells.n_used() } else { owners().count() };
        let Some(seq) = columns.slices().next().map(|slice| slice.seq.bit()) else { return false };
        (self.per_head_rows || n_rows > room || n_rows + columns.len() > limit)
            && (columns.slices().any(|slice| slice.seq.bit() != seq) || owners().any(|seqs| seqs != seq))
    }

    /// Rows that a variant's past must hold.
    pub(super) fn n_held(&self) -> usize {
        if self.rule.form == KvForm::Concat { self.cells.extent() } else { self.cells.n_used() }
    }

    /// Whether a token at `n_past` would miss rows of a sequence that were dropped.
    pub(super) fn lacks_rows(&self, seq: SeqId, n_past: usize) -> bool {
        match self.rule.long {
            Eviction::None => false,
            Eviction::Window { size, sinks } | Eviction::FirstFit { size, sinks } => {
                let from = (n_past + 1).saturating_sub(size);
                let early = sinks.min(from);
                self.cells.count(seq, from..n_past) < n_past - from || self.cells.count(seq, 0..early) < early
            }
            Eviction::Ring { .. } => self.cells.count(seq, 0..n_past) < n_past,
            Eviction::KeyDiff { .. } => self.per_head_rows,
        }
    }
}

/// Rows a group's buffers hold: a step may leave more rows than its own past holds, at most its context.
pub(super) fn capacity(rule: &CacheGroup, variants: &Variants, keeps_rows: bool) -> usize {
    let longest = variants.all().iter().map(|&s| rule.ctx_of(s)).max().unwrap_or(0);
    if keeps_rows { longest } else { 0 }
}

/// The longest past input among the group's graphs.
pub(super) fn longest_past(rule: &CacheGroup, variants: &Variants, keeps_rows: bool) -> usize {
    let longest = variants.all().iter().map(|&s| rule.past_len(s)).max().unwrap_or(0);
    if keeps_rows { longest } else { 0 }
}

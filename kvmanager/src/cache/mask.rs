//! Masks: which columns each token of the step under way may see, from the cells.

use super::KvCache;
use super::group_state::GroupState;
use crate::KvError;
use crate::cells::CellTable;
use crate::error::same;
use crate::geometry::KvForm;
use crate::group::Eviction;
use crate::plan::Column;
use genie_types::Variant;

/// A column of a group's mask that a row of the step sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleColumn {
    /// The row: a new token of the step, by its column.
    pub row: usize,
    /// The mask's column.
    pub column: usize,
    /// Which new token the column holds; `None` for one of the past.
    pub new: Option<usize>,
    /// Position of the column's key; `None` where heads hold keys of different tokens.
    pub key: Option<usize>,
}

impl KvCache {
    /// See [`Step::fill_mask`](super::Step::fill_mask).
    pub(super) fn fill_mask<T: Copy>(
        &self,
        variant: Variant,
        group: usize,
        hidden: T,
        visible: T,
        out: &mut [T],
    ) -> Result<(), KvError> {
        let Some(state) = self.groups.get(group) else {
            return same("group of the mask, below", self.groups.len(), group);
        };
        let (ar, width) = (variant.ar().get(), state.rule.ctx_of(variant));
        same("elements of the mask", ar * width, out.len())?;
        out.fill(hidden);
        self.each_visible(variant, group, |seen| out[seen.row * width + seen.column] = visible)
    }

    /// See [`Step::each_visible`](super::Step::each_visible).
    pub(super) fn each_visible(
        &self,
        variant: Variant,
        group: usize,
        mut each: impl FnMut(VisibleColumn),
    ) -> Result<(), KvError> {
        let Some(state) = self.groups.get(group) else {
            return same("group of the mask, below", self.groups.len(), group);
        };
        let (ar, width) = (variant.ar().get(), state.rule.ctx_of(variant));
        let past_len = state.rule.past_len(variant);
        let (past, new) = match state.rule.form {
            KvForm::Concat => (self.store.mode.mode().past_idx(past_len, state.cells.extent()), width - ar),
            KvForm::Scatter => (0, if past_len == 0 { 0 } else { state.block }),
        };
        let columns = &self.step.columns;
        let mut counted = Counted::of(state);
        for (i, column) in columns.iter().enumerate() {
            let tree = &self.step.tree;
            if let Some(counted) = &mut counted {
                let n_new = if tree.is_empty() { i } else { tree.ancestors(i).count() } + 1;
                counted.go_to(n_new, &state.cells, columns);
            }
            let in_window = |key: usize| match &counted {
                Some(counted) => counted.shows(key),
                None => in_window(state.rule.long, column.pos, key),
            };
            if self.settings.keeps_rows {
                for (slot, cell) in state.cells.used() {
                    let also = self.step.tree.also(i).is_some_and(|seq| cell.has(seq));
                    let own = cell.has(column.seq) && cell.pos <= column.pos;
                    if state.per_head_rows || also || own && in_window(cell.pos) {
                        let key = (!state.per_head_rows).then_some(cell.pos);
                        each(VisibleColumn { row: i, column: past + slot, new: None, key });
                    }
                }
            }
            for j in tree.ancestors(i).filter(|&j| in_window(columns[j].pos)) {
                each(VisibleColumn { row: i, column: new + j, new: Some(j), key: Some(columns[j].pos) });
            }
            let others = if tree.is_empty() { columns.as_slice() } else { &[] };
            if !tree.is_empty() {
                each(VisibleColumn { row: i, column: new + i, new: Some(i), key: Some(column.pos) });
            }
            for (j, other) in others.iter().enumerate() {
                if i == j || (other.seq == column.seq && other.pos < column.pos && in_window(other.pos)) {
                    each(VisibleColumn { row: i, column: new + j, new: Some(j), key: Some(other.pos) });
                }
            }
        }
        Ok(())
    }
}

/// A window that counts the rows it shows: of more than `most` the oldest are hidden, the sinks apart.
struct Counted {
    most: usize,
    sinks: usize,
    /// Rows of the past.
    n_past: usize,
    /// Rows hidden so far, all before this position.
    n_hidden: usize,
    first: usize,
}

impl Counted {
    /// Of a group whose step under way counts rows.
    fn of(state: &GroupState) -> Option<Self> {
        let Eviction::FirstFit { size, sinks } = state.rule.long else { return None };
        let n_past = state.cells.n_used();
        state.counts_rows.then_some(Self { most: size + sinks, sinks, n_past, n_hidden: 0, first: sinks })
    }

    /// Hides what a column does not see beside the past and `n_new` columns.
    fn go_to(&mut self, n_new: usize, cells: &CellTable, columns: &[Column]) {
        let n = (self.n_past + n_new).saturating_sub(self.most);
        if n < self.n_hidden {
            (self.n_hidden, self.first) = (0, self.sinks);
        }
        while self.n_hidden < n {
            let past = cells.used().map(|(_, cell)| cell.pos);
            let later = past.chain(columns.iter().map(|column| column.pos)).filter(|&pos| pos >= self.first);
            let Some(oldest) = later.min() else { break };
            self.first = oldest + 1;
            self.n_hidden += 1;
        }
    }

    fn shows(&self, key: usize) -> bool {
        key < self.sinks || key >= self.first
    }
}

fn in_window(long: Eviction, pos: usize, key: usize) -> bool {
    long.window().is_none_or(|(size, sinks)| key + size > pos || key < sinks)
}

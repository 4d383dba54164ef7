//! Masks: which columns each token of the step under way may see, from the cells.

use super::KvCache;
use crate::KvError;
use crate::cells::Cell;
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
        for (i, column) in columns.iter().enumerate() {
            if self.settings.keeps_rows {
                for (slot, cell) in state.cells.used() {
                    let also = self.step.tree.also(i).is_some_and(|seq| cell.has(seq));
                    if state.per_head_rows || also || sees(state.rule.long, column, cell) {
                        let key = (!state.per_head_rows).then_some(cell.pos);
                        each(VisibleColumn { row: i, column: past + slot, new: None, key });
                    }
                }
            }
            let tree = &self.step.tree;
            for j in tree.ancestors(i).filter(|&j| in_window(state.rule.long, column.pos, columns[j].pos)) {
                each(VisibleColumn { row: i, column: new + j, new: Some(j), key: Some(columns[j].pos) });
            }
            let others = if tree.is_empty() { columns.as_slice() } else { &[] };
            if !tree.is_empty() {
                each(VisibleColumn { row: i, column: new + i, new: Some(i), key: Some(column.pos) });
            }
            for (j, other) in others.iter().enumerate() {
                if i == j
                    || (other.seq == column.seq
                        && other.pos < column.pos
                        && in_window(state.rule.long, column.pos, other.pos))
                {
                    each(VisibleColumn { row: i, column: new + j, new: Some(j), key: Some(other.pos) });
                }
            }
        }
        Ok(())
    }
}

fn sees(long: Eviction, column: &Column, cell: &Cell) -> bool {
    cell.has(column.seq) && cell.pos <= column.pos && in_window(long, column.pos, cell.pos)
}

fn in_window(long: Eviction, pos: usize, key: usize) -> bool {
    match long {
        Eviction::Window { size, sinks } => key + size > pos || key < sinks,
        _ => true,
    }
}

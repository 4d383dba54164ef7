//! Masks: which columns each token of the step under way may see, from the cells.

use super::KvCache;
use crate::KvError;
use crate::cells::Cell;
use crate::error::same;
use crate::geometry::KvForm;
use crate::group::Eviction;
use crate::plan::Column;
use genie_types::Variant;

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
        let past_len = state.rule.past_len(variant);
        let (past, new) = match state.rule.form {
            KvForm::Concat => (self.store.mode.mode().past_idx(past_len, state.cells.extent()), width - ar),
            KvForm::Scatter => (0, if past_len == 0 { 0 } else { state.block }),
        };
        let columns = &self.step.columns;
        for (i, column) in columns.iter().enumerate() {
            let row = &mut out[i * width..(i + 1) * width];
            if self.settings.keeps_rows {
                for (slot, cell) in state.cells.used() {
                    if state.per_head_rows || sees(state.rule.long, column, cell) {
                        row[past + slot] = visible;
                    }
                }
            }
            for (j, other) in columns.iter().enumerate() {
                if i == j
                    || (other.seq == column.seq
                        && other.pos < column.pos
                        && in_window(state.rule.long, column.pos, other.pos))
                {
                    row[new + j] = visible;
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

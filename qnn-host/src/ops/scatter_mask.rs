//! The mask of attention over a past and the new columns that replace some of it.

use super::gather::place;
use super::prelude::*;
use super::scatter::within;

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, past: usize, new: usize) -> Result<Box<dyn Step>, ExecError> {
    let (mask, columns) = (b.src(b.input(node, 0)?), b.src(b.input(node, 1)?));
    b.each(node, ScatterMask { mask, columns, past, new })
}

/// Hides a column even from rows whose other columns are all hidden; finite, so that no difference is undefined.
const REPLACED: f32 = -1e30;

/// `mask [rows, past], columns [new]` -> `[rows, past + new]`: replaced columns of the past are hidden, new ones have the mask
/// of the column they take. Of several that take the same column the last counts, and one beyond the past is seen by none.
struct ScatterMask {
    mask: Src,
    columns: Src,
    past: usize,
    new: usize,
}

impl Fill for ScatterMask {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let (mask, columns) = (cx.floats(&self.mask), cx.read::<i32>(&self.columns));
        let ascending = columns.is_sorted_by(|a, b| a < b);
        for (r, out) in out.chunks_exact_mut(self.unit()).enumerate() {
            let row = first / self.unit() + r;
            let (past, new) = out.split_at_mut(self.past);
            crate::kernels::convert::widen(cx.isa, mask.slice(row * self.past..(row + 1) * self.past), past);
            for (j, new) in new.iter_mut().enumerate() {
                let column = within(place(columns[j], self.past))?;
                let replaced = !ascending && columns[j + 1..].contains(&columns[j]);
                *new = column.filter(|_| !replaced).map_or(REPLACED, |column| past[column]);
            }
            for &column in columns {
                if let Some(column) = within(place(column, self.past))? {
                    past[column] = REPLACED;
                }
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.past + self.new
    }
}

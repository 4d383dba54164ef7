//! Masks: which columns each token of the prepared step may see, from the cells.
//!
//! *Shapes*: `[AR, CL]` of a group, row-major. Columns as in the graph contract: past at `past_idx + slot`, new tokens
//! at `CL - AR + i` (concat) or `cache_index + i` (scatter). Valid from `prepare` to the first `commit`.

use super::{BatchToken, KvCache};
use crate::cells::Cell;
use crate::group::LongContext;
use crate::{KvError, KvForm};

impl KvCache {
    /// The cache index of a group for the prepared step: where its scatter graph writes the new columns.
    pub fn cache_index(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |g| g.block)
    }

    /// Columns of a group's mask in the current shape.
    pub fn mask_width(&self, group: usize) -> usize {
        self.spec.zip(self.groups.get(group)).map_or(0, |(spec, g)| g.rule.ctx_of(spec))
    }

    /// Writes a group's mask for the prepared step. Each token sees the rows of its own sequence up to its position,
    /// as far as the group's window goes, the new tokens of its sequence before it, and itself; padding sees nothing.
    ///
    /// # Errors
    /// [`KvError::StepMismatch`] when no step is prepared, or `out` has another size than `AR * CL`;
    /// [`KvError::Refused`] after the step's first commit, when rows that it saw may have gone.
    pub fn fill_mask<T: Copy>(&self, group: usize, hidden: T, visible: T, out: &mut [T]) -> Result<(), KvError> {
        self.idle("a mask after the first commit")?;
        let Some((spec, state)) = self.spec.zip(self.groups.get(group)) else {
            let (expected, found) = ("one, for a group the cache has".to_owned(), format!("none, for group {group}"));
            return Err(KvError::StepMismatch { what: "the prepared step", expected, found });
        };
        let (ar, width) = (spec.ar().get(), state.rule.ctx_of(spec));
        super::step::same("elements of the mask", ar * width, out.len())?;
        out.fill(hidden);
        let past_len = state.rule.past_len(spec);
        let (past, new) = match state.rule.form {
            KvForm::Concat => (self.options.mode.mode().past_idx(past_len, state.cells.extent()), width - ar),
            KvForm::Scatter => (0, if past_len == 0 { 0 } else { state.block }),
        };
        for (i, token) in self.tokens.iter().enumerate() {
            let row = &mut out[i * width..(i + 1) * width];
            if self.keeps_rows {
                for (slot, cell) in state.cells.used() {
                    if state.mixed || sees(state.rule.long, token, cell) {
                        row[past + slot] = visible;
                    }
                }
            }
            for (j, other) in self.tokens.iter().enumerate() {
                if i == j
                    || (other.seq == token.seq
                        && other.pos < token.pos
                        && in_window(state.rule.long, token.pos, other.pos))
                {
                    row[new + j] = visible;
                }
            }
        }
        Ok(())
    }
}

fn sees(long: LongContext, token: &BatchToken, cell: &Cell) -> bool {
    cell.has(token.seq) && cell.pos <= token.pos && in_window(long, token.pos, cell.pos)
}

fn in_window(long: LongContext, pos: usize, key: usize) -> bool {
    match long {
        LongContext::Window { size, sinks } => key + size > pos || key < sinks,
        _ => true,
    }
}

//! Adapters that are added to the weights as these are read: `W + s B A`, before anything is rounded.
//!
//! *Units*: sums in double, then one rounding to float32, like the weights of a float32 checkpoint.

use super::{Adapter, LowRank, Target};
use crate::Result;
use crate::checkpoint::{Deltas, Overlay};

/// What an adapter adds to one weight, row by row.
struct Rows {
    matrices: LowRank,
    /// Elements of a row.
    width: usize,
    /// Elements that have been seen.
    done: usize,
    /// The row that is being added, and its number.
    row: (Option<usize>, Vec<f64>),
}

impl Overlay for Adapter {
    fn concerns(&self, name: &str) -> bool {
        place(name).is_some_and(|(layer, target)| self.rank_at(layer, target).is_some())
    }

    fn deltas(&self, name: &str, dims: &[usize]) -> Result<Option<Box<dyn Deltas>>> {
        let Some((layer, target)) = place(name) else { return Ok(None) };
        let Some(matrices) = self.matrices(layer, target)? else { return Ok(None) };
        let width = dims.last().copied().unwrap_or(0);
        Ok(Some(Box::new(Rows { matrices, width, done: 0, row: (None, vec![0.0; width]) })))
    }
}

impl Deltas for Rows {
    fn add(&mut self, values: &mut [f32]) {
        for value in values {
            let (row, column) = (self.done / self.width, self.done % self.width);
            if self.row.0 != Some(row) {
                self.compute(row);
            }
            *value = (f64::from(*value) + self.row.1[column]) as f32;
            self.done += 1;
        }
    }
}

impl Rows {
    fn compute(&mut self, row: usize) {
        let sums = &mut self.row.1;
        sums.fill(0.0);
        let LowRank { rank, down, up } = &self.matrices;
        for (factor, line) in up[row * rank..(row + 1) * rank].iter().zip(down.chunks_exact(self.width)) {
            let factor = f64::from(*factor);
            sums.iter_mut().zip(line).for_each(|(sum, a)| *sum += factor * f64::from(*a));
        }
        self.row.0 = Some(row);
    }
}

/// The projection whose weight has that name.
fn place(name: &str) -> Option<(usize, Target)> {
    let (layer, part) = name.strip_prefix("model.layers.")?.strip_suffix(".weight")?.split_once('.')?;
    let target = Target::ALL.into_iter().find(|target| target.part() == part)?;
    Some((layer.parse().ok()?, target))
}

//! Plain rotation of positions; the reference for the fused one.

use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// Turns pairs of each row of `dim` by the angles of its position.
pub(crate) struct Rotate {
    pub(crate) x: Src,
    pub(crate) cos: Src,
    pub(crate) sin: Src,
    /// Positions: row `r` of `x` has the tables' row `r % rows`, of table `r / rows_per_table`.
    pub(crate) rows: usize,
    pub(crate) rows_per_table: usize,
    pub(crate) dim: usize,
    pub(crate) rotated: usize,
    pub(crate) interleaved: bool,
}

impl Fill for Rotate {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        let (cos, sin) = (cx.read::<f32>(&self.cos), cx.read::<f32>(&self.sin));
        let half = self.rotated / 2;
        for (r, (x, out)) in x.chunks_exact(self.dim).zip(out.chunks_exact_mut(self.dim)).enumerate() {
            let row = first / self.dim + r;
            let at = (row / self.rows_per_table * self.rows + row % self.rows) * half;
            for j in 0..half {
                let (p, q) = if self.interleaved { (2 * j, 2 * j + 1) } else { (j, j + half) };
                let (c, s) = (cos[at + j], sin[at + j]);
                out[p] = x[p] * c - x[q] * s;
                out[q] = x[q] * c + x[p] * s;
            }
            out[self.rotated..].copy_from_slice(&x[self.rotated..]);
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.dim
    }
}

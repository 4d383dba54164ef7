//! Norms and rotations by the vector kernels.

use crate::exec::cx::{Cx, Src};
use crate::exec::step::{Fault, Fill};
use crate::kernels::{self, Floats};

/// RMS normalisation with weights read in place.
pub(crate) struct FastRmsNorm {
    pub(crate) x: Src,
    pub(crate) gamma: Src,
    pub(crate) beta: Option<Src>,
    pub(crate) width: usize,
    pub(crate) epsilon: f32,
}

impl Fill for FastRmsNorm {
    type Elem = f32;

    fn fill(&self, cx: &Cx<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        let beta = self.beta.as_ref().map(|b| cx.floats(b));
        kernels::rms_norm(cx.isa, x, self.width, cx.floats(&self.gamma), beta, self.epsilon, out);
        Ok(())
    }

    fn unit(&self) -> usize {
        self.width
    }
}

/// Rotation of `[.., rows, dim]` by one table for all.
pub(crate) struct FastRotate {
    pub(crate) x: Src,
    pub(crate) cos: Src,
    pub(crate) sin: Src,
    pub(crate) rows: usize,
    pub(crate) dim: usize,
    pub(crate) rotated: usize,
    pub(crate) interleaved: bool,
}

impl Fill for FastRotate {
    type Elem = f32;

    fn fill(&self, cx: &Cx<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        out.copy_from_slice(&cx.read::<f32>(&self.x)[first..first + out.len()]);
        let (cos, sin) = (Floats::f32(cx.read(&self.cos)), Floats::f32(cx.read(&self.sin)));
        let (mut row, mut rest) = (first / self.dim, out);
        while !rest.is_empty() {
            // Whole heads at once, or what is left of one.
            let (at, left) = (row % self.rows, rest.len() / self.dim);
            let whole = if at == 0 { left / self.rows } else { 0 };
            let (rows, heads) = if whole > 0 { (self.rows, whole) } else { (left.min(self.rows - at), 1) };
            let (part, later) = rest.split_at_mut(rows * heads * self.dim);
            let half = self.rotated / 2;
            let tables = at * half..(at + rows) * half;
            let shape = kernels::Rope {
                rows,
                heads,
                dim: self.dim,
                rotary: self.rotated,
                row_stride: self.dim,
                head_stride: rows * self.dim,
                interleaved: self.interleaved,
                cos: cos.slice(tables.clone()),
                sin: sin.slice(tables),
            };
            kernels::rope(cx.isa, &shape, part);
            row += rows * heads;
            rest = later;
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.dim
    }
}

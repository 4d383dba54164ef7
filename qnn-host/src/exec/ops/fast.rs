//! Norms and rotations by the vector kernels.

use crate::kernels::{self, Floats};
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

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

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        let beta = self.beta.as_ref().map(|b| cx.floats(b));
        kernels::rms_norm(cx.isa, x, self.width, cx.floats(&self.gamma), beta, self.epsilon, out);
        Ok(())
    }

    fn unit(&self) -> usize {
        self.width
    }
}

/// Rotation of `[.., rows, heads, dim]` by one table for all; `heads` is 1 where they are an outer axis.
pub(crate) struct FastRotate {
    pub(crate) x: Src,
    pub(crate) cos: Src,
    pub(crate) sin: Src,
    /// Positions.
    pub(crate) rows: usize,
    /// Vectors of a position that lie together.
    pub(crate) heads: usize,
    pub(crate) dim: usize,
    pub(crate) rotated: usize,
    pub(crate) interleaved: bool,
}

impl FastRotate {
    /// How many positions and heads of each the next kernel call takes, from vector `at` on, of `left`: whole tables, whole
    /// positions, or what is left of one; and the strides between them.
    fn block(&self, at: usize, left: usize) -> (usize, usize, usize, usize) {
        let (position, head) = (at / self.heads % self.rows, at % self.heads);
        if self.heads == 1 {
            match left / self.rows {
                whole if position == 0 && whole > 0 => (self.rows, whole, self.dim, self.rows * self.dim),
                _ => (left.min(self.rows - position), 1, self.dim, self.dim),
            }
        } else {
            match (left / self.heads).min(self.rows - position) {
                whole if head == 0 && whole > 0 => (whole, self.heads, self.heads * self.dim, self.dim),
                _ => (1, left.min(self.heads - head), self.heads * self.dim, self.dim),
            }
        }
    }
}

impl Fill for FastRotate {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        out.copy_from_slice(&cx.read::<f32>(&self.x)[first..first + out.len()]);
        let (cos, sin) = (Floats::f32(cx.read(&self.cos)), Floats::f32(cx.read(&self.sin)));
        let half = self.rotated / 2;
        let (mut at, mut rest) = (first / self.dim, out);
        while !rest.is_empty() {
            let (rows, heads, row_stride, head_stride) = self.block(at, rest.len() / self.dim);
            let (part, later) = rest.split_at_mut(rows * heads * self.dim);
            let position = at / self.heads % self.rows;
            let tables = position * half..(position + rows) * half;
            let shape = kernels::Rope {
                rows,
                heads,
                dim: self.dim,
                rotary: self.rotated,
                row_stride,
                head_stride,
                interleaved: self.interleaved,
                cos: cos.slice(tables.clone()),
                sin: sin.slice(tables),
            };
            kernels::rope(cx.isa, &shape, part);
            at += rows * heads;
            rest = later;
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.dim
    }
}

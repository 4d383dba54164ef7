//! Plain softmax along any axis.

use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// `e^(beta x) / sum`, or its logarithm.
pub(crate) struct Softmax {
    pub(crate) x: Src,
    /// Extent of the axis, and elements behind it.
    pub(crate) n: usize,
    pub(crate) inner: usize,
    pub(crate) beta: f32,
    pub(crate) log: bool,
}

impl Fill for Softmax {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        for (x, out) in x.chunks_exact(self.unit()).zip(out.chunks_exact_mut(self.unit())) {
            if self.inner == 1 && !self.log {
                crate::kernels::softmax(cx.isa, x, self.n, self.beta, out);
                continue;
            }
            for column in 0..self.inner {
                let places = || (0..self.n).map(|j| j * self.inner + column);
                let max = places().map(|at| self.beta * x[at]).fold(f32::NEG_INFINITY, f32::max);
                let sum: f64 = places().map(|at| f64::from(self.beta * x[at] - max).exp()).sum();
                for at in places() {
                    let shifted = f64::from(self.beta * x[at] - max);
                    out[at] = if self.log { shifted - sum.ln() } else { shifted.exp() / sum } as f32;
                }
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.n * self.inner
    }
}

//! Operations on single elements.

use crate::graph::scalar::UnaryOp;
use crate::step::{Fault, Fill};
use crate::step::{RunContext, Src};

/// `f32 -> f32`.
pub(crate) struct RealUnary {
    pub(crate) op: UnaryOp,
    pub(crate) x: Src,
}

impl Fill for RealUnary {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        match self.op {
            UnaryOp::Sigmoid => crate::kernels::elementwise::sigmoid(cx.isa, x, out),
            op => out.iter_mut().zip(x).for_each(|(out, &x)| *out = op.real(x)),
        }
        Ok(())
    }
}

/// `i32 -> i32`.
pub(crate) struct IntUnary {
    pub(crate) op: UnaryOp,
    pub(crate) x: Src,
}

impl Fill for IntUnary {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let x = &cx.read::<i32>(&self.x)[first..first + out.len()];
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = self.op.int(x));
        Ok(())
    }
}

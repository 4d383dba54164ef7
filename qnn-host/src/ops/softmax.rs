//! `Softmax` and `LogSoftmax` along any one axis, the last by default.

use super::prelude::*;

const SOFTMAX: OpSpec = OpSpec {
    name: "Softmax",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[opt("axis", UInt), opt("beta", Float32)],
    same_in: 0b1,
    same_out: 0,
    rows: &[
        row!(Float: [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16] => [UFIX16 F32]),
        row!(Fixed: [UFIX8 SFIX8] => [UFIX8 F32 SFIX8]),
    ],
    shapes: |call| axis(call).and_then(|_| common::same(call)),
    lower: |l| lower(l, false),
};

pub(super) const OPS: &[OpSpec] = &[
    SOFTMAX,
    OpSpec {
        name: "LogSoftmax",
        same_out: 0b1,
        rows: &[row!(Float: [FLOAT] => [FLOAT]), row!(Fixed: [UFIX16] => [UFIX16]), row!(Fixed: [UFIX8] => [UFIX8])],
        lower: |l| lower(l, true),
        ..SOFTMAX
    },
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![
        sample("Softmax", &[("axis", Param::UInt(3))], &[(F, &[2, 4, 3, 9])], &[(F, &[2, 4, 3, 9])]),
        sample("LogSoftmax", &[("axis", Param::UInt(1))], &[(F, &[4, 8])], &[(F, &[4, 8])]),
    ]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    let rank = call.dims(0)?.len();
    call.axis("axis", rank - 1, rank)
}

fn lower(l: &mut Lowering<'_, '_>, log: bool) -> Result<(), Violation> {
    let (x, axis, beta) = (l.real(0)?, axis(l)?, l.float("beta", 1.0));
    l.emit_as(Op::Softmax { axis, beta, log }, &[x], l.output(0), Storage::F32);
    Ok(())
}

pub(super) fn step(
    b: &StepBuilder<'_>,
    node: &Node,
    axis: usize,
    beta: f32,
    log: bool,
) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    b.each(node, Softmax { x: b.src(id), n: b.shape(id)[axis], inner: b.behind(id, axis), beta, log })
}

/// `e^(beta x) / sum`, or its logarithm.
struct Softmax {
    x: Src,
    /// Extent of the axis, and elements behind it.
    n: usize,
    inner: usize,
    beta: f32,
    log: bool,
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

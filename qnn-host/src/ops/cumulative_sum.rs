//! `CumulativeSum`: running sums along an axis.

use super::prelude::*;
use crate::storage::number;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "CumulativeSum",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[req("axis", UInt), opt("exclusive", Bool), opt("reverse", Bool)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16] => [UFIX16]),
        row!(Fixed: [UFIX8] => [UFIX8]),
        row!(Plain: [INT32] => [INT32]),
    ],
    shapes: |call| axis(call).and_then(|_| common::same(call)),
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("CumulativeSum", &[("axis", Param::UInt(1))], &[(F, &[3, 9])], &[(F, &[3, 9])])]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, axis) = (l.input(0)?, axis(l)?);
    let (exclusive, reverse) = (l.flag("exclusive", false)?, l.flag("reverse", false)?);
    let storage = l.storage(x);
    l.emit_as(Op::leaf(CumulativeSumOp { axis, exclusive, reverse }), &[x], l.output(0), storage);
    Ok(())
}

#[derive(Debug)]
struct CumulativeSumOp {
    axis: usize,
    exclusive: bool,
    reverse: bool,
}

impl LeafOp for CumulativeSumOp {
    fn label(&self) -> &'static str {
        "CumulativeSum"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let id = b.input(node, 0)?;
        let (n, inner, real) = (b.shape(id)[self.axis], b.behind(id, self.axis), b.is_real(id));
        let Self { exclusive, reverse, .. } = *self;
        b.each(node, CumulativeSum { x: b.src(id), real, n, inner, exclusive, reverse })
    }
}

/// Sums of all elements up to each, along an axis.
struct CumulativeSum {
    x: Src,
    real: bool,
    /// Extent of the axis, and elements behind it.
    n: usize,
    inner: usize,
    exclusive: bool,
    reverse: bool,
}

impl Fill for CumulativeSum {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = &cx.read::<u32>(&self.x)[first..first + out.len()];
        for (x, out) in x.chunks_exact(self.unit()).zip(out.chunks_exact_mut(self.unit())) {
            for column in 0..self.inner {
                let mut sum = 0.0;
                for j in 0..self.n {
                    let row = if self.reverse { self.n - 1 - j } else { j };
                    let at = row * self.inner + column;
                    let before = sum;
                    sum += number(x[at], self.real);
                    let result = if self.exclusive { before } else { sum };
                    out[at] =
                        if self.real { (result as f32).to_bits() } else { (result as i64 as i32).cast_unsigned() };
                }
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.n * self.inner
    }
}

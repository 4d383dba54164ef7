//! `L2Norm`: elements divided by the root of the sum of squares, over `axes` or one `axis`.

use super::prelude::*;
use crate::graph::walk::Axes;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "L2Norm",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[opt("axis", UInt), opt("axes", Ints), opt("epsilon", Float32)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16] => [UFIX16]),
        row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
    ],
    shapes: |call| axes(call).and_then(|_| common::same(call)),
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("L2Norm", &[("axis", Param::UInt(1))], &[(F, &[4, 8])], &[(F, &[4, 8])])]
}

fn axes(call: &Call<'_>) -> Result<Vec<usize>, Violation> {
    let rank = call.dims(0)?.len();
    let axis = call.axis("axis", 0, rank)?;
    let mut axes = call.axes("axes", rank)?.unwrap_or_else(|| vec![axis]);
    axes.sort_unstable();
    Ok(axes)
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, axes, epsilon) = (l.real(0)?, axes(l)?, l.float("epsilon", 1e-12));
    l.emit_as(Op::leaf(L2NormOp { axes, epsilon }), &[x], l.output(0), Storage::F32);
    Ok(())
}

#[derive(Debug)]
struct L2NormOp {
    axes: Vec<usize>,
    epsilon: f32,
}

impl LeafOp for L2NormOp {
    fn label(&self) -> &'static str {
        "L2Norm"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let id = b.input(node, 0)?;
        let (shape, reduced) = (b.shape(id).to_vec(), self.axes.clone());
        b.each(node, L2Norm { x: b.src(id), axes: Axes::new(&shape, &reduced), shape, reduced, epsilon: self.epsilon })
    }
}

/// `x / sqrt(max(sum of squares over the axes, epsilon))`.
struct L2Norm {
    x: Src,
    axes: Axes,
    /// The same axes, but of the result element's place: maps an element to its sum.
    shape: Vec<usize>,
    reduced: Vec<usize>,
    epsilon: f32,
}

impl Fill for L2Norm {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        let mut last = None;
        for (i, out) in out.iter_mut().enumerate() {
            let group = self.group(first + i);
            let factor = match last {
                Some((g, factor)) if g == group => factor,
                _ => {
                    let mut sum = 0.0;
                    self.axes.each(group, |at| sum += f64::from(x[at]).powi(2));
                    1.0 / sum.max(f64::from(self.epsilon)).sqrt()
                }
            };
            last = Some((group, factor));
            *out = (f64::from(x[first + i]) * factor) as f32;
        }
        Ok(())
    }
}

impl L2Norm {
    /// Which sum element `i` is divided by: its index with the reduced axes dropped.
    fn group(&self, mut i: usize) -> usize {
        let (mut group, mut stride) = (0, 1);
        for axis in (0..self.shape.len()).rev() {
            let (dim, here) = (self.shape[axis], i % self.shape[axis]);
            i /= dim;
            if !self.reduced.contains(&axis) {
                group += here * stride;
                stride *= dim;
            }
        }
        group
    }
}

//! `Argmax`: the place of the largest element along an axis.

use super::prelude::*;
use crate::graph::walk::Axes;
use crate::storage::number;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Argmax",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[req("axis", UInt), opt("keep_dims", Bool)],
    same_in: 0b1,
    same_out: 0,
    rows: &[
        row!(Float: [FLOAT] => [INT32]),
        row!(Fixed: [UFIX16] => [INDEX]),
        row!(Fixed: [UFIX8 SFIX8] => [INDEX]),
        row!(Plain: [INDEX] => [INDEX]),
    ],
    shapes: |call| common::without(call, &[axis(call)?], call.flag("keep_dims", false)?),
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Argmax", &[("axis", Param::UInt(1))], &[(F, &[3, 9])], &[(I, &[3])])]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, axis) = (l.input(0)?, axis(l)?);
    l.emit_as(Op::leaf(ArgmaxOp { axis }), &[x], l.output(0), Storage::I32);
    Ok(())
}

#[derive(Debug)]
struct ArgmaxOp {
    axis: usize,
}

impl LeafOp for ArgmaxOp {
    fn label(&self) -> &'static str {
        "Argmax"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let id = b.input(node, 0)?;
        b.each(node, Argmax { x: b.src(id), real: b.is_real(id), axes: Axes::new(b.shape(id), &[self.axis]) })
    }
}

/// The first place of the largest element along an axis.
struct Argmax {
    x: Src,
    real: bool,
    axes: Axes,
}

impl Fill for Argmax {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let words = cx.read::<u32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let (mut best, mut place, mut j) = (f64::NEG_INFINITY, 0, 0);
            self.axes.each(first + i, |at| {
                let x = number(words[at], self.real);
                if x > best {
                    (best, place) = (x, j);
                }
                j += 1;
            });
            *out = place;
        }
        Ok(())
    }
}

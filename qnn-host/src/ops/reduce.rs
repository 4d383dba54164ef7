//! `ReduceSum`, `ReduceMean`, ...: many elements to one, over any axes.

use super::common::{larger, smaller};
use super::prelude::*;
use super::spec::LowerFn;
use crate::graph::scalar::ReduceOp;
use crate::graph::walk::Axes;

const PARAMS: &[ParamSpec] = &[req("axes", Ints), opt("keep_dims", Bool)];

/// Over some axes, which are dropped or kept as 1. Integers where `rows` takes them.
const fn reduction(name: &'static str, rows: &'static [Row], lower: LowerFn) -> OpSpec {
    OpSpec { name, inputs: (1, 1), outputs: (1, 1), params: PARAMS, same_in: 0b1, same_out: 0b1, rows, shapes, lower }
}

const UNSIGNED_16: &[Row] =
    &[row!(Float: [FLOAT] => [FLOAT]), row!(Fixed: [UFIX16] => [UFIX16]), row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8])];
const ANY_16: &[Row] = &[
    row!(Float: [FLOAT] => [FLOAT]),
    row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
    row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
    row!(Plain: [INT32] => [INT32]),
];

pub(super) const OPS: &[OpSpec] = &[
    reduction("ReduceMean", UNSIGNED_16, |l| lower(l, ReduceOp::Mean)),
    reduction(
        "ReduceSum",
        &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] => [INT32]),
        ],
        |l| lower(l, ReduceOp::Sum),
    ),
    reduction("ReduceMax", UNSIGNED_16, |l| lower(l, ReduceOp::Max)),
    reduction("ReduceMin", ANY_16, |l| lower(l, ReduceOp::Min)),
    reduction("ReduceProd", ANY_16, |l| lower(l, ReduceOp::Prod)),
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let over = |axes: &[i64]| [("axes", ints(axes))];
    let kept = [("axes", ints(&[0])), ("keep_dims", Param::Bool(true))];
    vec![
        sample("ReduceSum", &kept, &[(F, &[3, 9])], &[(F, &[1, 9])]),
        sample("ReduceMax", &over(&[0, 1]), &[(F, &[3, 9])], &[(F, &[1])]),
        sample("ReduceMin", &over(&[1]), &[(I, &[3, 9])], &[(I, &[3])]),
        sample("ReduceProd", &over(&[1]), &[(F, &[3, 9])], &[(F, &[3])]),
        sample("ReduceMean", &over(&[1]), &[(F, &[3, 9])], &[(F, &[3])]),
    ]
}

fn axes(call: &Call<'_>) -> Result<Vec<usize>, Violation> {
    let axes = call.axes("axes", call.dims(0)?.len())?.unwrap_or_default();
    if axes.is_empty() {
        return Err(call.bad_param("axes", "at least one axis".into(), "none".into()));
    }
    Ok(axes)
}

fn shapes(call: &Call<'_>) -> Shapes {
    common::without(call, &axes(call)?, call.flag("keep_dims", false)?)
}

fn lower(l: &mut Lowering<'_, '_>, op: ReduceOp) -> Result<(), Violation> {
    let (x, axes) = (l.input(0)?, axes(l)?);
    let storage = l.storage(x);
    l.emit_as(Op::Reduce { op, axes }, &[x], l.output(0), storage);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, op: ReduceOp, axes: &[usize]) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    let (x, axes) = (b.src(id), Axes::new(b.shape(id), axes));
    if b.is_real(id) { b.each(node, RealReduce { op, x, axes }) } else { b.each(node, IntReduce { op, x, axes }) }
}

/// Reduces numbers, in double precision.
struct RealReduce {
    op: ReduceOp,
    x: Src,
    axes: Axes,
}

impl Fill for RealReduce {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let fold = |start: f64, f: fn(f64, f64) -> f64| {
                let mut sum = start;
                self.axes.each(first + i, |at| sum = f(sum, f64::from(x[at])));
                sum
            };
            *out = match self.op {
                ReduceOp::Sum => fold(0.0, |a, b| a + b),
                ReduceOp::Mean => fold(0.0, |a, b| a + b) / self.axes.count() as f64,
                ReduceOp::Max => fold(f64::NEG_INFINITY, larger),
                ReduceOp::Min => fold(f64::INFINITY, smaller),
                ReduceOp::Prod => fold(1.0, |a, b| a * b),
            } as f32;
        }
        Ok(())
    }
}

/// Reduces integers; a mean is rounded towards zero, sums and products saturate.
struct IntReduce {
    op: ReduceOp,
    x: Src,
    axes: Axes,
}

impl Fill for IntReduce {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let x = cx.read::<i32>(&self.x);
        for (i, out) in out.iter_mut().enumerate() {
            let fold = |start: i64, f: fn(i64, i64) -> i64| {
                let mut sum = start;
                self.axes.each(first + i, |at| sum = f(sum, i64::from(x[at])));
                sum
            };
            let result = match self.op {
                ReduceOp::Sum => fold(0, i64::saturating_add),
                ReduceOp::Mean => fold(0, i64::saturating_add) / self.axes.count() as i64,
                ReduceOp::Max => fold(i64::MIN, i64::max),
                ReduceOp::Min => fold(i64::MAX, i64::min),
                ReduceOp::Prod => fold(1, i64::saturating_mul),
            };
            *out = result.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        }
        Ok(())
    }
}

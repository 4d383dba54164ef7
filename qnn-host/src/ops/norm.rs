//! `RmsNorm` and `LayerNorm` over the last axis; gamma and beta are vectors over it.

use super::prelude::*;
use crate::kernels;
use crate::kernels::linear::{self, Form};
use crate::pool::Worker;
use crate::step::Dst;

const RMS: OpSpec = OpSpec {
    name: "RmsNorm",
    inputs: (1, 3),
    outputs: (1, 1),
    params: &[opt("epsilon", Float32), req("axes", Ints)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] [FLOAT] [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16] [UFIX16 UFIX8] [UFIX16 UFIX8] => [UFIX16]),
        row!(Fixed: [UFIX8] [UFIX8] [UFIX8 SFIX32] => [UFIX8]),
    ],
    shapes,
    lower: |l| lower(l, |l, gamma, beta| Op::RmsNorm { epsilon: l.float("epsilon", 1e-6), gamma, beta }),
};

pub(super) const OPS: &[OpSpec] = &[
    RMS,
    OpSpec {
        name: "LayerNorm",
        rows: &[
            row!(Float: [FLOAT] [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX8 UFIX16 SFIX16] [UFIX8 UFIX16 SFIX16 SFIX32] => [UFIX16]),
            row!(Fixed: [UFIX8] [UFIX8] [UFIX8 SFIX32] => [UFIX8]),
        ],
        lower: |l| lower(l, |l, gamma, beta| Op::leaf(LayerNormOp { epsilon: l.float("epsilon", 1e-3), gamma, beta })),
        ..RMS
    },
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let (axes, epsilon) = (("axes", ints(&[1])), ("epsilon", Param::F32(1e-5)));
    vec![
        sample("RmsNorm", &[axes.clone(), epsilon], &[(F, &[4, 8]), (F, &[8])], &[(F, &[4, 8])]),
        sample("LayerNorm", &[axes], &[(F, &[4, 8]), (F, &[8]), (F, &[8])], &[(F, &[4, 8])]),
    ]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let last = dims.len() - 1;
    let axes = call.axes("axes", dims.len())?.unwrap_or_default();
    if axes != [last] {
        return Err(call.bad_param("axes", format!("[{last}], the last axis"), format!("{axes:?}")));
    }
    let epsilon = call.float("epsilon", 0.0);
    if epsilon < 0.0 {
        return Err(call.bad_param("epsilon", "at least 0".into(), epsilon.to_string()));
    }
    for i in [1, 2] {
        if let Some(t) = call.optional_tensor(i)
            && t.dims != [dims[last]]
        {
            return Err(call.bad_input(i, format!("dims [{}]", dims[last]), format!("{:?}", t.dims)));
        }
    }
    common::same(call)
}

/// `op` makes the operation, given whether gamma and beta are there.
fn lower(l: &mut Lowering<'_, '_>, op: fn(&Call<'_>, bool, bool) -> Op) -> Result<(), Violation> {
    let x = l.real(0)?;
    let (gamma, beta) = (l.optional_real(1), l.optional_real(2));
    let inputs: Vec<ValueId> = [Some(x), gamma, beta].into_iter().flatten().collect();
    let op = op(l, gamma.is_some(), beta.is_some());
    l.emit_as(op, &inputs, l.output(0), Storage::F32);
    Ok(())
}

/// `x, [gamma], [beta]`.
#[derive(Debug)]
struct LayerNormOp {
    epsilon: f32,
    gamma: bool,
    beta: bool,
}

impl LeafOp for LayerNormOp {
    fn label(&self) -> &'static str {
        "LayerNorm"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let (x, gamma, beta, width) = operands(b, node, self.gamma, self.beta)?;
        b.each(node, Norm { kind: NormKind::Layer, x, gamma, beta, width, epsilon: self.epsilon })
    }
}

pub(super) fn rms_step(
    b: &StepBuilder<'_>,
    node: &Node,
    epsilon: f32,
    gamma: bool,
    beta: bool,
) -> Result<Box<dyn Step>, ExecError> {
    let (x, gamma, beta, width) = operands(b, node, gamma, beta)?;
    let output = b.output(node)?;
    match gamma {
        Some(gamma) if b.form(output) == Form::Tiles => {
            let dst = b.dst(output);
            Ok(Box::new(NormToTiles { norm: FastRmsNorm { x, gamma, beta, width, epsilon }, dst }))
        }
        Some(gamma) if b.fast => b.each(node, FastRmsNorm { x, gamma, beta, width, epsilon }),
        gamma => b.each(node, Norm { kind: NormKind::Rms, x, gamma, beta, width, epsilon }),
    }
}

/// `x`, gamma and beta if they are there, and the length of a row.
fn operands(
    b: &StepBuilder<'_>,
    node: &Node,
    gamma: bool,
    beta: bool,
) -> Result<(Src, Option<Src>, Option<Src>, usize), ExecError> {
    let x = b.input(node, 0)?;
    let mut rest = node.inputs[1..].iter().map(|&id| b.src(id));
    let gamma = if gamma { rest.next() } else { None };
    let beta = if beta { rest.next() } else { None };
    Ok((b.src(x), gamma, beta, b.shape(x).last().copied().unwrap_or(1)))
}

/// What is normalised over the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NormKind {
    /// By the root of the mean square.
    Rms,
    /// By the standard deviation, around the mean.
    Layer,
}

/// `(x - centre) / spread * gamma + beta` for each row.
struct Norm {
    kind: NormKind,
    x: Src,
    gamma: Option<Src>,
    beta: Option<Src>,
    width: usize,
    epsilon: f32,
}

impl Fill for Norm {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        let (gamma, beta) =
            (self.gamma.as_ref().map(|s| cx.read::<f32>(s)), self.beta.as_ref().map(|s| cx.read::<f32>(s)));
        for (x, out) in x.chunks_exact(self.width).zip(out.chunks_exact_mut(self.width)) {
            let n = self.width as f64;
            let centre = match self.kind {
                NormKind::Rms => 0.0,
                NormKind::Layer => x.iter().map(|&x| f64::from(x)).sum::<f64>() / n,
            };
            let square = x.iter().map(|&x| (f64::from(x) - centre).powi(2)).sum::<f64>() / n;
            let factor = 1.0 / (square + f64::from(self.epsilon)).sqrt();
            for (i, (out, &x)) in out.iter_mut().zip(x).enumerate() {
                let y = (f64::from(x) - centre) * factor * gamma.map_or(1.0, |g| f64::from(g[i]));
                *out = (y + beta.map_or(0.0, |b| f64::from(b[i]))) as f32;
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.width
    }
}

/// RMS normalisation with weights read in place.
struct FastRmsNorm {
    x: Src,
    gamma: Src,
    beta: Option<Src>,
    width: usize,
    epsilon: f32,
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

/// [`FastRmsNorm`] in tiles of bf16, for a layer that a matrix unit computes.
struct NormToTiles {
    norm: FastRmsNorm,
    dst: Dst,
}

impl Step for NormToTiles {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let FastRmsNorm { x, gamma, beta, width, epsilon } = &self.norm;
        let (gamma, beta) = (cx.floats(gamma), beta.as_ref().map(|b| cx.floats(b)));
        let norm = linear::RmsNorm { x: cx.read(x), width: *width, gamma, beta, epsilon: *epsilon };
        // SAFETY: every thread comes here with the same operands, barriers lie before and after the step, and the plan keeps the output apart
        // from what is read.
        unsafe { linear::rms_norm_to_tiles(worker, cx.isa, &norm, cx.write(&self.dst)) };
        Ok(())
    }
}

//! `MatMul`: matrices `[.., M, K] x [.., K, N]` with transposes; batch axes broadcast.

use super::linear::{emit_linear, transposed};
use super::prelude::*;
use crate::graph::walk::{Walk, broadcast_shape, broadcast_strides};

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "MatMul",
    inputs: (2, 3),
    outputs: (1, 1),
    params: &[opt("transpose_in0", Bool), opt("transpose_in1", Bool)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] [F16 SFIX8 F32] [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16] [UFIX8 SFIX32] => [UFIX16 SFIX16]),
        row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] [UFIX8 SFIX32] => [UFIX8 SFIX8]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    use crate::ir::Dtype::{SFixed8, SFixed16};
    let turned = [("transpose_in1", Param::Bool(true))];
    vec![
        sample("MatMul", &turned, &[(SFixed16, &[3, 8]), (SFixed8, &[9, 8])], &[(SFixed16, &[3, 9])]),
        sample("MatMul", &[], &[(F, &[2, 4, 3, 8]), (F, &[2, 1, 8, 9])], &[(F, &[2, 4, 3, 9])]),
        sample("MatMul", &turned, &[(F, &[3, 8]), (F, &[9, 8])], &[(F, &[3, 9])]),
    ]
}

/// Whether each operand is transposed as it is stored.
fn transposes(call: &Call<'_>) -> Result<[bool; 2], Violation> {
    Ok([call.flag("transpose_in0", false)?, call.flag("transpose_in1", false)?])
}

fn shapes(call: &Call<'_>) -> Shapes {
    let (a, b) = (call.dims(0)?, call.dims(1)?);
    let [transpose_a, transpose_b] = transposes(call)?;
    let matrix = |i: usize, dims, transpose| {
        matrix(dims, transpose).ok_or_else(|| call.bad_input(i, "rank 2 or more".into(), format!("{dims:?}")))
    };
    let (batch_a, [m, k]) = matrix(0, a, transpose_a)?;
    let (batch_b, [k1, n]) = matrix(1, b, transpose_b)?;
    if k != k1 {
        return Err(call.bad_input(1, format!("inner extent {k} as input 0 {a:?}"), format!("{k1} in {b:?}")));
    }
    let batch = common::stretch(batch_a, batch_b)
        .ok_or_else(|| call.bad_input(1, format!("batch dims that broadcast with {a:?}"), format!("{b:?}")))?;
    common::bias(call, n)?;
    Ok(vec![[&batch[..], &[m, n]].concat()])
}

/// Leading extents, and rows and columns after the transposition.
fn matrix<T: Copy>(shape: &[T], transpose: bool) -> Option<(&[T], [T; 2])> {
    let (batch, &[rows, cols]) = shape.split_last_chunk::<2>()?;
    Some((batch, if transpose { [cols, rows] } else { [rows, cols] }))
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (a, b, bias, output) = (l.real(0)?, l.real(1)?, l.optional_real(2), l.output(0));
    let [transpose_a, transpose_b] = transposes(l)?;
    let shape = l.shape(b);
    let (batch, &[rows, cols]) = shape.split_last_chunk::<2>().expect("the shape rule saw two axes");
    let k = if transpose_b { cols } else { rows };
    // Weights `[K, N]` become `[N, K]` once, when constants are folded.
    if l.typed().constant(b).is_some() && batch.iter().all(|&d| d == 1) && !transpose_a && k > 0 {
        let flat = l.typed_mut().add_view(b, &[rows, cols]);
        let weights = if transpose_b { flat } else { transposed(l, flat) };
        emit_linear(l, a, weights, bias, output);
        return Ok(());
    }
    let inputs: Vec<ValueId> = [a, b].into_iter().chain(bias).collect();
    l.emit_as(Op::MatMul { transpose_a, transpose_b, bias: bias.is_some() }, &inputs, output, Storage::F32);
    Ok(())
}

pub(super) fn step(
    b: &StepBuilder<'_>,
    node: &Node,
    [transpose_a, transpose_b]: [bool; 2],
    bias: bool,
) -> Result<Box<dyn Step>, ExecError> {
    let (x, y) = (b.input(node, 0)?, b.input(node, 1)?);
    let (Some((batch_a, [m, k])), Some((batch_b, [_, n]))) =
        (matrix(b.shape(x), transpose_a), matrix(b.shape(y), transpose_b))
    else {
        return Err(b.broken(node, "multiplies no matrices"));
    };
    let to = broadcast_shape(batch_a, batch_b).ok_or_else(|| b.broken(node, "does not broadcast"))?;
    let batches = MatMul::batches(&to, batch_a, batch_b, m * k, k * n);
    let bias = if bias { Some(b.src(b.input(node, 2)?)) } else { None };
    b.each(node, MatMul { a: b.src(x), b: b.src(y), bias, m, k, n, transpose_a, transpose_b, batches })
}

/// `out[b] = A[b] B[b] (+ bias)`, row-major, leading axes broadcast.
struct MatMul {
    a: Src,
    b: Src,
    bias: Option<Src>,
    m: usize,
    k: usize,
    n: usize,
    transpose_a: bool,
    transpose_b: bool,
    /// First element of A and B for each batch.
    batches: Vec<[usize; 2]>,
}

impl MatMul {
    /// Where each batch's matrices begin.
    fn batches(to: &[usize], a: &[usize], b: &[usize], a_len: usize, b_len: usize) -> Vec<[usize; 2]> {
        let (a, b) = (broadcast_strides(a, to), broadcast_strides(b, to));
        let strides: Vec<[isize; 2]> = a.into_iter().zip(b).map(|(a, b)| [a, b]).collect();
        let n = to.iter().product();
        let mut starts = vec![[0; 2]; n];
        Walk::new(to, &strides, [0; 2]).runs(0, n, |run| {
            for (i, start) in starts[run.at..run.at + run.len].iter_mut().enumerate() {
                let at = |o: usize| (run.start[o] + i as isize * run.step[o]) as usize;
                *start = [at(0) * a_len, at(1) * b_len];
            }
        });
        starts
    }
}

impl Fill for MatMul {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let (a, b) = (cx.read::<f32>(&self.a), cx.read::<f32>(&self.b));
        let bias = self.bias.as_ref().map(|s| cx.read::<f32>(s));
        for (r, out) in out.chunks_exact_mut(self.n).enumerate() {
            let row = first / self.n + r;
            let [a_at, b_at] = self.batches[row / self.m];
            let (row, b) = (row % self.m, &b[b_at..b_at + self.k * self.n]);
            let x = |k: usize| if self.transpose_a { a[a_at + k * self.m + row] } else { a[a_at + row * self.k + k] };
            match bias {
                Some(bias) => out.copy_from_slice(bias),
                None => out.fill(0.0),
            }
            if self.transpose_b {
                for (out, b) in out.iter_mut().zip(b.chunks_exact(self.k.max(1))) {
                    *out += dot(b, x);
                }
            } else {
                for (k, b) in b.chunks_exact(self.n).enumerate() {
                    let x = x(k);
                    out.iter_mut().zip(b).for_each(|(out, b)| *out += x * b);
                }
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.n
    }
}

/// A dot product in eight partial sums.
fn dot(b: &[f32], x: impl Fn(usize) -> f32) -> f32 {
    let mut sums = [0.0f32; 8];
    for (c, b) in b.chunks(8).enumerate() {
        b.iter().zip(&mut sums).enumerate().for_each(|(i, (b, sum))| *sum += b * x(c * 8 + i));
    }
    sums.iter().sum()
}

//! Linear layers with constant weights, which `FullyConnected`, `MatMul` and `Conv2d` become, and what is fused with them.
//!
//! [`Weights`] is the seam for further formats: a variant here, a case in [`weights`], a branch in [`lend`].

use super::lowering::Lowering;
use crate::bytes::Bytes;
use crate::graph::ExecError;
use crate::graph::codec::decode;
use crate::graph::op::Op;
use crate::graph::step_builder::StepBuilder;
use crate::graph::typed::{Constant, Node, ValueId};
use crate::graph::weight_format::{has_kernel, is_quantised_by_row};
use crate::ir::{Dtype, Quant};
use crate::kernels::linear::{self, Form, Gate, Residual};
use crate::kernels::packed::Packing;
use crate::kernels::{Isa, Mat, Packed, SharedMut};
use crate::pool::{Worker, share};
use crate::step::{Dst, Fault, Lane32, Place, RunContext, Src, Step};
use crate::storage::Storage;

/// Adds a layer with weights `[n, k]` that are constant, or will be once constants are folded.
pub(super) fn emit_linear(l: &mut Lowering<'_, '_>, x: ValueId, w: ValueId, bias: Option<ValueId>, output: ValueId) {
    let [n, k] = l.shape(w)[..] else { unreachable!("weights have two axes") };
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
    l.emit_as(Op::Linear { n, k, bias: bias.is_some(), residual: false }, &inputs, output, Storage::F32);
}

/// Weights `[k, n]` as `[n, k]`.
pub(super) fn transposed(l: &mut Lowering<'_, '_>, weights: ValueId) -> ValueId {
    let [k, n] = l.shape(weights)[..] else { unreachable!("weights have two axes") };
    let temp = l.temp(&[n, k], Storage::F32);
    l.emit_to(Op::Transpose { perm: vec![1, 0] }, &[weights], temp);
    temp
}

/// The step of linear layers that read the same rows.
pub(crate) fn step(b: &StepBuilder<'_>, group: &[&Node]) -> Result<Box<dyn Step>, ExecError> {
    let first = group[0];
    let k = match first.op {
        Op::Linear { k, .. } | Op::GatedLinear { k, .. } => k,
        _ => return Err(b.broken(first, "is no linear layer")),
    };
    let placed = |node: &&Node| Ok((layer(b, node)?, b.dst(b.output(node)?)));
    let layers = group.iter().map(placed).collect::<Result<Vec<_>, ExecError>>()?;
    let x = b.src(b.input(first, 0)?);
    let m = x.n.checked_div(k).unwrap_or(0);
    let x_form = b.form(b.input(first, 0)?);
    Ok(Box::new(Linear { x, x_form, m, k, layers, fast: b.fast }))
}

pub(super) fn layer(b: &StepBuilder<'_>, node: &Node) -> Result<Layer, ExecError> {
    let out_form = b.form(b.output(node)?);
    match node.op {
        Op::Linear { n, bias, residual, .. } => {
            let mut rest = node.inputs[2..].iter().map(|&id| b.src(id));
            Ok(Layer {
                weights: weights(b, node, 1, b.fast)?,
                gate: None,
                bias: if bias { rest.next() } else { None },
                residual: if residual { rest.next() } else { None },
                n,
                out_form,
            })
        }
        Op::GatedLinear { n, .. } => {
            // One pass computes both: where the vector kernels do not take one of them, both are read by the plain kernel.
            let fast = b.fast && node.inputs[1..].iter().all(|&id| b.graph.constant(id).is_some_and(has_kernel));
            Ok(Layer {
                weights: weights(b, node, 2, fast)?,
                gate: Some(weights(b, node, 1, fast)?),
                bias: None,
                residual: None,
                n,
                out_form,
            })
        }
        _ => Err(b.broken(node, "is no linear layer")),
    }
}

/// Whether a matrix unit computes layers of these weights in a step of `m` rows.
pub(crate) fn on_matrix_unit(isa: Isa, m: usize, weights: &Constant) -> bool {
    let blocks = weights.packing.is_some();
    has_kernel(weights) && (blocks || weights.dtype != Dtype::F32) && linear::on_matrix_unit(isa, m, blocks)
}

/// The weights in an input of the node; in a form that only the vector kernels read if `fast`.
fn weights(b: &StepBuilder<'_>, node: &Node, slot: usize, fast: bool) -> Result<Weights, ExecError> {
    let id = node.inputs[slot];
    let Some(constant) = b.graph.constant(id) else {
        return Err(b.broken(node, "has weights that are not constant"));
    };
    let Constant { bytes, dtype, quant, packing, minima } = constant;
    if let Some(packing) = *packing {
        return Ok(Weights::Packed { bytes: bytes.clone(), minima: minima.clone(), packing });
    }
    if dtype.is_float() {
        return Ok(Weights::Floats(b.src(id)));
    }
    if !is_quantised_by_row(*dtype, quant) {
        return Err(b.broken(node, "has weights of an unknown format"));
    }
    let (scales, offsets) = match quant {
        Quant::PerTensor { scale, offset } => (vec![*scale], vec![*offset]),
        Quant::PerAxis { scales, offsets, .. } => (scales.to_vec(), offsets.to_vec()),
        _ => (vec![1.0], Vec::new()),
    };
    if fast && has_kernel(constant) {
        let rows = b.shape(id).first().copied().unwrap_or(0);
        let scales = (0..rows).map(|row| scales[row % scales.len()]).collect();
        return Ok(Weights::Bytes { bytes: bytes.clone(), scales });
    }
    Ok(Weights::Quantised(QuantisedRows { bytes: bytes.clone(), dtype: *dtype, scales, offsets }))
}

/// Most layers of one step.
pub(crate) const MAX_LAYERS: usize = 4;

/// A `[n, k]` constant, a row for each output.
#[derive(Clone, Debug)]
pub(crate) enum Weights {
    /// `float16`, `bfloat16` or `float32`, read in place.
    Floats(Src),
    /// Packed for the product kernels.
    Packed { bytes: Bytes, minima: Option<Bytes>, packing: Packing },
    /// Signed bytes and a scale for each row, read in place.
    Bytes { bytes: Bytes, scales: Box<[f32]> },
    /// Quantised values with one scale for all rows or one per row; read in place by a plain kernel.
    Quantised(QuantisedRows),
}

/// Quantised values and what they stand for: `(quantised + offset) * scale`.
#[derive(Clone, Debug)]
pub(crate) struct QuantisedRows {
    pub(crate) bytes: Bytes,
    pub(crate) dtype: Dtype,
    /// One, or one per row.
    pub(crate) scales: Vec<f32>,
    /// None, one, or one per row.
    pub(crate) offsets: Vec<i32>,
}

/// `[m, n] = x w^T + bias`, times `silu(x gate^T)` if there is a gate, plus the residual.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) weights: Weights,
    pub(crate) gate: Option<Weights>,
    pub(crate) bias: Option<Src>,
    pub(crate) residual: Option<Src>,
    pub(crate) n: usize,
    pub(crate) out_form: Form,
}

/// Layers that read the same `x`, `[m, k]`.
pub(crate) struct Linear {
    pub(crate) x: Src,
    pub(crate) x_form: Form,
    pub(crate) m: usize,
    pub(crate) k: usize,
    /// Each with where it writes.
    pub(crate) layers: Vec<(Layer, Dst)>,
    /// Use the vector kernels where the format allows.
    pub(crate) fast: bool,
}

impl Layer {
    /// Shows its constant weights, and those of its gate.
    pub(super) fn each_weight(&self, each: &mut dyn FnMut(&Bytes)) {
        for weights in std::iter::once(&self.weights).chain(&self.gate) {
            match weights {
                Weights::Floats(Src { place: Place::Const(bytes), .. }) => each(bytes),
                Weights::Floats(_) => {}
                Weights::Packed { bytes, minima, .. } => std::iter::once(bytes).chain(minima).for_each(&mut *each),
                Weights::Bytes { bytes, .. } => each(bytes),
                Weights::Quantised(rows) => each(&rows.bytes),
            }
        }
    }

    /// Whether the vector kernels take its weights.
    pub(crate) fn has_kernel(&self) -> bool {
        let has_kernel = |w: &Weights| !matches!(w, Weights::Quantised(_));
        has_kernel(&self.weights) && self.gate.as_ref().is_none_or(has_kernel)
    }
}

impl Linear {
    fn is_fast(&self) -> bool {
        self.fast && self.layers.iter().all(|(layer, _)| layer.has_kernel())
    }
}

impl Step for Linear {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        if self.m == 0 {
            return Ok(());
        }
        if !self.is_fast() {
            self.layers.iter().for_each(|(layer, dst)| plain(cx, worker, layer, dst, x, self.m, self.k));
            return Ok(());
        }
        let mut lent = self.layers.iter().filter_map(|(layer, dst)| lend(cx, layer, self.k, cx.write(dst)));
        let Some(first) = lent.next() else { return Ok(()) };
        let mut layers = [first; MAX_LAYERS];
        layers[1..].iter_mut().zip(lent).for_each(|(slot, layer)| *slot = layer);
        let layers = &layers[..self.layers.len()];
        // SAFETY: every thread comes here with the same operands, barriers lie before and after the step, and the plan
        // keeps outputs apart from each other, from what is read and from the scratch.
        unsafe { linear::linear(worker, cx.isa, x, self.x_form, self.m, layers, cx.scratch()) };
        Ok(())
    }

    fn weights(&self, each: &mut dyn FnMut(&Bytes)) {
        self.layers.iter().for_each(|(layer, _)| layer.each_weight(each));
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        if !self.is_fast() {
            return 0;
        }
        linear::scratch_len(Isa::detect(), self.m, self.k, threads) * size_of::<f32>()
    }
}

/// A layer as the kernel takes it; `None` if its weights have no kernel.
pub(super) fn lend<'s>(
    cx: &'s RunContext<'_>,
    layer: &'s Layer,
    k: usize,
    out: SharedMut<'s, f32>,
) -> Option<linear::Linear<'s>> {
    let mat = |w: &'s Weights| match w {
        Weights::Floats(src) => Some(Mat::new(cx.floats(src), layer.n, k)),
        Weights::Packed { bytes, minima, packing } => {
            let packed = Packed::new(bytes, *packing, layer.n, k);
            Some(minima.as_ref().map_or(packed, |minima| packed.with_minima(minima)).into())
        }
        Weights::Bytes { bytes, scales } => Some(Mat::quantised(bytes, scales, layer.n, k)),
        Weights::Quantised(_) => None,
    };
    let mut lent = linear::Linear::new(mat(&layer.weights)?, out);
    lent.out_form = layer.out_form;
    lent.bias = layer.bias.as_ref().map(|b| cx.floats(b));
    if let Some(gate) = &layer.gate {
        lent.gate = Some(Gate { weights: mat(gate)?, bias: None });
    }
    if let Some(residual) = &layer.residual {
        lent.residual = Residual::Rows(cx.read(residual));
    }
    Some(lent)
}

/// Weights widened, and rows of `x` multiplied with them, at a time.
const CHUNK: usize = 256;
const ROWS: usize = 64;

/// One layer by the definition, sums in double precision: each thread takes a share of the outputs.
fn plain(cx: &RunContext<'_>, worker: Worker<'_>, layer: &Layer, dst: &Dst, x: &[f32], m: usize, k: usize) {
    let out = cx.write::<f32>(dst);
    let residual = layer.residual.as_ref().map(|r| cx.read::<f32>(r));
    for j in share(layer.n, 1, worker.index(), worker.count()) {
        let bias = layer.bias.as_ref().map_or(0.0, |b| cx.floats(b).get(j));
        for first in (0..m).step_by(ROWS) {
            let rows = ROWS.min(m - first);
            let x = &x[first * k..(first + rows) * k];
            let (mut sums, mut gates) = ([0.0; ROWS], [0.0; ROWS]);
            products(cx, &layer.weights, j, x, k, &mut sums[..rows]);
            if let Some(gate) = &layer.gate {
                products(cx, gate, j, x, k, &mut gates[..rows]);
            }
            for (i, (sum, gate)) in sums[..rows].iter().zip(gates).enumerate() {
                let at = (first + i) * layer.n + j;
                let mut y = *sum as f32 + bias;
                if layer.gate.is_some() {
                    y *= (gate / (1.0 + (-gate).exp())) as f32;
                }
                if let Some(residual) = residual {
                    y += residual[at];
                }
                // SAFETY: this thread alone writes column `j`, and the plan keeps outputs apart from what is read.
                let out = unsafe { out.part(at..at + 1) };
                out[0] = y;
            }
        }
    }
}

/// Adds each row of `x` times row `j` of the weights.
fn products(cx: &RunContext<'_>, weights: &Weights, j: usize, x: &[f32], k: usize, sums: &mut [f64]) {
    let (bytes, dtype, scale, offset) = match weights {
        Weights::Floats(src) => (cx.bytes(src), src.dtype, 1.0, 0),
        Weights::Packed { .. } | Weights::Bytes { .. } => unreachable!("only made where the vector kernels run"),
        Weights::Quantised(q) => {
            let scale = q.scales[j % q.scales.len()];
            let offset = q.offsets.get(j % q.offsets.len().max(1)).copied().unwrap_or(0);
            (&*q.bytes, q.dtype, scale, offset)
        }
    };
    let size = dtype.size_bytes();
    let row = &bytes[j * k * size..(j + 1) * k * size];
    let mut words = [0u32; CHUNK];
    for (c, row) in row.chunks(CHUNK * size).enumerate() {
        let words = &mut words[..row.len() / size];
        decode(cx.isa, row, dtype, None, words);
        let w = u32::as_real(words);
        for (sum, x) in sums.iter_mut().zip(x.chunks_exact(k)) {
            let x = &x[c * CHUNK..c * CHUNK + w.len()];
            *sum += x.iter().zip(&*w).map(|(x, w)| f64::from(*x) * (f64::from(*w) + f64::from(offset))).sum::<f64>()
                * f64::from(scale);
        }
    }
}

//! Linear layers with constant weights, and what is fused with them.
//!
//! [`Weights`] is the seam for further formats: a variant here, a branch in [`Linear::run`], a case in `build`.

use crate::bytes::Bytes;
use crate::graph::codec::decode;
use crate::ir::Dtype;
use crate::kernels::linear::{self, Gate, Residual};
use crate::kernels::packed::Packing;
use crate::kernels::{Isa, Mat, Packed, SharedMut};
use crate::pool::{Worker, share};
use crate::step::{Dst, Lane32, RunContext, Src};
use crate::step::{Fault, Step};

/// Most layers of one step.
pub(crate) const MAX_LAYERS: usize = 4;

/// A `[n, k]` constant, a row for each output.
#[derive(Clone, Debug)]
pub(crate) enum Weights {
    /// `float16` or `float32`, read in place.
    Floats(Src),
    /// Packed for the product kernels.
    Packed(Bytes, Packing),
    /// Signed bytes and a scale for each row, read in place.
    Bytes { bytes: Bytes, scales: Box<[f32]> },
    /// Fixed-point codes with one scale for all rows or one a row; read in place by a plain kernel.
    Codes(Codes),
}

/// Codes and what they stand for: `(code + offset) * scale`.
#[derive(Clone, Debug)]
pub(crate) struct Codes {
    pub(crate) bytes: Bytes,
    pub(crate) dtype: Dtype,
    /// One, or one a row.
    pub(crate) scales: Vec<f32>,
    /// None, one, or one a row.
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
}

/// Layers that read the same `x`, `[m, k]`.
pub(crate) struct Linear {
    pub(crate) x: Src,
    pub(crate) m: usize,
    pub(crate) k: usize,
    /// Each with where it writes.
    pub(crate) layers: Vec<(Layer, Dst)>,
    /// Use the vector kernels where the format allows.
    pub(crate) fast: bool,
}

impl Layer {
    /// Whether the vector kernels take its weights.
    pub(crate) fn has_kernel(&self) -> bool {
        let has_kernel = |w: &Weights| !matches!(w, Weights::Codes(_));
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
        unsafe { linear::linear(worker, cx.isa, x, self.m, layers, cx.scratch()) };
        Ok(())
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
        Weights::Packed(bytes, packing) => Some(Packed::new(bytes, *packing, layer.n, k).into()),
        Weights::Bytes { bytes, scales } => Some(Mat::codes(bytes, scales, layer.n, k)),
        Weights::Codes(_) => None,
    };
    let mut lent = linear::Linear::new(mat(&layer.weights)?, out);
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

/// One layer by the book, sums in double precision: each thread takes a share of the outputs.
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
        Weights::Packed(..) | Weights::Bytes { .. } => unreachable!("only made where the vector kernels run"),
        Weights::Codes(codes) => {
            let scale = codes.scales[j % codes.scales.len()];
            let offset = codes.offsets.get(j % codes.offsets.len().max(1)).copied().unwrap_or(0);
            (&*codes.bytes, codes.dtype, scale, offset)
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

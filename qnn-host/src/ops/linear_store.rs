//! A linear layer straight into a client's buffer: logits never lie in the arena as a whole.
//!
//! An aligned `float32` buffer is written by the kernel; for others, a stretch of outputs at a time is computed into
//! scratch and converted.

use super::linear::{Layer, layer, lend};
use crate::bytes::Bytes;
use crate::graph::ExecError;
use crate::graph::codec::encode;
use crate::graph::op::Op;
use crate::graph::step_builder::StepBuilder;
use crate::graph::typed::Node;
use crate::ir::Dtype;
use crate::kernels::linear::{self, Form};
use crate::kernels::{Isa, SharedMut};
use crate::pool::Worker;
use crate::step::{Fault, RunContext, Src, Step};
use crate::storage::QuantGrid;

/// The step of a linear layer and its store.
pub(crate) fn step(b: &StepBuilder<'_>, node: &Node, store: &Node) -> Result<Box<dyn Step>, ExecError> {
    let (Op::Linear { k, .. }, Op::Store { output }) = (&node.op, &store.op) else {
        return Err(b.broken(node, "is no linear layer with a store"));
    };
    let (x, port) = (b.src(b.input(node, 0)?), &b.graph.outputs[*output]);
    let (m, layer) = (x.n.checked_div(*k).unwrap_or(0), layer(b, node)?);
    let grid = QuantGrid::of(port.dtype, &port.quant);
    Ok(Box::new(LinearStore { x, m, k: *k, layer, output: *output, dtype: port.dtype, grid }))
}

/// Numbers of scratch for a stretch.
const STRETCH: usize = 512 << 10;
/// Stretches end at multiples of it, and threads convert that many outputs at a time.
const UNIT: usize = 2048;

/// One layer without residual, and the buffer it fills.
struct LinearStore {
    x: Src,
    m: usize,
    k: usize,
    layer: Layer,
    output: usize,
    dtype: Dtype,
    grid: Option<QuantGrid>,
}

impl Step for LinearStore {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let x = cx.read::<f32>(&self.x);
        let (m, n) = (self.m, self.layer.n);
        let client = cx.output(self.output);
        let (numbers, scratch) = self.scratch(cx, worker.count());
        let start = client.ptr().cast::<f32>();
        if self.dtype == Dtype::F32 && start.is_aligned() {
            // SAFETY: the client lent these bytes to this step, and they are aligned.
            let out = unsafe { SharedMut::from_raw(start, m * n) };
            if let Some(layer) = lend(cx, &self.layer, self.k, out) {
                // SAFETY: every thread comes here with the same operands, between barriers; a client's buffer and scratch
                // overlap nothing.
                unsafe { linear::linear(worker, cx.isa, x, Form::Rows, m, &[layer], scratch) };
            }
            return Ok(());
        }
        for first in (0..n).step_by(self.stretch()) {
            let count = self.stretch().min(n - first);
            // SAFETY: the first numbers of scratch, which the kernel is not given.
            let out = unsafe { SharedMut::from_raw(numbers.ptr(), m * count) };
            if let Some(layer) = lend(cx, &self.layer, self.k, out) {
                let layer = part(layer, first..first + count);
                // SAFETY: as above; barriers lie around the use of `out` below.
                unsafe { linear::linear(worker, cx.isa, x, Form::Rows, m, &[layer], scratch) };
            }
            worker.barrier();
            self.convert(cx, worker, out, client, first, count);
            worker.barrier();
        }
        Ok(())
    }

    fn weights(&self, each: &mut dyn FnMut(&Bytes)) {
        self.layer.each_weight(each);
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        (self.m * self.stretch() + linear::scratch_len(Isa::detect(), self.m, self.k, threads)) * size_of::<f32>()
    }
}

/// Some of a layer's outputs.
fn part(layer: linear::Linear<'_>, outputs: std::ops::Range<usize>) -> linear::Linear<'_> {
    let bias = layer.bias.map(|b| b.slice(outputs.clone()));
    linear::Linear { weights: layer.weights.slice(outputs), bias, ..layer }
}

impl LinearStore {
    /// Outputs computed at a time.
    fn stretch(&self) -> usize {
        (STRETCH / self.m.max(1) / UNIT * UNIT).clamp(UNIT, self.layer.n.next_multiple_of(UNIT))
    }

    /// Numbers of a stretch, and the kernel's own.
    fn scratch<'s>(&self, cx: &'s RunContext<'_>, threads: usize) -> (SharedMut<'s, f32>, SharedMut<'s, f32>) {
        let all = cx.scratch::<f32>();
        let (first, second) = (self.m * self.stretch(), linear::scratch_len(cx.isa, self.m, self.k, threads));
        assert!(first + second <= all.len(), "scratch as large as `scratch_bytes`");
        // SAFETY: two parts of the scratch that do not overlap (above).
        unsafe { (SharedMut::from_raw(all.ptr(), first), SharedMut::from_raw(all.ptr().add(first), second)) }
    }

    /// Writes `[m, count]` numbers into the columns `first..` of the client's `[m, n]`.
    fn convert(
        &self,
        cx: &RunContext<'_>,
        worker: Worker<'_>,
        numbers: SharedMut<'_, f32>,
        client: SharedMut<'_, u8>,
        first: usize,
        count: usize,
    ) {
        let (n, size) = (self.layer.n, self.dtype.size_bytes());
        let pieces = count.div_ceil(UNIT);
        for task in worker.share(self.m * pieces, 1) {
            let (row, piece) = (task / pieces, task % pieces);
            let (begin, end) = (piece * UNIT, count.min((piece + 1) * UNIT));
            let at = row * n + first;
            // SAFETY: the barrier before made these numbers readable; no thread writes them until the next.
            let from = unsafe {
                std::slice::from_raw_parts(numbers.ptr().add(row * count).cast::<u32>().add(begin), end - begin)
            };
            // SAFETY: each thread has its own tasks, and no other step writes this output.
            let to = unsafe { client.part((at + begin) * size..(at + end) * size) };
            encode(cx.isa, from, self.dtype, self.grid, to);
        }
    }
}

//! Attention over past and new keys and values in place: the vector kernel, and a plain one for what it does not take.
//!
//! The plain one follows the definition, a row of scores at a time. Columns that the mask hides ([`MASK_THRESHOLD`] or less) are
//! skipped, which changes nothing: beside a visible column their weight is zero in `f32`. A row that sees no column at all
//! is computed in full, as a softmax would: its result is finite.

use crate::graph::ExecError;
use crate::graph::op::AttentionOp;
use crate::graph::step_builder::{StepBuilder, Table};
use crate::graph::typed::Node;
use crate::kernels::attention as kernel;
use crate::kernels::{Floats, Isa};
use crate::pool::Worker;
use crate::step::{Dst, Fault, RunContext, Src, Step};
use crate::storage::{QuantGrid, Rounding};

/// A column whose mask is this or less is hidden.
///
/// A threshold, since float16 graphs mask with a large negative number, -1000 or -10000, in place of minus infinity. `exp`
/// is 0 in `f32` from -104 down, so as long as the products of a row with its keys differ by less than 796, a hidden
/// column beside a visible one has weight 0: skipping it changes no bit.
const MASK_THRESHOLD: f32 = -900.0;

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, op: AttentionOp) -> Result<Box<dyn Step>, ExecError> {
    let mut rest = node.inputs.iter().map(|&id| b.table(id));
    let mut next = || rest.next().ok_or_else(|| b.broken(node, "lacks operands"));
    let q = next()?.src;
    let past = if op.past > 0 { Some([next()?, next()?]) } else { None };
    let scales = if op.past_scales { Some([next()?.src, next()?.src]) } else { None };
    let new = [next()?.src, next()?.src];
    let past_grids = past.as_ref().map_or([None; 2], |tables| tables.each_ref().map(|table| table.grid));
    let mut grids = [None; 2];
    for ((grid, past), i) in grids.iter_mut().zip(past_grids).zip(op.new_slot()..) {
        let rounding = b.graph.value(b.graph.root(b.input(node, i)?)).rounding;
        *grid = past.filter(|&past| rounding == Rounding::Quantised(past));
    }
    let mask = if op.mask { Some(next()?.src) } else { None };
    if op.past_scales && !op.has_kernel() {
        return Err(b.broken(node, "has scales that only the vector kernel reads"));
    }
    Ok(Box::new(Attention { op, q, past, scales, new, grids, mask, dst: b.dst(b.output(node)?) }))
}

/// Operands as [`AttentionOp`] lists them.
struct Attention {
    op: AttentionOp,
    q: Src,
    /// 8-bit quantised values are read in place by the vector kernel only.
    past: Option<[Table; 2]>,
    /// Those of the past's blocks.
    scales: Option<[Src; 2]>,
    new: [Src; 2],
    /// That of the past, where the new ones were rounded to it.
    grids: [Option<QuantGrid>; 2],
    mask: Option<Src>,
    dst: Dst,
}

impl Step for Attention {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        if self.op.has_kernel() {
            self.fast(cx, worker)
        } else {
            self.plain(cx, worker)
        }
        Ok(())
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        let AttentionOp { kv_heads, group, rows, head_dim, past, new, .. } = self.op;
        let numbers = if self.op.has_kernel() {
            let (lens, isa) = ([past, new], Isa::detect());
            let lens = if past > 0 { &lens[..] } else { &lens[1..] };
            kernel::scratch_len(isa, rows, kv_heads * group, kv_heads, head_dim, lens, threads)
        } else {
            threads * (past + new)
        };
        numbers * size_of::<f32>()
    }
}

impl Attention {
    fn fast(&self, cx: &RunContext<'_>, worker: Worker<'_>) {
        let AttentionOp { kv_heads, group, rows, head_dim, past, new, scale, .. } = self.op;
        let heads = kv_heads * group;
        let of_new = |i: usize| match self.grids[i] {
            None => cx.floats(&self.new[i]).into(),
            Some(grid) => kernel::Rows::Grid(kernel::GridRows { numbers: cx.read(&self.new[i]), scale: grid.scale }),
        };
        let (keys, values) = (of_new(0), of_new(1));
        let new = kernel::Span { keys, values, len: new };
        let mut both = [new; 2];
        if let Some(tables) = &self.past {
            let scales = |i: usize| self.scales.as_ref().map(|scales| cx.bytes(&scales[i]));
            let [keys, values] = [0, 1].map(|i| in_place(cx, &tables[i], scales(i)));
            both[0] = kernel::Span { keys, values, len: past };
        }
        // Row stride and head stride.
        let strides = |by_row: bool| if by_row { (heads * head_dim, head_dim) } else { (head_dim, rows * head_dim) };
        let (q_row_stride, q_head_stride) = strides(self.op.q_by_row);
        let (out_row_stride, out_head_stride) = strides(self.op.out_by_row);
        let job = kernel::Attention {
            q: cx.read(&self.q),
            q_row_stride,
            q_head_stride,
            rows,
            heads,
            kv_heads,
            dim: head_dim,
            scale,
            keys_by_row: self.op.keys_by_row,
            spans: if past > 0 { &both } else { &both[1..] },
            mask: self.mask.as_ref().map(|m| cx.floats(m)),
            out: cx.write(&self.dst),
            out_row_stride,
            out_head_stride,
        };
        // SAFETY: every thread comes here with the same operands, barriers lie before and after the step, and the plan
        // keeps the output apart from what is read and from the scratch.
        unsafe { kernel::attention(worker, cx.isa, &job, cx.scratch()) };
    }

    fn plain(&self, cx: &RunContext<'_>, worker: Worker<'_>) {
        let AttentionOp { kv_heads, group, rows, head_dim, .. } = self.op;
        let (q, heads) = (cx.read::<f32>(&self.q), kv_heads * group);
        let columns = self.op.past + self.op.new;
        // SAFETY: each thread has `columns` numbers of scratch, see `scratch_bytes`.
        let scores = unsafe { cx.scratch::<f32>().part(worker.index() * columns..(worker.index() + 1) * columns) };
        let out = cx.write::<f32>(&self.dst);
        let mask = self.mask.as_ref().map(|m| cx.floats(m));
        for task in worker.share(heads * rows, 1) {
            let (row, head) = (task % rows, task / rows);
            let at = |by_row: bool| (if by_row { row * heads + head } else { task }) * head_dim;
            let (from, to) = (at(self.op.q_by_row), at(self.op.out_by_row));
            let mask = mask.map(|m| m.slice(row * columns..(row + 1) * columns));
            // SAFETY: this thread alone has this task, and the plan keeps the output apart from what is read.
            let out = unsafe { out.part(to..to + head_dim) };
            self.row(&q[from..from + head_dim], &self.parts(cx, head / group), mask, scores, out);
        }
    }

    fn parts<'s>(&'s self, cx: &'s RunContext<'_>, head: usize) -> [Option<Part<'s>>; 2] {
        let part = |[k, v]: [&'s Src; 2], n: usize| {
            let len = n * self.op.head_dim;
            let of = |src: &'s Src| cx.floats(src).slice(head * len..(head + 1) * len);
            Part { k: of(k), v: of(v), n }
        };
        let past = self.past.as_ref().map(|p| part(p.each_ref().map(|table| &table.src), self.op.past));
        [past, Some(part(self.new.each_ref(), self.op.new))]
    }

    fn row(
        &self,
        q: &[f32],
        parts: &[Option<Part<'_>>; 2],
        mask: Option<Floats<'_>>,
        scores: &mut [f32],
        out: &mut [f32],
    ) {
        let dim = self.op.head_dim;
        let bias = |column: usize| mask.map_or(0.0, |m| m.get(column));
        let all_hidden = (0..scores.len()).all(|column| bias(column) <= MASK_THRESHOLD);
        let mut first = 0;
        let mut max = f32::NEG_INFINITY;
        for part in parts.iter().flatten() {
            for j in 0..part.n {
                let (bias, score) = (bias(first + j), &mut scores[first + j]);
                if bias <= MASK_THRESHOLD && !all_hidden {
                    *score = f32::NEG_INFINITY;
                    continue;
                }
                let at = |d: usize| if self.op.keys_by_row { j * dim + d } else { d * part.n + j };
                let product = q.iter().enumerate().map(|(d, q)| q * part.k.get(at(d))).sum::<f32>();
                *score = product * self.op.scale + bias;
                max = max.max(*score);
            }
            first += part.n;
        }
        let mut sum = 0.0;
        for score in &mut *scores {
            *score = (*score - max).exp();
            sum += *score;
        }
        out.fill(0.0);
        first = 0;
        for part in parts.iter().flatten() {
            for (j, &score) in scores[first..first + part.n].iter().enumerate().filter(|(_, s)| **s != 0.0) {
                out.iter_mut().enumerate().for_each(|(d, out)| *out += score / sum * part.v.get(j * dim + d));
            }
            first += part.n;
        }
    }
}

/// Keys or values of the past, wherever they are.
fn in_place<'s>(cx: &'s RunContext<'_>, Table { src, grid }: &'s Table, scales: Option<&'s [u8]>) -> kernel::Rows<'s> {
    match (*grid, scales) {
        (None, _) => cx.floats(src).into(),
        (Some(QuantGrid { offset, .. }), Some(scales)) => {
            kernel::Rows::Blocks(kernel::BlockRows { bytes: cx.bytes(src), scales, offset })
        }
        (Some(QuantGrid { scale, offset, .. }), None) => {
            kernel::Rows::Quantised(kernel::QuantisedRows { bytes: cx.bytes(src), scale, offset })
        }
    }
}

/// Keys or values of one head: `n` of them.
struct Part<'a> {
    k: Floats<'a>,
    v: Floats<'a>,
    n: usize,
}

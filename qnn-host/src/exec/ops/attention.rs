//! Attention over past and new keys and values in place, by the book: a row of scores at a time.
//!
//! Columns whose mask says "hidden" ([`HIDDEN`] or less) are skipped, which changes nothing: beside a visible column their
//! weight is zero in `f32`. A row that sees no column at all is computed in full, as a softmax would: its result is finite.

use crate::exec::cx::{Cx, Dst, Src};
use crate::exec::step::{Fault, Step};
use crate::kernels::Floats;
use crate::passes::op::AttentionOp;
use crate::pool::Worker;

/// Mask values up to this hide a column.
pub(crate) const HIDDEN: f32 = -900.0;

/// Operands as [`AttentionOp`] lists them.
pub(crate) struct Attention {
    pub(crate) op: AttentionOp,
    pub(crate) q: Src,
    pub(crate) past: Option<[Src; 2]>,
    pub(crate) new: [Src; 2],
    pub(crate) mask: Option<Src>,
    pub(crate) dst: Dst,
}

/// Keys or values of one head: `n` of them.
struct Part<'a> {
    k: Floats<'a>,
    v: Floats<'a>,
    n: usize,
}

impl Step for Attention {
    fn run(&self, cx: &Cx<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let AttentionOp { kv_heads, group, rows, head_dim, .. } = self.op;
        let q = cx.read::<f32>(&self.q);
        let columns = self.op.past + self.op.new;
        // SAFETY: each thread has `columns` numbers of scratch, asked for below.
        let scores = unsafe { cx.scratch::<f32>().part(worker.index() * columns..(worker.index() + 1) * columns) };
        let out = cx.write::<f32>(&self.dst);
        let mask = self.mask.as_ref().map(|m| cx.floats(m));
        for task in worker.share(kv_heads * group * rows, 1) {
            let (row, head) = (task % rows, task / rows / group);
            let mask = mask.map(|m| m.slice(row * columns..(row + 1) * columns));
            // SAFETY: this thread alone has this task, and the plan keeps the output apart from what is read.
            let out = unsafe { out.part(task * head_dim..(task + 1) * head_dim) };
            self.row(&q[task * head_dim..(task + 1) * head_dim], &self.parts(cx, head), mask, scores, out);
        }
        Ok(())
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        threads * (self.op.past + self.op.new) * size_of::<f32>()
    }
}

impl Attention {
    fn parts<'s>(&'s self, cx: &'s Cx<'_>, head: usize) -> [Option<Part<'s>>; 2] {
        let part = |[k, v]: &'s [Src; 2], n: usize| {
            let len = n * self.op.head_dim;
            let of = |src: &'s Src| cx.floats(src).slice(head * len..(head + 1) * len);
            Part { k: of(k), v: of(v), n }
        };
        [self.past.as_ref().map(|p| part(p, self.op.past)), Some(part(&self.new, self.op.new))]
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
        let all_hidden = (0..scores.len()).all(|column| bias(column) <= HIDDEN);
        let mut first = 0;
        let mut max = f32::NEG_INFINITY;
        for part in parts.iter().flatten() {
            for j in 0..part.n {
                let (bias, score) = (bias(first + j), &mut scores[first + j]);
                if bias <= HIDDEN && !all_hidden {
                    *score = f32::NEG_INFINITY;
                    continue;
                }
                let at = |d: usize| if self.op.keys_by_row { j * dim + d } else { d * part.n + j };
                *score = q.iter().enumerate().map(|(d, q)| q * part.k.get(at(d))).sum::<f32>() + bias;
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

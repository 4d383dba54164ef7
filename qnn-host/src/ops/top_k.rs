//! `TopK`: the largest or smallest elements of each row of the last axis, in order, and their places.

use super::prelude::*;
use crate::pool::{Worker, share};
use crate::step::Dst;
use crate::storage::number;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "TopK",
    inputs: (1, 1),
    outputs: (2, 2),
    params: &[req("k", UInt), opt("largest", Bool)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        row!(Float: [FLOAT] => [FLOAT] [INDEX]),
        row!(Fixed: [UFIX16] => [UFIX16] [INDEX]),
        row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8] [INDEX]),
        row!(Plain: [INT32] => [INT32] [INDEX]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("TopK", &[("k", Param::UInt(2))], &[(F, &[3, 9])], &[(F, &[3, 2]), (I, &[3, 2])])]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let k = call.uint("k", 0)?;
    match dims.last_mut() {
        Some(last) if k >= 1 && k <= u64::from(*last) => *last = k as u32,
        last => return Err(call.bad_param("k", format!("1 to {}", last.map_or(0, |d| *d)), k.to_string())),
    }
    Ok(vec![dims.clone(), dims])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, k, largest) = (l.input(0)?, l.uint("k", 0)? as usize, l.flag("largest", true)?);
    let storage = l.storage(x);
    l.emit_as(Op::leaf(TopKOp { k, largest, indices: false }), &[x], l.output(0), storage);
    l.emit_as(Op::leaf(TopKOp { k, largest, indices: true }), &[x], l.output(1), Storage::I32);
    Ok(())
}

/// The last axis' first `k` in sorted order; `indices` yields places instead of values.
#[derive(Debug)]
struct TopKOp {
    k: usize,
    largest: bool,
    indices: bool,
}

impl LeafOp for TopKOp {
    fn label(&self) -> &'static str {
        "TopK"
    }

    fn is_team(&self) -> bool {
        true
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let id = b.input(node, 0)?;
        let n = b.shape(id).last().copied().unwrap_or(1);
        let Self { k, largest, indices } = *self;
        let (x, real, dst) = (b.src(id), b.is_real(id), b.dst(b.output(node)?));
        Ok(Box::new(TopK { x, real, n, k, largest, indices, dst }))
    }
}

/// The first `k` of each row of `n` in order; of equal elements the earlier comes first.
struct TopK {
    x: Src,
    real: bool,
    n: usize,
    k: usize,
    largest: bool,
    /// Write places instead of values.
    indices: bool,
    dst: Dst,
}

impl Step for TopK {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let rows = self.dst.n / self.k;
        let mine = share(rows, 1, worker.index(), worker.count());
        if mine.is_empty() {
            return Ok(());
        }
        let x = cx.read::<u32>(&self.x);
        // SAFETY: rows of different threads do not overlap, and the plan keeps a step's output apart from its inputs.
        let out = unsafe { cx.write::<u32>(&self.dst).part(mine.start * self.k..mine.end * self.k) };
        // SAFETY: each thread has `n` words of scratch, see `scratch_bytes`.
        let order = unsafe { cx.scratch::<u32>().part(worker.index() * self.n..(worker.index() + 1) * self.n) };
        for (row, out) in mine.zip(out.chunks_exact_mut(self.k)) {
            let x = &x[row * self.n..(row + 1) * self.n];
            order.iter_mut().zip(0..).for_each(|(o, i)| *o = i);
            let compare = |&i: &u32, &j: &u32| {
                let (a, b) = (number(x[i as usize], self.real), number(x[j as usize], self.real));
                let by_value = if self.largest { b.total_cmp(&a) } else { a.total_cmp(&b) };
                by_value.then(i.cmp(&j))
            };
            if self.k < self.n {
                order.select_nth_unstable_by(self.k - 1, compare);
            }
            order[..self.k].sort_unstable_by(compare);
            for (out, &i) in out.iter_mut().zip(&*order) {
                *out = if self.indices { i } else { x[i as usize] };
            }
        }
        Ok(())
    }

    fn scratch_bytes(&self, threads: usize) -> usize {
        threads * self.n * size_of::<u32>()
    }
}

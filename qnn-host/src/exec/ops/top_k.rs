//! The largest or smallest elements of each row, in order.

use super::reduce::number;
use crate::pool::{Worker, share};
use crate::step::{Dst, RunContext, Src};
use crate::step::{Fault, Step};

/// The first `k` of each row of `n` in order; of equal elements the earlier comes first.
pub(crate) struct TopK {
    pub(crate) x: Src,
    pub(crate) real: bool,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) largest: bool,
    /// Write places instead of values.
    pub(crate) indices: bool,
    pub(crate) dst: Dst,
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
        // SAFETY: each thread has `n` words of scratch, asked for below.
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

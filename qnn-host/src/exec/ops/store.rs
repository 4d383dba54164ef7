//! Writing client buffers, and rounding values to what a client would read.

use crate::graph::codec::encode;
use crate::ir::Dtype;
use crate::pool::{Worker, share};
use crate::step::{Dst, RunContext, Src};
use crate::step::{Fault, Step, round_all};
use crate::storage::{QuantGrid, Rounding};

/// Fewest elements worth a thread of their own.
const GRAIN: usize = 2048;

/// A value to a client's buffer, in the declared type.
pub(crate) struct Store {
    pub(crate) x: Src,
    pub(crate) output: usize,
    pub(crate) dtype: Dtype,
    pub(crate) grid: Option<QuantGrid>,
}

impl Step for Store {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let part = share(self.x.n, GRAIN, worker.index(), worker.count());
        let size = self.dtype.size_bytes();
        // SAFETY: shares of different threads do not overlap, and no other step writes this output.
        let out = unsafe { cx.output(self.output).part(part.start * size..part.end * size) };
        encode(cx.isa, &cx.read::<u32>(&self.x)[part], self.dtype, self.grid, out);
        Ok(())
    }
}

/// A value rounded in place.
pub(crate) struct Round {
    pub(crate) dst: Dst,
    pub(crate) rounding: Rounding,
}

impl Step for Round {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let part = share(self.dst.n, GRAIN, worker.index(), worker.count());
        // SAFETY: shares of different threads do not overlap, and the plan lets nobody else use the value meanwhile.
        let x = unsafe { cx.write::<f32>(&self.dst).part(part) };
        round_all(self.rounding, x);
        Ok(())
    }
}

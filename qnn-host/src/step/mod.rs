//! What a prepared graph is made of: steps that all threads of a run walk through together.

mod arena;
mod client_buffer;
mod run_context;

pub use arena::Arena;
pub(crate) use client_buffer::ClientBuffer;
pub(crate) use run_context::{Dst, Lane32, Place, RunContext, Src, float_of};

use crate::bytes::Bytes;
use crate::kernels::{Isa, convert};
use crate::pool::{Worker, share};
use crate::storage::Rounding;

/// A failure inside a step; the executor adds the node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An index outside of `0..limit`.
    Index { index: i64, limit: usize },
    /// An op package returned an error.
    Package { code: u64 },
}

/// One step. Every thread of a run calls it with the same `cx`, and meets the others at a barrier afterwards.
pub(crate) trait Step: Send + Sync {
    /// Does this thread's share.
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault>;

    /// Shows the constants that it reads whole.
    fn weights(&self, _each: &mut dyn FnMut(&Bytes)) {}

    /// Bytes of [`RunContext::scratch`] that it needs.
    fn scratch_bytes(&self, _threads: usize) -> usize {
        0
    }
}

/// Rounds numbers in place.
pub(crate) fn round_all(isa: Isa, rounding: Rounding, x: &mut [f32]) {
    match rounding {
        Rounding::None => {}
        Rounding::F16 => convert::round_to_f16(isa, x),
        Rounding::Quantised(grid) => x.iter_mut().for_each(|x| *x = grid.dequantise(grid.quantise(*x))),
    }
}

/// Fewest elements worth a thread of their own.
pub(crate) const GRAIN: usize = 2048;

/// A step that writes one value, any part of it on any thread.
pub(crate) trait Fill: Send + Sync {
    /// `f32` or `i32`.
    type Elem: Lane32;

    /// Writes all of `out`: elements from `first` on of the value.
    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [Self::Elem]) -> Result<(), Fault>;

    /// Parts begin and end at multiples of it (the end aside).
    fn unit(&self) -> usize {
        1
    }
}

/// Shares a [`Fill`] out over the threads, and rounds what it wrote.
pub(crate) struct Each<F> {
    pub(crate) fill: F,
    pub(crate) dst: Dst,
    pub(crate) rounding: Rounding,
}

impl<F: Fill> Step for Each<F> {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let unit = self.fill.unit().max(1);
        let part = share(self.dst.n, GRAIN.div_ceil(unit) * unit, worker.index(), worker.count());
        if part.is_empty() {
            return Ok(());
        }
        // SAFETY: shares of different threads do not overlap, and the plan keeps a step's output apart from its inputs.
        let out = unsafe { cx.write::<F::Elem>(&self.dst).part(part.clone()) };
        self.fill.fill(cx, part.start, out)?;
        round_all(cx.isa, self.rounding, F::Elem::as_real(out));
        Ok(())
    }
}

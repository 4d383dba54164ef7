//! What a prepared graph is made of: steps that all threads of a run walk through together.

use super::cx::{Cx, Dst, Word};
use crate::passes::net::Snap;
use crate::pool::{Worker, share};

/// A failure inside a step; the executor adds the node's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An index outside of `0..limit`.
    Index { index: i64, limit: usize },
}

/// One step. Every thread of a run calls it with the same `cx`, and meets the others at a barrier afterwards.
pub(crate) trait Step: Send + Sync {
    /// Does this thread's share.
    fn run(&self, cx: &Cx<'_>, worker: Worker<'_>) -> Result<(), Fault>;

    /// Bytes of [`Cx::scratch`] that it needs.
    fn scratch_bytes(&self, _threads: usize) -> usize {
        0
    }
}

/// Rounds numbers in place.
pub(crate) fn snap_all(snap: Snap, x: &mut [f32]) {
    match snap {
        Snap::None => {}
        Snap::F16 => x.iter_mut().for_each(|x| *x = half::f16::from_f32(*x).to_f32()),
        Snap::Grid(grid) => x.iter_mut().for_each(|x| *x = grid.real(grid.code(*x))),
    }
}

/// Fewest elements worth a thread of their own.
const GRAIN: usize = 2048;

/// A step that writes one value, any part of it on any thread.
pub(crate) trait Fill: Send + Sync {
    /// `f32` or `i32`.
    type Elem: Word;

    /// Writes all of `out`: elements from `first` on of the value.
    fn fill(&self, cx: &Cx<'_>, first: usize, out: &mut [Self::Elem]) -> Result<(), Fault>;

    /// Parts begin and end at multiples of it (the end aside).
    fn unit(&self) -> usize {
        1
    }
}

/// Shares a [`Fill`] out over the threads, and rounds what it wrote.
pub(crate) struct Each<F> {
    pub(crate) fill: F,
    pub(crate) dst: Dst,
    pub(crate) snap: Snap,
}

impl<F: Fill> Step for Each<F> {
    fn run(&self, cx: &Cx<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let unit = self.fill.unit().max(1);
        let part = share(self.dst.n, GRAIN.div_ceil(unit) * unit, worker.index(), worker.count());
        if part.is_empty() {
            return Ok(());
        }
        // SAFETY: shares of different threads do not overlap, and the plan keeps a step's output apart from its inputs.
        let out = unsafe { cx.write::<F::Elem>(&self.dst).part(part.clone()) };
        self.fill.fill(cx, part.start, out)?;
        snap_all(self.snap, F::Elem::as_real(out));
        Ok(())
    }
}

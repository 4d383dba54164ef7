//! Between client buffers and the arena: loads, stores, and values rounded to what a client would read.

use super::prelude::*;
use crate::graph::codec::encode;
use crate::graph::step_builder::Table;
use crate::ir::Dtype;
use crate::pool::{Worker, share};
use crate::step::{Dst, GRAIN, round_all};
use crate::storage::{QuantGrid, Rounding};

pub(super) fn load(b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
    b.each(node, Load(b.table(b.input(node, 0)?)))
}

pub(super) fn store(b: &StepBuilder<'_>, node: &Node, output: usize) -> Result<Box<dyn Step>, ExecError> {
    let port = &b.graph.outputs[output];
    let (x, grid) = (b.src(b.input(node, 0)?), QuantGrid::of(port.dtype, &port.quant));
    Ok(Box::new(Store { x, output, dtype: port.dtype, grid }))
}

/// The step that rounds a value where it lies.
pub(crate) fn round(b: &StepBuilder<'_>, id: ValueId) -> Box<dyn Step> {
    Box::new(Round { dst: b.dst(id), rounding: b.graph.value(b.graph.root(id)).rounding })
}

/// A whole tensor as words.
struct Load(Table);

impl Fill for Load {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        self.0.read(cx, first, out);
        Ok(())
    }
}

/// A value to a client's buffer, in the declared type.
struct Store {
    x: Src,
    output: usize,
    dtype: Dtype,
    grid: Option<QuantGrid>,
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
struct Round {
    dst: Dst,
    rounding: Rounding,
}

impl Step for Round {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let part = share(self.dst.n, GRAIN, worker.index(), worker.count());
        // SAFETY: shares of different threads do not overlap, and by the plan no other step uses the value meanwhile.
        let x = unsafe { cx.write::<f32>(&self.dst).part(part) };
        round_all(cx.isa, self.rounding, x);
        Ok(())
    }
}

//! Rows into blocks of 8-bit numbers, straight into the client's buffers, and what they stand for: a chain of ops as one step.
//!
//! A token's rows are a few blocks, which one thread takes; those of a prompt are shared out. No thread waits for another.

use crate::graph::ExecError;
use crate::graph::op::QuantiseBlocksOp;
use crate::graph::step_builder::StepBuilder;
use crate::graph::typed::Node;
use crate::kernels::attention::BLOCK;
use crate::kernels::{SCALE_BYTES, quantise_blocks};
use crate::pool::{Worker, share};
use crate::step::{Dst, Fault, GRAIN, RunContext, Src, Step};

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, op: QuantiseBlocksOp) -> Result<Box<dyn Step>, ExecError> {
    let x = b.src(b.input(node, 0)?);
    Ok(Box::new(QuantiseBlocks { op, x, rows: node.output.map(|id| b.dst(id)) }))
}

/// Operands as [`QuantiseBlocksOp`] lists them.
struct QuantiseBlocks {
    op: QuantiseBlocksOp,
    x: Src,
    /// What the numbers stand for, where it is read.
    rows: Option<Dst>,
}

impl Step for QuantiseBlocks {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        let part = share(self.x.n / BLOCK, GRAIN / BLOCK, worker.index(), worker.count());
        if part.is_empty() {
            return Ok(());
        }
        let of = |n: usize| part.start * n..part.end * n;
        let x = &cx.read::<f32>(&self.x)[of(BLOCK)];
        // SAFETY: shares of different threads do not overlap, and no other step writes this output.
        let numbers = unsafe { cx.output(self.op.numbers).part(of(BLOCK)) };
        // SAFETY: as above.
        let scales = unsafe { cx.output(self.op.scales).part(of(SCALE_BYTES)) };
        // SAFETY: as above, and the plan keeps a step's output apart from its inputs.
        let rows = self.rows.as_ref().map(|rows| unsafe { cx.write::<f32>(rows).part(of(BLOCK)) });
        quantise_blocks(cx.isa, x, self.op.rule, numbers, scales, rows);
        Ok(())
    }
}

//! An update of a client's input that becomes a client's output: a cache with new rows. In place where the client bound
//! both to the same buffer, else a copy of the whole and then the update.
//!
//! *Units and dtype*: the client's buffers in their declared type and encoding, which is the same for both.
//! *Invariant*: the step is the last that reads the input (`exec::plan` waits for the other readers).
//! *Trap*: all places are checked before the first is written, since an error must not leave half an update in a cache. A place beyond the end
//! that an index names is none, as in [`super::scatter`]: it is not written.

use super::gather_elements::along_axis;
use super::gather_nd::slice_at;
use super::kv_update::{Rows, RowsSrc};
use super::prelude::*;
use super::scatter::within;
use crate::graph::codec::encode;
use crate::graph::op::UpdatePlaces;
use crate::ir::Dtype;
use crate::kernels::SharedMut;
use crate::pool::{Worker, share};
use crate::step::GRAIN;
use crate::storage::QuantGrid;

/// The step of an [`Op::UpdateStore`].
pub(super) fn step(
    b: &StepBuilder<'_>,
    node: &Node,
    input: usize,
    output: usize,
    places: UpdatePlaces,
) -> Result<Box<dyn Step>, ExecError> {
    let port = &b.graph.outputs[output];
    let (dtype, grid) = (port.dtype, QuantGrid::of(port.dtype, &port.quant));
    let data = b.input(node, 0)?;
    let shape = b.shape(data).to_vec();
    let (places, new) = match places {
        UpdatePlaces::Slices => {
            let index = b.input(node, 1)?;
            let depth = b.shape(index).last().copied().unwrap_or(0);
            let (limits, inner) = (shape[..depth].to_vec(), shape[depth..].iter().product());
            (Places::Slices { index: b.src(index), limits, inner }, b.input(node, 2)?)
        }
        UpdatePlaces::Elements { axis } => {
            let index = b.input(node, 1)?;
            let index_shape = b.shape(index).to_vec();
            (Places::Elements { index: b.src(index), shape, index_shape, axis }, b.input(node, 2)?)
        }
        UpdatePlaces::Rows { axis } => {
            let (new, inner) = (b.input(node, 1)?, b.behind(data, axis));
            let (past_rows, new_rows) = (shape[axis], b.shape(new)[axis]);
            (Places::Rows { rows: RowsSrc::of(b, node, axis)?, past_rows, new_rows, inner }, new)
        }
    };
    Ok(Box::new(UpdateStore { input, output, dtype, grid, n: port.n_elems, new: b.src(new), places }))
}

/// What is written.
enum Places {
    /// Slices of `inner` elements: an index row gives numbers for the leading axes.
    Slices { index: Src, limits: Vec<usize>, inner: usize },
    /// Elements: an index entry replaces the place along one axis.
    Elements { index: Src, shape: Vec<usize>, index_shape: Vec<usize>, axis: usize },
    /// Rows along an axis, each of `inner` elements, in every block of them.
    Rows { rows: RowsSrc, past_rows: usize, new_rows: usize, inner: usize },
}

struct UpdateStore {
    input: usize,
    output: usize,
    dtype: Dtype,
    grid: Option<QuantGrid>,
    /// Elements of the whole.
    n: usize,
    new: Src,
    places: Places,
}

/// Elements converted at a time.
const CHUNK: usize = 256;
/// Bytes of the largest element type.
const WIDEST: usize = 8;

impl Step for UpdateStore {
    fn run(&self, cx: &RunContext<'_>, worker: Worker<'_>) -> Result<(), Fault> {
        // Every thread finds the same fault, so none of them waits at the barrier for one that left.
        let rows = self.check(cx)?;
        let (from, out) = (cx.input_address(self.input), cx.output(self.output));
        if from != out.ptr().cast_const() {
            let part = share(self.n, GRAIN, worker.index(), worker.count());
            let size = self.dtype.size_bytes();
            let part = part.start * size..part.end * size;
            // SAFETY: shares of different threads do not overlap, no other step writes this output, and the output is either
            // the input's very buffer (not here) or shares no byte with an input.
            unsafe { out.part(part.clone()) }.copy_from_slice(&cx.input(self.input)[part]);
            worker.barrier();
        }
        match (&self.places, rows) {
            (&Places::Rows { past_rows, new_rows, inner, .. }, Some(rows)) => {
                self.write_rows(cx, worker, out, rows, [past_rows, new_rows, inner]);
            }
            (Places::Slices { index, limits, inner }, _) if worker.index() == 0 => {
                let (index, depth) = (cx.read::<i32>(index), limits.len());
                for i in 0..self.new.n.checked_div(*inner).unwrap_or(0) {
                    let Some(at) = within(slice_at(&index[i * depth..(i + 1) * depth], limits))? else { continue };
                    self.write(cx, out, i * inner, at * inner, *inner);
                }
            }
            (Places::Elements { index, shape, index_shape, axis }, _) if worker.index() == 0 => {
                let index = cx.read::<i32>(index);
                for i in 0..self.new.n {
                    let Some(at) = within(along_axis(shape, index_shape, *axis, i, index))? else { continue };
                    self.write(cx, out, i, at, 1);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl UpdateStore {
    /// Looks at all places before any is written; the rows, where they are given by number.
    fn check(&self, cx: &RunContext<'_>) -> Result<Option<Rows>, Fault> {
        match &self.places {
            Places::Rows { rows, .. } => return rows.read(cx).map(Some),
            Places::Slices { index, limits, .. } if !limits.is_empty() => {
                for entry in cx.read::<i32>(index).chunks_exact(limits.len()) {
                    within(slice_at(entry, limits))?;
                }
            }
            Places::Slices { .. } => {}
            Places::Elements { index, shape, index_shape, axis } => {
                let index = cx.read::<i32>(index);
                for i in 0..self.new.n {
                    within(along_axis(shape, index_shape, *axis, i, index))?;
                }
            }
        }
        Ok(None)
    }

    /// Each thread writes the rows of its own blocks.
    fn write_rows(
        &self,
        cx: &RunContext<'_>,
        worker: Worker<'_>,
        out: SharedMut<'_, u8>,
        Rows { to, from, n }: Rows,
        [past_rows, new_rows, inner]: [usize; 3],
    ) {
        let blocks = self.n.checked_div(past_rows * inner).unwrap_or(0);
        let unit = GRAIN.div_ceil((n * inner).max(1));
        for block in share(blocks, unit, worker.index(), worker.count()) {
            self.write(cx, out, (block * new_rows + from) * inner, (block * past_rows + to) * inner, n * inner);
        }
    }

    /// Writes `n` new elements, those from `from` on, to element `to` on.
    fn write(&self, cx: &RunContext<'_>, out: SharedMut<'_, u8>, from: usize, to: usize, n: usize) {
        let (new, size) = (&cx.read::<u32>(&self.new)[from..from + n], self.dtype.size_bytes());
        let mut bytes = [0; CHUNK * WIDEST];
        for (i, new) in new.chunks(CHUNK).enumerate() {
            let (at, bytes) = ((to + i * CHUNK) * size, &mut bytes[..new.len() * size]);
            encode(cx.isa, new, self.dtype, self.grid, bytes);
            // SAFETY: one thread writes these elements (blocks are shared out, index lists are worked off by thread 0), after
            // the barrier that ends the copy; all other readers of the input ran in earlier phases.
            unsafe { out.part(at..at + bytes.len()) }.copy_from_slice(bytes);
        }
    }
}

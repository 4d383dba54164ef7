//! `Gather`: whole slices of the axes behind one axis, at places that an index tensor names.
//!
//! A place outside of the table is an error of the run, never a read.

use super::prelude::*;
use crate::bytes::Bytes;
use crate::graph::step_builder::Table;
use crate::graph::typed::Constant;
use crate::ir::{Dtype, Quant, Role};
use crate::kernels::Packed;
use crate::kernels::packed::Packing;
use crate::step::Lane32;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Gather",
    inputs: (2, 2),
    outputs: (1, 1),
    params: &[req("axis", Int)],
    same_in: 0b1,
    // The shape rule checks the output's type.
    same_out: 0,
    rows: &[row!(Moved: [ALL SFIX4 UFIX4 BF16] [INDEX] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![
        sample("Gather", &[("axis", Param::Int(0))], &[(F, &[100, 16]), (I, &[1, 5])], &[(F, &[1, 5, 16])]),
        sample("Gather", &[("axis", Param::Int(-1))], &[(F, &[2, 5]), (I, &[3])], &[(F, &[2, 3])]),
    ]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

/// Data extents with the axis replaced by the whole index shape.
///
/// Rows keep their type; those of an encoded or bfloat16 constant may also come out as the numbers that they stand for, which is how
/// such embedding tables are read (an extension of ours: HTP documents equal types only).
fn shapes(call: &Call<'_>) -> Shapes {
    let (data, index) = (call.dims(0)?, call.dims(1)?);
    if let (Some(table), Some(out)) = (call.optional_tensor(0), call.outputs.first()) {
        let encoded = table.quant != Quant::None || table.dtype == Dtype::Bf16;
        let is_read_as_numbers = matches!(table.role, Role::Static(_)) && encoded && out.dtype.is_float();
        if out.dtype != table.dtype && !is_read_as_numbers {
            return Err(call.bad_output(0, format!("{:?} as input 0", table.dtype), format!("{:?}", out.dtype)));
        }
    }
    let axis = axis(call)?;
    Ok(vec![[&data[..axis], index, &data[axis + 1..]].concat()])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (table, index, axis) = (l.input(0)?, l.int(1)?, axis(l)?);
    let storage = l.storage(table);
    l.emit_as(Op::Gather { axis }, &[table, index], l.output(0), storage);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, axis: usize) -> Result<Box<dyn Step>, ExecError> {
    let (table, index) = (b.input(node, 0)?, b.src(b.input(node, 1)?));
    let shape = b.shape(table);
    if let Some(Constant { bytes, packing: Some(packing), minima, .. }) = b.graph.constant(table) {
        let (bytes, minima, shape) = (bytes.clone(), minima.clone(), [shape[0], shape[1]]);
        return b.each(node, GatherPacked { bytes, minima, packing: *packing, index, shape });
    }
    let inner = b.behind(table, axis).max(1);
    b.each(node, Gather { table: b.table(table), index, limit: shape[axis], inner })
}

/// `index` as a place in `0..limit`.
pub(super) fn place(index: i32, limit: usize) -> Result<usize, Fault> {
    usize::try_from(index).ok().filter(|&i| i < limit).ok_or(Fault::Index { index: i64::from(index), limit })
}

/// Whole slices of the axes behind `axis`, the table read in its declared type.
struct Gather {
    table: Table,
    index: Src,
    /// Extent of the indexed axis.
    limit: usize,
    /// Elements behind the axis.
    inner: usize,
}

impl Fill for Gather {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let index = cx.read::<i32>(&self.index);
        for (r, out) in out.chunks_exact_mut(self.inner).enumerate() {
            let row = first / self.inner + r;
            let (outer, i) = (row / index.len(), row % index.len());
            let at = (outer * self.limit + place(index[i], self.limit)?) * self.inner;
            self.table.read(cx, at, out);
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.inner
    }
}

/// Rows of a packed table, less their minima if it has some.
struct GatherPacked {
    bytes: Bytes,
    minima: Option<Bytes>,
    packing: Packing,
    index: Src,
    /// Rows and columns of the table.
    shape: [usize; 2],
}

impl Fill for GatherPacked {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let [rows, cols] = self.shape;
        let (index, table) = (cx.read::<i32>(&self.index), Packed::new(&self.bytes, self.packing, rows, cols));
        let table = match &self.minima {
            Some(minima) => table.with_minima(minima),
            None => table,
        };
        for (r, out) in out.chunks_exact_mut(cols).enumerate() {
            table.row(place(index[first / cols + r], rows)?, u32::as_real(out));
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.shape[1]
    }
}

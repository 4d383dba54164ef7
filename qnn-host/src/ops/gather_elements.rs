//! `GatherElements`: an element for each entry of an index tensor, which replaces the place along one axis.

use super::gather::place;
use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "GatherElements",
    inputs: (2, 2),
    outputs: (1, 1),
    params: &[opt("axis", UInt)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] [INDEX] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("GatherElements", &[("axis", Param::UInt(1))], &[(F, &[2, 5]), (I, &[2, 3])], &[(F, &[2, 3])])]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

/// The index has the rank of the data, and its own extents are the output's.
fn shapes(call: &Call<'_>) -> Shapes {
    let (data, index) = (call.dims(0)?, call.dims(1)?);
    if !common::is_within(index, data, axis(call)?) {
        let expected = format!("an index of dims within {data:?} off axis {}", axis(call)?);
        return Err(call.bad_input(1, expected, format!("{index:?}")));
    }
    Ok(vec![index.to_vec()])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (table, index, axis) = (l.input(0)?, l.int(1)?, axis(l)?);
    let storage = l.storage(table);
    l.emit_as(Op::leaf(GatherElementsOp { axis }), &[table, index], l.output(0), storage);
    Ok(())
}

/// `table, index` of the same rank.
#[derive(Debug)]
struct GatherElementsOp {
    axis: usize,
}

impl LeafOp for GatherElementsOp {
    fn label(&self) -> &'static str {
        "GatherElements"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let (table, index) = (b.input(node, 0)?, b.input(node, 1)?);
        let (table_shape, index_shape) = (b.shape(table).to_vec(), b.shape(index).to_vec());
        let (table, index) = (b.src(table), b.src(index));
        b.each(node, GatherElements { table, index, table_shape, index_shape, axis: self.axis })
    }
}

/// `out[i] = table[i with the axis' index replaced by index[i]]`.
struct GatherElements {
    table: Src,
    index: Src,
    table_shape: Vec<usize>,
    index_shape: Vec<usize>,
    axis: usize,
}

impl Fill for GatherElements {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let (table, index) = (cx.read::<u32>(&self.table), cx.read::<i32>(&self.index));
        for (i, out) in out.iter_mut().enumerate() {
            let at = along_axis(&self.table_shape, &self.index_shape, self.axis, first + i, index)?;
            *out = table[at];
        }
        Ok(())
    }
}

/// Where in a tensor of `shape` the element lies that entry `i` of an index tensor of `index_shape` names.
pub(super) fn along_axis(
    shape: &[usize],
    index_shape: &[usize],
    axis: usize,
    i: usize,
    index: &[i32],
) -> Result<usize, Fault> {
    let (mut rest, mut at, mut stride) = (i, 0, 1);
    for a in (0..shape.len()).rev() {
        let here = if a == axis { place(index[i], shape[a])? } else { rest % index_shape[a] };
        rest /= index_shape[a];
        at += here * stride;
        stride *= shape[a];
    }
    Ok(at)
}

//! Which values lie in tiles of bf16 between two steps, as the matrix unit reads them, instead of rows of f32.

use super::units::Unit;
use crate::graph::op::Op;
use crate::graph::typed::{Node, TypedGraph, Uses, ValueId};
use crate::kernels::Isa;
use crate::kernels::linear::fits_tiles;
use crate::ops::linear::on_matrix_unit;
use crate::storage::Rounding;

/// Says it of each value: of what a gated layer writes if one step of linear layers alone reads it, and the unit of `isa` computes them all.
pub(super) fn in_tiles(net: &TypedGraph, units: &[Unit], isa: Option<Isa>) -> Vec<bool> {
    let mut found = vec![false; net.values.len()];
    let Some(isa) = isa else { return found };
    let uses = net.uses();
    for (i, unit) in units.iter().enumerate() {
        if let Unit::Node(index) = unit
            && let Some((value, shape)) = written_by_unit(net, &net.nodes[*index], isa)
            && read_by_unit(net, &uses, &units[i + 1..], value, shape, isa)
        {
            found[value.0 as usize] = true;
        }
    }
    found
}

/// What a gated layer writes, and its rows and columns, if the matrix unit computes it.
fn written_by_unit(net: &TypedGraph, node: &Node, isa: Isa) -> Option<(ValueId, [usize; 2])> {
    let Op::GatedLinear { n, k } = node.op else { return None };
    let m = net.value(node.inputs[0]).n_elems().checked_div(k)?;
    let value = net.root(node.output?);
    let fits = fits_tiles(isa, m, n) && net.value(value).n_elems() == m * n;
    let rounded = net.value(value).rounding != Rounding::None;
    (fits && !rounded && on_unit(net, &node.inputs[1..], m, isa)).then_some((value, [m, n]))
}

/// Whether the first of `units` that reads `value` is a step of linear layers whose rows it is, which the matrix unit computes, and nothing else
/// reads it.
fn read_by_unit(net: &TypedGraph, uses: &Uses, units: &[Unit], value: ValueId, [m, n]: [usize; 2], isa: Isa) -> bool {
    let reads = |index: &usize| net.nodes[*index].inputs.iter().any(|&id| net.root(id) == value);
    let readers = units.iter().find_map(|unit| match unit {
        Unit::Node(index) => reads(index).then_some(std::slice::from_ref(index)),
        Unit::Linears(group) => group.iter().any(reads).then_some(group.as_slice()),
        Unit::Round(_) | Unit::LinearStore(..) => None,
    });
    let takes = |index: &usize| {
        let node = &net.nodes[*index];
        matches!(node.op, Op::Linear { k, .. } if k == n)
            && net.root(node.inputs[0]) == value
            && on_unit(net, &node.inputs[1..2], m, isa)
    };
    readers.is_some_and(|group| group.len() == uses.readers(net, value) as usize && group.iter().all(takes))
}

fn on_unit(net: &TypedGraph, weights: &[ValueId], m: usize, isa: Isa) -> bool {
    weights.iter().all(|&id| net.constant(id).is_some_and(|weights| on_matrix_unit(isa, m, weights)))
}

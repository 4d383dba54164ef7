//! Which values lie in tiles of bf16 between two steps, as the matrix unit reads them, instead of rows of f32.

use super::units::Unit;
use crate::graph::op::Op;
use crate::graph::typed::{Node, TypedGraph, Uses, ValueId};
use crate::kernels::Isa;
use crate::kernels::linear::{MAX_NORM_WIDTH, fits_tiles};
use crate::ops::linear::on_matrix_unit;
use crate::storage::Rounding;

/// Says it of each value: of what a gated layer or a norm writes if one step of linear layers alone reads it, and the unit of `isa` computes them all.
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

/// What a gated layer or a norm writes, and its rows and columns, if it can write tiles.
fn written_by_unit(net: &TypedGraph, node: &Node, isa: Isa) -> Option<(ValueId, [usize; 2])> {
    let value = net.root(node.output?);
    let [m, n] = match node.op {
        Op::GatedLinear { n, k } => {
            let m = net.value(node.inputs[0]).n_elems().checked_div(k)?;
            on_unit(net, &node.inputs[1..], m, isa).then_some([m, n])?
        }
        Op::RmsNorm { gamma: true, .. } => {
            let n = net.shape(node.inputs[0]).last().copied().filter(|&n| n <= MAX_NORM_WIDTH)?;
            [net.value(value).n_elems().checked_div(n)?, n]
        }
        _ => return None,
    };
    let whole = fits_tiles(isa, m, n) && net.value(value).n_elems() == m * n;
    (whole && net.value(value).rounding == Rounding::None).then_some((value, [m, n]))
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
        let weights = match node.op {
            Op::Linear { k, .. } if k == n => &node.inputs[1..2],
            Op::GatedLinear { k, .. } if k == n => &node.inputs[1..3],
            _ => return false,
        };
        net.root(node.inputs[0]) == value && on_unit(net, weights, m, isa)
    };
    readers.is_some_and(|group| group.len() == uses.readers(net, value) as usize && group.iter().all(takes))
}

fn on_unit(net: &TypedGraph, weights: &[ValueId], m: usize, isa: Isa) -> bool {
    weights.iter().all(|&id| net.constant(id).is_some_and(|weights| on_matrix_unit(isa, m, weights)))
}

//! Which values lie in tiles of bf16 between two steps, as the matrix unit reads them, instead of rows of f32.

use super::units::Unit;
use crate::graph::op::Op;
use crate::graph::typed::{Node, TypedGraph, Uses, ValueId};
use crate::kernels::Isa;
use crate::kernels::linear::{MAX_NORM_WIDTH, fits_tiles};
use crate::ops::linear::on_matrix_unit;
use crate::storage::Rounding;

/// For each value, whether it lies in tiles: a gated layer or a norm writes it, and one step of linear layers alone reads it, all of which the matrix
/// unit of `isa` computes.
pub(super) fn in_tiles(net: &TypedGraph, units: &[Unit], isa: Option<Isa>) -> Vec<bool> {
    let mut found = vec![false; net.values.len()];
    let Some(isa) = isa else { return found };
    let uses = net.uses();
    for (i, unit) in units.iter().enumerate() {
        if let Unit::Node(index) = unit
            && let Some((value, shape)) = written_as_tiles(net, &net.nodes[*index], isa)
            && read_as_tiles(net, &uses, &units[i + 1..], value, shape, isa)
        {
            found[value.0 as usize] = true;
        }
    }
    found
}

/// What a gated layer or a norm writes, and its rows and columns, if it can write tiles.
fn written_as_tiles(net: &TypedGraph, node: &Node, isa: Isa) -> Option<(ValueId, [usize; 2])> {
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
fn read_as_tiles(net: &TypedGraph, uses: &Uses, units: &[Unit], value: ValueId, [m, n]: [usize; 2], isa: Isa) -> bool {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::units;
    use super::*;
    use crate::ir::{Dtype, Param};
    use crate::kernels::testing::{has_matrix_unit, isas, with_blocks};
    use crate::package::Packages;
    use crate::passes;
    use crate::testing::{Build, Noise, bytes_of, compare, ints};

    const K: u32 = 64;
    const N: u32 = 96;

    /// A norm, a gated layer and one that reads it, of `m` rows and weights of `dtype`; the norm is read by an output as well if `shown`.
    fn layers(m: u32, dtype: Dtype, shown: bool) -> Build {
        let mut b = Build::new();
        let mut noise = Noise(7);
        let mut constant = |b: &mut Build, dims: &[u32], dtype| {
            b.constant(dims, dtype, &noise.floats(dims.iter().product::<u32>() as usize))
        };
        let x = b.input("x", &[m, K], Dtype::F32);
        let gamma = constant(&mut b, &[K], Dtype::F32);
        let params = [("axes", ints(&[1])), ("epsilon", Param::F32(1e-5))];
        let normed = b.op("RmsNorm", &params, &[x, gamma], &[m, K], Dtype::F32);
        if shown {
            let out = b.output("normed", &[m, K], Dtype::F32);
            b.node("Reshape", &[], &[normed], &[out]);
        }
        let [gate, up] = [0, 1].map(|_| {
            let weights = constant(&mut b, &[N, K], dtype);
            b.op("FullyConnected", &[], &[normed, weights], &[m, N], Dtype::F32)
        });
        let sigmoid = b.op("Sigmoid", &[], &[gate], &[m, N], Dtype::F32);
        let silu = b.op("ElementWiseMultiply", &[], &[gate, sigmoid], &[m, N], Dtype::F32);
        let gated = b.op("ElementWiseMultiply", &[], &[silu, up], &[m, N], Dtype::F32);
        let weights = constant(&mut b, &[40, N], dtype);
        let down = b.op("FullyConnected", &[], &[gated, weights], &[m, 40], Dtype::F32);
        let residual = b.input("residual", &[m, 40], Dtype::F32);
        let out = b.output("out", &[m, 40], Dtype::F32);
        b.node("ElementWiseAdd", &[], &[residual, down], &[out]);
        b
    }

    /// Numbers a row of each value in tiles has.
    fn found(b: &Build, isa: Isa) -> Vec<usize> {
        let net = passes::compile(&b.graph, true, &Arc::default(), &Packages::default()).expect("compiles");
        let found = in_tiles(&net, &units::units(&net, true), Some(isa));
        let columns = |(value, _): (&crate::graph::typed::Value, _)| value.shape.last().copied().unwrap_or(0);
        net.values.iter().zip(found).filter(|(_, in_tiles)| *in_tiles).map(columns).collect()
    }

    #[test]
    fn values_lie_in_tiles_between_layers_of_the_unit_alone() {
        let (k, n) = (K as usize, N as usize);
        for isa in isas().map(with_blocks) {
            let both = if has_matrix_unit(isa) { vec![k, n] } else { vec![] };
            assert_eq!(found(&layers(64, Dtype::F16, false), isa), both, "{}", isa.name());
            let gated = if has_matrix_unit(isa) { vec![n] } else { vec![] };
            assert_eq!(found(&layers(64, Dtype::F16, true), isa), gated, "a norm that is an output, on {}", isa.name());
            assert_eq!(found(&layers(63, Dtype::F16, false), isa), [0; 0], "too few rows, on {}", isa.name());
            assert_eq!(found(&layers(64, Dtype::F32, false), isa), [0; 0], "weights of f32, on {}", isa.name());
        }
    }

    #[test]
    fn results_are_those_of_single_nodes() {
        for (m, shown) in [(64, false), (97, true), (530, false)] {
            let b = layers(m, Dtype::F16, shown);
            let mut noise = Noise(3);
            let inputs: Vec<Vec<u8>> = (b.graph.inputs())
                .map(|id| bytes_of(Dtype::F32, &noise.floats(b.graph.tensor(id).n_elems())))
                .collect();
            // A few roundings to bf16, of 2^-9 each, where there is a unit.
            compare(&b.graph, &inputs, 0.02);
        }
    }
}

//! `silu(x gate) * (x up)`: sigmoid, two products and two linear layers become one pass over `x` and both weights.

use super::{Match, rewrite};
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::scalar::UnaryOp;
use crate::graph::typed::{TypedGraph, ValueId};
use crate::kernels::packed::Packing;

/// Rewrites the last product.
pub(super) fn fuse(net: &mut TypedGraph) {
    rewrite(net, |op| *op == Op::Binary(BinaryOp::Multiply), fused);
}

fn fused(m: &Match<'_>, index: usize) -> Option<(Op, Vec<ValueId>)> {
    for [left, right] in Match::pairs(&m.net.nodes[index], BinaryOp::Multiply)? {
        // (gate * sigmoid(gate)) * up
        if let Some(gate) = m.own_maker(left).and_then(|node| silu_of(m, node, 2))
            && let Some(found) = layers(m, gate, right)
        {
            return Some(found);
        }
        // gate * (sigmoid(gate) * up)
        if let Some(inner) = m.own_maker(right)
            && let Some(pairs) = Match::pairs(inner, BinaryOp::Multiply)
        {
            for [sigmoid, up] in pairs {
                let is_gate = |id: ValueId| m.net.root(id) == m.net.root(left);
                if sigmoid_of(m, sigmoid).is_some_and(is_gate)
                    && m.uses.readers(m.net, left) == 2
                    && let Some(found) = layers(m, left, up)
                {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// The value that a node multiplies with its own sigmoid, read `readers` times in all.
fn silu_of(m: &Match<'_>, node: &crate::graph::typed::Node, readers: u32) -> Option<ValueId> {
    let pairs = Match::pairs(node, BinaryOp::Multiply)?;
    let is_silu = |&[gate, sigmoid]: &[ValueId; 2]| {
        let same = sigmoid_of(m, sigmoid).is_some_and(|of| m.net.root(of) == m.net.root(gate));
        same && m.uses.readers(m.net, gate) == readers
    };
    pairs.into_iter().find(is_silu).map(|[gate, _]| gate)
}

fn sigmoid_of(m: &Match<'_>, id: ValueId) -> Option<ValueId> {
    let node = m.own_maker(id)?;
    (node.op == Op::Unary(UnaryOp::Sigmoid)).then(|| node.inputs[0])
}

/// Both must be linear layers without bias or residual that read the same rows, and both or none joined with minima before, of the
/// same number of columns.
fn layers(m: &Match<'_>, gate: ValueId, up: ValueId) -> Option<(Op, Vec<ValueId>)> {
    let (gate_layer, up_layer) = (m.maker(gate)?, m.own_maker(up)?);
    let (Op::Linear { n, k, bias: false, residual: false }, true) = (&gate_layer.op, gate_layer.op == up_layer.op)
    else {
        return None;
    };
    let (&[x, gate_weights], &[x2, up_weights]) = (gate_layer.inputs.as_slice(), up_layer.inputs.as_slice()) else {
        return None;
    };
    let packed = |id: ValueId| m.net.constant(id).and_then(|weights| weights.packing).map(Packing::by_halves);
    let same = m.net.root(x) == m.net.root(x2)
        && packed(gate_weights) == packed(up_weights)
        && m.net.value(gate).n_elems() == m.net.value(up).n_elems();
    same.then(|| (Op::GatedLinear { n: *n, k: *k }, vec![x, gate_weights, up_weights]))
}

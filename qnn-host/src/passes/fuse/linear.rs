//! Sums into the linear layer that makes one of the operands: bias and residual.

use super::{Match, rewrite};
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::typed::{TypedGraph, ValueId};

/// Rewrites sums whose one side is a linear layer without other readers.
pub(super) fn fuse(net: &mut TypedGraph) {
    rewrite(net, |op| *op == Op::Binary(BinaryOp::Add), fused);
}

fn fused(m: &Match<'_>, index: usize) -> Option<(Op, Vec<ValueId>)> {
    let node = &m.net.nodes[index];
    let n_elems = m.net.value(node.output?).n_elems();
    for [product, other] in Match::pairs(node, BinaryOp::Add)? {
        let Some(maker) = m.own_maker(product) else { continue };
        let Op::Linear { n, k, bias, residual: false } = maker.op else { continue };
        if m.net.value(product).n_elems() != n_elems {
            continue;
        }
        let mut inputs = maker.inputs.clone();
        inputs.push(other);
        // A constant row is a bias, also where the batch is one row: it may be shared and half as wide.
        let is_row = m.net.shape(other).last() == Some(&n) && m.net.value(other).n_elems() == n;
        let last = m.net.shape(product).last() == Some(&n);
        if is_row && last && !bias && m.net.constant(other).is_some() {
            return Some((Op::Linear { n, k, bias: true, residual: false }, inputs));
        }
        let rows = |id: ValueId| m.net.shape(id).iter().copied().filter(|&d| d != 1).collect::<Vec<_>>();
        if rows(other) == rows(product) {
            return Some((Op::Linear { n, k, bias, residual: true }, inputs));
        }
    }
    None
}

//! Weights with a minimum for each block: `x A - sums M`, where `sums` are those of `x` over each 32 columns (or 16), becomes one layer.
//!
//! A layer with weights `A - M`, `M` the same for 32 columns, is written so in QNN, whose encodings have no minima:
//!
//! ```text
//! x [m, k] ---------------------------------------- FullyConnected A [n, k] ------------ ElementWiseSubtract
//!         \- Reshape [m, k / 32, 32] - ReduceSum -- FullyConnected M [n, k / 32] -------/
//! ```
//!
//! Rows of such a table are looked up so, and become one look-up:
//!
//! ```text
//! ids [n] - Gather A [v, k] - Reshape [n, k / 32, 32] - ElementWiseSubtract
//!        \- Gather M [v, k / 32] - Reshape [n, k / 32, 1] -/
//! ```
//!
//! It is joined only where both have a packed form that keeps them bit for bit; else it is computed as written.

use super::fuse::Match;
use super::weights::packed;
use crate::graph::op::Op;
use crate::graph::scalar::{BinaryOp, ReduceOp};
use crate::graph::shared::SharedConstants;
use crate::graph::typed::{Constant, Node, Source, TypedGraph, ValueId};

/// Rewrites the differences.
pub(crate) fn join(net: &mut TypedGraph, shared: &SharedConstants) {
    for index in 0..net.nodes.len() {
        if net.nodes[index].op != Op::Binary(BinaryOp::Subtract) {
            continue;
        }
        let uses = net.uses();
        let m = Match::new(net, &uses);
        let Some(found) = find(&m, index).or_else(|| find_rows(&m, index)) else { continue };
        let (Some(mut weights), Some(minima)) =
            (packed(net, found.inputs[found.slot], shared), packed(net, found.minima, shared))
        else {
            continue;
        };
        let (Source::Const(of_weights), Source::Const(of_minima)) = (&mut weights.source, minima.source) else {
            continue;
        };
        let Some(packing) = of_weights.packing.filter(|packing| packing.minimum_cols() == found.shared) else {
            continue;
        };
        let wanted = packing.minima();
        if wanted.is_none() || of_weights.minima.is_some() || of_minima.packing != wanted {
            continue;
        }
        *of_weights = Constant { minima: Some(of_minima.bytes), ..of_weights.clone() };
        let mut inputs = found.inputs;
        inputs[found.slot] = net.add_value(weights);
        let node = &mut net.nodes[index];
        (node.op, node.inputs) = (found.op, inputs);
    }
}

/// A layer or a look-up, and what is to be taken off its weights.
struct Found {
    op: Op,
    inputs: Vec<ValueId>,
    /// Where its weights are among the inputs.
    slot: usize,
    minima: ValueId,
    /// Columns that share a minimum: as many as the weights' packing wants, or the two are not joined.
    shared: usize,
}

fn find(m: &Match<'_>, index: usize) -> Option<Found> {
    let node = &m.net.nodes[index];
    let &[products, less] = node.inputs.as_slice() else { return None };
    let (layer, less_layer) = (m.own_maker(products)?, m.own_maker(less)?);
    let (&Op::Linear { n, k, residual: false, .. }, &Op::Linear { n: n2, k: blocks, bias: false, residual: false }) =
        (&layer.op, &less_layer.op)
    else {
        return None;
    };
    let shared = k / blocks.max(1);
    if n2 != n || k != blocks * shared || m.net.shape(products) != m.net.shape(less) {
        return None;
    }
    let (x, sums) = (layer.inputs[0], less_layer.inputs[0]);
    let reduce = m.maker(sums)?;
    let Op::Reduce { op: ReduceOp::Sum, axes } = &reduce.op else { return None };
    let of = reduce.inputs[0];
    let shape = m.net.shape(of);
    let by_blocks = shape.ends_with(&[blocks, shared]) && *axes == [shape.len() - 1];
    let same = m.net.root(of) == m.net.root(x) && m.net.value(of).n_elems() == m.net.value(x).n_elems();
    (by_blocks && same).then(|| Found {
        op: layer.op.clone(),
        inputs: layer.inputs.clone(),
        slot: 1,
        minima: less_layer.inputs[1],
        shared,
    })
}

/// Rows of a table, less those of another.
fn find_rows(m: &Match<'_>, index: usize) -> Option<Found> {
    let node = &m.net.nodes[index];
    let &[rows, less] = node.inputs.as_slice() else { return None };
    let (of_rows, of_less) = (m.own_maker(rows)?, m.own_maker(less)?);
    let table = |node: &Node| match (&node.op, node.inputs.as_slice()) {
        (Op::Gather { axis: 0 }, &[table, ids]) => Some((table, m.net.root(ids))),
        _ => None,
    };
    let ((weights, ids), (minima, of_minima)) = (table(of_rows)?, table(of_less)?);
    let (&[v, k], &[v2, blocks]) = (m.net.shape(weights), m.net.shape(minima)) else { return None };
    let n = m.net.value(ids).n_elems();
    let shared = k / blocks.max(1);
    let by_blocks = m.net.shape(rows) == [n, blocks, shared] && m.net.shape(less) == [n, blocks, 1];
    (ids == of_minima && v == v2 && k == blocks * shared && by_blocks).then(|| Found {
        op: of_rows.op.clone(),
        inputs: of_rows.inputs.clone(),
        slot: 0,
        minima,
        shared,
    })
}

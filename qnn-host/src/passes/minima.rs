//! Weights with a minimum for each block: `x A - sums M`, where `sums` are those of `x` over each 32 columns, becomes one layer.
//!
//! A layer with weights `A - M`, `M` the same for 32 columns, is written so in QNN, whose encodings have no minima:
//!
//! ```text
//! x [m, k] ---------------------------------------- FullyConnected A [n, k] ------------ ElementWiseSubtract
//!         \- Reshape [m, k / 32, 32] - ReduceSum -- FullyConnected M [n, k / 32] -------/
//! ```
//!
//! It is joined only where both have a packed form that keeps them bit for bit; else it is computed as written.

use super::fuse::Match;
use super::weights::packed;
use crate::graph::op::Op;
use crate::graph::scalar::{BinaryOp, ReduceOp};
use crate::graph::shared::SharedConstants;
use crate::graph::typed::{Constant, Source, TypedGraph, ValueId};
use crate::kernels::packed::{BLOCK, Packing};

/// Rewrites the differences.
pub(crate) fn join(net: &mut TypedGraph, shared: &SharedConstants) {
    for index in 0..net.nodes.len() {
        if net.nodes[index].op != Op::Binary(BinaryOp::Subtract) {
            continue;
        }
        let uses = net.uses();
        let Some(found) = find(&Match::new(net, &uses), index) else { continue };
        let (Some(mut weights), Some(minima)) =
            (packed(net, found.inputs[1], shared), packed(net, found.minima, shared))
        else {
            continue;
        };
        let (Source::Const(of_weights), Source::Const(of_minima)) = (&mut weights.source, minima.source) else {
            continue;
        };
        let fits = of_weights.packing.is_some_and(Packing::takes_minima);
        if !fits || of_weights.minima.is_some() || of_minima.packing != Some(Packing::MINIMA) {
            continue;
        }
        *of_weights = Constant { minima: Some(of_minima.bytes), ..of_weights.clone() };
        let mut inputs = found.inputs;
        inputs[1] = net.add_value(weights);
        let node = &mut net.nodes[index];
        (node.op, node.inputs) = (found.op, inputs);
    }
}

/// A layer, and what is to be taken off its weights.
struct Found {
    op: Op,
    inputs: Vec<ValueId>,
    minima: ValueId,
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
    if n2 != n || k != blocks * BLOCK || m.net.shape(products) != m.net.shape(less) {
        return None;
    }
    let (x, sums) = (layer.inputs[0], less_layer.inputs[0]);
    let reduce = m.maker(sums)?;
    let Op::Reduce { op: ReduceOp::Sum, axes } = &reduce.op else { return None };
    let of = reduce.inputs[0];
    let shape = m.net.shape(of);
    let by_blocks = shape.ends_with(&[blocks, BLOCK]) && *axes == [shape.len() - 1];
    let same = m.net.root(of) == m.net.root(x) && m.net.value(of).n_elems() == m.net.value(x).n_elems();
    (by_blocks && same).then(|| Found {
        op: layer.op.clone(),
        inputs: layer.inputs.clone(),
        minima: less_layer.inputs[1],
    })
}

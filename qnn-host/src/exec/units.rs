//! What becomes one step: mostly a node; linear layers of the same rows together; a layer with its store.

use super::plan::Access;
use crate::graph::op::Op;
use crate::graph::typed::{Node, TypedGraph, Uses, ValueId};
use crate::graph::weight_format::has_kernel;
use crate::ops::linear::MAX_LAYERS;
use crate::storage::Rounding;

/// What becomes one step.
pub(super) enum Unit {
    /// A node.
    Node(usize),
    /// Linear layers that read the same rows.
    Linears(Vec<usize>),
    /// A value that is rounded where it lies.
    Round(ValueId),
    /// A linear layer and the store that alone reads it.
    LinearStore(usize, usize),
}

/// What becomes a step, in the order of the nodes.
pub(super) fn units(net: &TypedGraph, fast: bool) -> Vec<Unit> {
    let mut grouped = vec![false; net.nodes.len()];
    let mut units = Vec::new();
    let uses = net.uses();
    for (index, node) in net.nodes.iter().enumerate() {
        if std::mem::take(&mut grouped[index]) {
            continue;
        }
        let mut outputs = vec![node.output];
        let peers = if fast { peers(net, index) } else { Vec::new() };
        if let (true, true, Some(store)) = (fast, peers.is_empty(), only_store(net, &uses, index)) {
            grouped[store] = true;
            units.push(Unit::LinearStore(index, store));
        } else if peers.is_empty() {
            units.push(Unit::Node(index));
        } else {
            for &peer in &peers {
                grouped[peer] = true;
                outputs.push(net.nodes[peer].output);
            }
            units.push(Unit::Linears([vec![index], peers].concat()));
        }
        // Steps that fill a value share by share round it themselves.
        let rounded = |id: &ValueId| node.op.is_team() && net.value(net.root(*id)).rounding != Rounding::None;
        units.extend(outputs.into_iter().flatten().filter(rounded).map(Unit::Round));
    }
    units
}

/// The store that is the only reader of a linear layer that the vector kernels take.
fn only_store(net: &TypedGraph, uses: &Uses, index: usize) -> Option<usize> {
    let node = &net.nodes[index];
    let Op::Linear { residual: false, .. } = node.op else { return None };
    let root = net.root(node.output?);
    let taken = net.constant(node.inputs[1]).is_some_and(has_kernel);
    let plain = taken
        && net.value(root).n_elems() > 0
        && net.value(root).rounding == Rounding::None
        && uses.readers(net, root) == 1;
    let stores = |n: &Node| matches!(n.op, Op::Store { .. }) && net.root(n.inputs[0]) == root;
    net.nodes.iter().position(|n| plain && stores(n))
}

/// Later linear layers that the vector kernels take and that need nothing but the same rows.
fn peers(net: &TypedGraph, index: usize) -> Vec<usize> {
    let rows = |node: &Node| match node.op {
        Op::Linear { k, residual: false, .. } => {
            let taken = net.constant(node.inputs[1]).is_some_and(has_kernel)
                && node.inputs[2..].iter().all(|&id| net.constant(id).is_some_and(|c| c.dtype.is_float()));
            taken.then(|| (net.root(node.inputs[0]), k))
        }
        _ => None,
    };
    let Some(wanted) = rows(&net.nodes[index]) else { return Vec::new() };
    let later = net.nodes.iter().enumerate().skip(index + 1);
    later.filter(|(_, node)| rows(node) == Some(wanted)).map(|(i, _)| i).take(MAX_LAYERS - 1).collect()
}

/// What a unit touches.
pub(super) fn access(net: &TypedGraph, unit: &Unit) -> Access {
    let root = |id: &ValueId| net.root(*id).0 as usize;
    let nodes: &[usize] = match unit {
        Unit::Round(id) => return Access { reads: vec![root(id)], writes: vec![root(id)], ..Access::default() },
        Unit::Node(index) => std::slice::from_ref(index),
        Unit::Linears(group) => group,
        Unit::LinearStore(index, _) => {
            let reads = net.nodes[*index].inputs.iter().map(root).collect();
            return Access { reads, exclusive: true, ..Access::default() };
        }
    };
    let nodes = || nodes.iter().map(|&i| &net.nodes[i]);
    Access {
        reads: nodes().flat_map(|n| &n.inputs).map(root).collect(),
        writes: nodes().filter_map(|n| n.output.as_ref()).map(root).collect(),
        overwrites: nodes()
            .flat_map(|n| n.op.updates().into_iter().map(|update| root(&n.inputs[update.operand])))
            .collect(),
        exclusive: nodes().any(|n| n.op.is_team()),
    }
}

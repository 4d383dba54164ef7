//! Updates of a client's input that go to an output become one step each, which may write in place.
//!
//! It takes a scatter that replaces, or a cache update, whose data is an input of the graph and whose only reader is the
//! store into an output of the same type and encoding. Such steps go last: the others have read the input by then.

use crate::graph::op::{Op, UpdatePlaces};
use crate::graph::scalar::ScatterOp;
use crate::graph::typed::{Source, TypedGraph};

/// Replaces pairs of update and store.
pub(crate) fn join(net: &mut TypedGraph) {
    let uses = net.uses();
    let mut taken = vec![false; net.inputs.len()];
    let mut gone = vec![false; net.nodes.len()];
    let mut last = Vec::new();
    // Ops that store by themselves and may update in place.
    for (index, node) in net.nodes.iter().enumerate().filter(|(_, node)| !node.op.updates().is_empty()) {
        gone[index] = true;
        for &id in &node.inputs {
            if let Source::Input(input) = net.value(net.root(id)).source {
                taken[input] = true;
            }
        }
        last.push(node.clone());
    }
    for (index, node) in net.nodes.iter().enumerate() {
        let Op::Store { output } = node.op else { continue };
        let Some(maker) = uses.producer(net, node.inputs[0]).filter(|_| uses.readers(net, node.inputs[0]) == 1) else {
            continue;
        };
        let update = &net.nodes[maker];
        let places = match update.op {
            Op::ScatterNd(ScatterOp::Replace) => UpdatePlaces::Slices,
            Op::ScatterElements { axis, op: ScatterOp::Replace } => UpdatePlaces::Elements { axis },
            Op::KvUpdate { axis } => UpdatePlaces::Rows { axis },
            _ => continue,
        };
        let data = net.root(update.inputs[0]);
        let Source::Input(input) = net.value(data).source else { continue };
        let (from, to) = (&net.inputs[input], &net.outputs[output]);
        let alike = (from.dtype, &from.quant, from.n_elems) == (to.dtype, &to.quant, to.n_elems);
        // One update may write into an input's buffer, and it alone reads the input then.
        let others = update.inputs[1..].iter().any(|&id| net.root(id) == data);
        if !alike || others || std::mem::replace(&mut taken[input], true) {
            continue;
        }
        (gone[index], gone[maker]) = (true, true);
        let mut joined = update.clone();
        (joined.op, joined.output) = (Op::UpdateStore { input, output, places }, None);
        last.push(joined);
    }
    let mut gone = gone.into_iter();
    net.nodes.retain(|_| !gone.next().unwrap_or(false));
    net.nodes.extend(last);
}

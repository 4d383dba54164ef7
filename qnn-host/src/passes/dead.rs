//! Removes nodes whose output no node reads, and which fill no client's buffer.

use crate::graph::typed::TypedGraph;

/// Keeps what stores need.
pub(crate) fn remove(net: &mut TypedGraph) {
    let mut needed = vec![false; net.values.len()];
    let mut keep = vec![false; net.nodes.len()];
    for (index, node) in net.nodes.iter().enumerate().rev() {
        keep[index] = node.op.stores() || node.output.is_none_or(|output| needed[net.root(output).0 as usize]);
        if keep[index] {
            node.inputs.iter().for_each(|&id| needed[net.root(id).0 as usize] = true);
        }
    }
    let mut keep = keep.into_iter();
    net.nodes.retain(|_| keep.next().unwrap_or(true));
}

//! Joins nodes into fused steps. Each file matches one pattern; intermediate values must be unrounded.

mod attention;
mod blocks;
mod linear;
mod quantise_blocks;
mod rms_norm;
mod rope;
mod scatter_cache;
mod swiglu;
mod turns;

use super::dead;
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::scalar::ScatterOp;
use crate::graph::typed::{Node, TypedGraph, Uses, ValueId};
use crate::storage::{Rounding, Storage};

/// All fusions; later ones see what earlier ones made.
pub(crate) fn fuse(net: &mut TypedGraph) {
    let passes =
        [rms_norm::fuse, rope::fuse, attention::fuse, quantise_blocks::fuse, turns::fuse, swiglu::fuse, linear::fuse];
    for pass in passes {
        pass(net);
        dead::remove(net);
    }
}

/// What a node is to become: an operation and its inputs.
type Rewrite = (Op, Vec<ValueId>);

/// Offers each node that `wants` accepts to `find`, in order, and replaces it by what that returns.
fn rewrite(net: &mut TypedGraph, wants: fn(&Op) -> bool, find: fn(&Match<'_>, usize) -> Option<Rewrite>) {
    for index in 0..net.nodes.len() {
        if !wants(&net.nodes[index].op) {
            continue;
        }
        let uses = net.uses();
        if let Some((op, inputs)) = find(&Match::new(net, &uses), index) {
            let node = &mut net.nodes[index];
            (node.op, node.inputs) = (op, inputs);
        }
    }
}

/// Looking backwards through a net, from a value to what computed it.
pub(in crate::passes) struct Match<'n> {
    pub(in crate::passes) net: &'n TypedGraph,
    pub(in crate::passes) uses: &'n Uses,
}

impl<'n> Match<'n> {
    pub(in crate::passes) fn new(net: &'n TypedGraph, uses: &'n Uses) -> Self {
        Self { net, uses }
    }

    /// The node that writes a value, if the value is not rounded after it: fusing it away must not lose that.
    pub(in crate::passes) fn maker(&self, id: ValueId) -> Option<&'n Node> {
        let unrounded = self.net.value(self.net.root(id)).rounding == Rounding::None;
        let index = self.uses.producer(self.net, id)?;
        unrounded.then(|| &self.net.nodes[index])
    }

    /// As [`Match::maker`], of a value that moves others; it may be rounded as they are already.
    pub(in crate::passes) fn mover(&self, id: ValueId) -> Option<&'n Node> {
        let node = &self.net.nodes[self.uses.producer(self.net, id)?];
        let moved = match (&node.op, node.inputs.as_slice()) {
            (Op::Concat { .. }, all) => all.to_vec(),
            (
                Op::ScatterElements { op: ScatterOp::Replace, .. } | Op::ScatterNd(ScatterOp::Replace),
                &[to, _, from],
            ) => {
                vec![to, from]
            }
            _ => return None,
        };
        let root = |id| self.net.value(self.net.root(id));
        let rounding = root(id).rounding;
        (rounding == Rounding::None || moved.into_iter().all(|id| root(id).rounded() == rounding)).then_some(node)
    }

    /// As [`Match::maker`], when no other node reads the value.
    pub(in crate::passes) fn own_maker(&self, id: ValueId) -> Option<&'n Node> {
        self.maker(id).filter(|_| self.uses.readers(self.net, id) == 1)
    }

    /// Operands of a product, sum, ... in both orders.
    pub(in crate::passes) fn pairs(node: &Node, op: BinaryOp) -> Option<[[ValueId; 2]; 2]> {
        match (&node.op, node.inputs.as_slice()) {
            (Op::Binary(found), &[a, b]) if *found == op => Some([[a, b], [b, a]]),
            _ => None,
        }
    }

    /// The number that a constant of one element holds.
    pub(in crate::passes) fn scalar(&self, id: ValueId) -> Option<f32> {
        let constant = self.net.constant(id)?;
        let root = self.net.value(self.net.root(id));
        if root.n_elems() != 1 || root.storage() != Storage::F32 {
            return None;
        }
        let bytes = crate::graph::codec::decode_constant(crate::kernels::Isa::PLAIN, constant, &root.shape);
        bytes.first_chunk().map(|&b| f32::from_ne_bytes(b))
    }
}

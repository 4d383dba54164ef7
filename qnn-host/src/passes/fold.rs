//! Computes, once, what depends on constants only.
//!
//! A transposed matrix keeps its element type (weights of `MatMul` and `Conv2d` become `[out, in]` here); everything else is
//! evaluated by the executor on a net of the foldable nodes alone.

use std::collections::HashSet;

use super::legalize::words_value;
use crate::bytes::Bytes;
use crate::exec::Executable;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::shared::{Derived, SharedConstants};
use crate::graph::typed::{Constant, Node, Port, Source, TypedGraph, Value, ValueId};
use crate::ir::{Dtype, Quant};
use crate::pool::Pool;
use crate::step::Arena;
use crate::storage::{Rounding, Storage};

/// Replaces foldable nodes by constants.
pub(crate) fn fold(net: &mut TypedGraph, shared: &SharedConstants) -> Result<(), ExecError> {
    fold_transposes(net, shared);
    // A linear layer of constants waits for its weights.
    while fold_once(net)? {}
    Ok(())
}

/// Folds what can be; false if nothing can.
fn fold_once(net: &mut TypedGraph) -> Result<bool, ExecError> {
    let mut known: HashSet<ValueId> = HashSet::new();
    let foldable: Vec<bool> = net
        .nodes
        .iter()
        .map(|node| {
            let constant = |&id: &ValueId| net.constant(id).is_some() || known.contains(&net.root(id));
            let ready = !matches!(node.op, Op::Linear { .. }) || net.constant(node.inputs[1]).is_some();
            let pure = !matches!(&node.op, Op::Leaf(leaf) if !leaf.is_pure());
            let fold = ready && pure && node.output.is_some() && node.inputs.iter().all(constant);
            if let (true, Some(output)) = (fold, node.output) {
                known.insert(net.root(output));
            }
            fold
        })
        .collect();
    if known.is_empty() {
        return Ok(false);
    }
    let (folded, kept): (Vec<_>, Vec<_>) = net.nodes.drain(..).zip(foldable).partition(|(_, fold)| *fold);
    net.nodes = kept.into_iter().map(|(node, _)| node).collect();
    let mut wanted: Vec<ValueId> =
        net.nodes.iter().flat_map(|n| &n.inputs).map(|&id| net.root(id)).filter(|id| known.contains(id)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let nodes = folded.into_iter().map(|(node, _)| node).collect();
    for (id, bytes) in wanted.iter().zip(evaluate(net, nodes, &wanted)?) {
        let value = words_value(net.value(*id), bytes);
        net.values[id.0 as usize] = value;
    }
    Ok(true)
}

/// Runs `nodes` alone; the contents of `wanted` as words.
fn evaluate(net: &TypedGraph, mut nodes: Vec<Node>, wanted: &[ValueId]) -> Result<Vec<Bytes>, ExecError> {
    let mut outputs = Vec::new();
    for (output, &id) in wanted.iter().enumerate() {
        let value = net.value(id);
        let dtype = if value.storage() == Storage::F32 { Dtype::F32 } else { Dtype::I32 };
        outputs.push(Port { name: value.name.clone(), n_elems: value.n_elems(), dtype, quant: Quant::None });
        nodes.push(Node { name: value.name.clone(), op: Op::Store { output }, inputs: vec![id], output: None });
    }
    let mut part =
        TypedGraph { name: net.name.clone(), values: net.values.clone(), nodes, inputs: Vec::new(), outputs };
    super::dead::remove(&mut part);
    super::legalize::legalize(&mut part, false, &SharedConstants::default());
    let mut buffers: Vec<Vec<u8>> = wanted.iter().map(|&id| vec![0; 4 * net.value(id).n_elems()]).collect();
    let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    Executable::from_net(part, false)?.run(&Pool::inline(), &mut Arena::new(), &[], &mut slices, None)?;
    Ok(buffers.iter().map(|bytes| Bytes::copy_from(bytes)).collect())
}

/// Turns constant matrices without changing their element type.
fn fold_transposes(net: &mut TypedGraph, shared: &SharedConstants) {
    for index in 0..net.nodes.len() {
        let node = &net.nodes[index];
        let (Op::Transpose { perm }, &[input], Some(output)) = (&node.op, node.inputs.as_slice(), node.output) else {
            continue;
        };
        let (&[rows, cols], [1, 0], Some(constant)) = (net.shape(input), perm.as_slice(), net.constant(input)) else {
            continue;
        };
        if net.value(output).rounding != Rounding::None {
            continue;
        }
        let size = constant.dtype.size_bytes();
        let stored = net.shape(net.root(input));
        let quant = match constant.quant.clone() {
            // A scale for each column becomes one for each row.
            Quant::PerAxis { axis, bits, scales, offsets }
                if axis as usize + 1 == stored.len() && scales.len() == cols && net.shape(output) == [cols, rows] =>
            {
                Quant::PerAxis { axis: 0, bits, scales, offsets }
            }
            quant @ (Quant::None | Quant::PerTensor { .. }) => quant,
            _ => continue,
        };
        if constant.bytes.len() != rows * cols * size {
            continue;
        }
        let turned = shared.get(constant, &[rows, cols], Derived::Transposed, || {
            Bytes::copy_from(&transposed(&constant.bytes, rows, cols, size))
        });
        let source = Source::Const(Constant::new(turned, constant.dtype, quant));
        let value = Value { source, ..net.value(output).clone() };
        net.values[output.0 as usize] = value;
    }
    let TypedGraph { values, nodes, .. } = net;
    nodes.retain(|n| n.output.is_none_or(|id| !matches!(values[id.0 as usize].source, Source::Const(_))));
}

/// A `rows x cols` matrix of elements of `size` bytes, transposed, in square tiles for the cache's sake.
fn transposed(bytes: &[u8], rows: usize, cols: usize, size: usize) -> Vec<u8> {
    const TILE: usize = 32;
    let mut out = vec![0; bytes.len()];
    for row0 in (0..rows).step_by(TILE) {
        for col0 in (0..cols).step_by(TILE) {
            for row in row0..(row0 + TILE).min(rows) {
                for col in col0..(col0 + TILE).min(cols) {
                    let (from, to) = ((row * cols + col) * size, (col * rows + row) * size);
                    out[to..to + size].copy_from_slice(&bytes[from..from + size]);
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_turn() {
        let bytes: Vec<u8> = (0..24).collect();
        let turned = transposed(&bytes, 3, 4, 2);
        assert_eq!(turned[..6], [0, 1, 8, 9, 16, 17]);
        assert_eq!(transposed(&turned, 4, 3, 2), bytes);
    }
}

//! Transpositions between "all heads of a row" and "all rows of a head": moved and absorbed where a step can stride.
//!
//! `[1, rows, heads, dim]` is what linear layers write and read, `[1, heads, rows, dim]` what products of matrices take. The
//! rotation works on either, attention reads queries and writes results at any stride, so both transpositions go.

use super::Match;
use crate::graph::op::Op;
use crate::graph::typed::{Node, TypedGraph, ValueId};
use crate::storage::Rounding;

/// The transposition in question.
const SWAP: [usize; 4] = [0, 2, 1, 3];

/// Moves swaps behind rotations, joins transpositions, then absorbs what is left into attention.
pub(super) fn fuse(net: &mut TypedGraph) {
    let mut index = 0;
    while index < net.nodes.len() {
        let op = &net.nodes[index].op;
        let (is_rope, is_transpose) = (matches!(op, Op::Rope { .. }), matches!(op, Op::Transpose { .. }));
        if is_rope && behind_rotation(net, index) {
            // The rotation now stands here, its swap behind it.
            index += 1;
        } else if is_transpose {
            joined(net, index);
        }
        index += 1;
    }
    for index in 0..net.nodes.len() {
        match net.nodes[index].op {
            Op::Attention(_) => absorb_queries(net, index),
            Op::Transpose { .. } => absorb_result(net, index),
            _ => {}
        }
    }
}

/// What a swap of heads and rows swaps, if the value has no other reader.
fn swapped(m: &Match<'_>, id: ValueId) -> Option<ValueId> {
    let node = m.own_maker(id)?;
    let Op::Transpose { perm } = &node.op else { return None };
    let plain = *perm == SWAP && m.net.shape(node.inputs[0]).first() == Some(&1);
    plain.then(|| node.inputs[0])
}

/// `rope(swap(x))` becomes `swap(rope(x))`.
fn behind_rotation(net: &mut TypedGraph, index: usize) -> bool {
    let uses = net.uses();
    let m = Match::new(net, &uses);
    let node = &net.nodes[index];
    let Op::Rope { interleaved, rotated, by_row: false } = node.op else { return false };
    let [x, cos, sin] = node.inputs[..] else { return false };
    let Some(&[1, heads, rows, dim]) = net.shape(x).first_chunk::<4>() else { return false };
    let Some(before) = swapped(&m, x) else { return false };
    let one_table = net.value(cos).n_elems() * 2 == rows * rotated;
    if net.shape(x).len() != 4 || !one_table || rows <= 1 || net.shape(before) != [1, rows, heads, dim] {
        return false;
    }
    let name = node.name.clone();
    let kind = net.value(x).storage();
    let turned = net.add_temp(&name, &[1, rows, heads, dim], kind);
    let op = Op::Rope { interleaved, rotated, by_row: true };
    let rope = Node { name, op, inputs: vec![before, cos, sin], output: Some(turned) };
    let node = &mut net.nodes[index];
    (node.op, node.inputs) = (Op::Transpose { perm: SWAP.to_vec() }, vec![turned]);
    net.nodes.insert(index, rope);
    true
}

/// Two transpositions in a row become one.
fn joined(net: &mut TypedGraph, index: usize) {
    let uses = net.uses();
    let m = Match::new(net, &uses);
    let Op::Transpose { perm: outer } = &net.nodes[index].op else { return };
    let input = net.nodes[index].inputs[0];
    let Some(maker) = m.own_maker(input) else { return };
    let Op::Transpose { perm: inner } = &maker.op else { return };
    let (shape, from) = (net.shape(input), maker.inputs[0]);
    let made: Vec<usize> = inner.iter().map(|&a| net.shape(from)[a]).collect();
    if shape != made {
        return;
    }
    let perm = outer.iter().map(|&a| inner[a]).collect();
    let node = &mut net.nodes[index];
    (node.op, node.inputs) = (Op::Transpose { perm }, vec![from]);
}

/// Attention to swapped queries reads them unswapped.
fn absorb_queries(net: &mut TypedGraph, index: usize) {
    let uses = net.uses();
    let m = Match::new(net, &uses);
    let Op::Attention(op) = net.nodes[index].op else { return };
    if op.q_by_row || op.keys_by_row {
        return;
    }
    let q = net.nodes[index].inputs[0];
    let Some(before) = swapped(&m, q) else { return };
    if net.shape(before) == [1, op.rows, op.kv_heads * op.group, op.head_dim]
        && let Op::Attention(op) = &mut net.nodes[index].op
    {
        op.q_by_row = true;
        net.nodes[index].inputs[0] = before;
    }
}

/// A swap of attention's result: attention writes it swapped.
fn absorb_result(net: &mut TypedGraph, index: usize) {
    let uses = net.uses();
    let m = Match::new(net, &uses);
    let node = &net.nodes[index];
    let (Op::Transpose { perm }, Some(output)) = (&node.op, node.output) else { return };
    let shape = net.shape(node.inputs[0]);
    let Some(maker) = m.own_maker(node.inputs[0]) else { return };
    let Op::Attention(mut op) = maker.op else { return };
    let fits = *perm == SWAP && shape == [1, op.kv_heads * op.group, op.rows, op.head_dim];
    if !fits || op.out_by_row || op.keys_by_row || net.value(output).rounding != Rounding::None {
        return;
    }
    op.out_by_row = true;
    let (name, inputs) = (maker.name.clone(), maker.inputs.clone());
    let node = &mut net.nodes[index];
    (node.name, node.op, node.inputs) = (name, Op::Attention(op), inputs);
}

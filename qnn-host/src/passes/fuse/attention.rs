//! `softmax(q K + mask) V` as one step that reads past and new keys and values where they are.
//!
//! A past that is dequantised from blocks of 8-bit numbers with scales is read as those, where keys lie by row ([`blocks`]).
//!
//! Three forms of K and V: past and new concatenated along the sequence, new scattered into the past (neither is
//! materialised then), or any one value, taken as new without a past: the full-context form, and what other graphs do.

use std::collections::HashMap;

use super::scatter_cache::{self, Scattered, scattered};
use super::{Match, blocks};
use crate::graph::op::{AttentionOp, Op};
use crate::graph::scalar::BinaryOp;
use crate::graph::typed::{Node, TypedGraph, ValueId};
use crate::kernels::attention::MAX_DIM;
use crate::passes::symbol::Symbols;
use crate::storage::Storage;

/// Rewrites the product with V.
pub(super) fn fuse(net: &mut TypedGraph) {
    let (mut symbols, mut masks) = (Symbols::default(), HashMap::new());
    let mut index = 0;
    while index < net.nodes.len() {
        if matches!(net.nodes[index].op, Op::MatMul { .. }) {
            let uses = net.uses();
            if let Some(found) = fused(&Match::new(net, &uses), &mut symbols, index) {
                index += rewrite(net, &mut masks, index, found);
            }
        }
        index += 1;
    }
}

struct Found {
    op: AttentionOp,
    inputs: Vec<ValueId>,
    /// The keys, if past and new come from scattered ones; then the last input is the mask over the past.
    scattered: Option<Scattered>,
}

/// Makes the node an attention; yields how many nodes were put before it.
fn rewrite(net: &mut TypedGraph, masks: &mut scatter_cache::Masks, index: usize, found: Found) -> usize {
    let Found { mut op, mut inputs, scattered } = found;
    let mut before = Vec::new();
    if op.keys_by_row && op.past == 0 {
        // All keys are at hand: turned once, they suit the vector kernel.
        let name = net.nodes[index].name.clone();
        let by_row = net.add_view(inputs[1], &[op.kv_heads, op.new, op.head_dim]);
        inputs[1] = net.add_temp(&name, &[op.kv_heads, op.head_dim, op.new], Storage::F32);
        let turn = Op::Transpose { perm: vec![0, 2, 1] };
        before.push(Node { name, op: turn, inputs: vec![by_row], output: Some(inputs[1]) });
        op.keys_by_row = false;
    }
    if let (Some(scattered), Some(mask)) = (scattered, inputs.last_mut()) {
        let name = net.nodes[index].name.clone();
        let (made, nodes) = scatter_cache::mask(net, masks, &name, *mask, op.rows, &scattered);
        *mask = made;
        before.extend(nodes);
    }
    let node = &mut net.nodes[index];
    (node.op, node.inputs) = (Op::Attention(op), inputs);
    let n = before.len();
    net.nodes.splice(index..index, before);
    n
}

fn fused(m: &Match<'_>, symbols: &mut Symbols, index: usize) -> Option<Found> {
    let node = &m.net.nodes[index];
    let (Op::MatMul { transpose_a: false, transpose_b: false, bias: false }, &[p, v]) =
        (&node.op, node.inputs.as_slice())
    else {
        return None;
    };
    let softmax = m.own_maker(p)?;
    let rank = m.net.shape(softmax.inputs[0]).len();
    if softmax.op != (Op::Softmax { axis: rank - 1, beta: 1.0, log: false }) {
        return None;
    }
    let scores = softmax.inputs[0];
    let (product, scale, mask) = product_and_mask(m, scores)?;
    let maker = m.own_maker(product)?;
    let (Op::MatMul { transpose_a: false, transpose_b: keys_by_row, bias: false }, &[q, k]) =
        (&maker.op, maker.inputs.as_slice())
    else {
        return None;
    };
    // All of them are the same scores; extents of one aside.
    let shape = m.net.shape(maker.output?);
    let same = [product, scores, softmax.output?, p].iter().all(|&id| trimmed(m.net.shape(id)) == trimmed(shape));
    let (batch, &[rows, columns]) = shape.split_last_chunk::<2>()?;
    let (kv_heads, group) = grouping(m, k, batch)?;
    let head_dim = *m.net.shape(q).last()?;
    let out = m.net.shape(node.output?);
    let (v_batch, &[_, v_dim]) = m.net.shape(p).split_last_chunk::<2>()?;
    let same_v = grouping(m, v, v_batch)? == (kv_heads, group) && m.net.shape(v).last() == Some(&head_dim);
    let whole = m.net.value(q).n_elems() == kv_heads * group * rows * head_dim
        && out.iter().product::<usize>() == m.net.value(q).n_elems()
        && v_dim == columns;
    if !(same && same_v && whole) || out.contains(&0) || columns == 0 {
        return None;
    }
    let key_axis = if *keys_by_row { 2 } else { 1 };
    let parts = match (concatenated(m, k, key_axis), concatenated(m, v, 2)) {
        (Some((past_k, new_k, n)), Some((past_v, new_v, n_v))) if n == n_v => {
            Some((vec![past_k, past_v, new_k, new_v], n))
        }
        _ => None,
    };
    let (mut scattered_keys, mut new) = (None, columns);
    let (rest, past) = match parts {
        Some((rest, past)) => {
            new = columns - past;
            (rest, past)
        }
        None => match (mask, scattered(m, symbols, k, key_axis), scattered(m, symbols, v, 2)) {
            (Some(_), Some(ks), Some(vs)) if ks.columns == vs.columns && ks.past_len == columns => {
                let rest = vec![ks.past, vs.past, ks.new, vs.new];
                new = ks.new_len;
                scattered_keys = Some(ks);
                (rest, columns)
            }
            _ => (vec![k, v], 0),
        },
    };
    let (rest, past_scales) = match *rest.as_slice() {
        [past_k, past_v, new_k, new_v] if *keys_by_row && head_dim <= MAX_DIM && scattered_keys.is_none() => {
            match (blocks::of(m, past_k, head_dim), blocks::of(m, past_v, head_dim)) {
                (Some(k), Some(v)) => (vec![k.numbers, v.numbers, k.scales, v.scales, new_k, new_v], true),
                _ => (rest, false),
            }
        }
        _ => (rest, false),
    };
    let inputs = [vec![q], rest, mask.into_iter().collect()].concat();
    if let Some(mask) = mask {
        let shape = m.net.shape(mask);
        let (leading, &[r, c]) = shape.split_last_chunk::<2>()?;
        if leading.iter().any(|&d| d != 1) || (r, c) != (rows, columns) {
            return None;
        }
    }
    let op = AttentionOp {
        kv_heads,
        group,
        rows,
        head_dim,
        past,
        new,
        scale,
        keys_by_row: *keys_by_row,
        past_scales,
        mask: mask.is_some(),
        q_by_row: false,
        out_by_row: false,
    };
    Some(Found { op, inputs, scattered: scattered_keys })
}

/// The product of queries and keys, what it is multiplied by, and what is added to that.
fn product_and_mask(m: &Match<'_>, scores: ValueId) -> Option<(ValueId, f32, Option<ValueId>)> {
    let maker = m.own_maker(scores)?;
    match Match::pairs(maker, BinaryOp::Add) {
        Some(pairs) => pairs.into_iter().find_map(|[product, mask]| {
            let (product, scale) = scaled(m, product)?;
            Some((product, scale, Some(mask)))
        }),
        None => scaled(m, scores).map(|(product, scale)| (product, scale, None)),
    }
}

/// The product of matrices that a value is a multiple of.
fn scaled(m: &Match<'_>, id: ValueId) -> Option<(ValueId, f32)> {
    let maker = m.own_maker(id)?;
    let is_product = |id: ValueId| m.own_maker(id).is_some_and(|node| matches!(node.op, Op::MatMul { .. }));
    match (&maker.op, maker.inputs.as_slice()) {
        (Op::MatMul { .. }, _) => Some((id, 1.0)),
        (Op::Binary(BinaryOp::Divide), &[product, by]) if is_product(product) => Some((product, 1.0 / m.scalar(by)?)),
        (Op::Binary(BinaryOp::Multiply), &[a, b]) => {
            let (product, by) = if is_product(a) { (a, b) } else { (b, a) };
            is_product(product).then_some((product, m.scalar(by)?))
        }
        _ => None,
    }
}

fn trimmed(shape: &[usize]) -> &[usize] {
    let ones = shape.iter().take_while(|&&d| d == 1).count();
    &shape[ones..]
}

/// How many heads K or V has, and how many of the scores' heads share each: leading extents must be equal up to a point
/// and one from there on.
fn grouping(m: &Match<'_>, id: ValueId, batch: &[usize]) -> Option<(usize, usize)> {
    let (own, _) = m.net.shape(id).split_last_chunk::<2>()?;
    let padded: Vec<usize> =
        std::iter::repeat_n(1, batch.len().checked_sub(own.len())?).chain(own.iter().copied()).collect();
    let shared = padded.iter().zip(batch).take_while(|(a, b)| a == b).count();
    let heads: usize = batch[..shared].iter().product();
    let group: usize = batch[shared..].iter().product();
    padded[shared..].iter().all(|&d| d == 1).then_some((heads, group))
}

/// Past and new, and the length of the past, if a value is their concatenation along that axis (counted from the end).
fn concatenated(m: &Match<'_>, id: ValueId, axis_from_end: usize) -> Option<(ValueId, ValueId, usize)> {
    let node = m.mover(id)?;
    let (Op::Concat { axis }, &[past, new]) = (&node.op, node.inputs.as_slice()) else { return None };
    let shape = m.net.shape(node.output?);
    let same_rows = shape.last_chunk::<2>() == m.net.shape(id).last_chunk::<2>();
    if axis + axis_from_end != shape.len() || !same_rows {
        return None;
    }
    let n = *m.net.shape(past).get(*axis)?;
    (n > 0 && m.net.shape(new)[*axis] > 0).then_some((past, new, n))
}

//! `softmax(q K + mask) V` as one step that reads past and new keys and values where they are.
//!
//! Three forms of K and V: past and new concatenated along the sequence (never materialised then), or any one value, taken
//! as new without a past: the full-context form, and what other graphs do.

use super::Match;
use crate::exec::ops::BinaryOp;
use crate::passes::net::{Net, Node, ValueId};
use crate::passes::op::{AttentionOp, Op};

/// Rewrites the product with V.
pub(super) fn fuse(net: &mut Net) {
    for index in 0..net.nodes.len() {
        if !matches!(net.nodes[index].op, Op::MatMul { .. }) {
            continue;
        }
        let uses = net.uses();
        let Some((op, inputs)) = fused(&Match::new(net, &uses), index) else { continue };
        let node = &mut net.nodes[index];
        (node.op, node.inputs) = (Op::Attention(op), inputs);
    }
}

fn fused(m: &Match<'_>, index: usize) -> Option<(AttentionOp, Vec<ValueId>)> {
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
    if !(same && same_v && whole) || head_dim == 0 || columns == 0 {
        return None;
    }
    let split = |id, axis_from_end| concatenated(m, id, axis_from_end);
    let (past, new_k, new_v) = match (split(k, if *keys_by_row { 2 } else { 1 }), split(v, 2)) {
        (Some((past_k, new_k, n)), Some((past_v, new_v, n_v))) if n == n_v => (Some((past_k, past_v, n)), new_k, new_v),
        _ => (None, k, v),
    };
    let mut inputs = vec![q];
    let past_len = past.map_or(0, |(_, _, n)| n);
    if let Some((past_k, past_v, _)) = past {
        inputs.extend([past_k, past_v]);
    }
    inputs.extend([new_k, new_v]);
    inputs.extend(mask);
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
        past: past_len,
        new: columns - past_len,
        scale,
        keys_by_row: *keys_by_row,
        mask: mask.is_some(),
        q_by_row: false,
        out_by_row: false,
    };
    Some((op, inputs))
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
    let node: &Node = m.maker(id)?;
    let (Op::Concat { axis }, &[past, new]) = (&node.op, node.inputs.as_slice()) else { return None };
    let shape = m.net.shape(node.output?);
    if axis + axis_from_end != shape.len() || trimmed(shape) != trimmed(m.net.shape(id)) {
        return None;
    }
    let n = *m.net.shape(past).get(*axis)?;
    (n > 0 && m.net.shape(new)[*axis] > 0).then_some((past, new, n))
}

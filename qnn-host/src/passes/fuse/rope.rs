//! Rotation of positions written out: `concat(x1 cos - x2 sin, x2 cos + x1 sin)`, with `x1, x2` the halves of the last axis.

use super::{Match, rewrite};
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::typed::{TypedGraph, ValueId};

/// Rewrites the concatenation of the rotated halves.
pub(super) fn fuse(net: &mut TypedGraph) {
    rewrite(net, |op| matches!(op, Op::Concat { .. }), fused);
}

fn fused(m: &Match<'_>, index: usize) -> Option<(Op, Vec<ValueId>)> {
    let node = &m.net.nodes[index];
    let (Op::Concat { axis }, &[first, second]) = (&node.op, node.inputs.as_slice()) else { return None };
    let (left, right) = (m.maker(first)?, m.maker(second)?);
    let (Op::Binary(BinaryOp::Subtract), &[x1_cos, x2_sin]) = (&left.op, left.inputs.as_slice()) else { return None };
    let products = |id: ValueId| Match::pairs(m.maker(id)?, BinaryOp::Multiply);
    let same = |a: ValueId, b: ValueId| m.net.root(a) == m.net.root(b) && m.net.shape(a) == m.net.shape(b);
    for [x1, cos] in products(x1_cos)? {
        for [x2, sin] in products(x2_sin)? {
            for [x2_cos, x1_sin] in Match::pairs(right, BinaryOp::Add)? {
                let fits = |id: ValueId, x: ValueId, table: ValueId| {
                    products(id).is_some_and(|p| p.into_iter().any(|[a, b]| same(a, x) && same(b, table)))
                };
                if fits(x2_cos, x2, cos) && fits(x1_sin, x1, sin) {
                    let found =
                        halves(m, x1, x2, *axis).filter(|&(x, _)| fits_tables(m, x, cos, sin)).map(|(x, rotated)| {
                            (Op::Rope { interleaved: false, rotated, by_row: false }, vec![x, cos, sin])
                        });
                    if found.is_some() {
                        return found;
                    }
                }
            }
        }
    }
    None
}

/// The value whose last axis `x1` and `x2` halve.
fn halves(m: &Match<'_>, x1: ValueId, x2: ValueId, axis: usize) -> Option<(ValueId, usize)> {
    let (a, b) = (m.maker(x1)?, m.maker(x2)?);
    let part = |node: &crate::graph::typed::Node| match &node.op {
        Op::Slice { begin, stride, counts } if stride.iter().all(|&s| s == 1) => Some((begin.clone(), counts.clone())),
        _ => None,
    };
    let ((begin_a, counts_a), (begin_b, counts_b)) = (part(a)?, part(b)?);
    let (x, other) = (a.inputs[0], b.inputs[0]);
    let shape = m.net.shape(x);
    let (&dim, half) = (shape.last()?, *counts_a.last()?);
    let mut halved = shape.to_vec();
    *halved.last_mut()? = half;
    let mut second = vec![0; shape.len()];
    *second.last_mut()? = half;
    let fits = m.net.root(x) == m.net.root(other)
        && shape == m.net.shape(other)
        && axis + 1 == shape.len()
        && dim == 2 * half
        && counts_a == halved
        && counts_b == halved
        && begin_a.iter().all(|&b| b == 0)
        && begin_b == second;
    fits.then_some((x, dim))
}

/// One table for all: `[1.., rows, half]`.
fn fits_tables(m: &Match<'_>, x: ValueId, cos: ValueId, sin: ValueId) -> bool {
    let Some((_, &[rows, dim])) = m.net.shape(x).split_last_chunk::<2>() else { return false };
    [cos, sin].into_iter().all(|table| {
        let shape = m.net.shape(table);
        shape.iter().product::<usize>() == rows * dim / 2
            && shape.last() == Some(&(dim / 2))
            && (rows == 1 || shape.len() >= 2 && shape[shape.len() - 2] == rows)
    })
}

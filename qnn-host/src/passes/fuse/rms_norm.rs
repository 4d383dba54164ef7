//! RMS normalisation written out: `x * rsqrt(mean(x * x) + epsilon)`, then perhaps `* gamma`.

use super::{Match, rewrite};
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::scalar::ReduceOp;
use crate::graph::scalar::UnaryOp;
use crate::graph::typed::{TypedGraph, ValueId};

/// Rewrites the product with the root, then the product with gamma.
pub(super) fn fuse(net: &mut TypedGraph) {
    rewrite(
        net,
        |op| matches!(op, Op::Binary(BinaryOp::Multiply | BinaryOp::Divide)),
        |m, index| plain(m, index).or_else(|| with_gamma(m, index)),
    );
}

fn plain(m: &Match<'_>, index: usize) -> Option<(Op, Vec<ValueId>)> {
    let node = &m.net.nodes[index];
    if let Some(pairs) = Match::pairs(node, BinaryOp::Multiply) {
        return pairs.into_iter().find_map(|[x, root]| {
            let maker = m.maker(root)?;
            match maker.op {
                Op::Unary(UnaryOp::Rsqrt) => whole(m, x, maker.inputs[0]),
                Op::Unary(UnaryOp::Reciprocal) => whole(m, x, square_root_of(m, maker.inputs[0])?),
                Op::Binary(BinaryOp::Divide) if m.scalar(maker.inputs[0]) == Some(1.0) => {
                    whole(m, x, square_root_of(m, maker.inputs[1])?)
                }
                _ => None,
            }
        });
    }
    match (&node.op, node.inputs.as_slice()) {
        (Op::Binary(BinaryOp::Divide), &[x, root]) => whole(m, x, square_root_of(m, root)?),
        _ => None,
    }
}

fn square_root_of(m: &Match<'_>, id: ValueId) -> Option<ValueId> {
    let node = m.maker(id)?;
    (node.op == Op::Unary(UnaryOp::Sqrt)).then(|| node.inputs[0])
}

/// `sum` must be `mean(x * x) + epsilon` over the last axis.
fn whole(m: &Match<'_>, x: ValueId, sum: ValueId) -> Option<(Op, Vec<ValueId>)> {
    let node = m.maker(sum)?;
    for [mean, epsilon] in Match::pairs(node, BinaryOp::Add)? {
        let Some(epsilon) = m.scalar(epsilon) else { continue };
        let Some(mean) = m.maker(mean) else { continue };
        let Op::Reduce { op: ReduceOp::Mean, ref axes } = mean.op else { continue };
        let Some(square) = m.maker(mean.inputs[0]) else { continue };
        let (is_square, of) = match (&square.op, square.inputs.as_slice()) {
            (Op::Binary(BinaryOp::Multiply), &[a, b]) => (m.net.root(a) == m.net.root(b), a),
            (Op::Binary(BinaryOp::Power), &[a, b]) => (m.scalar(b) == Some(2.0), a),
            _ => continue,
        };
        let shape = m.net.shape(of);
        let same = m.net.root(of) == m.net.root(x) && m.net.shape(x) == shape;
        // The sum has one element a row, in front of or instead of the last axis.
        let kept = m.net.shape(sum).len() == shape.len() && m.net.shape(sum).last() == Some(&1);
        if is_square && same && kept && *axes == [shape.len() - 1] {
            return Some((Op::RmsNorm { epsilon, gamma: false, beta: false }, vec![x]));
        }
    }
    None
}

fn with_gamma(m: &Match<'_>, index: usize) -> Option<(Op, Vec<ValueId>)> {
    for [norm, gamma] in Match::pairs(&m.net.nodes[index], BinaryOp::Multiply)? {
        let Some(maker) = m.own_maker(norm) else { continue };
        let Op::RmsNorm { epsilon, gamma: false, beta: false } = maker.op else { continue };
        let shape = m.net.shape(norm);
        let last = *shape.last()?;
        let is_row = m.net.shape(gamma).last() == Some(&last) && m.net.value(gamma).n_elems() == last;
        if is_row && m.net.shape(norm) == m.net.shape(maker.inputs[0]) {
            return Some((Op::RmsNorm { epsilon, gamma: true, beta: false }, vec![maker.inputs[0], gamma]));
        }
    }
    None
}

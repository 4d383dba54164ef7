//! New cache rows that a graph puts into blocks, written out:
//!
//! ```text
//! x [.., 32] ─ Abs ─ ReduceMax ─ / divisor ─ Maximum least ─ to float16 = scales [.., 1] ─► output
//!            └── / scales ─ to 8 bits = numbers ──────────────────────────────────────────► output
//!                                       └─ * scales = rows, where they are read
//! ```
//!
//! They become one step, which fills both outputs and the rows. No other node may read what lies between: it is never written.

use super::Match;
use crate::graph::op::{Op, QuantiseBlocksOp};
use crate::graph::scalar::{BinaryOp, ReduceOp, UnaryOp};
use crate::graph::typed::{Node, TypedGraph, ValueId};
use crate::ir::Dtype;
use crate::kernels::BlockRule;
use crate::kernels::attention::BLOCK;
use crate::storage::{QuantGrid, Rounding, Storage};

/// Replaces the product, or the store of the numbers where there is none; the stores go, and what no node reads any more.
pub(super) fn fuse(net: &mut TypedGraph) {
    let mut gone = vec![false; net.nodes.len()];
    for index in 0..net.nodes.len() {
        if quantised(net, &net.nodes[index]).is_none() {
            continue;
        }
        let uses = net.uses();
        let Some(Found { x, op, stores, product }) = found(&Match::new(net, &uses), index) else { continue };
        stores.iter().for_each(|&store| gone[store] = true);
        let last = product.unwrap_or(stores[0]);
        gone[last] = false;
        let node = &mut net.nodes[last];
        (node.op, node.inputs) = (Op::QuantiseBlocks(op), vec![x]);
    }
    let mut gone = gone.into_iter();
    net.nodes.retain(|_| !gone.next().unwrap_or(false));
}

struct Found {
    x: ValueId,
    op: QuantiseBlocksOp,
    /// Nodes that store numbers and scales.
    stores: [usize; 2],
    /// The node that multiplies them.
    product: Option<usize>,
}

/// Operands and grid of a quotient that is rounded to whole numbers of 8 bits.
fn quantised(net: &TypedGraph, node: &Node) -> Option<(ValueId, ValueId, QuantGrid)> {
    let (Op::Binary(BinaryOp::Divide), &[x, scales], Some(whole)) = (&node.op, node.inputs.as_slice(), node.output)
    else {
        return None;
    };
    match net.value(net.root(whole)).rounding {
        Rounding::Quantised(grid @ QuantGrid { scale: 1.0, offset: -255..=0, min: 0, max: 255 }) => {
            Some((x, scales, grid))
        }
        _ => None,
    }
}

fn found(m: &Match<'_>, index: usize) -> Option<Found> {
    let node = &m.net.nodes[index];
    let (x, scales, grid) = quantised(m.net, node)?;
    let whole = node.output?;
    if m.net.value(m.net.root(x)).storage() != Storage::F32 || !by_block(m, x, scales) {
        return None;
    }
    let (store, product) = match *readers(m, whole).as_slice() {
        [store] => (store, None),
        [a, b] if is_store(m, a) => (a, Some(b)),
        [a, b] => (b, Some(a)),
        _ => return None,
    };
    let of_scales: Vec<usize> =
        readers(m, scales).into_iter().filter(|&reader| reader != index && Some(reader) != product).collect();
    let &[scales_store] = of_scales.as_slice() else { return None };
    if m.uses.readers(m.net, scales) != 2 + u32::from(product.is_some()) {
        return None;
    }
    let numbers = stored(m, store, Dtype::UFixed8, Some(grid))?;
    let rule = BlockRule { offset: grid.offset, ..rule(m, x, scales)? };
    let op = QuantiseBlocksOp { numbers, scales: stored(m, scales_store, Dtype::F16, None)?, rule };
    let fits = product.is_none_or(|product| is_product(m, product, whole, scales));
    fits.then_some(Found { x, op, stores: [store, scales_store], product })
}

/// Nodes that read a value, once for each operand that is it.
fn readers(m: &Match<'_>, id: ValueId) -> Vec<usize> {
    let root = m.net.root(id);
    let reads = |node: &Node| node.inputs.iter().filter(|&&id| m.net.root(id) == root).count();
    m.net.nodes.iter().enumerate().flat_map(|(i, node)| std::iter::repeat_n(i, reads(node))).collect()
}

fn is_store(m: &Match<'_>, index: usize) -> bool {
    matches!(m.net.nodes[index].op, Op::Store { .. })
}

/// The output that a node stores, if it is of that type and grid.
fn stored(m: &Match<'_>, index: usize, dtype: Dtype, grid: Option<QuantGrid>) -> Option<usize> {
    let Op::Store { output } = m.net.nodes[index].op else { return None };
    let port = &m.net.outputs[output];
    (port.dtype == dtype && QuantGrid::of(port.dtype, &port.quant) == grid).then_some(output)
}

/// Numbers `[.., 32]` and one for each of these blocks, `[.., 1]`.
fn by_block(m: &Match<'_>, numbers: ValueId, scales: ValueId) -> bool {
    match (m.net.shape(numbers).split_last(), m.net.shape(scales).split_last()) {
        (Some((&BLOCK, blocks)), Some((1, others))) => blocks == others,
        _ => false,
    }
}

/// Divisor and least scale, if these are the scales of the blocks of `x`, rounded to `float16`.
fn rule(m: &Match<'_>, x: ValueId, scales: ValueId) -> Option<BlockRule> {
    let n_blocks = m.net.value(x).n_elems() / BLOCK;
    let one_each = |id: ValueId| m.net.value(id).n_elems() == n_blocks;
    let rounded = m.net.value(m.net.root(scales)).rounding == Rounding::F16;
    let node = &m.net.nodes[m.uses.producer(m.net, scales).filter(|_| rounded)?];
    let maximum = if node.op == Op::Copy { m.own_maker(node.inputs[0])? } else { node };
    Match::pairs(maximum, BinaryOp::Maximum)?.into_iter().find_map(|[exact, least]| {
        let least = m.scalar(least)?;
        let quotient = m.own_maker(exact)?;
        let (Op::Binary(BinaryOp::Divide), &[largest, divisor]) = (&quotient.op, quotient.inputs.as_slice()) else {
            return None;
        };
        let divisor = m.scalar(divisor)?;
        let positive = [least, divisor].iter().all(|x| x.is_finite() && *x > 0.0);
        let fits = positive && one_each(exact) && one_each(largest) && is_largest(m, largest, x);
        fits.then_some(BlockRule { divisor, least, offset: 0 })
    })
}

/// Whether a value is the largest size of each block of `x`.
fn is_largest(m: &Match<'_>, largest: ValueId, x: ValueId) -> bool {
    let found = || {
        let reduce = m.own_maker(largest)?;
        let Op::Reduce { op: ReduceOp::Max, axes } = &reduce.op else { return None };
        let sizes = reduce.inputs[0];
        let (&last, blocks) = m.net.shape(sizes).split_last()?;
        let abs = m.own_maker(sizes).filter(|node| node.op == Op::Unary(UnaryOp::Abs))?;
        Some(last == BLOCK && *axes == [blocks.len()] && m.net.root(abs.inputs[0]) == m.net.root(x))
    };
    found().unwrap_or(false)
}

/// Whether a node multiplies numbers with their scales, and what it makes is kept as it is.
fn is_product(m: &Match<'_>, index: usize, whole: ValueId, scales: ValueId) -> bool {
    let node = &m.net.nodes[index];
    let is = |id: ValueId, of: ValueId| m.net.root(id) == m.net.root(of);
    let fits =
        |pairs: [[ValueId; 2]; 2]| pairs.into_iter().any(|[a, b]| is(a, whole) && is(b, scales) && by_block(m, a, b));
    let kept = node.output.is_some_and(|rows| m.net.value(m.net.root(rows)).rounding == Rounding::None);
    kept && Match::pairs(node, BinaryOp::Multiply).is_some_and(fits)
}

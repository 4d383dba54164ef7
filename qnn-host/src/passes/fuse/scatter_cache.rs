//! Keys or values that a graph scatters into the past itself: past, new, and the columns that the new ones take.
//!
//! Attention over the scattered past is attention over the past, with those columns hidden, and over the new ones, under
//! the mask of the columns they take. So nothing needs to be scattered: one more mask serves all layers.

use std::collections::HashMap;

use super::Match;
use crate::graph::op::Op;
use crate::graph::scalar::ScatterOp;
use crate::graph::typed::{Node, TypedGraph, ValueId};
use crate::passes::symbol::{Sym, Symbols};
use crate::storage::Storage;

/// A scattered tensor taken apart.
pub(super) struct Scattered {
    pub(super) past: ValueId,
    pub(super) new: ValueId,
    /// How many columns the past has, and how many are new.
    pub(super) past_len: usize,
    pub(super) new_len: usize,
    /// The column of each new one.
    pub(super) columns: Vec<Sym>,
    listed: Listed,
}

/// Where the columns stand.
enum Listed {
    /// In a value of just these.
    Alone(ValueId),
    /// In a part of an index tensor.
    Part { index: ValueId, begin: Vec<usize>, counts: Vec<usize> },
}

/// Takes a value apart if it is scattered along that axis (counted from the end), alike for all else.
pub(super) fn scattered(m: &Match<'_>, symbols: &mut Symbols, id: ValueId, axis_from_end: usize) -> Option<Scattered> {
    let node = m.mover(id)?;
    let (&[past, index, new], shape) = (node.inputs.as_slice().first_chunk::<3>()?, m.net.shape(node.output?));
    let axis = shape.len().checked_sub(axis_from_end)?;
    let same_rows = m.net.shape(id).last_chunk::<2>() == shape.last_chunk::<2>();
    if m.net.shape(past) != shape || !same_rows {
        return None;
    }
    let listed = symbols.of(m.net, m.uses, index)?;
    let index_shape = m.net.shape(index);
    let (new_len, columns, begin, counts) = match node.op {
        Op::ScatterElements { axis: along, op: ScatterOp::Replace } if along == axis => {
            let whole = (0..shape.len()).all(|a| a == axis || index_shape[a] == shape[a]);
            let (n, inner) = (index_shape[axis], shape[axis + 1..].iter().product::<usize>());
            let columns: Vec<Sym> = (0..n).map(|j| listed.get(j * inner).copied()).collect::<Option<_>>()?;
            let alike = listed.iter().enumerate().all(|(i, s)| *s == columns[i / inner % n]);
            let mut counts = vec![1; shape.len()];
            counts[axis] = n;
            (whole && alike).then_some((n, columns, vec![0; shape.len()], counts))?
        }
        Op::ScatterNd(ScatterOp::Replace) => {
            // Indices `[leading extents.., n, axis + 1]`: each names its own place, and a column.
            let (&depth, places) = index_shape.split_last()?;
            let n = *places.last()?;
            let leading: usize = shape[..axis].iter().product();
            if depth != axis + 1 || places.iter().product::<usize>() != leading * n || n == 0 {
                return None;
            }
            let columns: Vec<Sym> = (0..n).map(|j| listed.get(j * depth + axis).copied()).collect::<Option<_>>()?;
            let names_own_place = |(i, entry): (usize, &[Sym])| {
                let mut rest = i / n;
                let leading = (0..axis).rev().all(|a| {
                    let here = rest % shape[a];
                    rest /= shape[a];
                    symbols.is_number(entry[a], here)
                });
                leading && entry[axis] == columns[i % n]
            };
            if !listed.chunks_exact(depth).enumerate().all(names_own_place) {
                return None;
            }
            let (mut begin, mut counts) = (vec![0; index_shape.len()], vec![1; index_shape.len()]);
            begin[index_shape.len() - 1] = axis;
            counts[index_shape.len() - 2] = n;
            (n, columns, begin, counts)
        }
        _ => return None,
    };
    // New ones must lie as the past does.
    let mut expected = shape.to_vec();
    expected[axis] = new_len;
    let lies_alike = m.net.shape(new).iter().product::<usize>() == expected.iter().product::<usize>();
    (lies_alike && new_len > 0).then_some(Scattered {
        past,
        new,
        past_len: shape[axis],
        new_len,
        columns,
        listed: alone(m, index, new_len).map_or(Listed::Part { index, begin, counts }, Listed::Alone),
    })
}

/// What an index tensor repeats, if that is `n` numbers.
fn alone(m: &Match<'_>, mut index: ValueId, n: usize) -> Option<ValueId> {
    while let Some(Node { op: Op::Tile { .. }, inputs, .. }) = m.maker(index) {
        index = inputs[0];
    }
    (m.net.value(index).n_elems() == n).then_some(index)
}

/// Masks made so far, by the mask they were made from and the columns.
pub(super) type Masks = HashMap<(ValueId, Vec<Sym>), ValueId>;

/// The mask over past and new ones, and the nodes that make it unless it is there already.
pub(super) fn mask(
    net: &mut TypedGraph,
    masks: &mut Masks,
    name: &str,
    mask: ValueId,
    rows: usize,
    s: &Scattered,
) -> (ValueId, Vec<Node>) {
    let key = (net.root(mask), s.columns.clone());
    if let Some(&made) = masks.get(&key) {
        return (made, Vec::new());
    }
    let mut nodes = Vec::new();
    let columns = match &s.listed {
        Listed::Alone(id) => net.add_view(*id, &[s.new_len]),
        Listed::Part { index, begin, counts } => {
            let columns = net.add_temp(name, &[s.new_len], Storage::I32);
            let op = Op::Slice { begin: begin.clone(), stride: vec![1; begin.len()], counts: counts.clone() };
            nodes.push(Node { name: name.into(), op, inputs: vec![*index], output: Some(columns) });
            columns
        }
    };
    let whole = net.add_temp(name, &[rows, s.past_len + s.new_len], Storage::F32);
    let op = Op::ScatterMask { past: s.past_len, new: s.new_len };
    nodes.push(Node { name: name.into(), op, inputs: vec![mask, columns], output: Some(whole) });
    masks.insert(key, whole);
    (whole, nodes)
}

//! `Transpose`: output axis `i` is input axis `perm[i]`.

use super::prelude::*;
use super::strided::Strided;
use crate::graph::walk::Walk;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Transpose",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[req("perm", Ints)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Transpose", &[("perm", ints(&[0, 2, 1, 3]))], &[(F, &[1, 3, 4, 8])], &[(F, &[1, 4, 3, 8])])]
}

fn perm(call: &Call<'_>) -> Result<Vec<usize>, Violation> {
    let rank = call.dims(0)?.len();
    let perm = call.axes("perm", rank)?.unwrap_or_default();
    if perm.len() != rank {
        return Err(call.bad_param("perm", format!("{rank} axes"), format!("{perm:?}")));
    }
    Ok(perm)
}

fn shapes(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    Ok(vec![perm(call)?.into_iter().map(|a| dims[a]).collect()])
}

/// A transposition, or a view when only extents of one move.
fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, output, perm) = (l.input(0)?, l.output(0), perm(l)?);
    let shape = l.shape(input);
    if perm.iter().filter(|&&a| shape[a] != 1).is_sorted() {
        l.view(input, output);
        return Ok(());
    }
    let storage = l.storage(input);
    l.emit_as(Op::Transpose { perm }, &[input], output, storage);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, perm: &[usize]) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    b.each(node, Strided { x: b.src(id), walk: Walk::transpose(b.shape(id), perm) })
}

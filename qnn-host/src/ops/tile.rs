//! `Tile`: each axis repeated as a whole, `multiples` times.

use super::prelude::*;
use super::strided::Strided;
use crate::graph::walk::Walk;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Tile",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[req("multiples", Ints)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Tile", &[("multiples", ints(&[2, 1]))], &[(F, &[3, 9])], &[(F, &[6, 9])])]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let (_, multiples) = call.ints("multiples")?.unwrap_or_default();
    if multiples.len() != dims.len() {
        return Err(call.bad_param("multiples", format!("{} values", dims.len()), format!("{multiples:?}")));
    }
    let tiled = dims.iter().zip(multiples).map(|(&d, &m)| u32::try_from(i64::from(d).checked_mul(m)?).ok());
    match tiled.collect::<Option<Vec<u32>>>() {
        Some(out) if !out.contains(&0) => Ok(vec![out]),
        _ => Err(call.bad_param(
            "multiples",
            "values of at least 1 whose products fit 32 bits".into(),
            format!("{multiples:?}"),
        )),
    }
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, output, multiples) = (l.input(0)?, l.output(0), l.sizes("multiples")?);
    if multiples.iter().all(|&m| m == 1) {
        l.view(input, output);
        return Ok(());
    }
    let storage = l.storage(input);
    l.emit_as(Op::Tile { multiples }, &[input], output, storage);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, multiples: &[usize]) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    b.each(node, Strided { x: b.src(id), walk: Walk::tile(b.shape(id), multiples) })
}

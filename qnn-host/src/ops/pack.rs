//! `Pack`: equal tensors stacked along a new axis.

use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Pack",
    inputs: (1, MANY),
    outputs: (1, 1),
    params: &[req("axis", UInt)],
    same_in: 0xff,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Pack", &[("axis", Param::UInt(1))], &[(F, &[3, 9]), (F, &[3, 9])], &[(F, &[3, 2, 9])])]
}

/// In the output.
fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len() + 1)
}

fn shapes(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let axis = axis(call)?;
    for i in 1..call.inputs.len() {
        let other = call.dims(i)?;
        if other != dims {
            return Err(call.bad_input(i, format!("dims {dims:?} as input 0"), format!("{other:?}")));
        }
    }
    dims.insert(axis, call.inputs.len() as u32);
    Ok(vec![dims])
}

/// A concatenation of views that have the new axis already.
fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (axis, output) = (axis(l)?, l.output(0));
    let storage = l.storage(output);
    let mut parts = Vec::with_capacity(l.inputs.len());
    for i in 0..l.inputs.len() {
        let id = l.input(i)?;
        let mut shape = l.shape(id);
        shape.insert(axis, 1);
        let id = l.as_storage(id, storage);
        parts.push(l.typed_mut().add_view(id, &shape));
    }
    l.emit(Op::Concat { axis }, &parts, output);
    Ok(())
}

//! `Reshape`: other extents with the same number of elements, as the output declares them.

use super::prelude::*;
use crate::ir::{Dtype, Role};

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Reshape",
    inputs: (1, 2),
    outputs: (1, 1),
    params: &[],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] [INDEX] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Reshape", &[], &[(F, &[3, 32])], &[(F, &[1, 3, 4, 8])])]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let (from, to) = (call.dims(0)?, call.out_dims());
    let count = |dims: &[u32]| dims.iter().map(|&d| u64::from(d)).product::<u64>();
    if count(from) != count(to) {
        return Err(call.bad_output(0, format!("{} elements as {from:?} has", count(from)), format!("{to:?}")));
    }
    if let Some(shape) = call.optional_tensor(1)
        && let Role::Static(data) = &shape.role
        && matches!(shape.dtype, Dtype::I32 | Dtype::U32)
    {
        let mut rest = 0;
        let same = shape.n_elems() == to.len()
            && data.chunks_exact(4).zip(to).all(|(bytes, &d)| {
                let v = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                rest += i32::from(v == -1);
                v == -1 || i64::from(v) == i64::from(d)
            });
        if !same || rest > 1 {
            return Err(call.bad_output(0, format!("the dims that input 1 `{}` holds", shape.name), format!("{to:?}")));
        }
    }
    Ok(vec![to.to_vec()])
}

/// For all ops that only rename extents.
pub(super) fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    l.view(l.input(0)?, l.output(0));
    Ok(())
}

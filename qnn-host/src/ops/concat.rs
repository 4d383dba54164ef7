//! `Concat`: tensors side by side along an axis, the last by default.

use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Concat",
    inputs: (1, MANY),
    outputs: (1, 1),
    params: &[opt("axis", UInt)],
    same_in: 0xff,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let axis = [("axis", Param::UInt(2))];
    vec![sample("Concat", &axis, &[(F, &[2, 1, 7, 8]), (F, &[2, 1, 2, 8])], &[(F, &[2, 1, 9, 8])])]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    let rank = call.dims(0)?.len();
    call.axis("axis", rank - 1, rank)
}

/// Equal off the axis, added up along it.
fn shapes(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let axis = axis(call)?;
    for i in 1..call.inputs.len() {
        let other = call.dims(i)?;
        let fits = other.len() == dims.len() && (0..dims.len()).all(|a| a == axis || other[a] == dims[a]);
        if !fits {
            return Err(call.bad_input(i, format!("the dims {dims:?} off axis {axis}"), format!("{other:?}")));
        }
        dims[axis] = dims[axis].checked_add(other[axis]).ok_or_else(|| {
            call.bad_input(i, "an extent along the axis that fits 32 bits".into(), format!("{other:?}"))
        })?;
    }
    Ok(vec![dims])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (axis, output) = (axis(l)?, l.output(0));
    let storage = l.storage(output);
    let parts = (0..l.inputs.len()).map(|i| l.input(i).map(|id| l.as_storage(id, storage)));
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    l.emit(Op::Concat { axis }, &parts, output);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, axis: usize) -> Result<Box<dyn Step>, ExecError> {
    let part = |&id: &ValueId| (b.src(id), b.shape(id)[axis..].iter().product());
    let parts: Vec<_> = node.inputs.iter().map(part).collect();
    let row = parts.iter().map(|(_, n): &(_, usize)| n).sum::<usize>().max(1);
    b.each(node, Concat { parts, row })
}

/// All parts side by side along an axis.
struct Concat {
    /// The parts, and how many elements each adds to a row of the result.
    parts: Vec<(Src, usize)>,
    /// Elements of a row of the result: the extents from the axis on.
    row: usize,
}

impl Fill for Concat {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        for (r, out) in out.chunks_exact_mut(self.row).enumerate() {
            let row = first / self.row + r;
            let mut at = 0;
            for (src, n) in &self.parts {
                out[at..at + n].copy_from_slice(&cx.read::<u32>(src)[row * n..(row + 1) * n]);
                at += n;
            }
        }
        Ok(())
    }

    fn unit(&self) -> usize {
        self.row
    }
}

//! `ElementWiseSelect`: the choice between two elements, all three operands broadcast.

use super::prelude::*;
use crate::graph::walk::{Walk, broadcast_shape};

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "ElementWiseSelect",
    inputs: (3, 3),
    outputs: (1, 1),
    params: &[],
    same_in: 0,
    same_out: 0,
    rows: &[
        row!(Float: [BOOL8] [FLOAT] [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX8 SFIX8 BOOL8 INT32] [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
        row!(Fixed: [UFIX8 SFIX8 BOOL8 INT32] [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        row!(Plain: [UFIX8 SFIX8 BOOL8 INT32] [INT32] [INT32] => [INT32]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("ElementWiseSelect", &[], &[(B, &[4]), (F, &[2, 4]), (F, &[1])], &[(F, &[2, 4])])]
}

/// Both choices and the output have one element type.
fn shapes(call: &Call<'_>) -> Shapes {
    let (yes, no, out) = (call.tensor(1)?, call.tensor(2)?, call.outputs[0]);
    let expected = || format!("{:?} as input 1", yes.dtype);
    if no.dtype != yes.dtype {
        return Err(call.bad_input(2, expected(), format!("{:?}", no.dtype)));
    }
    if out.dtype != yes.dtype {
        return Err(call.bad_output(0, expected(), format!("{:?}", out.dtype)));
    }
    let both = common::stretch(&yes.dims, &no.dims).ok_or_else(|| {
        call.bad_input(2, format!("dims that broadcast with {:?}", yes.dims), format!("{:?}", no.dims))
    })?;
    let condition = call.dims(0)?;
    match common::stretch(condition, &both) {
        Some(out) => Ok(vec![out]),
        None => Err(call.bad_input(0, format!("dims that broadcast with {both:?}"), format!("{condition:?}"))),
    }
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let condition = l.input(0)?;
    let condition = l.as_storage(condition, Storage::I32);
    let output = l.output(0);
    let storage = l.storage(output);
    let (a, b) = (l.input(1)?, l.input(2)?);
    let (a, b) = (l.as_storage(a, storage), l.as_storage(b, storage));
    l.emit(Op::leaf(SelectOp), &[condition, a, b], output);
    Ok(())
}

/// `condition, if_true, if_false`, broadcast.
#[derive(Debug)]
struct SelectOp;

impl LeafOp for SelectOp {
    fn label(&self) -> &'static str {
        "Select"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let &[condition, x, y] = node.inputs.as_slice() else { return Err(b.broken(node, "needs three inputs")) };
        let shapes = [b.shape(condition), b.shape(x), b.shape(y)];
        let to = broadcast_shape(shapes[0], shapes[1]).and_then(|to| broadcast_shape(&to, shapes[2]));
        let to = to.ok_or_else(|| b.broken(node, "does not broadcast"))?;
        let walk = Walk::broadcast(&to, shapes);
        b.each(node, Select { condition: b.src(condition), a: b.src(x), b: b.src(y), walk })
    }
}

/// `condition ? a : b`, all broadcast; elements are moved as they are.
struct Select {
    condition: Src,
    a: Src,
    b: Src,
    walk: Walk<3>,
}

impl Fill for Select {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let condition = cx.read::<i32>(&self.condition);
        let (a, b) = (cx.read::<u32>(&self.a), cx.read::<u32>(&self.b));
        self.walk.runs(first, out.len(), |run| {
            for (i, out) in out[run.at..run.at + run.len].iter_mut().enumerate() {
                let [c, x, y]: [usize; 3] = std::array::from_fn(|o| (run.start[o] + i as isize * run.step[o]) as usize);
                *out = if condition[c] != 0 { a[x] } else { b[y] };
            }
        });
        Ok(())
    }
}

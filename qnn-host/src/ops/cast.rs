//! `Cast`: the quantised integer or the value becomes a number of another type; encodings are ignored.

use super::prelude::*;
use crate::ir::Dtype;
use crate::storage::QuantGrid;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Cast",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[],
    same_in: 0b1,
    same_out: 0,
    rows: &[
        row!(Float: [FLOAT] => [INT32 FLOAT]),
        row!(Fixed: [UFIX16] => [UINT8 UFIX8 SFIX8 BOOL8 UFIX16]),
        row!(Fixed: [UINT8 UFIX8 SFIX8] => [UINT8 UFIX8 SFIX8 BOOL8 INDEX F32]),
        row!(Plain: [BOOL8 INDEX INT64 F32] => [UINT8 UFIX8 SFIX8 BOOL8 INDEX F32 UFIX16 INT64 F16]),
    ],
    shapes: common::same,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Cast", &[], &[(F, &[3])], &[(H, &[3])]), sample("Cast", &[], &[(I, &[3])], &[(H, &[3])])]
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, output) = (l.input(0)?, l.output(0));
    let (from, to) = (l.typed().value(input).grid(), l.typed().value(output).grid());
    let boolean = l.typed().value(output).dtype == Dtype::Bool8;
    if from.is_none() && to.is_none() && !boolean && l.storage(input) == l.storage(output) {
        l.view(input, output);
    } else {
        l.emit(Op::leaf(CastOp { from, to, boolean }), &[input], output);
    }
    Ok(())
}

/// What a cast does with quantised integers.
#[derive(Clone, Copy, Debug)]
struct CastOp {
    /// From a fixed-point number: its integer, not its value.
    from: Option<QuantGrid>,
    /// To a fixed-point number: the value becomes its integer.
    to: Option<QuantGrid>,
    /// To a boolean: anything but zero is one.
    boolean: bool,
}

impl LeafOp for CastOp {
    fn label(&self) -> &'static str {
        "Cast"
    }

    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
        let id = b.input(node, 0)?;
        let (from_real, to_real) = (b.is_real(id), b.is_real(b.output(node)?));
        b.each(node, Cast { x: b.src(id), op: *self, from_real, to_real })
    }
}

/// The cast of each element.
struct Cast {
    x: Src,
    op: CastOp,
    from_real: bool,
    to_real: bool,
}

impl Fill for Cast {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = &cx.read::<u32>(&self.x)[first..first + out.len()];
        for (out, &x) in out.iter_mut().zip(x) {
            let value = match (self.from_real, self.op.from) {
                (true, Some(grid)) => grid.quantise(f32::from_bits(x)) as f64,
                (true, None) => f64::from(f32::from_bits(x)),
                (false, _) => f64::from(x.cast_signed()),
            };
            *out = match (self.to_real, self.op.to) {
                (false, _) if self.op.boolean => u32::from(value != 0.0),
                (false, _) => (value as i32).cast_unsigned(),
                (true, Some(grid)) => grid.dequantise((value as i64).clamp(grid.min, grid.max)).to_bits(),
                (true, None) => (value as f32).to_bits(),
            };
        }
        Ok(())
    }
}

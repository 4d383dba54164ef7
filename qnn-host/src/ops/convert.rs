//! `Convert`, `Quantize`, `Dequantize`: the value stays, the encoding changes.
//!
//! Between nodes all numbers are `f32`, so most conversions are views or roundings.

use super::prelude::*;
use super::reshape::lower;

const CONVERT: OpSpec = OpSpec {
    name: "Convert",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[opt("dynamic_input_data", Bool), opt("dynamic_output_data", Bool)],
    same_in: 0b1,
    same_out: 0,
    rows: &[
        row!(Float: [FLOAT] => [UFIX8 UFIX16 FLOAT]),
        row!(Fixed: [UFIX16] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16 FLOAT]),
        row!(Fixed: [UINT8 UFIX8 SFIX8] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16 FLOAT]),
        row!(Plain: [BOOL8] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16]),
    ],
    shapes: common::same,
    lower,
};

pub(super) const OPS: &[OpSpec] = &[
    CONVERT,
    OpSpec {
        name: "Quantize",
        params: &[],
        rows: &[row!(Fixed: [F32] => [UFIX16]), row!(Fixed: [F32] => [UFIX8 SFIX8])],
        ..CONVERT
    },
    OpSpec {
        name: "Dequantize",
        params: &[],
        rows: &[row!(Fixed: [UFIX16] => [FLOAT]), row!(Fixed: [UFIX8 SFIX8] => [FLOAT])],
        ..CONVERT
    },
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    use crate::ir::Dtype::{UFixed8, UFixed16};
    vec![
        sample("Convert", &[], &[(H, &[3])], &[(F, &[3])]),
        sample("Quantize", &[], &[(F, &[3])], &[(UFixed16, &[3])]),
        sample("Dequantize", &[], &[(UFixed8, &[3])], &[(F, &[3])]),
    ]
}

/// The step of `Op::Copy`.
pub(super) fn copy(b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
    b.each(node, Copy(b.src(b.input(node, 0)?)))
}

/// The step of `Op::ConvertStorage`.
pub(super) fn convert_storage(b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    b.each(node, ConvertStorage { x: b.src(id), to_real: !b.is_real(id) })
}

/// The same elements at another place, to be rounded there.
struct Copy(Src);

impl Fill for Copy {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        out.copy_from_slice(&cx.read(&self.0)[first..first + out.len()]);
        Ok(())
    }
}

/// Numbers to integers, towards zero and saturated, or back.
struct ConvertStorage {
    x: Src,
    to_real: bool,
}

impl Fill for ConvertStorage {
    type Elem = u32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [u32]) -> Result<(), Fault> {
        let x = &cx.read::<u32>(&self.x)[first..first + out.len()];
        if self.to_real {
            out.iter_mut().zip(x).for_each(|(out, &x)| *out = (x.cast_signed() as f32).to_bits());
        } else {
            out.iter_mut().zip(x).for_each(|(out, &x)| *out = (f32::from_bits(x) as i32).cast_unsigned());
        }
        Ok(())
    }
}

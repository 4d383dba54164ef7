//! `FullyConnected`: rows times weights `[out, in]`; all axes before the last are one batch axis, or stay with `keep_dims`.

use super::linear::emit_linear;
use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "FullyConnected",
    inputs: (2, 3),
    outputs: (1, 1),
    params: &[opt("keep_dims", Bool)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[
        // Unsigned weights beside floats are this backend's own: those of GGUF files that have minima. So is bfloat16 beside others.
        row!(Float: [FLOAT] [F16 BF16 SFIX4 SFIX8 UFIX4 UFIX8 F32] [FLOAT] => [FLOAT]),
        row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16] [UFIX8 SFIX32] => [UFIX16 SFIX16]),
        row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] [UFIX8 SFIX32] => [UFIX8 SFIX8]),
    ],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    use crate::ir::Dtype::{SFixed8, SFixed32, UFixed16};
    let quantised = [(UFixed16, &[4, 64][..]), (SFixed8, &[8, 64]), (SFixed32, &[8])];
    let keep = [("keep_dims", Param::Bool(true))];
    vec![
        sample("FullyConnected", &[], &[(F, &[1, 4, 64]), (F, &[8, 64]), (F, &[8])], &[(F, &[4, 8])]),
        sample("FullyConnected", &keep, &[(F, &[1, 4, 64]), (F, &[8, 64])], &[(F, &[1, 4, 8])]),
        sample("FullyConnected", &[], &quantised, &[(UFixed16, &[4, 8])]),
    ]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let (x, w) = (call.dims(0)?, call.dims(1)?);
    let k = x[x.len() - 1];
    if w.len() != 2 || w[1] != k || k == 0 {
        return Err(call.bad_input(1, format!("weights [out, {k}]"), format!("{w:?}")));
    }
    common::bias(call, w[0])?;
    let lead = &x[..x.len() - 1];
    if call.flag("keep_dims", false)? {
        return Ok(vec![[lead, &[w[0]]].concat()]);
    }
    let batch = lead.iter().try_fold(1u32, |n, &d| n.checked_mul(d));
    let batch = batch.ok_or_else(|| call.bad_input(0, "a batch that fits 32 bits".into(), format!("{x:?}")))?;
    Ok(vec![vec![batch, w[0]]])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (x, w, bias, output) = (l.real(0)?, l.real(1)?, l.optional_real(2), l.output(0));
    if l.typed().constant(w).is_some() {
        emit_linear(l, x, w, bias, output);
        return Ok(());
    }
    let k = l.typed().shape(w)[1];
    let rows = [l.n_elems(x) / k, k];
    let x = l.typed_mut().add_view(x, &rows);
    let op = Op::MatMul { transpose_a: false, transpose_b: true, bias: bias.is_some() };
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
    l.emit_as(op, &inputs, output, Storage::F32);
    Ok(())
}

//! Matrix products: `FullyConnected`, `MatMul`, `Conv2d`, one `Linear` wherever the weights are constant.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::typed::ValueId;
use crate::graph::walk::broadcast_shape;
use crate::storage::Storage;

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        "FullyConnected" => fully_connected(call)?,
        "MatMul" => mat_mul(call)?,
        "Conv2d" => conv2d(call)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn fully_connected(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (x, w) = (call.real(0)?, call.real(1)?);
    let bias = call.optional_real(2);
    let [n, k] = *call.shape(w) else {
        return Err(call.bad("weights", "2 axes, [out, in]", format!("{:?}", call.shape(w))));
    };
    let elems = call.n_elems(x);
    if k == 0 || !elems.is_multiple_of(k) {
        return Err(call.bad("input 0", format!("rows of {k} elements"), format!("{:?}", call.shape(x))));
    }
    let m = elems / k;
    let output = call.output(0)?;
    if call.n_elems(output) != m * n {
        return Err(call.bad("output 0", format!("{m} x {n} elements"), format!("{:?}", call.shape(output))));
    }
    check_bias(call, bias, n)?;
    if call.net().constant(w).is_some() {
        emit_linear(call, x, w, bias, output, (n, k));
    } else {
        let x = call.net_mut().add_view(x, &[m, k]);
        let op = Op::MatMul { transpose_a: false, transpose_b: true, bias: bias.is_some() };
        call.emit_as(op, &[vec![x, w], bias.into_iter().collect()].concat(), output, Storage::F32);
    }
    Ok(())
}

/// A layer with weights `[n, k]` that are constant, or will be once constants are folded.
fn emit_linear(
    call: &mut Call<'_, '_>,
    x: ValueId,
    w: ValueId,
    bias: Option<ValueId>,
    output: ValueId,
    (n, k): (usize, usize),
) {
    let inputs = [vec![x, w], bias.into_iter().collect()].concat();
    call.emit_as(Op::Linear { n, k, bias: bias.is_some(), residual: false }, &inputs, output, Storage::F32);
}

fn check_bias(call: &Call<'_, '_>, bias: Option<ValueId>, n: usize) -> Result<(), ExecError> {
    match bias {
        Some(bias) if call.n_elems(bias) != n => {
            Err(call.bad("bias", format!("{n} elements"), format!("{:?}", call.shape(bias))))
        }
        _ => Ok(()),
    }
}

fn mat_mul(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (a, b) = (call.real(0)?, call.real(1)?);
    let bias = call.optional_real(2);
    let (transpose_a, transpose_b) = (call.bool_param("transpose_in0")?, call.bool_param("transpose_in1")?);
    let (shape_a, shape_b) = (call.shape(a), call.shape(b));
    let ((batch_a, [m, k]), (batch_b, [k_b, n])) = match (matrix(&shape_a, transpose_a), matrix(&shape_b, transpose_b))
    {
        (Some(a), Some(b)) => (a, b),
        _ => return Err(call.bad("inputs", "at least 2 axes", format!("{shape_a:?} and {shape_b:?}"))),
    };
    if k != k_b {
        return Err(call.bad("inner extents", "equal", format!("{k} and {k_b}")));
    }
    let Some(mut shape) = broadcast_shape(batch_a, batch_b) else {
        return Err(call.bad("leading extents", "broadcastable", format!("{batch_a:?} and {batch_b:?}")));
    };
    shape.extend([m, n]);
    let output = call.output_shaped(0, &shape)?;
    check_bias(call, bias, n)?;
    let one_matrix = batch_b.iter().all(|&d| d == 1);
    // Weights `[K, N]` become `[N, K]` once, when constants are folded.
    if call.net().constant(b).is_some() && one_matrix && !transpose_a && k > 0 {
        let stored = if transpose_b { [n, k] } else { [k, n] };
        let flat = call.net_mut().add_view(b, &stored);
        let weights = if transpose_b { flat } else { turned(call, flat, n, k) };
        emit_linear(call, a, weights, bias, output, (n, k));
        return Ok(());
    }
    let mut inputs = vec![a, b];
    inputs.extend(bias);
    call.emit_as(Op::MatMul { transpose_a, transpose_b, bias: bias.is_some() }, &inputs, output, Storage::F32);
    Ok(())
}

/// `[k, n]` as `[n, k]`.
fn turned(call: &mut Call<'_, '_>, weights: ValueId, n: usize, k: usize) -> ValueId {
    let temp = call.temp(&[n, k], Storage::F32);
    call.emit_to(Op::Transpose { perm: vec![1, 0] }, &[weights], temp);
    temp
}

/// Leading extents, and rows and columns after the transposition.
fn matrix(shape: &[usize], transpose: bool) -> Option<(&[usize], [usize; 2])> {
    let (batch, &[rows, cols]) = shape.split_last_chunk::<2>()?;
    Some((batch, if transpose { [cols, rows] } else { [rows, cols] }))
}

fn conv2d(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (x, w) = (call.real(0)?, call.real(1)?);
    let bias = call.optional_real(2);
    let ([_, h, wd, c], [kh, kw, cg, n]) = (four(call, x, "input 0")?, four(call, w, "weights")?);
    let groups = usize::try_from(call.int_param("group")?.unwrap_or(1)).unwrap_or(0);
    if groups == 0 || cg.checked_mul(groups) != Some(c) || !n.is_multiple_of(groups) {
        let found = format!("{c} channels, weights {:?}, {groups} groups", call.shape(w));
        return Err(call.bad("channels", "as the weights and groups have", found));
    }
    check_bias(call, bias, n)?;
    let pair = |call: &Call<'_, '_>, name: &str, optional: bool| match call.node.param(name) {
        None if optional => Ok([1, 1]),
        _ => call.sizes_param(name, 2).map(|s| [s[0], s[1]]),
    };
    let (stride, dilation) = (pair(call, "stride", true)?, pair(call, "dilation", true)?);
    let pad = match call.node.param("pad_amount") {
        None => [[0; 2]; 2],
        Some(_) => call.sizes_param("pad_amount", 4).map(|p| [[p[0], p[1]], [p[2], p[3]]])?,
    };
    if stride.contains(&0) || dilation.contains(&0) || kh == 0 || kw == 0 {
        return Err(call.bad(
            "stride, dilation and kernel",
            "at least 1",
            format!("{stride:?}, {dilation:?}, [{kh}, {kw}]"),
        ));
    }
    let extent = |n: usize, pad: [usize; 2], kernel: usize, stride: usize, dilation: usize| {
        let reach = (kernel - 1).checked_mul(dilation)?.checked_add(1)?;
        Some((n.checked_add(pad[0])?.checked_add(pad[1])?.checked_sub(reach)?) / stride + 1)
    };
    let rows = extent(h, pad[0], kh, stride[0], dilation[0]);
    let cols = extent(wd, pad[1], kw, stride[1], dilation[1]);
    let (Some(rows), Some(cols)) = (rows, cols) else {
        return Err(call.bad("kernel", "no larger than the padded input", format!("{:?}", call.shape(w))));
    };
    let batch = call.shape(x)[0];
    let output = call.output_shaped(0, &[batch, rows, cols, n])?;
    let pointwise = [kh, kw, groups] == [1, 1, 1] && stride == [1, 1] && pad == [[0; 2]; 2];
    if pointwise && call.net().constant(w).is_some() && c > 0 {
        let flat = call.net_mut().add_view(w, &[c, n]);
        let weights = turned(call, flat, n, c);
        emit_linear(call, x, weights, bias, output, (n, c));
        return Ok(());
    }
    let mut inputs = vec![x, w];
    inputs.extend(bias);
    let op = Op::Conv2d { stride, pad, dilation, groups, bias: bias.is_some() };
    call.emit_as(op, &inputs, output, Storage::F32);
    Ok(())
}

fn four(call: &Call<'_, '_>, id: ValueId, what: &str) -> Result<[usize; 4], ExecError> {
    let shape = call.shape(id);
    shape.as_slice().try_into().map_err(|_| call.bad(what, "4 axes", format!("{shape:?}")))
}

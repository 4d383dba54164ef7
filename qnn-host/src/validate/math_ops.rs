//! Shapes of the ops that compute: products, norms, element-wise, reductions, softmax, rotary embedding.

use super::Violation;
use super::call::Call;

type Shapes = Result<Vec<Vec<u32>>, Violation>;

/// As input 0.
pub(super) fn same(call: &Call<'_>) -> Shapes {
    Ok(vec![call.dims(0)?.to_vec()])
}

/// Two shapes aligned at the right, where 1 stretches.
fn stretch(a: &[u32], b: &[u32]) -> Option<Vec<u32>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[u32], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |j| dims[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

/// Numpy's broadcasting over two inputs.
pub(super) fn broadcast(call: &Call<'_>) -> Shapes {
    let (a, b) = (call.dims(0)?, call.dims(1)?);
    match stretch(a, b) {
        Some(out) => Ok(vec![out]),
        None => Err(call.bad_input(1, format!("dims that broadcast with {a:?}"), format!("{b:?}"))),
    }
}

fn operation(call: &Call<'_>, most: u64) -> Result<u64, Violation> {
    let op = call.uint("operation", 0)?;
    if op > most {
        return Err(call.bad_param("operation", format!("0 to {most}"), op.to_string()));
    }
    Ok(op)
}

/// `ElementWiseNeuron`: ELU 0 ... TANH 8.
pub(super) fn neuron(call: &Call<'_>) -> Shapes {
    operation(call, 8)?;
    same(call)
}

/// `ElementWiseUnary`: ABS 0 ... SQRT 15.
pub(super) fn unary(call: &Call<'_>) -> Shapes {
    operation(call, 15)?;
    same(call)
}

/// `ElementWiseBinary`: ADD 0 ... XOR 19; comparisons answer bool8 (8-bit codes are documented too).
pub(super) fn binary(call: &Call<'_>) -> Shapes {
    use crate::ir::Dtype::{Bool8, SFixed8, UFixed8};
    let op = operation(call, 19)?;
    let (from, to) = (call.input(0)?.dtype, call.outputs[0].dtype);
    let compares = matches!(op, 3 | 6..=9 | 14);
    let logic = matches!(op, 1 | 15 | 19);
    let fits = if compares { matches!(to, Bool8 | UFixed8 | SFixed8) } else { to == from };
    if !fits {
        let expected = if compares { "Bool8".to_owned() } else { format!("{from:?} as input 0") };
        return Err(call.bad_output(0, expected, format!("{to:?}")));
    }
    if logic && from != Bool8 {
        return Err(call.bad_input(0, "Bool8 for a logical operation".into(), format!("{from:?}")));
    }
    broadcast(call)
}

/// Condition, then, else: all three broadcast.
pub(super) fn select(call: &Call<'_>) -> Shapes {
    let (yes, no) = (call.input(1)?, call.input(2)?);
    for (what, other) in [
        (call.bad_input(2, format!("{:?} as input 1", yes.dtype), format!("{:?}", no.dtype)), no.dtype),
        (
            call.bad_output(0, format!("{:?} as input 1", yes.dtype), format!("{:?}", call.outputs[0].dtype)),
            call.outputs[0].dtype,
        ),
    ] {
        if other != yes.dtype {
            return Err(what);
        }
    }
    let both = stretch(&yes.dims, &no.dims).ok_or_else(|| {
        call.bad_input(2, format!("dims that broadcast with {:?}", yes.dims), format!("{:?}", no.dims))
    })?;
    let cond = call.dims(0)?;
    match stretch(cond, &both) {
        Some(out) => Ok(vec![out]),
        None => Err(call.bad_input(0, format!("dims that broadcast with {both:?}"), format!("{cond:?}"))),
    }
}

/// Weights [out, in]; all axes before the last are one batch axis, or stay with `keep_dims`.
pub(super) fn fully_connected(call: &Call<'_>) -> Shapes {
    let (x, w) = (call.dims(0)?, call.dims(1)?);
    let k = x[x.len() - 1];
    if w.len() != 2 || w[1] != k {
        return Err(call.bad_input(1, format!("weights [out, {k}]"), format!("{w:?}")));
    }
    bias(call, w[0])?;
    let lead = &x[..x.len() - 1];
    if call.flag("keep_dims")? {
        return Ok(vec![[lead, &[w[0]]].concat()]);
    }
    let batch = lead.iter().try_fold(1u32, |n, &d| n.checked_mul(d));
    let batch = batch.ok_or_else(|| call.bad_input(0, "a batch that fits 32 bits".into(), format!("{x:?}")))?;
    Ok(vec![vec![batch, w[0]]])
}

/// [.., M, K] x [.., K, N] with transposes; batch axes broadcast.
pub(super) fn mat_mul(call: &Call<'_>) -> Shapes {
    let (a, b) = (call.dims(0)?, call.dims(1)?);
    for (i, dims) in [(0, a), (1, b)] {
        if dims.len() < 2 {
            return Err(call.bad_input(i, "rank 2 or more".into(), format!("{dims:?}")));
        }
    }
    let matrix = |dims: &[u32], flip: bool| {
        let (r, c) = (dims[dims.len() - 2], dims[dims.len() - 1]);
        if flip { (c, r) } else { (r, c) }
    };
    let (m, k) = matrix(a, call.flag("transpose_in0")?);
    let (k1, n) = matrix(b, call.flag("transpose_in1")?);
    if k != k1 {
        return Err(call.bad_input(1, format!("inner extent {k} as input 0 {a:?}"), format!("{k1} in {b:?}")));
    }
    let batch = stretch(&a[..a.len() - 2], &b[..b.len() - 2])
        .ok_or_else(|| call.bad_input(1, format!("batch dims that broadcast with {a:?}"), format!("{b:?}")))?;
    bias(call, n)?;
    Ok(vec![[&batch[..], &[m, n]].concat()])
}

/// Optional input 2 is a vector of that length.
fn bias(call: &Call<'_>, n: u32) -> Result<(), Violation> {
    match call.optional(2) {
        Some(b) if b.dims != [n] => Err(call.bad_input(2, format!("bias [{n}]"), format!("{:?}", b.dims))),
        _ => Ok(()),
    }
}

/// NHWC activation, HWIO weights; pads are [[top, bottom], [left, right]].
pub(super) fn conv2d(call: &Call<'_>) -> Shapes {
    let (x, w) = (call.dims(0)?, call.dims(1)?);
    let (&[n, h, wide, c], &[kh, kw, ci, co]) = (x, w) else {
        return Err(call.bad_input(1, "rank 4 input and rank 4 weights".into(), format!("{x:?} and {w:?}")));
    };
    let group = call.uint("group", 1)?;
    if group == 0 || u64::from(ci) * group != u64::from(c) || u64::from(co) % group != 0 {
        let expected = format!("weights [kh, kw, {c} / group, a multiple of group]");
        return Err(call.bad_input(1, expected, format!("{w:?} with group {group}")));
    }
    bias(call, co)?;
    let pair = |name: &str, least: i64, default: i64| match call.ints(name)? {
        None => Ok([default; 2]),
        Some((_, &[a, b])) if a >= least && b >= least && a.max(b) <= i64::from(u32::MAX) => Ok([a, b]),
        Some((_, other)) => Err(call.bad_param(name, format!("two values of at least {least}"), format!("{other:?}"))),
    };
    let (stride, dilation) = (pair("stride", 1, 1)?, pair("dilation", 1, 1)?);
    let pads = match call.ints("pad_amount")? {
        Some(([2, 2], &[t, b, l, r])) if [t, b, l, r].iter().all(|&v| (0..=i64::from(u32::MAX)).contains(&v)) => {
            [t + b, l + r]
        }
        other => {
            let found = format!("{:?}", other.map(|(d, _)| d));
            return Err(call.bad_param("pad_amount", "[2, 2] values of at least 0".into(), found));
        }
    };
    let extent = |axis: usize, size: u32, kernel: u32| {
        let span = i128::from(dilation[axis]) * (i128::from(kernel) - 1) + 1;
        let room = i128::from(size) + i128::from(pads[axis]) - span;
        let fits = u32::try_from(room / i128::from(stride[axis]) + 1).ok().filter(|_| room >= 0);
        fits.ok_or_else(|| call.bad_input(1, format!("a kernel that fits {x:?} with its pads"), format!("{w:?}")))
    };
    Ok(vec![vec![n, extent(0, h, kh)?, extent(1, wide, kw)?, co]])
}

/// Over the last axis only; gamma and beta are vectors over it.
pub(super) fn norm(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let last = dims.len() - 1;
    let axes = call.axes("axes", dims.len())?.unwrap_or_default();
    if axes != [last] {
        return Err(call.bad_param("axes", format!("[{last}], the last axis"), format!("{axes:?}")));
    }
    if let Some(crate::ir::Param::F32(eps)) = call.node.param("epsilon")
        && *eps < 0.0
    {
        return Err(call.bad_param("epsilon", "at least 0".into(), eps.to_string()));
    }
    for i in [1, 2] {
        if let Some(t) = call.optional(i)
            && t.dims != [dims[last]]
        {
            return Err(call.bad_input(i, format!("dims [{}]", dims[last]), format!("{:?}", t.dims)));
        }
    }
    same(call)
}

/// Any one axis, the last by default.
pub(super) fn softmax(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    call.axis("axis", dims.len() - 1, dims.len())?;
    same(call)
}

/// Any one axis, which must be given.
pub(super) fn cumulative_sum(call: &Call<'_>) -> Shapes {
    call.axis("axis", 0, call.dims(0)?.len())?;
    same(call)
}

/// `axes`, or one `axis`.
pub(super) fn l2_norm(call: &Call<'_>) -> Shapes {
    let rank = call.dims(0)?.len();
    call.axis("axis", 0, rank)?;
    call.axes("axes", rank)?;
    same(call)
}

/// The axes are dropped, or kept as 1.
pub(super) fn reduce(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axes = call.axes("axes", dims.len())?.unwrap_or_default();
    if axes.is_empty() {
        return Err(call.bad_param("axes", "at least one axis".into(), "none".into()));
    }
    Ok(vec![without(dims, &axes, call.flag("keep_dims")?)])
}

/// Extents without some axes; `[1]` when nothing is left.
pub(super) fn without(dims: &[u32], axes: &[usize], keep: bool) -> Vec<u32> {
    let left = dims.iter().enumerate().filter_map(|(i, &d)| match axes.contains(&i) {
        true => keep.then_some(1),
        false => Some(d),
    });
    let out: Vec<u32> = left.collect();
    if out.is_empty() { vec![1] } else { out }
}

/// x [B, H, S, D]; cos and sin [1 or B, S, R/2], or tables [positions, R/2] with position ids [B, S].
pub(super) fn rotary(call: &Call<'_>) -> Shapes {
    let x = call.dims(0)?;
    let &[b, _, s, d] = x else {
        return Err(call.bad_input(0, "rank 4 [batch, heads, rows, head_dim]".into(), format!("{x:?}")));
    };
    let rotated = match call.uint("rotary_embedding_dim", 0)? {
        0 => u64::from(d),
        r => r,
    };
    if rotated % 2 != 0 || rotated > u64::from(d) {
        return Err(call.bad_param("rotary_embedding_dim", format!("an even number up to {d}"), rotated.to_string()));
    }
    let half = (rotated / 2) as u32;
    let by_ids = call.optional(3);
    for i in [1, 2] {
        let t = call.dims(i)?;
        let fits = match (t, by_ids) {
            (&[n, rows, h], None) => (n == 1 || n == b) && rows == s && h == half,
            (&[_, h], Some(_)) => h == half,
            _ => false,
        };
        if !fits {
            let expected = match by_ids {
                None if b == 1 => format!("[1, {s}, {half}]"),
                None => format!("[1 or {b}, {s}, {half}]"),
                Some(_) => format!("a table [positions, {half}]"),
            };
            return Err(call.bad_input(i, expected, format!("{t:?}")));
        }
    }
    if call.dims(1)? != call.dims(2)? {
        return Err(call.bad_input(2, format!("{:?} as input 1", call.dims(1)?), format!("{:?}", call.dims(2)?)));
    }
    if let Some(ids) = by_ids
        && ids.dims != [b, s]
    {
        return Err(call.bad_input(3, format!("position ids [{b}, {s}]"), format!("{:?}", ids.dims)));
    }
    same(call)
}

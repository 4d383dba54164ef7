//! Shapes of the ops that carry bytes: reshape, transpose, concat, split, slice, tile, pad, pack.

use crate::ir::{Dtype, Role};

use super::Violation;
use super::call::Call;

type Shapes = Result<Vec<Vec<u32>>, Violation>;

/// Any extents with the same number of elements; the output declares them.
pub(super) fn reshape(call: &Call<'_>) -> Shapes {
    let (from, to) = (call.dims(0)?, call.out_dims());
    let count = |dims: &[u32]| dims.iter().map(|&d| u64::from(d)).product::<u64>();
    if count(from) != count(to) {
        return Err(call.bad_output(0, format!("{} elements as {from:?} has", count(from)), format!("{to:?}")));
    }
    if let Some(shape) = call.optional(1)
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

/// `perm` is a permutation of the axes; output axis `i` is input axis `perm[i]`.
pub(super) fn transpose(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let perm = call.axes("perm", dims.len())?.unwrap_or_default();
    if perm.len() != dims.len() {
        return Err(call.bad_param("perm", format!("{} axes", dims.len()), format!("{perm:?}")));
    }
    Ok(vec![perm.iter().map(|&a| dims[a]).collect()])
}

/// Equal off the axis, added up along it.
pub(super) fn concat(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let axis = call.axis("axis", dims.len() - 1, dims.len())?;
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

/// `split_index` holds the cuts: n of them make n + 1 outputs.
pub(super) fn split(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axis = call.axis("axis", 0, dims.len())?;
    let (_, cuts) = call.ints("split_index")?.unwrap_or_default();
    let extent = i64::from(dims[axis]);
    let mut from = 0;
    let mut shapes = Vec::new();
    for &cut in cuts.iter().chain([&extent]) {
        if cut <= from || cut > extent {
            return Err(call.bad_param("split_index", format!("rising cuts inside 1..{extent}"), format!("{cuts:?}")));
        }
        let mut part = dims.to_vec();
        part[axis] = (cut - from) as u32;
        shapes.push(part);
        from = cut;
    }
    Ok(shapes)
}

/// `ranges` is [rank, 3]: begin, end, stride. Masks are bit fields over the axes.
pub(super) fn strided_slice(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let (shape, ranges) = call.ints("ranges")?.unwrap_or_default();
    let rank = dims.len();
    if shape != [rank as u32, 3] || ranges.len() != rank * 3 {
        return Err(call.bad_param("ranges", format!("dims [{rank}, 3]"), format!("{shape:?}")));
    }
    if let Some(v) = ranges.iter().find(|v| i32::try_from(**v).is_err()) {
        return Err(call.bad_param("ranges", "values of 32 bits".into(), v.to_string()));
    }
    if call.uint("new_axes_mask", 0)? != 0 {
        return Err(call.bad_param("new_axes_mask", "0".into(), call.uint("new_axes_mask", 0)?.to_string()));
    }
    let (begins, ends) = (call.uint("begin_mask", 0)?, call.uint("end_mask", 0)?);
    let shrink = call.uint("shrink_axes", 0)?;
    let mut out = Vec::new();
    for (axis, range) in ranges.chunks_exact(3).enumerate() {
        let (extent, stride) = (i64::from(dims[axis]), range[2]);
        let on = |mask: u64| mask >> axis & 1 == 1;
        // As TensorFlow has it: negative places count from the end, then everything is clamped to the axis.
        let (low, high) = if stride < 0 { (-1, extent - 1) } else { (0, extent) };
        let place = |v: i64| {
            let from_start = if v < 0 { v + extent } else { v };
            from_start.clamp(low, high)
        };
        let (first, past) = if stride < 0 { (high, low) } else { (low, high) };
        let begin = if on(begins) { first } else { place(range[0]) };
        let end = if on(ends) { past } else { place(range[1]) };
        let n = match stride {
            _ if on(shrink) => 1,
            0 => 0,
            s if s > 0 => (end - begin).max(0).unsigned_abs().div_ceil(s.unsigned_abs()),
            s => (begin - end).max(0).unsigned_abs().div_ceil(s.unsigned_abs()),
        };
        if n == 0 || begin < 0 || begin >= extent {
            let expected = format!("a range that takes something of {extent} elements on axis {axis}");
            return Err(call.bad_param("ranges", expected, format!("{range:?}")));
        }
        if !on(shrink) {
            out.push(n as u32);
        }
    }
    Ok(vec![if out.is_empty() { vec![1] } else { out }])
}

/// Axes of extent 1 dropped: those named, or all.
pub(super) fn squeeze(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axes = call.axes("axes", dims.len())?;
    if let Some(&axis) = axes.iter().flatten().find(|&&a| dims[a] != 1) {
        return Err(call.bad_param("axes", format!("axes of extent 1 in {dims:?}"), axis.to_string()));
    }
    let drop = |i: usize, d: u32| axes.as_ref().map_or(d == 1, |axes| axes.contains(&i));
    let left: Vec<u32> = dims.iter().enumerate().filter(|&(i, &d)| !drop(i, d)).map(|(_, &d)| d).collect();
    Ok(vec![if left.is_empty() { vec![1] } else { left }])
}

/// Each axis `multiples` times.
pub(super) fn tile(call: &Call<'_>) -> Shapes {
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

/// New axes of extent 1, at places counted in the output.
pub(super) fn expand_dims(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axes = match call.ints("axes")? {
        Some((_, values)) => call.axes("axes", dims.len() + values.len())?.unwrap_or_default(),
        None if call.node.param("axis").is_some() => vec![call.axis("axis", 0, dims.len() + 1)?],
        None => return Err(call.bad_param("axis", "it (or `axes`) given".into(), "none".into())),
    };
    let mut rest = dims.iter();
    let place = |i| if axes.contains(&i) { Some(1) } else { rest.next().copied() };
    Ok(vec![(0..dims.len() + axes.len()).map_while(place).collect()])
}

/// `pad_amount` is [rank, 2]: before, after.
pub(super) fn pad(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let (shape, amounts) = call.ints("pad_amount")?.unwrap_or_default();
    if shape != [dims.len() as u32, 2] || amounts.len() != dims.len() * 2 {
        return Err(call.bad_param("pad_amount", format!("dims [{}, 2]", dims.len()), format!("{shape:?}")));
    }
    let scheme = call.uint("scheme", 0)?;
    if scheme > 3 {
        return Err(call.bad_param("scheme", "0 to 3".into(), scheme.to_string()));
    }
    let mut out = Vec::with_capacity(dims.len());
    for (&extent, pair) in dims.iter().zip(amounts.chunks_exact(2)) {
        // Mirrors have only so much to show: symmetric (1) repeats the edge, reflect (2) leaves it out.
        let most = match scheme {
            1 => i64::from(extent),
            2 => i64::from(extent) - 1,
            _ => i64::from(u32::MAX),
        };
        let sum = pair.iter().all(|&v| (0..=most).contains(&v)).then(|| i64::from(extent) + pair[0] + pair[1]);
        let Some(padded) = sum.and_then(|n| u32::try_from(n).ok()) else {
            return Err(call.bad_param(
                "pad_amount",
                format!("0 to {most} on an axis of {extent}"),
                format!("{pair:?}"),
            ));
        };
        out.push(padded);
    }
    Ok(vec![out])
}

/// Equal tensors stacked along a new axis.
pub(super) fn pack(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let axis = call.axis("axis", 0, dims.len() + 1)?;
    for i in 1..call.inputs.len() {
        let other = call.dims(i)?;
        if other != dims {
            return Err(call.bad_input(i, format!("dims {dims:?} as input 0"), format!("{other:?}")));
        }
    }
    dims.insert(axis, call.inputs.len() as u32);
    Ok(vec![dims])
}

/// One output for each index of the axis, which is dropped.
pub(super) fn unpack(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let axis = call.axis("axis", 0, dims.len())?;
    let n = dims.remove(axis) as usize;
    if n != call.outputs.len() {
        return Err(call.bad("number of outputs", n.to_string(), call.outputs.len().to_string()));
    }
    if dims.is_empty() {
        dims.push(1);
    }
    Ok(vec![dims; n])
}

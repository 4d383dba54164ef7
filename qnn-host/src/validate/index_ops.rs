//! Shapes of the ops that read or write at indices: gathers, scatters, top-k, argmax.

use super::Violation;
use super::call::Call;
use super::math_ops::without;
use crate::ir::{Quant, Role};

type Shapes = Result<Vec<Vec<u32>>, Violation>;

/// Data extents with the axis replaced by the whole index shape.
///
/// Rows keep their type; those of an encoded constant may also come out as the numbers that they stand for, which is how
/// quantised embedding tables are read (an extension of ours: HTP documents equal types only).
pub(super) fn gather(call: &Call<'_>) -> Shapes {
    let (data, index) = (call.dims(0)?, call.dims(1)?);
    if let (Some(table), Some(out)) = (call.optional(0), call.outputs.first()) {
        let encoded = matches!(table.role, Role::Static(_)) && table.quant != Quant::None;
        if out.dtype != table.dtype && !(encoded && out.dtype.is_float()) {
            return Err(call.bad_output(0, format!("{:?} as input 0", table.dtype), format!("{:?}", out.dtype)));
        }
    }
    let axis = call.axis("axis", 0, data.len())?;
    Ok(vec![[&data[..axis], index, &data[axis + 1..]].concat()])
}

/// The index has the rank of the data, and its own extents are the output's.
pub(super) fn gather_elements(call: &Call<'_>) -> Shapes {
    let (data, index) = (call.dims(0)?, call.dims(1)?);
    let axis = call.axis("axis", 0, data.len())?;
    let fits = index.len() == data.len() && (0..data.len()).all(|a| a == axis || index[a] <= data[a]);
    if !fits {
        return Err(call.bad_input(
            1,
            format!("an index of dims within {data:?} off axis {axis}"),
            format!("{index:?}"),
        ));
    }
    Ok(vec![index.to_vec()])
}

/// Index rows of length k pick at the first k axes (after the batch axes).
pub(super) fn gather_nd(call: &Call<'_>) -> Shapes {
    let (data, index) = (call.dims(0)?, call.dims(1)?);
    let batch = match call.node.param("batch_dims") {
        Some(crate::ir::Param::Ints(_, values)) => match values.as_slice() {
            [v] => usize::try_from(*v).unwrap_or(usize::MAX),
            other => return Err(call.bad_param("batch_dims", "one value".into(), format!("{other:?}"))),
        },
        _ => call.uint("batch_dims", 0)? as usize,
    };
    let (&k, rows) = index.split_last().ok_or_else(|| call.bad_input(1, "rank 1 or more".into(), "rank 0".into()))?;
    let k = k as usize;
    let fits =
        batch < index.len() && batch.checked_add(k).is_some_and(|n| n <= data.len()) && index[..batch] == data[..batch];
    if !fits {
        let expected = format!("rows of at most {} after {batch} batch axes of {data:?}", data.len());
        return Err(call.bad_input(1, expected, format!("{index:?}")));
    }
    Ok(vec![[rows, &data[batch + k..]].concat()])
}

/// Updates at index rows of length k; the output has the data's extents.
pub(super) fn scatter_nd(call: &Call<'_>) -> Shapes {
    let (data, index, updates) = (call.dims(0)?, call.dims(1)?, call.dims(2)?);
    reduction(call, 2)?;
    let (&k, rows) = index.split_last().ok_or_else(|| call.bad_input(1, "rank 1 or more".into(), "rank 0".into()))?;
    if k as usize > data.len() {
        return Err(call.bad_input(1, format!("rows of at most {}", data.len()), format!("{index:?}")));
    }
    let want = [rows, &data[k as usize..]].concat();
    if updates != want {
        return Err(call.bad_input(2, format!("dims {want:?}"), format!("{updates:?}")));
    }
    Ok(vec![data.to_vec()])
}

/// Updates element by element along an axis; the output has the data's extents.
pub(super) fn scatter_elements(call: &Call<'_>) -> Shapes {
    let (data, index, updates) = (call.dims(0)?, call.dims(1)?, call.dims(2)?);
    call.axis("axis", 0, data.len())?;
    reduction(call, 3)?;
    let fits = index.len() == data.len() && index.iter().zip(data).all(|(i, d)| i <= d);
    if !fits {
        return Err(call.bad_input(1, format!("dims within {data:?}"), format!("{index:?}")));
    }
    if updates != index {
        return Err(call.bad_input(2, format!("dims {index:?} as the index"), format!("{updates:?}")));
    }
    Ok(vec![data.to_vec()])
}

/// The k largest along the last axis: values, then indices.
pub(super) fn top_k(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let k = call.uint("k", 0)?;
    match dims.last_mut() {
        Some(last) if k >= 1 && k <= u64::from(*last) => *last = k as u32,
        last => return Err(call.bad_param("k", format!("1 to {}", last.map_or(0, |d| *d)), k.to_string())),
    }
    Ok(vec![dims.clone(), dims])
}

/// The axis is dropped, or kept as 1.
pub(super) fn argmax(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axis = call.axis("axis", 0, dims.len())?;
    Ok(vec![without(dims, &[axis], call.flag("keep_dims")?)])
}

fn reduction(call: &Call<'_>, most: u64) -> Result<(), Violation> {
    let mode = call.uint("reduction", 0)?;
    if mode > most {
        return Err(call.bad_param("reduction", format!("0 to {most}"), mode.to_string()));
    }
    Ok(())
}

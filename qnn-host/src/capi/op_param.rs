//! Values of parameters: scalars, texts, static tensors.
//!
//! QNN's own ops take 32-bit floats and integers, widened; those of packages get every value as the client gave it.

use qnn_sys as q;
use qnn_sys::Qnn_Scalar_t;

use crate::error::{Component, Error};
use crate::graph::walk::MAX_RANK;
use crate::ir::{Dtype, Param, Quant, Tensor};

use super::raw;

/// A number or bool8; the error is what was found instead of a number.
pub(super) fn scalar(s: &Qnn_Scalar_t) -> Result<Param, String> {
    macro_rules! read {
        ($member:ident) => {{
            // SAFETY: the type decides which member it is, and any bits are valid for a number.
            unsafe { s.anon0.$member }
        }};
    }
    Ok(match s.dataType {
        q::QNN_DATATYPE_FLOAT_32 => Param::F32(read!(floatValue)),
        q::QNN_DATATYPE_FLOAT_64 => Param::F32(read!(doubleValue) as f32),
        q::QNN_DATATYPE_FLOAT_16 => Param::F32(half::f16::from_bits(read!(uint16Value)).to_f32()),
        q::QNN_DATATYPE_INT_8 | q::QNN_DATATYPE_SFIXED_POINT_8 => Param::Int(read!(int8Value).into()),
        q::QNN_DATATYPE_INT_16 | q::QNN_DATATYPE_SFIXED_POINT_16 => Param::Int(read!(int16Value).into()),
        q::QNN_DATATYPE_INT_32 | q::QNN_DATATYPE_SFIXED_POINT_32 => Param::Int(read!(int32Value).into()),
        q::QNN_DATATYPE_INT_64 => Param::Int(read!(int64Value)),
        q::QNN_DATATYPE_UINT_8 | q::QNN_DATATYPE_UFIXED_POINT_8 => Param::UInt(read!(uint8Value).into()),
        q::QNN_DATATYPE_UINT_16 | q::QNN_DATATYPE_UFIXED_POINT_16 => Param::UInt(read!(uint16Value).into()),
        q::QNN_DATATYPE_UINT_32 | q::QNN_DATATYPE_UFIXED_POINT_32 => Param::UInt(read!(uint32Value).into()),
        q::QNN_DATATYPE_UINT_64 => Param::UInt(read!(uint64Value)),
        q::QNN_DATATYPE_BOOL_8 => Param::Bool(read!(bool8Value) != 0),
        other => return Err(format!("a scalar of type {other:#06x}")),
    })
}

/// A text, for an op of a package.
///
/// # Safety
/// A scalar of type string, whose pointer is null or leads to a string.
pub(super) unsafe fn text(s: &Qnn_Scalar_t) -> Result<Param, Error> {
    // SAFETY: by the caller's promise that member is the one that is set.
    let given = unsafe { s.anon0.stringValue };
    // SAFETY: the caller's promise.
    Ok(Param::Text(unsafe { raw::text(given, Component::Graph, "params[].scalarParam.stringValue") }?.to_owned()))
}

/// A float64, for an op of a package.
pub(super) fn double(s: &Qnn_Scalar_t) -> Param {
    // SAFETY: the union is eight bytes, and any bits are valid for a number.
    Param::F64(unsafe { s.anon0.doubleValue })
}

/// An integer tensor parameter, widened; the error is what was found instead.
pub(super) fn ints(dims: Vec<u32>, dtype: Dtype, data: &[u8]) -> Result<Param, String> {
    check_size(&dims, dtype, data)?;
    fn wide<const N: usize>(data: &[u8], read: impl Fn([u8; N]) -> i64) -> Vec<i64> {
        data.as_chunks::<N>().0.iter().map(|&c| read(c)).collect()
    }
    let values = match dtype {
        Dtype::I8 | Dtype::SFixed8 => wide(data, |b: [u8; 1]| i64::from(b[0] as i8)),
        Dtype::U8 | Dtype::UFixed8 | Dtype::Bool8 => wide(data, |b: [u8; 1]| i64::from(b[0])),
        Dtype::I16 => wide(data, |b| i64::from(i16::from_ne_bytes(b))),
        Dtype::U16 => wide(data, |b| i64::from(u16::from_ne_bytes(b))),
        Dtype::I32 | Dtype::SFixed32 => wide(data, |b| i64::from(i32::from_ne_bytes(b))),
        Dtype::U32 | Dtype::UFixed32 => wide(data, |b| i64::from(u32::from_ne_bytes(b))),
        Dtype::I64 => wide(data, i64::from_ne_bytes),
        other => return Err(format!("a tensor of {other:?}")),
    };
    Ok(Param::Ints(dims, values))
}

/// A tensor parameter for an op of a package, in its own type, float16 as float32; the error is what was found instead.
pub(super) fn typed(tensor: &Tensor, data: &[u8]) -> Result<Param, String> {
    let (dims, dtype) = (&tensor.dims, tensor.dtype);
    check_size(dims, dtype, data)?;
    if tensor.quant != Quant::None {
        return Err(format!("{dtype:?} with an encoding"));
    }
    let (dtype, data) = match dtype {
        Dtype::F16 => {
            let wide = data.as_chunks::<2>().0.iter().map(|&b| half::f16::from_ne_bytes(b).to_f32());
            (Dtype::F32, wide.flat_map(f32::to_ne_bytes).collect())
        }
        dtype => (dtype, data.into()),
    };
    Ok(Param::Tensor { dtype, dims: dims.clone(), data })
}

fn check_size(dims: &[u32], dtype: Dtype, data: &[u8]) -> Result<(), String> {
    let n = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d as usize));
    if dims.len() > MAX_RANK || n.and_then(|n| n.checked_mul(dtype.size_bytes())) != Some(data.len()) {
        return Err(format!("{} bytes of {dtype:?} for {dims:?}", data.len()));
    }
    Ok(())
}

//! Tensors: from `TensorInfo` to `Qnn_Tensor_t` (version 1) and from both versions back.

use genie_types::{DataFormat, TensorInfo};
use qnn_sys::*;

use super::quant::Ownership;
use super::{c_name, dtype, quant, slice, text};
use crate::error::{Error, Result};

/// What a tensor is to its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Input,
    Output,
    Native,
    Static,
}

impl Role {
    const fn raw(self) -> Qnn_TensorType_t {
        match self {
            Self::Input => QNN_TENSOR_TYPE_APP_WRITE,
            Self::Output => QNN_TENSOR_TYPE_APP_READ,
            Self::Native => QNN_TENSOR_TYPE_NATIVE,
            Self::Static => QNN_TENSOR_TYPE_STATIC,
        }
    }
}

/// What a `Qnn_Tensor_t` points at. Vectors, not boxes: their storage stays put when this is moved.
pub(crate) struct Store {
    _name: Vec<u8>,
    _dims: Vec<u32>,
    quant: quant::Arrays,
}

impl Store {
    /// Lets the encoding's arrays go; the encoding to put in its place in the struct.
    pub(crate) fn drop_encoding(&mut self) -> Qnn_QuantizeParams_t {
        let (none, arrays) = quant::to_raw(&genie_types::Quant::None, Ownership::Copied);
        self.quant = arrays;
        none
    }
}

/// The C struct of a tensor without data, and what it points at; with [`Ownership::Lent`] it may point into `info` as well, until
/// [`Store::drop_encoding`].
pub(crate) fn raw_tensor(info: &TensorInfo, role: Role, id: u32, encoding: Ownership) -> Result<(Qnn_Tensor_t, Store)> {
    let too_big = |found: usize| Error::Invalid {
        what: format!("extent of tensor `{}`", info.name),
        expected: "at most 4294967295".into(),
        found: found.to_string(),
    };
    let mut name = c_name(&info.name)?.into_bytes_with_nul();
    let dims = info.dims.iter().map(|&dim| u32::try_from(dim).map_err(|_| too_big(dim)));
    let mut dims = dims.collect::<Result<Vec<u32>>>()?;
    let (quantize, arrays) = quant::to_raw(&info.quant, encoding);
    let mut raw = Qnn_Tensor_t { version: QNN_TENSOR_VERSION_1, ..Default::default() };
    raw.anon0.v1 = Qnn_TensorV1_t {
        id,
        name: name.as_mut_ptr().cast(),
        r#type: role.raw(),
        dataFormat: match info.format {
            DataFormat::Flat => QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER,
            DataFormat::HmxWeight => QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT,
            DataFormat::Other(number) => number,
        },
        dataType: dtype::to_raw(info.dtype),
        quantizeParams: quantize,
        rank: dims.len() as u32,
        dimensions: dims.as_mut_ptr(),
        memType: QNN_TENSORMEMTYPE_RAW,
        ..Default::default()
    };
    Ok((raw, Store { _name: name, _dims: dims, quant: arrays }))
}

/// Bytes as the C struct takes them: at most 4 GB.
pub(crate) fn client_bytes(name: &str, bytes: &[u8]) -> Result<Qnn_ClientBuffer_t> {
    let size = u32::try_from(bytes.len()).map_err(|_| Error::Invalid {
        what: format!("data of tensor `{name}`"),
        expected: "less than 4 GB, the most one QNN buffer can hold".into(),
        found: format!("{} bytes", bytes.len()),
    })?;
    Ok(Qnn_ClientBuffer_t { data: bytes.as_ptr().cast_mut().cast(), dataSize: size })
}

/// Largest rank that is accepted.
const MAX_RANK: u32 = 16;

/// The plain form of a tensor, and its id.
///
/// # Safety
/// `raw` is filled as QNN asks for its version.
pub(crate) unsafe fn describe(raw: &Qnn_Tensor_t, whose: &str) -> Result<(TensorInfo, u32)> {
    // Version 2 begins as version 1 does, up to the data.
    let t = match raw.version {
        // SAFETY: the member of this version.
        QNN_TENSOR_VERSION_1 => unsafe { raw.anon0.v1 },
        QNN_TENSOR_VERSION_2 => {
            // SAFETY: the member of this version.
            let v2 = unsafe { raw.anon0.v2 };
            Qnn_TensorV1_t {
                id: v2.id,
                name: v2.name,
                r#type: v2.r#type,
                dataFormat: v2.dataFormat,
                dataType: v2.dataType,
                quantizeParams: v2.quantizeParams,
                rank: v2.rank,
                dimensions: v2.dimensions,
                ..Default::default()
            }
        }
        other => {
            return Err(Error::Description {
                what: format!("a tensor of {whose}"),
                why: format!("tensor version {other}"),
            });
        }
    };
    // SAFETY: a C string or null.
    let name = unsafe { text(t.name) };
    let odd = |why: String| Error::Description { what: format!("tensor `{name}` of {whose}"), why };
    if t.rank > MAX_RANK {
        return Err(odd(format!("rank {}", t.rank)));
    }
    // SAFETY: `rank` extents.
    let dims: Vec<usize> = unsafe { slice(t.dimensions, t.rank) }.iter().map(|&dim| dim as usize).collect();
    if dims.len() != t.rank as usize {
        return Err(odd("no extents".into()));
    }
    let dtype = dtype::from_raw(t.dataType).ok_or_else(|| odd(format!("data type {:#x}", t.dataType)))?;
    // Later code multiplies the extents without checks.
    dims.iter()
        .try_fold(dtype.size_bytes(), |size, &dim| size.checked_mul(dim))
        .ok_or_else(|| odd("more bytes than can be addressed".into()))?;
    // SAFETY: filled for its encoding, as the caller vouches.
    let quant = unsafe { quant::from_raw(&t.quantizeParams, &dims, &name) }?;
    let quant = if dtype.is_float() { genie_types::Quant::None } else { quant };
    let format = match t.dataFormat {
        QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER => DataFormat::Flat,
        QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT => DataFormat::HmxWeight,
        other => DataFormat::Other(other),
    };
    Ok((TensorInfo { name, dims, dtype, quant, format }, t.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use genie_types::{Dtype, Quant};

    #[test]
    fn a_tensor_comes_back_from_both_versions() {
        let info = TensorInfo::new("past_key_0_in", [2, 1, 32, 96], Dtype::UFixed8)
            .with_quant(Quant::PerTensor { scale: 0.5, offset: -128 });
        let (raw, store) = raw_tensor(&info, Role::Input, 7, Ownership::Copied).unwrap();
        // SAFETY: filled by `raw_tensor`; its store is still here.
        assert_eq!(unsafe { describe(&raw, "graph `g`") }.unwrap(), (info.clone(), 7));

        // SAFETY: version 1, as `raw_tensor` writes.
        let v1 = unsafe { raw.anon0.v1 };
        let mut second = Qnn_Tensor_t { version: QNN_TENSOR_VERSION_2, ..Default::default() };
        second.anon0.v2 = Qnn_TensorV2_t {
            id: v1.id,
            name: v1.name,
            dataType: v1.dataType,
            quantizeParams: v1.quantizeParams,
            rank: v1.rank,
            dimensions: v1.dimensions,
            ..Default::default()
        };
        // SAFETY: as above, in version 2.
        assert_eq!(unsafe { describe(&second, "graph `g`") }.unwrap(), (info, 7));
        drop(store);
    }

    #[test]
    fn scales_of_blocks_are_lent_where_they_lie() {
        let scale_offsets: Vec<(f32, i32)> = (0..32).map(|i| (0.5 + i as f32, i % 3 - 1)).collect();
        let quant = Quant::Block { block_dims: vec![1, 32], scale_offsets: scale_offsets.clone() };
        let info = TensorInfo::new("w", [16, 64], Dtype::SFixed8).with_quant(quant);
        let (raw, _store) = raw_tensor(&info, Role::Static, 3, Ownership::Lent).unwrap();
        // SAFETY: filled by `raw_tensor`; its store and the tensor are still here.
        assert_eq!(unsafe { describe(&raw, "graph `g`") }.unwrap(), (info.clone(), 3));
        let Quant::Block { scale_offsets, .. } = &info.quant else { unreachable!("as above") };
        // SAFETY: version 1, and the encoding is that of blocks.
        let lent = unsafe { raw.anon0.v1.quantizeParams.anon0.blockEncoding.scaleOffset };
        assert_eq!(lent.addr(), scale_offsets.as_ptr().addr(), "no copy");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let unknown = Qnn_Tensor_t { version: 9, ..Default::default() };
        // SAFETY: nothing is read behind an unknown version.
        let error = unsafe { describe(&unknown, "graph `g`") }.unwrap_err();
        assert!(error.to_string().contains("tensor version 9"), "{error}");

        let info = TensorInfo::new("x", [1 << 33], Dtype::F32);
        let error = raw_tensor(&info, Role::Native, 0, Ownership::Copied).err().unwrap();
        assert_eq!(error.to_string(), "extent of tensor `x`: expected at most 4294967295, found 8589934592");
        let error =
            raw_tensor(&TensorInfo::new("a\0b", [1], Dtype::F32), Role::Native, 0, Ownership::Copied).err().unwrap();
        assert_eq!(error.to_string(), r#"name "a\0b" holds a zero byte"#);
    }
}

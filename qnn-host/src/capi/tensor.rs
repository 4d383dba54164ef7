//! From the client's tensor structs to the host's own.

use std::ffi::c_char;

use qnn_sys as q;
use qnn_sys::{Qnn_QuantizeParams_t, Qnn_Tensor_t};

use crate::bytes::Bytes;
use crate::error::{Component, Error};
use crate::ir::{BlockScales, Dtype, Quant, Role, Tensor};

use super::execute::Buffer;
use super::objects::{MEMS, find};
use super::raw;

const TENSOR: Component = Component::Tensor;

/// A rank beyond this was never meant, so the dimensions are not even looked at.
const MAX_VIEWED_RANK: u32 = 64;

const NO_BUFFER: q::Qnn_ClientBuffer_t = q::Qnn_ClientBuffer_t { data: std::ptr::null_mut(), dataSize: 0 };

/// The fields that both versions of the struct have, at the same places.
pub(super) struct View<'a> {
    pub(super) id: u32,
    name: *const c_char,
    pub(super) kind: u32,
    format: u32,
    pub(super) dtype: u32,
    quant: &'a Qnn_QuantizeParams_t,
    pub(super) dims: &'a [u32],
    mem_type: u32,
    buffer: q::Qnn_ClientBuffer_t,
    mem: q::Qnn_MemHandle_t,
    dynamic: bool,
}

/// Reads the struct's fields.
///
/// # Safety
/// The pointers in `tensor` must be as QNN requires: null, or valid for what the struct declares, for as long as `tensor`.
pub(super) unsafe fn view(tensor: &Qnn_Tensor_t) -> Result<View<'_>, Error> {
    macro_rules! common {
        ($t:expr) => {{
            let t = $t;
            let (buffer, mem) = match t.memType {
                // SAFETY: the type decides which member it is; a handle is only a number here.
                q::QNN_TENSORMEMTYPE_MEMHANDLE => (NO_BUFFER, unsafe { t.anon0.memHandle }),
                // SAFETY: as above, and every member begins with an address.
                q::QNN_TENSORMEMTYPE_RAW => (unsafe { t.anon0.clientBuf }, std::ptr::null_mut()),
                _ => (NO_BUFFER, std::ptr::null_mut()),
            };
            if t.rank > MAX_VIEWED_RANK {
                let what = format!("expected a rank of at most {MAX_VIEWED_RANK}, found {}", t.rank);
                return Err(Error::Argument { component: TENSOR, what });
            }
            // SAFETY: the caller's promise about `dimensions` and `rank`.
            let dims = unsafe { raw::slice(t.dimensions.cast_const(), t.rank as usize, TENSOR, "dimensions") }?;
            View {
                id: t.id,
                name: t.name,
                kind: t.r#type,
                format: t.dataFormat,
                dtype: t.dataType,
                quant: &t.quantizeParams,
                dims,
                mem_type: t.memType,
                buffer,
                mem,
                dynamic: false,
            }
        }};
    }
    match tensor.version {
        q::QNN_TENSOR_VERSION_1 => {
            // SAFETY: the version decides which member it is, and its fields are plain data.
            Ok(common!(unsafe { &tensor.anon0.v1 }))
        }
        q::QNN_TENSOR_VERSION_2 => {
            // SAFETY: as above.
            let v2 = unsafe { &tensor.anon0.v2 };
            let mut view = common!(v2);
            if !v2.isDynamicDimensions.is_null() {
                // SAFETY: the caller's promise: as many flags as dimensions.
                let flags = unsafe {
                    raw::slice(v2.isDynamicDimensions.cast_const(), view.dims.len(), TENSOR, "isDynamicDimensions")
                }?;
                view.dynamic = flags.iter().any(|&f| f != 0);
            }
            Ok(view)
        }
        other => {
            Err(Error::Unsupported { component: TENSOR, what: format!("tensor version {other}, expected 1 or 2") })
        }
    }
}

impl View<'_> {
    /// The name, or nothing when it is null.
    ///
    /// # Safety
    /// As for [`view`].
    pub(super) unsafe fn name(&self) -> Result<&str, Error> {
        if self.name.is_null() {
            return Ok("");
        }
        // SAFETY: the caller's promise.
        unsafe { raw::text(self.name, TENSOR, "name") }
    }

    /// The client's memory for it. A registered memory is pushed to `mems`, which must live as long as the buffer.
    pub(super) fn buffer(&self, mems: &mut Vec<std::sync::Arc<super::mem::Mem>>) -> Result<Buffer, Error> {
        match self.mem_type {
            q::QNN_TENSORMEMTYPE_RAW => {
                Ok(Buffer { start: self.buffer.data.cast(), len: self.buffer.dataSize as usize })
            }
            q::QNN_TENSORMEMTYPE_MEMHANDLE => {
                let mem = find(&MEMS, self.mem)?;
                let buffer = mem.buffer();
                mems.push(mem);
                Ok(buffer)
            }
            other => Err(Error::Unsupported { component: TENSOR, what: format!("tensor memory type {other}") }),
        }
    }

    /// The host's form of it, static data and scales of blocks included through `keep`, which decides where bytes live.
    ///
    /// # Safety
    /// As for [`view`]; a static tensor's buffer must be readable for its length.
    pub(super) unsafe fn to_ir(
        &self,
        default_name: &str,
        keep: impl FnMut(&[u8]) -> Bytes,
    ) -> Result<(Tensor, bool), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.to_ir_from(default_name, false, keep) }
    }

    /// As [`View::to_ir`], but static data stay where the client has them.
    ///
    /// # Safety
    /// As for [`View::to_ir`], and for as long as the tensor refers to the data.
    pub(super) unsafe fn to_ir_lent(
        &self,
        default_name: &str,
        keep_scales: impl FnMut(&[u8]) -> Bytes,
    ) -> Result<(Tensor, bool), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.to_ir_from(default_name, true, keep_scales) }
    }

    /// # Safety
    /// As for [`View::to_ir`], with `lent` as for [`View::to_ir_lent`].
    unsafe fn to_ir_from(
        &self,
        default_name: &str,
        lent: bool,
        mut keep: impl FnMut(&[u8]) -> Bytes,
    ) -> Result<(Tensor, bool), Error> {
        // SAFETY: the caller's promise.
        let name = match unsafe { self.name() }? {
            "" => default_name,
            given => given,
        };
        let unsupported =
            |what: String| Error::Unsupported { component: TENSOR, what: format!("tensor `{name}`: {what}") };
        let (role, updateable) = match self.kind {
            q::QNN_TENSOR_TYPE_APP_WRITE => (Role::Input, false),
            q::QNN_TENSOR_TYPE_APP_READ => (Role::Output, false),
            q::QNN_TENSOR_TYPE_NATIVE => (Role::Native, false),
            q::QNN_TENSOR_TYPE_UPDATEABLE_NATIVE => (Role::Native, true),
            q::QNN_TENSOR_TYPE_UPDATEABLE_APP_WRITE => (Role::Input, true),
            q::QNN_TENSOR_TYPE_UPDATEABLE_APP_READ => (Role::Output, true),
            q::QNN_TENSOR_TYPE_NULL => (Role::Null, false),
            q::QNN_TENSOR_TYPE_STATIC | q::QNN_TENSOR_TYPE_UPDATEABLE_STATIC => {
                let mut mems = Vec::new();
                let buffer = self.buffer(&mut mems)?;
                // SAFETY: the caller's promise; a registered memory is held by `mems` until the end of this arm.
                let data = unsafe { raw::slice(buffer.start.cast_const(), buffer.len, TENSOR, "clientBuf.data") }?;
                let data = match lent && mems.is_empty() {
                    // SAFETY: the caller's promise.
                    true => unsafe { Bytes::from_client(data.as_ptr(), data.len()) },
                    false => keep(data),
                };
                (Role::Static(data), self.kind == q::QNN_TENSOR_TYPE_UPDATEABLE_STATIC)
            }
            other => return Err(unsupported(format!("tensor type {other}"))),
        };
        if self.dynamic {
            return Err(unsupported("dynamic dimensions".to_owned()));
        }
        let dtype = match Dtype::from_qnn(self.dtype) {
            Some(dtype) => dtype,
            None if matches!(role, Role::Null) => Dtype::F32,
            None => return Err(unsupported(format!("element type {:#06x}", self.dtype))),
        };
        let tiled = self.format == q::QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT;
        let can_be_tiled = matches!(role, Role::Input | Role::Output) && self.dims.len() >= 2;
        if self.format != q::QNN_TENSOR_DATA_FORMAT_DENSE && !(tiled && can_be_tiled) {
            return Err(unsupported(format!("data format {}", self.format)));
        }
        // SAFETY: the caller's promise.
        let quant = unsafe { quant(self.quant, self.dims, name, &mut keep) }?;
        let tensor =
            Tensor { name: name.to_owned(), dims: self.dims.to_vec(), dtype, quant, data_format: self.format, role };
        Ok((tensor, updateable))
    }
}

/// Reads an encoding.
///
/// # Safety
/// Its pointers must be valid for the counts it states.
unsafe fn quant(
    params: &Qnn_QuantizeParams_t,
    dims: &[u32],
    name: &str,
    keep: &mut impl FnMut(&[u8]) -> Bytes,
) -> Result<Quant, Error> {
    if params.encodingDefinition != q::QNN_DEFINITION_DEFINED {
        return Ok(Quant::None);
    }
    let axis_of = |axis: i32| {
        u32::try_from(axis).map_err(|_| Error::Argument {
            component: TENSOR,
            what: format!("tensor `{name}`: expected an encoding axis of at least 0, found {axis}"),
        })
    };
    match params.quantizationEncoding {
        q::QNN_QUANTIZATION_ENCODING_UNDEFINED => Ok(Quant::None),
        q::QNN_QUANTIZATION_ENCODING_SCALE_OFFSET => {
            // SAFETY: plain data, and the encoding decides which member it is.
            let e = unsafe { params.anon0.scaleOffsetEncoding };
            Ok(Quant::PerTensor { scale: e.scale, offset: e.offset })
        }
        q::QNN_QUANTIZATION_ENCODING_BW_SCALE_OFFSET => {
            // SAFETY: as above. Values of a narrow width are stored one per element, so the width adds nothing.
            let e = unsafe { params.anon0.bwScaleOffsetEncoding };
            Ok(Quant::PerTensor { scale: e.scale, offset: e.offset })
        }
        q::QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET => {
            // SAFETY: as above.
            let e = unsafe { params.anon0.axisScaleOffsetEncoding };
            // SAFETY: the caller's promise about the count.
            let pairs =
                unsafe { raw::slice(e.scaleOffset.cast_const(), e.numScaleOffsets as usize, TENSOR, "scaleOffset") }?;
            Ok(Quant::PerAxis {
                axis: axis_of(e.axis)?,
                bits: 0,
                scales: pairs.iter().map(|p| p.scale).collect(),
                offsets: pairs.iter().map(|p| p.offset).collect(),
            })
        }
        q::QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET => {
            // SAFETY: as above.
            let e = unsafe { params.anon0.bwAxisScaleOffsetEncoding };
            let n = e.numElements as usize;
            // SAFETY: the caller's promise about the count.
            let scales = unsafe { raw::slice(e.scales.cast_const(), n, TENSOR, "scales") }?;
            let offsets = if e.offsets.is_null() {
                &[][..]
            } else {
                // SAFETY: as for the scales.
                unsafe { raw::slice(e.offsets.cast_const(), n, TENSOR, "offsets") }?
            };
            Ok(Quant::PerAxis {
                axis: axis_of(e.axis)?,
                bits: e.bitwidth,
                scales: scales.into(),
                offsets: offsets.into(),
            })
        }
        q::QNN_QUANTIZATION_ENCODING_BLOCK => {
            // SAFETY: as above.
            let e = unsafe { params.anon0.blockEncoding };
            // SAFETY: the caller's promise: a block extent for each dimension.
            let blocks = unsafe { raw::slice(e.blockSize.cast_const(), dims.len(), TENSOR, "blockSize") }?;
            let n = blocks.iter().zip(dims).try_fold(1usize, |n, (&b, &d)| {
                (b != 0 && d % b == 0).then(|| n.checked_mul((d / b) as usize)).flatten()
            });
            let n = n.ok_or_else(|| Error::Argument {
                component: TENSOR,
                what: format!("tensor `{name}`: expected blocks that divide {dims:?}, found {blocks:?}"),
            })?;
            // SAFETY: the caller's promise: a pair for each block.
            let pairs = unsafe { raw::slice(e.scaleOffset.cast_const(), n, TENSOR, "scaleOffset") }?;
            let scales: Vec<u8> = pairs.iter().flat_map(|p| p.scale.to_le_bytes()).collect();
            // All zero means none: there are many.
            let plain = pairs.iter().all(|p| p.offset == 0);
            Ok(Quant::Block {
                block_dims: blocks.into(),
                scales: BlockScales::new(keep(&scales)).expect("four bytes a scale"),
                offsets: if plain { [].into() } else { pairs.iter().map(|p| p.offset).collect() },
            })
        }
        other => Err(Error::Unsupported { component: TENSOR, what: format!("tensor `{name}`: encoding {other}") }),
    }
}

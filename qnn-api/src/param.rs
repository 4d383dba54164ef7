//! Parameters of a node: what a caller says, and the same as C takes it.
//!
//! *Layout*: tables are row-major, the outermost extent first; numbers in the byte order of this machine.

use std::ffi::CString;

use genie_types::{Dtype, TensorInfo};
use half::f16;
use qnn_sys::*;

use crate::error::{Error, Result};

/// A parameter of a node. QNN's own ops take numbers of 32 bits, switches and tables of integers; what an op of a package takes,
/// its package says.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// A number.
    F32(f32),
    /// A number in half precision.
    F16(f16),
    /// A number in double precision.
    F64(f64),
    /// A count of 8 bits.
    U8(u8),
    /// A signed number of 8 bits.
    I8(i8),
    /// A count of 16 bits.
    U16(u16),
    /// A signed number of 16 bits.
    I16(i16),
    /// A count, an axis, a mode.
    U32(u32),
    /// An axis that may be negative.
    I32(i32),
    /// A count beyond 32 bits.
    U64(u64),
    /// A signed number beyond 32 bits.
    I64(i64),
    /// A switch.
    Bool(bool),
    /// A text without a zero byte.
    Text(String),
    /// A row-major table of counts.
    U32Tensor {
        /// Extents.
        dims: Vec<usize>,
        /// Elements, as many as the extents say.
        data: Vec<u32>,
    },
    /// A row-major table of signed numbers.
    I32Tensor {
        /// Extents.
        dims: Vec<usize>,
        /// Elements, as many as the extents say.
        data: Vec<i32>,
    },
    /// A row-major table of float32.
    F32Tensor {
        /// Extents.
        dims: Vec<usize>,
        /// Elements, as many as the extents say.
        data: Vec<f32>,
    },
    /// A row-major table of any type, without an encoding.
    Tensor {
        /// Element type.
        dtype: Dtype,
        /// Extents.
        dims: Vec<usize>,
        /// Elements as they lie in memory: as many bytes as type and extents say.
        data: Vec<u8>,
    },
}

/// Whose parameter it is, for errors and for the name of a table's tensor.
#[derive(Clone, Copy)]
pub(crate) struct Owner<'a> {
    pub(crate) graph: &'a str,
    pub(crate) node: &'a str,
    pub(crate) param: &'a str,
}

/// A parameter that has been checked, before the library knows of it.
pub(crate) enum Value {
    Scalar(Qnn_Scalar_t),
    /// With its zero byte.
    Text(Vec<u8>),
    /// A static tensor and its contents: as many bytes as it says.
    Table(TensorInfo, Vec<u8>),
}

impl Owner<'_> {
    fn invalid(&self, dims: Option<&[usize]>, expected: String, found: String) -> Error {
        let Self { graph, node, param } = self;
        let mut what = format!("graph `{graph}`, node `{node}`: parameter `{param}`");
        if let Some(dims) = dims {
            what += &format!(" {dims:?}");
        }
        Error::Invalid { what, expected, found }
    }

    fn info(&self, dims: &[usize], dtype: Dtype) -> TensorInfo {
        TensorInfo::new(format!("{}_{}", self.node, self.param), dims, dtype)
    }

    fn table<const N: usize>(
        &self,
        dims: &[usize],
        dtype: Dtype,
        data: impl Iterator<Item = [u8; N]>,
    ) -> Result<Value> {
        let (info, bytes) = (self.info(dims, dtype), data.flatten().collect::<Vec<_>>());
        if bytes.len() != info.size_bytes() {
            let (expected, found) = (format!("{} elements", info.n_elems()), (bytes.len() / N).to_string());
            return Err(self.invalid(Some(dims), expected, found));
        }
        Ok(Value::Table(info, bytes))
    }
}

impl Param {
    /// The same as C takes it.
    ///
    /// # Errors
    /// A text with a zero byte, a table whose size contradicts its extents.
    pub(crate) fn check(&self, of: Owner<'_>) -> Result<Value> {
        Ok(match self {
            Self::F32(x) => Value::Scalar(scalar!(QNN_DATATYPE_FLOAT_32, floatValue, *x)),
            // The union has no member of its own for half precision: its bits lie where a number of 16 bits does.
            Self::F16(x) => Value::Scalar(scalar!(QNN_DATATYPE_FLOAT_16, uint16Value, x.to_bits())),
            Self::F64(x) => Value::Scalar(scalar!(QNN_DATATYPE_FLOAT_64, doubleValue, *x)),
            Self::U8(n) => Value::Scalar(scalar!(QNN_DATATYPE_UINT_8, uint8Value, *n)),
            Self::I8(n) => Value::Scalar(scalar!(QNN_DATATYPE_INT_8, int8Value, *n)),
            Self::U16(n) => Value::Scalar(scalar!(QNN_DATATYPE_UINT_16, uint16Value, *n)),
            Self::I16(n) => Value::Scalar(scalar!(QNN_DATATYPE_INT_16, int16Value, *n)),
            Self::U32(n) => Value::Scalar(scalar!(QNN_DATATYPE_UINT_32, uint32Value, *n)),
            Self::I32(n) => Value::Scalar(scalar!(QNN_DATATYPE_INT_32, int32Value, *n)),
            Self::U64(n) => Value::Scalar(scalar!(QNN_DATATYPE_UINT_64, uint64Value, *n)),
            Self::I64(n) => Value::Scalar(scalar!(QNN_DATATYPE_INT_64, int64Value, *n)),
            Self::Bool(on) => Value::Scalar(scalar!(QNN_DATATYPE_BOOL_8, bool8Value, u8::from(*on))),
            Self::Text(text) => match CString::new(text.as_str()) {
                Ok(text) => Value::Text(text.into_bytes_with_nul()),
                Err(_) => return Err(of.invalid(None, "a text without a zero byte".into(), format!("{text:?}"))),
            },
            Self::U32Tensor { dims, data } => of.table(dims, Dtype::U32, data.iter().map(|n| n.to_ne_bytes()))?,
            Self::I32Tensor { dims, data } => of.table(dims, Dtype::I32, data.iter().map(|n| n.to_ne_bytes()))?,
            Self::F32Tensor { dims, data } => of.table(dims, Dtype::F32, data.iter().map(|x| x.to_ne_bytes()))?,
            Self::Tensor { dtype, dims, data } => {
                let info = of.info(dims, *dtype);
                if data.len() != info.size_bytes() {
                    let expected = format!("{} bytes of {dtype}", info.size_bytes());
                    return Err(of.invalid(Some(dims), expected, data.len().to_string()));
                }
                Value::Table(info, data.clone())
            }
        })
    }
}

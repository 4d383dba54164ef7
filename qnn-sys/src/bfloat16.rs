//! An element type that is newer than the headers which `abi/qnn-abi.json` was read from.
//!
//! QAIRT's newer headers have the number, and `libQnnHtp.so` of 2.51 answers to it by the type's name (`qnn-api/tests/real_htp.rs`).

use crate::Qnn_DataType_t;

/// bfloat16: the upper half of a float32.
pub const QNN_DATATYPE_BFLOAT_16: Qnn_DataType_t = 0x0226;

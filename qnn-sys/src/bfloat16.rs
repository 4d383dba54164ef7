//! An element type that is newer than the headers which `abi/qnn-abi.json` was read from.
//!
//! QAIRT's headers of 2025 have it, and the libraries of 2.51 name it in their messages.

use crate::Qnn_DataType_t;

/// bfloat16: the upper half of a float32.
pub const QNN_DATATYPE_BFLOAT_16: Qnn_DataType_t = 0x0226;

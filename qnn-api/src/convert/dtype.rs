//! Element types by name and by QNN's number.

use genie_types::Dtype;
use qnn_sys::*;

/// QNN's number.
pub(super) const fn to_raw(dtype: Dtype) -> Qnn_DataType_t {
    match dtype {
        Dtype::F16 => QNN_DATATYPE_FLOAT_16,
        Dtype::F32 => QNN_DATATYPE_FLOAT_32,
        Dtype::F64 => QNN_DATATYPE_FLOAT_64,
        Dtype::Bf16 => QNN_DATATYPE_BFLOAT_16,
        Dtype::I8 => QNN_DATATYPE_INT_8,
        Dtype::I16 => QNN_DATATYPE_INT_16,
        Dtype::I32 => QNN_DATATYPE_INT_32,
        Dtype::I64 => QNN_DATATYPE_INT_64,
        Dtype::U8 => QNN_DATATYPE_UINT_8,
        Dtype::U16 => QNN_DATATYPE_UINT_16,
        Dtype::U32 => QNN_DATATYPE_UINT_32,
        Dtype::U64 => QNN_DATATYPE_UINT_64,
        Dtype::Bool8 => QNN_DATATYPE_BOOL_8,
        Dtype::UFixed4 => QNN_DATATYPE_UFIXED_POINT_4,
        Dtype::UFixed8 => QNN_DATATYPE_UFIXED_POINT_8,
        Dtype::UFixed16 => QNN_DATATYPE_UFIXED_POINT_16,
        Dtype::UFixed32 => QNN_DATATYPE_UFIXED_POINT_32,
        Dtype::SFixed4 => QNN_DATATYPE_SFIXED_POINT_4,
        Dtype::SFixed8 => QNN_DATATYPE_SFIXED_POINT_8,
        Dtype::SFixed16 => QNN_DATATYPE_SFIXED_POINT_16,
        Dtype::SFixed32 => QNN_DATATYPE_SFIXED_POINT_32,
    }
}

/// Our name for QNN's number.
pub(super) fn from_raw(raw: Qnn_DataType_t) -> Option<Dtype> {
    Dtype::ALL.into_iter().find(|&dtype| to_raw(dtype) == raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back() {
        for dtype in Dtype::ALL {
            assert_eq!(from_raw(to_raw(dtype)), Some(dtype));
        }
        assert_eq!(to_raw(Dtype::Bf16), 0x0226);
        assert_eq!(from_raw(QNN_DATATYPE_STRING), None);
    }
}

//! Element types of tensors, as QNN names them, without QNN's numbers.

use core::fmt;

/// Type of one element. The fixed-point types carry codes; [`crate::Quant`] says what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the meaning
pub enum Dtype {
    F16,
    F32,
    F64,
    Bf16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool8,
    /// Unsigned fixed point; 4-bit codes take a byte each unless a block encoding packs them.
    UFixed4,
    UFixed8,
    UFixed16,
    UFixed32,
    SFixed4,
    SFixed8,
    SFixed16,
    SFixed32,
}

impl Dtype {
    /// Every type.
    pub const ALL: [Self; 21] = [
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::Bool8,
        Self::UFixed4,
        Self::UFixed8,
        Self::UFixed16,
        Self::UFixed32,
        Self::SFixed4,
        Self::SFixed8,
        Self::SFixed16,
        Self::SFixed32,
    ];

    /// Bytes one element takes in a client buffer.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool8 | Self::UFixed4 | Self::UFixed8 | Self::SFixed4 | Self::SFixed8 => 1,
            Self::F16 | Self::Bf16 | Self::I16 | Self::U16 | Self::UFixed16 | Self::SFixed16 => 2,
            Self::F32 | Self::I32 | Self::U32 | Self::UFixed32 | Self::SFixed32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
        }
    }

    /// True for the types whose codes need a [`crate::Quant`].
    pub const fn is_fixed_point(self) -> bool {
        matches!(
            self,
            Self::UFixed4
                | Self::UFixed8
                | Self::UFixed16
                | Self::UFixed32
                | Self::SFixed4
                | Self::SFixed8
                | Self::SFixed16
                | Self::SFixed32
        )
    }

    /// True for IEEE and brain floats.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32 | Self::F64 | Self::Bf16)
    }

    /// The name used in messages and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::Bf16 => "bfloat16",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::Bool8 => "bool8",
            Self::UFixed4 => "ufixed4",
            Self::UFixed8 => "ufixed8",
            Self::UFixed16 => "ufixed16",
            Self::UFixed32 => "ufixed32",
            Self::SFixed4 => "sfixed4",
            Self::SFixed8 => "sfixed8",
            Self::SFixed16 => "sfixed16",
            Self::SFixed32 => "sfixed32",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

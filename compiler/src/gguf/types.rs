//! Element types of tensors: those that are read, and the names of all others, so that a refusal can name them.
//!
//! *Source*: ggml's list of types. Numbers that are missing there (4, 5, 31 to 33, 36 to 38) were given up: removed formats.

use super::blocks::BlockFormat;
use core::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GgmlType {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// Upper half of an IEEE single.
    Bf16,
    /// Blocks of quantised values.
    Blocks(BlockFormat),
    /// Any other, by its number.
    Other(u32),
}

/// The types that are read, for messages.
pub(crate) const READ: &str =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS or MXFP4";

/// A type that is not read: number, name, and elements and bytes of a block where the format is still in use.
type Unread = (u32, &'static str, Option<(usize, usize)>);

const UNREAD: [Unread; 26] = [
    (4, "Q4_2", None),
    (5, "Q4_3", None),
    (9, "Q8_1", Some((32, 40))),
    (15, "Q8_K", Some((256, 292))),
    (16, "IQ2_XXS", Some((256, 66))),
    (17, "IQ2_XS", Some((256, 74))),
    (18, "IQ3_XXS", Some((256, 98))),
    (19, "IQ1_S", Some((256, 50))),
    (21, "IQ3_S", Some((256, 110))),
    (22, "IQ2_S", Some((256, 82))),
    (24, "I8", Some((1, 1))),
    (25, "I16", Some((1, 2))),
    (26, "I32", Some((1, 4))),
    (27, "I64", Some((1, 8))),
    (28, "F64", Some((1, 8))),
    (29, "IQ1_M", Some((256, 56))),
    (31, "Q4_0_4_4", None),
    (32, "Q4_0_4_8", None),
    (33, "Q4_0_8_8", None),
    (34, "TQ1_0", Some((256, 54))),
    (35, "TQ2_0", Some((256, 66))),
    (36, "IQ4_NL_4_4", None),
    (37, "IQ4_NL_4_8", None),
    (38, "IQ4_NL_8_8", None),
    (40, "NVFP4", Some((64, 36))),
    (41, "Q1_0", Some((128, 18))),
];

impl GgmlType {
    pub(super) fn from_number(number: u32) -> Self {
        match number {
            0 => Self::F32,
            1 => Self::F16,
            30 => Self::Bf16,
            2 => Self::Blocks(BlockFormat::Q4_0),
            3 => Self::Blocks(BlockFormat::Q4_1),
            6 => Self::Blocks(BlockFormat::Q5_0),
            7 => Self::Blocks(BlockFormat::Q5_1),
            8 => Self::Blocks(BlockFormat::Q8_0),
            12 => Self::Blocks(BlockFormat::Q4K),
            13 => Self::Blocks(BlockFormat::Q5K),
            14 => Self::Blocks(BlockFormat::Q6K),
            10 => Self::Blocks(BlockFormat::Q2K),
            11 => Self::Blocks(BlockFormat::Q3K),
            20 => Self::Blocks(BlockFormat::IQ4_NL),
            23 => Self::Blocks(BlockFormat::IQ4_XS),
            39 => Self::Blocks(BlockFormat::MXFP4),
            other => Self::Other(other),
        }
    }

    /// Elements and bytes of a block; plain numbers are blocks of one. `None` where the format is not known.
    pub(crate) fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::Bf16 => Some((1, 2)),
            Self::Blocks(format) => Some((format.elems(), format.bytes())),
            Self::Other(number) => UNREAD.iter().find(|(n, ..)| *n == number)?.2,
        }
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.write_str("F32"),
            Self::F16 => f.write_str("F16"),
            Self::Bf16 => f.write_str("BF16"),
            Self::Blocks(format) => f.write_str(format.name()),
            Self::Other(number) => match UNREAD.iter().find(|(n, ..)| n == number) {
                Some((_, name, _)) => f.write_str(name),
                None => write!(f, "the unknown ggml type {number}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> = (0..42).map(|n| GgmlType::from_number(n).to_string()).collect();
        assert_eq!(names.len(), 42);
        assert!(names.iter().all(|name| !name.contains("unknown")), "{names:?}");
        assert_eq!(GgmlType::from_number(16).to_string(), "IQ2_XXS");
        assert_eq!(GgmlType::from_number(39).to_string(), "MXFP4");
        assert_eq!(GgmlType::from_number(1000).to_string(), "the unknown ggml type 1000");
    }
}

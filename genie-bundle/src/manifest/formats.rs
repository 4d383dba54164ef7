//! How a bundle was cut and in which formats it was compiled: words that the manifest, the compiler and its flags share.

use core::{fmt, str::FromStr};

use genie_types::Dtype;
use serde::{Deserialize, Serialize};

/// A word that is none of those expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`: expected one of {}", quoted(expected))]
pub struct UnknownWord {
    /// What it should name.
    pub what: &'static str,
    /// The word.
    pub found: String,
    /// Those that would do.
    pub expected: &'static [&'static str],
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Where the model is cut. Each piece becomes one context binary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Splits {
    /// One binary holds everything.
    #[default]
    Mono,
    /// Embedding and layers, then final norm and LM head.
    DecoderLmhead,
    /// Embedding alone, layers, then final norm and LM head.
    LutDecoderLmhead,
}

/// Element type of everything that is not an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE single.
    F32,
    /// IEEE half: half the bytes, weights above 65504 are refused.
    #[default]
    F16,
}

impl Precision {
    /// The tensors' element type.
    pub const fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
        }
    }
}

/// How the weights of linear layers are stored. Norms and biases keep the [`Precision`]; so do embeddings except with
/// `bf16` and in the block formats, which hold them (and a head that is tied to them) as `q8_0`, or as a GGUF file has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(non_camel_case_types, reason = "the formats' own names")]
pub enum Weights {
    /// In the precision of the activations.
    #[default]
    Float,
    /// bfloat16, as checkpoints are published; embeddings (and a head that is tied to them) as well. For the embedded backend.
    Bf16,
    /// Symmetric int8 with one scale for each output channel.
    W8,
    /// Symmetric 4 bits with one scale for each output channel.
    W4,
    /// int8 in blocks of 32 inputs with a float16 scale each, as GGUF's format of that name. For the embedded backend.
    Q8_0,
    /// 4 bits in blocks of 32 inputs with a float16 scale each, as GGUF's format of that name. For the embedded backend.
    Q4_0,
}

macro_rules! spelled {
    ($type:ident, $what:literal, $($variant:ident = $text:literal),+) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$variant => $text),+ })
            }
        }

        impl FromStr for $type {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($text => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { what: $what, found: text.into(), expected: &[$($text),+] }),
                }
            }
        }
    };
}

spelled!(
    Splits,
    "split layout",
    Mono = "mono",
    DecoderLmhead = "decoder-lmhead",
    LutDecoderLmhead = "lut-decoder-lmhead"
);
spelled!(Precision, "precision", F32 = "f32", F16 = "f16");
spelled!(Weights, "weight format", Float = "float", Bf16 = "bf16", W8 = "w8", W4 = "w4", Q8_0 = "q8_0", Q4_0 = "q4_0");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_as_they_print() {
        for splits in [Splits::Mono, Splits::DecoderLmhead, Splits::LutDecoderLmhead] {
            assert_eq!(splits.to_string().parse::<Splits>().unwrap(), splits);
        }
        for weights in [Weights::Float, Weights::Bf16, Weights::W8, Weights::W4, Weights::Q8_0, Weights::Q4_0] {
            assert_eq!(weights.to_string().parse::<Weights>().unwrap(), weights);
        }
        assert_eq!("f32".parse::<Precision>().unwrap().dtype(), Dtype::F32);
        assert_eq!(
            "int4".parse::<Precision>().unwrap_err().to_string(),
            "unknown precision `int4`: expected one of `f32`, `f16`"
        );
    }
}

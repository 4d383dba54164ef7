//! Model families: each turns its Hugging Face configuration into the one neutral [`ModelSpec`].
//!
//! A family file says what is particular to it (biases, norms, defaults) and which of its features we refuse, by name.

mod common;
mod llama;
mod qwen2;
mod qwen3;
mod raw;
mod rope;
#[cfg(test)]
mod tests;
mod tokens;

pub use rope::{Llama3Scaling, Rope};
pub use tokens::{SamplerDefaults, SpecialTokens};

use crate::{CompileError, Result, fs};
use core::fmt;
use raw::RawConfig;
use std::path::Path;

/// The families this compiler knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `LlamaForCausalLM`: Llama 2, 3, 3.1, 3.2 and look-alikes.
    Llama,
    /// `Qwen2ForCausalLM`: Qwen 2 and 2.5; biases on Q, K and V.
    Qwen2,
    /// `Qwen3ForCausalLM`: norms on Q and K, explicit head width.
    Qwen3,
}

/// Architecture names as `config.json` spells them, in the order messages list them.
const SUPPORTED: &[(&str, &str, Family)] = &[
    ("LlamaForCausalLM", "llama", Family::Llama),
    ("Qwen2ForCausalLM", "qwen2", Family::Qwen2),
    ("Qwen3ForCausalLM", "qwen3", Family::Qwen3),
];

impl Family {
    /// The lower-case name, as in `model_type`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
        }
    }

    fn detect(raw: &RawConfig) -> Result<Self> {
        let unsupported = |found: String| CompileError::UnsupportedArchitecture {
            found,
            supported: SUPPORTED.iter().map(|(name, ..)| *name).collect(),
        };
        if let Some(name) = raw.architectures.as_ref().and_then(|list| list.first()) {
            let known = SUPPORTED.iter().find(|(architecture, ..)| architecture == name);
            return known.map(|(.., family)| *family).ok_or_else(|| unsupported(name.clone()));
        }
        match &raw.model_type {
            Some(model_type) => {
                let known = SUPPORTED.iter().find(|(_, name, _)| name == model_type);
                known.map(|(.., family)| *family).ok_or_else(|| unsupported(format!("model_type {model_type}")))
            }
            None => Err(CompileError::ConfigMissing { key: "architectures" }),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the lowering needs to know of a decoder, whatever its family.
///
/// *Invariants*: extents are non-zero, `n_heads` is a multiple of `n_kv_heads`, `head_dim` is even.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Where it came from.
    pub family: Family,
    /// Decoder layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the feed-forward part.
    pub ffn: usize,
    /// Vocabulary entries: rows of the embedding.
    pub vocab: usize,
    /// Added to the mean square in every RMS norm.
    pub rms_eps: f32,
    /// Rotary positions.
    pub rope: Rope,
    /// Positions the model was trained for, when the configuration says.
    pub max_positions: Option<usize>,
    /// The LM head is the embedding.
    pub tied: bool,
    /// Which of the linear parts carry biases.
    pub biases: Biases,
    /// Queries and keys are normalised per head before the rotation.
    pub qk_norm: bool,
    /// Ids with a meaning.
    pub tokens: SpecialTokens,
    /// What the checkpoint's authors sample with.
    pub sampler: SamplerDefaults,
}

/// Which linear parts carry biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Q, K and V projections.
    pub qkv: bool,
    /// Output projection of the attention.
    pub o: bool,
    /// All three of the feed-forward part.
    pub mlp: bool,
}

impl ModelSpec {
    /// Reads `config.json`, and `generation_config.json` and `tokenizer_config.json` where present.
    ///
    /// # Errors
    /// Unreadable files, an unsupported architecture or feature, extents that do not fit together.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.join("config.json");
        let raw: RawConfig = fs::from_json(&path, &fs::read(&path)?)?;
        let family = Family::detect(&raw)?;
        common::refuse_everywhere(&raw)?;
        let mut spec = match family {
            Family::Llama => llama::spec(&raw),
            Family::Qwen2 => qwen2::spec(&raw),
            Family::Qwen3 => qwen3::spec(&raw),
        }?;
        common::check(&spec)?;
        (spec.tokens, spec.sampler) = tokens::load(dir, &raw, &spec)?;
        Ok(spec)
    }

    /// Query heads that share a key head.
    pub const fn group_size(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// Width of the rotary tables: one column per rotated pair.
    pub const fn rope_dim(&self) -> usize {
        self.head_dim / 2
    }
}

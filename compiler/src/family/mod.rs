//! Model families: Hugging Face configurations read into one neutral [`ModelSpec`].
//!
//! A family on the Llama skeleton is one file (a constant that lists what it varies) and one row of the table below. Steps:
//! `docs/add-a-model-family.md`.

mod llama;
mod qwen2;
mod qwen3;
mod raw;
mod rope;
mod skeleton;
#[cfg(test)]
mod tests;
mod tokens;

pub use rope::{Llama3Scaling, Rope};
pub(crate) use skeleton::{Bias, FamilyInfo, SlidingWindow};
pub use tokens::{SamplerDefaults, SpecialTokens};

use crate::model_files::ModelFiles;
use crate::{CompileError, Result, fs};
use core::fmt;
use raw::RawConfig;
use std::path::Path;

macro_rules! families {
    ($($(#[$doc:meta])+ $family:ident => $info:path,)+) => {
        /// The families that this compiler supports.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Family {
            $($(#[$doc])+ $family,)+
        }

        impl Family {
            /// All of them, in the order in which messages list them.
            pub const ALL: &[Self] = &[$(Self::$family),+];

            pub(crate) const fn info(self) -> &'static FamilyInfo {
                match self {
                    $(Self::$family => &$info,)+
                }
            }
        }
    };
}

families! {
    /// `LlamaForCausalLM`: Llama 2, 3, 3.1, 3.2 and models that reuse the class.
    Llama => llama::FAMILY,
    /// `Qwen2ForCausalLM`: Qwen 2 and 2.5; biases on Q, K and V.
    Qwen2 => qwen2::FAMILY,
    /// `Qwen3ForCausalLM`: norms on Q and K, explicit head width.
    Qwen3 => qwen3::FAMILY,
}

impl Family {
    /// The lower-case name, as in `model_type` and in GGUF files.
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The class that `architectures` has in `config.json`.
    pub const fn class(self) -> &'static str {
        self.info().class
    }

    /// The family of that name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|family| family.name() == name)
    }

    fn detect(raw: &RawConfig) -> Result<Self> {
        let class = raw.architectures.as_ref().and_then(|list| list.first());
        let (family, found) = match (class, &raw.model_type) {
            (Some(class), _) => (Self::ALL.iter().copied().find(|f| f.class() == class), class.clone()),
            (None, Some(name)) => (Self::by_name(name), format!("model_type {name}")),
            (None, None) => return Err(CompileError::ConfigMissing { key: "architectures" }),
        };
        let supported = || Self::ALL.iter().map(|family| family.class()).collect();
        family.ok_or_else(|| CompileError::UnsupportedArchitecture { found, supported: supported() })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the lowering needs to know about a decoder, whatever its family.
///
/// *Invariants*: extents are non-zero, `n_heads` is a multiple of `n_kv_heads`, `head_dim` is even.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// The family of its configuration.
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
    /// Positions the model was trained for, when the configuration has them.
    pub max_positions: Option<usize>,
    /// The LM head is the embedding.
    pub tied: bool,
    /// Which of the linear parts carry biases.
    pub biases: Biases,
    /// Queries and keys are normalised per head before the rotation.
    pub qk_norm: bool,
    /// Special token ids.
    pub tokens: SpecialTokens,
    /// The sampling parameters that the checkpoint's authors recommend.
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
        Self::of_files(&ModelFiles::Folder(dir.into()))
    }

    /// As [`Self::load`], wherever the files are.
    pub(crate) fn of_files(files: &ModelFiles) -> Result<Self> {
        let raw: RawConfig = fs::from_json(&files.path("config.json"), &files.read("config.json")?)?;
        let family = Family::detect(&raw)?;
        let mut spec = skeleton::read(&raw, family)?;
        (spec.tokens, spec.sampler) = tokens::load(files, &raw, &spec)?;
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

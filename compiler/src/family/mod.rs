//! Model families: Hugging Face configurations read into one neutral [`ModelSpec`].
//!
//! A family on the Llama skeleton is one file (a constant that lists what it varies) and one row of the table below. Steps:
//! `docs/add-a-model-family.md`.

mod eagle_head;
mod factors;
mod fused;
mod gemma2;
mod gemma3;
pub(crate) mod gpt2;
mod granite;
mod keys;
mod layers;
mod llama;
mod local_rope;
mod mistral;
mod olmo2;
mod olmo3;
mod parts;
mod phi3;
mod qwen2;
mod qwen3;
mod rope;
mod skeleton;
mod smollm3;
mod stablelm;
#[cfg(test)]
mod tests;
mod tokens;

pub use eagle_head::EagleHead;
pub(crate) use factors::FactorKeys;
pub(crate) use fused::{Fused, GATE_UP, QKV, fused_name};
pub(crate) use layers::SlidingWindow;
pub use local_rope::LocalRope;
pub(crate) use local_rope::{LOCAL_TABLES, LocalPositions};
pub use parts::{Activation, Factors, NormKind, NormPlace, QkNorm, Window};
pub use rope::{Rope, RopeScaling};
pub(crate) use skeleton::{Bias, FamilyInfo};
pub use tokens::{SamplerDefaults, SpecialTokens};

use crate::json::{self, Object, shown_key};
use crate::model_files::ModelFiles;
use crate::{CompileError, Result};
use core::fmt;
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
    /// `MistralForCausalLM`: Mistral 7B, Nemo, Ministral.
    Mistral => mistral::FAMILY,
    /// `Phi3ForCausalLM`: Phi 3, Phi 3.5, Phi 4 and Phi 4 mini; fused projections, parts of heads rotated.
    Phi3 => phi3::FAMILY,
    /// `GraniteForCausalLM`: Granite 3; factors of embedding, residual stream, scores and logits.
    Granite => granite::FAMILY,
    /// `SmolLM3ForCausalLM`: layers without rotary positions.
    SmolLm3 => smollm3::FAMILY,
    /// `Olmo2ForCausalLM`: norms behind attention and feed-forward part, and over all queries and keys.
    Olmo2 => olmo2::FAMILY,
    /// `Olmo3ForCausalLM`: OLMo 2 with windows in three of four layers, whose positions are not scaled.
    Olmo3 => olmo3::FAMILY,
    /// `Gemma2ForCausalLM`: norms on both sides, soft caps, GELU.
    Gemma2 => gemma2::FAMILY,
    /// `Gemma3ForCausalLM`: the text models; norms on Q and K, positions of their own in layers with a window.
    Gemma3 => gemma3::FAMILY,
    /// `StableLmForCausalLM`: layer norms with biases, a part of each head rotated.
    StableLm => stablelm::FAMILY,
    /// `GPT2LMHeadModel`: GPT-2; learned positions, layer norms, biases everywhere, no gate.
    Gpt2 => gpt2::FAMILY,
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

    /// What `general.architecture` calls it in GGUF files, and what their keys begin with.
    pub(crate) const fn gguf_name(self) -> &'static str {
        match self.info().gguf {
            Some(name) => name,
            None => self.name(),
        }
    }

    /// How checkpoints of the family call the tensor that holds one of the compiler's names, and whether it is stored the other way
    /// round, `[in, out]`.
    pub(crate) fn stored(self, name: &str) -> (String, bool) {
        let info = self.info();
        let whole = fused_name(name, info.fused).unwrap_or_else(|| name.to_owned());
        if !info.learned_positions {
            return (whole, false);
        }
        let stored = gpt2::stored_name(&whole, gpt2::PREFIX).unwrap_or(whole);
        let turned = gpt2::is_conv1d(&stored);
        (stored, turned)
    }

    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|family| family.name() == name)
    }

    /// The families that GGUF files are read of.
    pub(crate) fn of_gguf() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|family| family.info().gguf.is_some())
    }

    /// The name in GGUF files is that of another family, listed before this one.
    pub(crate) fn shares_gguf_name(self) -> bool {
        Self::of_gguf().find(|family| family.gguf_name() == self.gguf_name()) != Some(self)
    }

    fn detect(config: &Object<'_>) -> Result<Self> {
        let (classes, kind) = (config.texts("architectures")?.unwrap_or_default(), config.text("model_type")?);
        let unsupported = |found: String| CompileError::UnsupportedArchitecture {
            found,
            supported: Self::ALL.iter().map(|family| family.class()).collect(),
        };
        let of_kind = || {
            let kind = kind.ok_or_else(|| config.missing("architectures", "a list with the class of the model"))?;
            Self::by_name(kind).ok_or_else(|| unsupported(format!("model_type {}", shown_key(kind))))
        };
        let [class] = classes.as_slice() else {
            return if classes.is_empty() { of_kind() } else { Err(unsupported(classes.join(", "))) };
        };
        let found = Self::ALL.iter().copied().find(|family| family.class() == *class);
        let family = found.ok_or_else(|| unsupported(shown_key(class)))?;
        match kind.filter(|kind| *kind != family.name()) {
            Some(kind) => {
                let expected = format!("\"{family}\", the type of `{}`", family.class());
                Err(config.bad("model_type", format!("\"{}\"", shown_key(kind)), &expected))
            }
            None => Ok(family),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The file of a model's configuration.
pub(crate) const CONFIG: &str = "config.json";
const BIAS_KEYS: [&str; 3] = ["attention_bias", "mlp_bias", "use_qkv_bias"];

/// What the lowering needs to know about a decoder, whatever its family.
///
/// *Invariants*: extents are non-zero, `n_heads` is a multiple of `n_kv_heads`, `head_dim` and `rotary_dim` are even.
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
    /// Elements of a head that are rotated, the first ones.
    pub rotary_dim: usize,
    /// Width of the feed-forward part.
    pub ffn: usize,
    /// Vocabulary entries: rows of the embedding.
    pub vocab: usize,
    /// What norms compute.
    pub norm: NormKind,
    /// Where layers have them.
    pub norm_place: NormPlace,
    /// Added to the mean square, or the variance, in every norm.
    pub norm_eps: f32,
    /// Of the feed-forward part.
    pub activation: Activation,
    /// The feed-forward part is `down(act(gate(x)) * up(x))`; without a gate, `down(act(up(x)))`.
    pub gated: bool,
    /// Factors and bounds.
    pub factors: Factors,
    /// Rotary positions.
    pub rope: Rope,
    /// Positions of their own in layers with a window.
    pub local_rope: Option<LocalRope>,
    /// For each layer, whether queries and keys are rotated.
    pub rotated_layers: Vec<bool>,
    /// Rows of the table of positions that is added to the embeddings, in models that have one.
    pub learned_positions: Option<usize>,
    /// Attention that sees the last tokens only.
    pub window: Option<Window>,
    /// Positions the model was trained for, when the configuration has them.
    pub max_positions: Option<usize>,
    /// The LM head is the embedding.
    pub tied: bool,
    /// Which of the linear parts carry biases.
    pub biases: Biases,
    /// Norms on queries and keys before the rotation.
    pub qk_norm: QkNorm,
    /// It drafts for another model, from its hidden states.
    pub eagle: Option<EagleHead>,
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
    /// All those of the feed-forward part.
    pub mlp: bool,
}

impl ModelSpec {
    /// Reads `config.json`, and `generation_config.json` and `tokenizer_config.json` where present.
    ///
    /// # Errors
    /// Unreadable files, an unsupported architecture or feature, extents that do not fit together.
    pub fn load(dir: &Path) -> Result<Self> {
        Ok(Configuration::read(&ModelFiles::Folder(dir.into()))?.spec)
    }

    /// Query heads that share a key head.
    pub const fn group_size(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// True where some layers rotate keys otherwise than others, or not at all.
    pub fn has_mixed_rotation(&self) -> bool {
        self.local_rope.is_some() || (self.learned_positions.is_none() && self.rotated_layers.contains(&false))
    }

    /// True for a layer with an attention window.
    pub fn is_local(&self, layer: usize) -> bool {
        self.window.as_ref().is_some_and(|window| window.layers[layer])
    }

    /// Width of the rotary tables: one column per rotated pair, more where layers differ ([`LocalRope`]).
    pub const fn rope_dim(&self) -> usize {
        let pairs = self.rotary_dim / 2;
        match self.local_rope {
            Some(LocalRope::Columns { global_step, .. }) => pairs * global_step,
            Some(LocalRope::Table { .. }) | None => pairs,
        }
    }
}

/// A model's configuration: what the lowering needs, and what was left open or is worth a note.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// The input of the lowering.
    pub(crate) spec: ModelSpec,
    /// Remarks for the user.
    pub(crate) notes: Vec<String>,
    /// Keys about biases that `config.json` does not have.
    open: Vec<&'static str>,
}

impl Configuration {
    /// Reads `config.json`, and `generation_config.json` and `tokenizer_config.json` where present.
    ///
    /// # Errors
    /// As of [`ModelSpec::load`].
    pub(crate) fn read(files: &ModelFiles) -> Result<Self> {
        let path = files.path(CONFIG);
        let value = json::parse(&path, &files.read(CONFIG)?)?;
        let config = Object::document(&path, &value)?;
        let family = Family::detect(&config)?;
        let mut spec = skeleton::read(&config, family)?;
        let mut notes = Vec::new();
        (spec.tokens, spec.sampler) = tokens::load(files, &config, &spec, &mut notes)?;
        keys::check_config(&config, &spec, &mut notes)?;
        let open = BIAS_KEYS.into_iter().filter(|key| config.value(key).is_none()).collect();
        Ok(Self { spec, notes, open })
    }

    /// Gives the model the biases that its family may have, that all layers have tensors for, and that the configuration does
    /// not mention.
    pub(crate) fn take_biases(&mut self, has_tensor: impl Fn(&str) -> bool) {
        let info = self.spec.family.info();
        let biases = &mut self.spec.biases;
        let groups: [(&mut bool, Option<&str>, &[&str]); 3] = [
            (&mut biases.qkv, info.qkv_bias.key(), &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
            (&mut biases.o, info.o_bias.key(), &["self_attn.o_proj"]),
            (&mut biases.mlp, info.mlp_bias.key(), &["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
        ];
        for (on, key, parts) in groups {
            let Some(key) = key.filter(|key| self.open.contains(key)) else { continue };
            let all =
                |part: &&str| (0..self.spec.n_layers).all(|i| has_tensor(&format!("model.layers.{i}.{part}.bias")));
            if parts.iter().all(all) {
                *on = true;
                self.notes.push(format!(
                    "the biases of {} are used: config.json has no `{key}`, but all layers have them",
                    parts.join(", ")
                ));
            }
        }
    }
}

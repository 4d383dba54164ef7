//! The model's configuration in the form of Hugging Face's `config.json`, which the families read.
//!
//! Every key of the model's own (`llama.*` in a `llama` file) is used, must have the value that leaves the model as it is
//! computed here, or is refused; so is one that is not known. *Source*: the keys that llama.cpp reads for these models.

use super::{Gguf, GgufError, Metadata, family_keys};
use crate::Result;
use crate::family::{Family, NormKind};
use crate::{CompileError, ModelSpec};
use serde_json::{Map, Value, json};

/// The embedding table.
const TABLE: &str = "token_embd.weight";

/// Numbers that must have this value, in families that have no key for them: other ones change what the model computes in ways that are not lowered.
const NEUTRAL_NUMBERS: [(&str, f64); 20] = [
    ("logit_scale", 1.0),
    ("embedding_scale", 1.0),
    ("residual_scale", 1.0),
    ("attention.output_scale", 1.0),
    ("attn_logit_softcapping", 0.0),
    ("final_logit_softcapping", 0.0),
    ("router_logit_softcapping", 0.0),
    ("attention.clamp_kqv", 0.0),
    ("attention.max_alibi_bias", 0.0),
    ("attention.sliding_window", 0.0),
    ("attention.temperature_length", 0.0),
    ("attention.shared_kv_layers", 0.0),
    ("expert_count", 0.0),
    ("expert_used_count", 0.0),
    ("expert_shared_count", 0.0),
    ("leading_dense_block_count", 0.0),
    ("nextn_predict_layers", 0.0),
    ("pooling_type", 0.0),
    ("swiglu_clamp_exp", 0.0),
    ("swiglu_clamp_shexp", 0.0),
];

/// Truth values that must be this one.
const NEUTRAL_BOOLS: [(&str, bool); 3] =
    [("attention.causal", true), ("use_parallel_residual", false), ("swin_norm", false)];

/// Keys outside of the model's own that say nothing about what is computed.
const HARMLESS_PREFIXES: [&str; 3] = ["general.", "quantize.", "split."];
/// The layout of quantised blocks that is read, by ggml's number.
const QUANTISATION_VERSION: f64 = 2.0;
/// Keys outside of the model's own that a note names.
const N_NAMED: usize = 3;

impl Metadata {
    /// Refuses files that are no whole model.
    pub(super) fn check_kind(&self) -> Result<()> {
        let path = || self.path();
        let count = self.count("split.count")?.unwrap_or(0);
        if count > 1 {
            let number = self.count("split.no")?.unwrap_or(0) + 1;
            return Err(GgufError::Shard { path: path(), number, count }.into());
        }
        let quantisation = "general.quantization_version";
        if self.number(quantisation)?.is_some_and(|version| version != QUANTISATION_VERSION) {
            return Err(self.refused(quantisation, QUANTISATION_VERSION.to_string()));
        }
        match self.text("general.type")? {
            None | Some("model") => Ok(()),
            Some(kind) => {
                let found = match kind {
                    "adapter" => "an adapter (LoRA)".into(),
                    "mmproj" => "the projector of a multimodal model".into(),
                    "imatrix" => "the importance matrix of a quantisation".into(),
                    other => format!("`general.type` `{}`", super::value::shown(other)),
                };
                Err(GgufError::NotAModel { path: path(), found }.into())
            }
        }
    }
}

/// The keys of the model's own architecture.
pub(super) struct ModelKeys<'g> {
    pub(super) meta: &'g Metadata,
    pub(super) family: Family,
}

impl ModelKeys<'_> {
    /// The whole key.
    pub(super) fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.family.gguf_name())
    }

    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.meta.number(&self.key(key))
    }

    /// A number as it was before it was rounded to the file's floats: 0.22 for what is stored as 0.2199999988.
    pub(super) fn decimal(&self, key: &str) -> Result<Option<f64>> {
        let shortest = |x: f64| (x as f32).to_string().parse().unwrap_or(x);
        Ok(self.number(key)?.map(|x| if f64::from(x as f32) == x { shortest(x) } else { x }))
    }

    fn count(&self, key: &str) -> Result<u64> {
        let key = self.key(key);
        let count = self.meta.count(&key)?;
        self.meta.required(&key, count)
    }

    pub(super) fn refused(&self, key: &str, expected: impl Into<String>) -> CompileError {
        self.meta.refused(&self.key(key), expected)
    }

    /// Keys that change nothing as long as they have the value that is computed here.
    fn check_neutral(&self) -> Result<()> {
        let of_family = family_keys::of(self.family);
        let foreign = |key: &str| !of_family.contains(&key);
        for (key, expected) in NEUTRAL_NUMBERS.into_iter().filter(|(key, _)| foreign(key)) {
            if self.number(key)?.is_some_and(|found| found != expected) {
                return Err(self.refused(key, expected.to_string()));
            }
        }
        for (key, expected) in NEUTRAL_BOOLS.into_iter().filter(|(key, _)| foreign(key)) {
            if self.meta.bool(&self.key(key))?.is_some_and(|found| found != expected) {
                return Err(self.refused(key, expected.to_string()));
            }
        }
        Ok(())
    }
}

impl Gguf {
    /// The model's family.
    ///
    /// # Errors
    /// An architecture that is missing or not supported.
    pub(crate) fn family(&self) -> Result<Family> {
        let key = "general.architecture";
        let found = self.meta.required(key, self.meta.text(key)?)?;
        let name = |family: &Family| family.gguf_name();
        match Family::of_gguf().find(|family| name(family) == found) {
            Some(named) => family_keys::family(named, &self.meta),
            None => Err(CompileError::UnsupportedArchitecture {
                found: super::value::shown(found),
                supported: Family::of_gguf().filter(|family| !family.shares_gguf_name()).map(|f| name(&f)).collect(),
            }),
        }
    }

    /// `config.json`.
    ///
    /// # Errors
    /// An unknown architecture; keys that are missing, of another type, contradict each other, or ask for what is not computed.
    pub(crate) fn config(&self) -> Result<Value> {
        let family = self.family()?;
        let info = family.info();
        let keys = ModelKeys { meta: &self.meta, family };
        keys.check_neutral()?;
        let n_layers = keys.count("block_count")?;
        let of_layers = |key: &str| keys.meta.count_of_layers(&keys.key(key), n_layers);
        let required_of_layers = |key: &str| keys.meta.required(&keys.key(key), of_layers(key)?);
        let hidden = keys.count("embedding_length")?;
        let n_heads = required_of_layers("attention.head_count")?;
        let head_dim = self.head_dim(&keys, hidden, n_heads)?;
        let rotated = family_keys::rotated(&keys, head_dim)?;
        self.check_layout(&keys)?;

        let mut config = Map::new();
        let entries = [
            ("architectures", json!([info.class])),
            ("model_type", json!(info.name)),
            ("vocab_size", json!(self.vocab(&keys)?)),
            ("hidden_size", json!(hidden)),
            ("intermediate_size", json!(required_of_layers("feed_forward_length")?)),
            ("num_hidden_layers", json!(n_layers)),
            ("num_attention_heads", json!(n_heads)),
            ("num_key_value_heads", json!(of_layers("attention.head_count_kv")?)),
            ("head_dim", json!(head_dim)),
            ("max_position_embeddings", json!(self.meta.count(&keys.key("context_length"))?)),
            (info.eps_key(), json!(epsilon(&keys)?)),
            ("rope_theta", json!(super::rope::theta(&keys)?)),
            ("rope_scaling", super::rope::scaling(self, &keys, rotated)?),
            ("tie_word_embeddings", json!(!self.tensors.contains_key("output.weight"))),
            ("bos_token_id", json!(self.token_id("bos_token_id")?)),
            ("pad_token_id", json!(self.token_id("padding_token_id")?)),
            ("eos_token_id", json!(self.end_tokens()?)),
        ];
        // Keys about rotation, of which every file may have some, say nothing of learned positions.
        let unused = |key: &str| info.learned_positions && key.starts_with("rope_");
        let entries = entries.into_iter().filter(|(key, v)| !v.is_null() && !unused(key));
        config.extend(entries.map(|(key, value)| (key.to_string(), value)));
        let shape = family_keys::Shape { n_layers, hidden, n_heads, head_dim, rotated };
        config.extend(family_keys::entries(&keys, &shape)?);
        let own = format!("{}.", family.gguf_name());
        match self.meta.unread().into_iter().find(|key| key.starts_with(&own)) {
            Some(key) => Err(GgufError::UnknownKey { path: self.path.clone(), key: super::value::shown(key) }.into()),
            None => Ok(config.into()),
        }
    }

    /// `generation_config.json`: the sampling that the model's authors recommend.
    ///
    /// # Errors
    /// Values of another type.
    pub(crate) fn generation_config(&self) -> Result<Value> {
        let mut config = Map::new();
        for (key, theirs) in [("temperature", "temp"), ("top_p", "top_p")] {
            if let Some(value) = self.meta.number(&format!("general.sampling.{theirs}"))? {
                config.insert(key.into(), json!(value));
            }
        }
        if let Some(k) = self.meta.count("general.sampling.top_k")? {
            config.insert("top_k".into(), json!(k));
        }
        Ok(config.into())
    }

    /// Gives the model the biases that the file has: llama.cpp's files have no key for them.
    pub(crate) fn set_biases(&self, spec: &mut ModelSpec) {
        let always = spec.family.info().biases(|_| false);
        let has = |part: &str| self.tensors.contains_key(&format!("blk.0.{part}.bias"));
        spec.biases.qkv = always.qkv || has("attn_q");
        spec.biases.o = always.o || has("attn_output");
        spec.biases.mlp = always.mlp || has("ffn_up");
    }

    /// What to say of keys that no part of the compiler reads: those outside of the model's own cannot change it.
    pub(crate) fn unread_note(&self) -> Option<String> {
        let harmless = |key: &&str| HARMLESS_PREFIXES.iter().any(|prefix| key.starts_with(prefix));
        let unread: Vec<&str> = self.meta.unread().into_iter().filter(|key| !harmless(key)).collect();
        let (named, rest) = unread.split_at(unread.len().min(N_NAMED));
        let mut list = named.iter().map(|key| format!("`{}`", super::value::shown(key))).collect::<Vec<_>>().join(", ");
        if !rest.is_empty() {
            list.push_str(&format!(" and {} more", rest.len()));
        }
        (!named.is_empty()).then(|| format!("keys of the GGUF file that have no effect here: {list}"))
    }

    /// Rows of the embedding, which the key `vocab_size` may not contradict.
    fn vocab(&self, keys: &ModelKeys<'_>) -> Result<usize> {
        let missing = || GgufError::MissingTensor { path: self.path.clone(), name: TABLE.into() };
        let rows = self.tensors.get(TABLE).ok_or_else(missing)?.dims[0];
        let said = self.meta.count(&keys.key("vocab_size"))?;
        if said.is_some_and(|said| said != rows as u64) {
            return Err(keys.refused("vocab_size", format!("{rows}, the rows of `{TABLE}`")));
        }
        Ok(rows)
    }

    /// Width of a head, with which all keys that depend on it must agree.
    fn head_dim(&self, keys: &ModelKeys<'_>, hidden: u64, n_heads: u64) -> Result<u64> {
        let head_dim = match self.meta.count(&keys.key("attention.key_length"))? {
            Some(width) => width,
            None if n_heads == 0 || !hidden.is_multiple_of(n_heads) => {
                let expected =
                    format!("a divisor of the embedding length {hidden}, or `attention.key_length` beside it");
                return Err(keys.refused("attention.head_count", expected));
            }
            None => hidden / n_heads,
        };
        let value_length = "attention.value_length";
        if self.meta.count(&keys.key(value_length))?.is_some_and(|width| width != head_dim) {
            return Err(keys.refused(value_length, format!("{head_dim}, the width of a head")));
        }
        if family_keys::of(keys.family).contains(&"attention.scale") {
            return Ok(head_dim);
        }
        // llama.cpp takes 0 as unset.
        let scale = 1.0 / (head_dim as f64).sqrt();
        if keys.number("attention.scale")?.is_some_and(|s| s != 0.0 && (s / scale - 1.0).abs() > 1e-5) {
            return Err(keys.refused("attention.scale", format!("{scale}, which is 1 / sqrt({head_dim})")));
        }
        Ok(head_dim)
    }

    /// The order of rows that old converters name is the one that the family's files have.
    fn check_layout(&self, keys: &ModelKeys<'_>) -> Result<()> {
        let pairs = self.family()?.info().gguf_paired_heads;
        let expected = if pairs { "Meta AI original pth" } else { "reference" };
        match self.meta.text(&keys.key("tensor_data_layout"))? {
            Some(layout) if layout != expected => {
                Err(keys.refused("tensor_data_layout", format!("`{expected}` or no such key")))
            }
            _ => Ok(()),
        }
    }
}

/// Added to the mean square in norms.
fn epsilon(keys: &ModelKeys<'_>) -> Result<f64> {
    let key = match keys.family.info().norm {
        NormKind::Layer => "attention.layer_norm_epsilon",
        NormKind::Rms | NormKind::RmsPlusOne => "attention.layer_norm_rms_epsilon",
    };
    let epsilon = keys.meta.required(&keys.key(key), keys.number(key)?)?;
    if !(0.0..1.0).contains(&epsilon) {
        return Err(keys.refused(key, "a number from 0 to 1"));
    }
    Ok(epsilon)
}

//! Special token ids, and the sampling parameters that the checkpoint's authors recommend.
//!
//! `generation_config.json` overrides `config.json`. *Trap*: Qwen's configuration has a BOS that its tokenizer never
//! prepends, so a BOS is dropped where `tokenizer_config.json` switches it off, and for Qwen unless it switches it on.

use super::ModelSpec;
use super::raw::{OneOrMany, RawConfig};
use crate::model_files::ModelFiles;
use crate::{CompileError, Result, fs};
use genie_types::TokenId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Special token ids; `None` or empty where the model has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Prepended to a new dialog.
    pub bos: Option<TokenId>,
    /// Any of these ends the reply; the first one closes chat turns.
    pub eos: Vec<TokenId>,
    /// Fills the unused rows of a step.
    pub pad: Option<TokenId>,
}

/// The sampling parameters that the checkpoint's authors recommend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerDefaults {
    /// Divides the logits; 0 is greedy.
    pub temperature: f64,
    /// Candidates kept; 0 keeps all.
    pub top_k: u32,
    /// Probability mass kept.
    pub top_p: f64,
}

impl Default for SamplerDefaults {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, top_p: 0.95 }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawGeneration {
    bos_token_id: Option<OneOrMany>,
    eos_token_id: Option<OneOrMany>,
    pad_token_id: Option<i64>,
    do_sample: Option<bool>,
    temperature: Option<f64>,
    top_k: Option<i64>,
    top_p: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawTokenizerConfig {
    add_bos_token: Option<bool>,
    /// A string, an object, or null: null means there is none. Absent is not the same as null.
    #[serde(deserialize_with = "even_null")]
    bos_token: Option<Value>,
}

/// Keeps a null, which serde would fold into "absent".
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

pub(super) fn load(files: &ModelFiles, raw: &RawConfig, spec: &ModelSpec) -> Result<(SpecialTokens, SamplerDefaults)> {
    let generation: RawGeneration = optional(files, "generation_config.json")?;
    let tokenizer: RawTokenizerConfig = optional(files, "tokenizer_config.json")?;

    let all = |first: &Option<OneOrMany>, second: &Option<OneOrMany>, key| {
        let list = first.as_ref().or(second.as_ref());
        let ids = list.map(OneOrMany::ids).unwrap_or_default();
        ids.iter().filter_map(|&id| checked(id, key, spec.vocab).transpose()).collect::<Result<Vec<_>>>()
    };
    let bos = all(&generation.bos_token_id, &raw.bos_token_id, "bos_token_id")?.first().copied();
    let eos = all(&generation.eos_token_id, &raw.eos_token_id, "eos_token_id")?;
    let pad = generation.pad_token_id.or(raw.pad_token_id);
    let pad = pad.map_or(Ok(None), |id| checked(id, "pad_token_id", spec.vocab))?;

    let prepends_bos = match tokenizer.add_bos_token {
        Some(explicit) => explicit,
        None if tokenizer.bos_token == Some(Value::Null) => false,
        None => spec.family.info().prepends_bos,
    };
    let defaults = SamplerDefaults::default();
    let greedy = generation.do_sample == Some(false);
    let sampler = SamplerDefaults {
        temperature: if greedy { 0.0 } else { generation.temperature.unwrap_or(defaults.temperature) },
        top_k: generation.top_k.map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0)),
        top_p: generation.top_p.unwrap_or(defaults.top_p),
    };
    check_sampler(&sampler)?;
    Ok((SpecialTokens { bos: bos.filter(|_| prepends_bos), eos, pad }, sampler))
}

fn optional<T: DeserializeOwned + Default>(files: &ModelFiles, name: &str) -> Result<T> {
    if files.has(name) { fs::from_json(&files.path(name), &files.read(name)?) } else { Ok(T::default()) }
}

/// A negative id means none; one past the vocabulary is an error.
fn checked(id: i64, key: &'static str, vocab: usize) -> Result<Option<TokenId>> {
    match usize::try_from(id) {
        Err(_) => Ok(None),
        Ok(n) if n < vocab => Ok(Some(TokenId(n as u32))),
        Ok(n) => Err(CompileError::TokenOutOfRange { key, id: n, vocab }),
    }
}

fn check_sampler(sampler: &SamplerDefaults) -> Result<()> {
    let bad = |key, found: f64, expected| Err(CompileError::ConfigValue { key, found: found.to_string(), expected });
    if !(sampler.temperature.is_finite() && sampler.temperature >= 0.0) {
        return bad("temperature", sampler.temperature, "a number from 0 up");
    }
    if !(0.0..=1.0).contains(&sampler.top_p) {
        return bad("top_p", sampler.top_p, "a number from 0 to 1");
    }
    Ok(())
}

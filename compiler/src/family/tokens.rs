//! Special token ids, and the sampling parameters that the checkpoint's authors recommend.
//!
//! `generation_config.json` overrides `config.json`. *Trap*: Qwen's configuration has a BOS that its tokenizer never
//! prepends, so a BOS is dropped where `tokenizer_config.json` switches it off, and for Qwen unless it switches it on. Where it says
//! neither, the template of `tokenizer.json` counts: a tokenizer of no class of its own adds what stands there, and nothing else.

use super::{ModelSpec, keys};
use crate::json::{self, Object};
use crate::model_files::ModelFiles;
use crate::{CompileError, Result};
use genie_bundle::TOKENIZER_FILE;
use genie_types::TokenId;
use serde::Deserialize;
use serde_json::{Map, Value};

const GENERATION: &str = "generation_config.json";
const TOKENIZER: &str = "tokenizer_config.json";
/// Classes of tokenizers that prepend no BOS unless `add_bos_token` says so.
const WITHOUT_BOS: [&str; 2] = ["GPT2Tokenizer", "Qwen2Tokenizer"];

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

pub(super) fn load(
    files: &ModelFiles,
    config: &Object<'_>,
    spec: &ModelSpec,
    notes: &mut Vec<String>,
) -> Result<(SpecialTokens, SamplerDefaults)> {
    let (generation_path, tokenizer_path) = (files.path(GENERATION), files.path(TOKENIZER));
    let (generation, tokenizer) = (optional(files, GENERATION)?, optional(files, TOKENIZER)?);
    let generation = Object::document(&generation_path, &generation)?;
    let tokenizer = Object::document(&tokenizer_path, &tokenizer)?;

    let all = |key| {
        let (first, second) = (ids(&generation, key, spec.vocab)?, ids(config, key, spec.vocab)?);
        Ok::<_, CompileError>(first.or(second).unwrap_or_default())
    };
    let one = |key| match all(key)?.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        many => {
            let found = many.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(", ");
            Err(match generation.value(key) {
                Some(_) => generation.bad(key, found, "one token"),
                None => config.bad(key, found, "one token"),
            })
        }
    };
    let (bos, eos, pad) = (one("bos_token_id")?, all("eos_token_id")?, one("pad_token_id")?);

    let prepends_bos = match tokenizer.flag("add_bos_token")? {
        Some(explicit) => explicit,
        None if tokenizer.is_null("bos_token") => false,
        None if bos.is_some() && template_begins_with(files, bos)? => true,
        None if is_of_no_class(&tokenizer) => false,
        // Their texts begin with no BOS, whatever the family's do: SmolLM, of the Llama class, has GPT-2's.
        None if is_without_bos(&tokenizer) => false,
        None => spec.family.info().prepends_bos,
    };
    let sampler = sampler(&generation)?;
    keys::note_generation(&generation, notes);
    Ok((SpecialTokens { bos: bos.filter(|_| prepends_bos), eos, pad }, sampler))
}

/// Whether the tokenizer is of a class that prepends no BOS of itself.
fn is_without_bos(tokenizer: &Object<'_>) -> bool {
    class_of(tokenizer).is_some_and(|class| WITHOUT_BOS.contains(&class.trim_end_matches("Fast")))
}

/// Whether all that the tokenizer does stands in `tokenizer.json`.
fn is_of_no_class(tokenizer: &Object<'_>) -> bool {
    class_of(tokenizer) == Some("PreTrainedTokenizerFast")
}

fn class_of<'a>(tokenizer: &Object<'a>) -> Option<&'a str> {
    tokenizer.value("tokenizer_class").and_then(Value::as_str)
}

/// Whether the post-processor of `tokenizer.json` puts this token before a text. A file that is none says nothing: loading it says what
/// is wrong.
fn template_begins_with(files: &ModelFiles, token: Option<TokenId>) -> Result<bool> {
    /// The part that is looked at.
    #[derive(Deserialize)]
    struct Head {
        post_processor: Option<Value>,
    }
    if !files.has(TOKENIZER_FILE)? {
        return Ok(false);
    }
    let head = serde_json::from_slice::<Head>(&files.read(TOKENIZER_FILE)?).ok();
    let Some(processor) = head.and_then(|head| head.post_processor) else { return Ok(false) };
    // One, or several in a sequence.
    let parts = processor["processors"].as_array().map_or(std::slice::from_ref(&processor), Vec::as_slice);
    Ok(parts.iter().any(|part| {
        let name = part["single"][0]["SpecialToken"]["id"].as_str().unwrap_or_default();
        let id = part["special_tokens"][name]["ids"][0].as_u64();
        part["type"] == "TemplateProcessing" && id.is_some() && id == token.map(|token| u64::from(token.0))
    }))
}

/// The ranges are those of the bundle's configuration, so that what is written here is accepted when it runs.
fn sampler(generation: &Object<'_>) -> Result<SamplerDefaults> {
    let defaults = SamplerDefaults::default();
    let highest = f64::from(f32::MAX);
    let temperature = generation.number("temperature", 0.0..=highest, "a number from 0 to 3.4e38")?;
    let top_k = generation.integer("top_k", -1..=i64::from(u32::MAX))?;
    let top_p = generation.number("top_p", 0.0..=1.0, "a number from 0 to 1")?;
    let greedy = generation.flag("do_sample")? == Some(false);
    // What is no float32 above 0 is greedy, too.
    let temperature = temperature.map(|t| if t as f32 == 0.0 { 0.0 } else { t });
    Ok(SamplerDefaults {
        temperature: if greedy { 0.0 } else { temperature.unwrap_or(defaults.temperature) },
        top_k: top_k.map_or(defaults.top_k, |k| u32::try_from(k).unwrap_or(0)),
        top_p: top_p.unwrap_or(defaults.top_p),
    })
}

/// A file that may be absent: an empty object then.
fn optional(files: &ModelFiles, name: &str) -> Result<Value> {
    if files.has(name)? { json::parse(&files.path(name), &files.read(name)?) } else { Ok(Value::Object(Map::new())) }
}

/// The tokens under a key; -1 stands for none.
fn ids(object: &Object<'_>, key: &'static str, vocab: usize) -> Result<Option<Vec<TokenId>>> {
    let Some(ids) = object.one_or_many(key, -1..=i64::from(u32::MAX))? else { return Ok(None) };
    let given = ids.into_iter().filter_map(|id| usize::try_from(id).ok());
    let checked = given.map(|id| {
        if id < vocab { Ok(TokenId(id as u32)) } else { Err(CompileError::TokenOutOfRange { key, id, vocab }) }
    });
    checked.collect::<Result<_>>().map(Some)
}

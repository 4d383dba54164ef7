//! `adapter_config.json`: how strong an adapter is, and that it is nothing but low rank matrices.
//!
//! *Rule*: keys that say how the adapter was trained or where it came from are skipped; those that change what is computed must be
//! off; any other key must be off as well, since it may.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::family::ModelSpec;
use crate::json::Object;
use crate::json::shown;
use crate::{CompileError, Result};

/// Largest rank.
const MAX_RANK: usize = 4096;

/// Keys without effect on what a trained adapter computes.
const SKIPPED: &[&str] = &[
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "task_type",
    "lora_dropout",
    "layers_to_transform",
    "layers_pattern",
    "exclude_modules",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "runtime_config",
    "eva_config",
    "ensure_weight_tying",
];

/// Ways to begin training that leave the weights of the model as they are.
const PLAIN_BEGINNINGS: &[&str] = &["gaussian", "orthogonal", "eva"];

/// What an adapter's configuration says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdapterConfig {
    pub(super) path: PathBuf,
    rank: usize,
    alpha: f64,
    by_root: bool,
    ranks: Vec<(String, usize)>,
    alphas: Vec<(String, f64)>,
    /// Names of the modules, where they are listed; `None` for a pattern.
    pub(super) targets: Option<Vec<String>>,
}

impl AdapterConfig {
    /// The rank that a module's matrices must have.
    pub(super) fn rank_of(&self, module: &str) -> usize {
        matching(&self.ranks, module).unwrap_or(self.rank)
    }

    /// The factor of a module's matrices.
    pub(super) fn scaling_of(&self, module: &str) -> f64 {
        let (alpha, rank) = (matching(&self.alphas, module).unwrap_or(self.alpha), self.rank_of(module) as f64);
        if self.by_root { alpha / rank.sqrt() } else { alpha / rank }
    }
}

/// The number of the first key that is the module's name or the end of it.
fn matching<T: Copy>(table: &[(String, T)], module: &str) -> Option<T> {
    let is_end = |key: &str| module.strip_suffix(key).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    table.iter().find(|(key, _)| is_end(key)).map(|(_, value)| *value)
}

/// Reads the document.
pub(super) fn read(path: &Path, document: &Value, spec: &ModelSpec) -> Result<AdapterConfig> {
    let config = Object::document(path, document)?;
    if let Some(kind) = config.text("peft_type")?
        && kind != "LORA"
    {
        return Err(config.unsupported("peft_type", format!("`{kind}`"), "`LORA`"));
    }
    let positive = "a number above 0";
    let rank = config.needed_count("r", 1..=MAX_RANK)?;
    let alpha = config.number("lora_alpha", f64::MIN_POSITIVE..=f64::MAX, positive)?.unwrap_or(8.0);
    let by_root = config.flag("use_rslora")?.unwrap_or(false);
    if let Some(bias) = config.text("bias")?
        && bias != "none"
    {
        return Err(config.unsupported("bias", format!("`{bias}`"), "`none`: biases are not adapted"));
    }
    beginning(&config)?;
    let targets = match config.value("target_modules") {
        Some(Value::Array(_)) => config.texts("target_modules")?,
        _ => None,
    };
    let ranks = table(&config, "rank_pattern", |value| {
        value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=MAX_RANK).contains(n))
    })?;
    let alphas = table(&config, "alpha_pattern", |value| value.as_f64().filter(|a| *a > 0.0 && a.is_finite()))?;
    for key in SKIPPED {
        config.value(key);
    }
    if spec.learned_positions.is_some() {
        // How GPT-2 stores the weights that are adapted.
        config.flag("fan_in_fan_out")?;
    }
    for (key, value) in config.unread() {
        if !is_off(value) {
            return Err(config.unsupported(key, shown(value), "null or false: it changes what the adapter computes"));
        }
    }
    let targets = targets.map(|list| list.into_iter().map(Into::into).collect());
    Ok(AdapterConfig { path: path.into(), rank, alpha, by_root, ranks, alphas, targets })
}

/// Some ways to begin change the model's own weights, which the file does not have.
fn beginning(config: &Object<'_>) -> Result<()> {
    match config.value("init_lora_weights") {
        None | Some(Value::Bool(_)) => Ok(()),
        Some(Value::String(name)) if PLAIN_BEGINNINGS.contains(&name.as_str()) => Ok(()),
        Some(other) => {
            let accepted = "true, `gaussian`, `orthogonal` or `eva`: others change the model's own weights";
            Err(config.unsupported("init_lora_weights", shown(other), accepted))
        }
    }
}

/// A table by module names, without regular expressions.
fn table<T>(config: &Object<'_>, key: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<(String, T)>> {
    let Some(value) = config.value(key) else { return Ok(Vec::new()) };
    let bad = |found: &Value| config.bad(key, shown(found), "an object of module names with numbers above 0");
    let map = value.as_object().ok_or_else(|| bad(value))?;
    let plain = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
    map.iter()
        .map(|(name, value)| {
            if !plain(name) {
                return Err(config.unsupported(key, format!("`{name}`"), "names of modules, no patterns"));
            }
            Ok((name.clone(), read(value).ok_or_else(|| bad(value))?))
        })
        .collect::<Result<_, CompileError>>()
}

fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

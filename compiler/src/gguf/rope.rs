//! Rotary positions of a GGUF file.
//!
//! A file states linear scaling and YaRN by keys, and the `llama3` rule as a tensor of frequency divisors, `rope_freqs.weight`. The rule's
//! parameters are recovered from the tensor and checked against all of it; divisors of any other rule are refused. `longrope` is
//! two tensors of divisors; its amplitude is a key.
//!
//! *Trap*: a factor without a type means linear, as in llama.cpp. What linear scaling is in terms of the `llama3` rule stands in
//! `family/rope.rs`.

use super::config::ModelKeys;
use super::{GgmlType, Gguf};
use crate::family::Family;
use crate::{CompileError, Result, fs};
use genie_types::YarnScaling;
use serde_json::{Value, json};
use std::io::{Read, Seek, SeekFrom};

/// Divisors of frequencies: of the `llama3` rule, and of `longrope` for contexts beyond the trained length and for others.
const ROPE_FREQS: &str = "rope_freqs.weight";
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";
const TYPE: &str = "rope.scaling.type";
const AMPLITUDE: &str = "rope.scaling.attn_factor";
const ORIGINAL: &str = "rope.scaling.original_context_length";
const EXTRAPOLATION: &str = "rope.scaling.yarn_ext_factor";
const LOG_MULTIPLIER: &str = "rope.scaling.yarn_log_multiplier";
const YARN_AMPLITUDE: &str = "rope.scaling.yarn_attn_factor";
const BETA_FAST: &str = "rope.scaling.yarn_beta_fast";
const BETA_SLOW: &str = "rope.scaling.yarn_beta_slow";
const ALPHA: &str = "rope.scaling.alpha";
/// Base of the angles in layers with a window.
pub(super) const LOCAL_BASE: &str = "rope.freq_base_swa";
const DEFAULT_THETA: f64 = 10_000.0;
/// The `llama3` rule's parameters except the factor, the same in all published models.
const ORIGINAL_MAX_POSITIONS: f64 = 8192.0;
const LOW_FREQ_FACTOR: f64 = 1.0;
const HIGH_FREQ_FACTOR: f64 = 4.0;
/// Keys without effect where YaRN does not extrapolate: a converter may leave any number there.
const OF_YARN: [&str; 4] = [ORIGINAL, LOG_MULTIPLIER, BETA_FAST, BETA_SLOW];

/// Base of the angles.
pub(super) fn theta(keys: &ModelKeys<'_>) -> Result<f64> {
    const KEY: &str = "rope.freq_base";
    match keys.number(KEY)?.unwrap_or(DEFAULT_THETA) {
        theta if theta > 0.0 => Ok(theta),
        _ => Err(keys.refused(KEY, "a positive number")),
    }
}

/// `rope_scaling`, or null; `rotated` elements of a head turn.
pub(super) fn scaling(gguf: &Gguf, keys: &ModelKeys<'_>, rotated: u64) -> Result<Value> {
    keys.meta.bool(&keys.key("rope.scaling.finetuned"))?;
    for key in OF_YARN {
        keys.number(key)?;
    }
    check_of_other_models(keys)?;
    let read = |name| divisors(gguf, name, rotated);
    let (llama3, long, short) = (read(ROPE_FREQS)?, read(LONG)?, read(SHORT)?);
    let kind = keys.meta.text(&keys.key(TYPE))?;
    if kind != Some("yarn") {
        check_of_yarn(keys)?;
    }
    match (kind, long, short) {
        (None | Some("longrope"), Some(long), Some(short)) => longrope(keys, &long, &short),
        (Some(_), Some(_), _) => Err(keys.refused(TYPE, format!("longrope, beside the tensor `{LONG}`"))),
        (_, Some(_), None) => Err(missing(gguf, SHORT)),
        (_, None, Some(_)) | (Some("longrope"), ..) => Err(missing(gguf, LONG)),
        (Some("yarn"), ..) => match llama3 {
            None => yarn(keys),
            Some(_) => Err(keys.refused(TYPE, format!("none or linear, beside the tensor `{ROPE_FREQS}`"))),
        },
        _ => plain(keys, llama3),
    }
}

/// Keys that change the angles of other models: their value must change nothing here.
fn check_of_other_models(keys: &ModelKeys<'_>) -> Result<()> {
    // Scaling of the base; 0 is unset.
    if keys.number(ALPHA)?.is_some_and(|alpha| alpha != 0.0 && alpha != 1.0) {
        return Err(keys.refused(ALPHA, "1"));
    }
    let (all, local) = (theta(keys)?, keys.number(LOCAL_BASE)?);
    // Layers of Gemma 3 have a base of their own.
    if keys.family != Family::Gemma3 && local.is_some_and(|local| local != all) {
        return Err(keys.refused(LOCAL_BASE, format!("{all}, as that of all layers")));
    }
    Ok(())
}

/// Keys of YaRN that llama.cpp heeds whatever the type of scaling is.
fn check_of_yarn(keys: &ModelKeys<'_>) -> Result<()> {
    // A negative number is unset.
    if keys.number(EXTRAPOLATION)?.is_some_and(|factor| factor > 0.0) {
        return Err(keys.refused(EXTRAPOLATION, format!("0, or `{}` of yarn", keys.key(TYPE))));
    }
    if keys.number(YARN_AMPLITUDE)?.is_some_and(|factor| factor != 1.0) {
        return Err(keys.refused(YARN_AMPLITUDE, format!("1, or `{}` of yarn", keys.key(TYPE))));
    }
    Ok(())
}

/// No scaling, linear scaling, or the `llama3` rule by its divisors.
fn plain(keys: &ModelKeys<'_>, divisors: Option<Vec<f64>>) -> Result<Value> {
    if keys.number(AMPLITUDE)?.is_some_and(|factor| factor != 1.0) {
        return Err(keys.refused(AMPLITUDE, "1"));
    }
    let linear = linear_factor(keys)?;
    let Some(divisors) = divisors else {
        return Ok(if linear == 1.0 { Value::Null } else { json!({ "rope_type": "linear", "factor": linear }) });
    };
    if linear != 1.0 {
        return Err(keys.refused("rope.scaling.factor", format!("no factor beside the tensor `{ROPE_FREQS}`")));
    }
    let theta = theta(keys)?;
    let factor = divisors.iter().copied().fold(1.0, f64::max);
    let expected = |i: usize| llama3_divisor(theta.powf(-(i as f64) / divisors.len() as f64), factor);
    let fits = |i: usize| (divisors[i] / expected(i) - 1.0).abs() <= 1e-3;
    match (0..divisors.len()).find(|&i| !fits(i)) {
        Some(i) => Err(CompileError::UnsupportedFeature {
            feature: "rope scaling",
            found: format!("`{ROPE_FREQS}`, whose entry {i} is {}", divisors[i]),
            accepted: "the llama3 rule with 8192 positions and frequency factors of 1 and 4",
        }),
        None if factor == 1.0 => Ok(Value::Null),
        None => Ok(llama3(factor)),
    }
}

/// YaRN. llama.cpp multiplies the usual amplitude by one of the file's factors, and puts the usual one in the other's place.
fn yarn(keys: &ModelKeys<'_>) -> Result<Value> {
    let above_0 = |key: &str, default: f64| match keys.decimal(key)? {
        None => Ok(default),
        Some(x) if x > 0.0 => Ok(x),
        Some(_) => Err(keys.refused(key, "a positive number")),
    };
    for (key, only) in [(EXTRAPOLATION, 1.0), (LOG_MULTIPLIER, 0.0)] {
        // A negative number is unset.
        if keys.number(key)?.is_some_and(|x| x >= 0.0 && x != only) {
            return Err(keys.refused(key, only.to_string()));
        }
    }
    const FACTOR: &str = "rope.scaling.factor";
    let factor = keys.meta.required(&keys.key(FACTOR), keys.decimal(FACTOR)?)?;
    if factor < 1.0 {
        return Err(keys.refused(FACTOR, "a number of at least 1"));
    }
    keys.number(YARN_AMPLITUDE)?;
    Ok(json!({
        "rope_type": "yarn",
        "factor": factor,
        "original_max_position_embeddings": trained_length(keys)?,
        "attention_factor": above_0(AMPLITUDE, 1.0)? * YarnScaling::amplitude_of(factor),
        "beta_fast": above_0(BETA_FAST, 32.0)?,
        "beta_slow": above_0(BETA_SLOW, 1.0)?,
    }))
}

/// Divisors for short and long contexts; the amplitude is stated, or 1.
fn longrope(keys: &ModelKeys<'_>, long: &[f64], short: &[f64]) -> Result<Value> {
    if keys.number("rope.scaling.factor")?.is_some_and(|factor| factor != 1.0 && factor != 0.0) {
        return Err(keys.refused("rope.scaling.factor", format!("no factor beside the tensor `{LONG}`")));
    }
    let amplitude = keys.number(AMPLITUDE)?.unwrap_or(1.0);
    if amplitude < 1.0 {
        return Err(keys.refused(AMPLITUDE, "a number of at least 1"));
    }
    Ok(json!({
        "rope_type": "longrope",
        "original_max_position_embeddings": trained_length(keys)?,
        "attention_factor": amplitude,
        "long_factor": long,
        "short_factor": short,
    }))
}

/// Positions of the training, before any scaling.
fn trained_length(keys: &ModelKeys<'_>) -> Result<u64> {
    let of = |key: &str| keys.meta.count(&keys.key(key));
    match of(ORIGINAL)?.filter(|n| *n > 0) {
        Some(n) => Ok(n),
        None => keys.meta.required(&keys.key(ORIGINAL), of("context_length")?),
    }
}

fn missing(gguf: &Gguf, name: &str) -> CompileError {
    super::GgufError::MissingTensor { path: gguf.path.clone(), name: name.into() }.into()
}

fn llama3(factor: f64) -> Value {
    json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW_FREQ_FACTOR,
        "high_freq_factor": HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": ORIGINAL_MAX_POSITIONS,
    })
}

/// What all positions are divided by.
fn linear_factor(keys: &ModelKeys<'_>) -> Result<f64> {
    let (new, old) = ("rope.scaling.factor", "rope.scale_linear");
    let (key, factor) = match (keys.number(new)?, keys.number(old)?) {
        (Some(factor), _) => (new, factor),
        (None, factor) => (old, factor.unwrap_or(1.0)),
    };
    match keys.meta.text(&keys.key(TYPE))? {
        Some("none") => return Ok(1.0),
        None | Some("linear") => {}
        Some(_) => return Err(keys.refused(TYPE, "none, linear, yarn, longrope, or llama3 as a tensor of divisors")),
    }
    match factor {
        // llama.cpp takes 0 as unset.
        0.0 => Ok(1.0),
        factor if factor > 0.0 => Ok(factor),
        _ => Err(keys.refused(key, "a positive number")),
    }
}

/// A tensor of divisors, if it is there: one for each pair of a head that turns, all finite.
fn divisors(gguf: &Gguf, name: &str, rotated: u64) -> Result<Option<Vec<f64>>> {
    let Some(tensor) = gguf.tensors.get(name) else { return Ok(None) };
    if tensor.ty != GgmlType::F32 {
        let (path, name, found) = (gguf.path.clone(), name.into(), tensor.ty.to_string());
        return Err(super::GgufError::TensorType { path, name, found, expected: "F32".into() }.into());
    }
    if tensor.dims.iter().map(|&d| d as u64).ne([rotated / 2]) {
        let (path, name, found) = (gguf.path.clone(), name.into(), tensor.dims.clone());
        return Err(super::GgufError::Shape { path, name, expected: vec![(rotated / 2) as usize], found }.into());
    }
    let mut bytes = vec![0; tensor.bytes as usize];
    let mut file = fs::open(&gguf.path)?;
    file.seek(SeekFrom::Start(tensor.offset)).map_err(fs::io_err("seek in", &gguf.path))?;
    file.read_exact(&mut bytes).map_err(fs::io_err("read", &gguf.path))?;
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        return Err(CompileError::NotFinite { name: name.into(), index: vec![i], value: values[i] });
    }
    Ok(Some(values.into_iter().map(f64::from).collect()))
}

/// The `llama3` rule's divisor of a frequency (in radians per token).
fn llama3_divisor(frequency: f64, factor: f64) -> f64 {
    let turns = ORIGINAL_MAX_POSITIONS * frequency / std::f64::consts::TAU;
    if turns > HIGH_FREQ_FACTOR {
        1.0
    } else if turns < LOW_FREQ_FACTOR {
        factor
    } else {
        let smooth = (turns - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR);
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}
